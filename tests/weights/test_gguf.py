"""GGUF checkpoints: every format gives the numbers of the package `gguf`, and damaged files give one diagnostic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf_bytes import Stored, gguf_bytes
from nacre.compiler.weights import open_checkpoint
from nacre.compiler.weights.gguf_file import open_gguf
from nacre.compiler.weights.gguf_header import FORMATS, BlockFormat
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.ops.block_quantization import dequantize_blocks
from nacre.dialect.types import F32

quants = pytest.importorskip("gguf.quants", reason="the package gguf is not installed")
constants = pytest.importorskip("gguf.constants")


def _random_blocks(format: BlockFormat, count: int) -> bytes:
    """Returns blocks of random bytes, infinities and NaN of scales included."""
    return np.random.default_rng(format.bytes).integers(0, 256, format.bytes * count).astype(np.uint8).tobytes()


@pytest.mark.parametrize("number", FORMATS)
@pytest.mark.parametrize("shape", [(3, 1280), (0, 256), (1, 256), (2, 0)])
def test_numbers_are_those_of_the_gguf_package(tmp_path: Path, number: int, shape: tuple[int, int]) -> None:
    format = FORMATS[number]
    data = _random_blocks(format, shape[0] * shape[1] // format.elements)
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes([Stored("w", shape, number, data)]))
    checkpoint = open_checkpoint(path)
    dtype, found_shape = checkpoint.info("w")
    assert dtype is not None and found_shape == shape
    array = checkpoint.read("w")
    if 0 in shape:
        assert array.size == 0
        return
    kind = constants.GGMLQuantizationType(number)
    rows = np.frombuffer(data, np.uint8).reshape(shape[0], -1)
    if dtype.is_integer or dtype.name == "f64":
        assert array.tobytes() == data
        return
    with np.errstate(all="ignore"):
        expected = quants.dequantize(rows, kind)
        floats = dequantize_blocks.reference(array, F32) if dtype.is_blocked else array.astype(np.float32)
    assert np.asarray(expected).dtype == np.float32
    numbers = ~np.isnan(expected)
    assert numbers.any()
    np.testing.assert_array_equal(np.isnan(floats), ~numbers)
    assert floats[numbers].tobytes() == expected[numbers].tobytes()


def test_every_exponent_of_mxfp4_with_every_value(tmp_path: Path) -> None:
    """The halves of the two least scales are denormal bf16 numbers; products with the greatest one are infinite."""
    blocks = np.empty((256, 17), np.uint8)
    blocks[:, 0] = np.arange(256)
    blocks[:, 1:] = np.arange(16) * 17
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes([Stored("w", (256, 32), 39, blocks.tobytes())]))
    with np.errstate(all="ignore"):
        floats = dequantize_blocks.reference(open_checkpoint(path).read("w"), F32)
        expected = quants.dequantize(blocks, constants.GGMLQuantizationType(39))
    assert floats.tobytes() == expected.tobytes()


@pytest.mark.parametrize("number", [3, 7])
def test_planes_with_minima_are_the_numbers(tmp_path: Path, number: int) -> None:
    data = _random_blocks(FORMATS[number], 12)
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes([Stored("w", (3, 128), number, data)]))
    opened = open_gguf(path)
    planes = opened.planes["w"]
    with np.errstate(all="ignore"):
        codes = np.asarray(dequantize_blocks.reference(opened.checkpoint.read(planes.quantized), F32))
        assert planes.minima is not None
        minima = opened.checkpoint.read(planes.minima).astype(np.float32)
        whole = codes.reshape(3, 4, 32) + minima[..., None]
        np.testing.assert_array_equal(whole.reshape(3, 128), opened.checkpoint.read("w"))


@pytest.mark.parametrize("number", [10, 11, 12, 13, 14])
@pytest.mark.parametrize("shape", [(3, 1280), (0, 256), (1, 256), (2, 0)])
def test_planes_with_scales_in_f32_are_the_numbers(tmp_path: Path, number: int, shape: tuple[int, int]) -> None:
    data = _random_blocks(FORMATS[number], shape[0] * shape[1] // FORMATS[number].elements)
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes([Stored("w", shape, number, data)]))
    opened = open_gguf(path)
    planes, read = opened.planes["w"], opened.checkpoint.read
    codes = read(planes.quantized)
    if codes.dtype != np.int8:
        codes = dequantize_blocks.reference(codes, F32).reshape(shape[0], shape[1] // planes.size, planes.size)
    with np.errstate(all="ignore"):
        numbers = codes.astype(np.float32) * read(str(planes.scales))[..., None]
        numbers += 0 if planes.minima is None else read(planes.minima)[..., None]
        expected = read("w")
    assert numbers.shape == (shape[0], shape[1] // planes.size, planes.size)
    np.testing.assert_array_equal(numbers.reshape(shape), expected)


def test_metadata_of_every_type(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    given = {"a": 3, "b": 0.5, "c": True, "d": "text", "e": ["x", "", "yz"], "f": [1, 2, 3], "g": [True, False]}
    path.write_bytes(gguf_bytes(metadata=given))
    metadata = open_gguf(path).header.metadata
    assert {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in metadata.items()} == given


def test_a_type_without_a_name_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes([Stored("w", (2, 32), 99, b"")]))
    with pytest.raises(DiagnosticError, match=r"tensor `w` of .* is type 99 of GGUF, which is not supported"):
        open_checkpoint(path).read("w")


F = 128 * b"\0"
BROKEN = {
    "empty": (b"", "it begins with b''"),
    "other": (b"GGML\3\0\0\0", "it begins with b'GGML', not with b'GGUF'"),
    "short": (b"GGUF\3", "it has 5 bytes, fewer than a header"),
    "version": (gguf_bytes(version=1), "version 1 of the format; versions 2 and 3"),
    "big-endian": (b"GGUF\0\0\0\3" + bytes(16), "its numbers are big-endian"),
    "no counts": (b"GGUF\3\0\0\0", "it ends inside the number of tensors"),
    "many tensors": (gguf_bytes(count=1 << 60), "it is said to have 1152921504606846976 tensors, more than fit"),
    "many pairs": (gguf_bytes(pairs=1 << 60), "it is said to have 1152921504606846976 pairs of metadata"),
    "long key": (gguf_bytes(pairs=1)[:24] + b"\xff" * 16, "it ends inside a key of the metadata"),
    "long array": (
        gguf_bytes(metadata={"a": [1, 2]}).replace(b"\2\0\0\0\0\0\0\0\1", b"\2\0\0\0\0\0\0\x7f\1"),
        "elements in `a`, more than fit",
    ),
    "unknown value": (gguf_bytes(metadata={"a": 1}).replace(b"a\4\0", b"a\x63\0"), "`a` has the unknown type 99"),
    "alignment": (gguf_bytes(metadata={"general.alignment": 3}), "the alignment 3 is not a multiple of 8"),
    "no alignment": (gguf_bytes(metadata={"general.alignment": "x"}), "the alignment 'x' is not a multiple"),
    "rank": (gguf_bytes([Stored("w", (1, 1, 1, 1, 1), 0, F)]), "tensor `w` has 5 axes, more than 4"),
    "name": (gguf_bytes([Stored("w" * 65, (1,), 0, F)]), "of a tensor has more than 64 bytes"),
    "outside": (gguf_bytes([Stored("w", (64,), 0, F)]), "tensor `w` is 256 bytes at 64, outside the file of 192 bytes"),
    "huge": (gguf_bytes([Stored("w", (1 << 63, 1 << 63), 0, F)]), "outside the file of 224 bytes"),
    "far": (gguf_bytes([Stored("w", (1,), 0, F, 1 << 62)]), "outside the file"),
    "unaligned": (gguf_bytes([Stored("w", (1,), 0, F, 8)]), "the offset 8 of tensor `w` is not a multiple of 32"),
    "part of a block": (gguf_bytes([Stored("w", (4, 33), 8, F)]), "rows of 33 in Q8_0, blocks of 32"),
    "twice": (gguf_bytes([Stored("w", (32,), 0, F), Stored("w", (32,), 0, F)]), "tensor `w` occurs twice"),
    "overlap": (
        gguf_bytes([Stored("v", (32,), 0, F), Stored("w", (16,), 0, F, 32)]),
        "tensor `w` overlaps tensor `v`",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(tmp_path: Path, name: str) -> None:
    data, message = BROKEN[name]
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with pytest.raises(DiagnosticError) as caught:
        open_checkpoint(path)
    assert message in str(caught.value)
    assert [d.code for d in caught.value.diagnostics] == ["checkpoint-broken"]


def test_a_file_cut_anywhere_is_a_diagnostic(tmp_path: Path) -> None:
    whole = gguf_bytes([Stored("v", (32,), 0, F), Stored("w", (4, 8), 0, F)], {"a": "text", "b": [1, 2], "c": ["x"]})
    path = tmp_path / "x.gguf"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(DiagnosticError):
            open_checkpoint(path)


def test_random_damage_is_a_diagnostic_or_a_file(tmp_path: Path) -> None:
    whole = gguf_bytes([Stored("v", (32,), 0, F), Stored("w", (4, 8), 0, F)], {"a": "text", "b": [1, 2], "c": ["x"]})
    rng = np.random.default_rng(0)
    path = tmp_path / "x.gguf"
    failed = 0
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[int(rng.integers(len(whole) - 256))] = int(rng.integers(256))
        path.write_bytes(damaged)
        try:
            open_checkpoint(path)
        except DiagnosticError:
            failed += 1
    assert failed > 100
