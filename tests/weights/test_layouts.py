"""Tensors of every format, dtype, order and size come as they were written, also under a declared transpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from gguf_bytes import Stored, gguf_bytes
from nacre.compiler.model.parameters import open_parameters
from nacre.compiler.readers.language import load_module
from nacre.compiler.weights import open_arrays, open_checkpoint

Tensors = Mapping[str, Any]


def write_safetensors(path: Path, tensors: Tensors) -> Path:
    # The format has one order; its writer takes no other.
    safetensors.numpy.save_file(
        {n: np.ascontiguousarray(a).reshape(a.shape) for n, a in tensors.items()}, path / "x.safetensors"
    )
    return path / "x.safetensors"


def write_npz(save: Callable[..., None]) -> Callable[[Path, Tensors], Path]:
    def write(path: Path, tensors: Tensors) -> Path:
        save(path / "x.npz", **tensors)
        return path / "x.npz"

    return write


FORMATS: Mapping[str, Callable[[Path, Tensors], Path]] = {
    "safetensors": write_safetensors,
    "npz": write_npz(np.savez),
    "compressed npz": write_npz(np.savez_compressed),
}
DTYPES = [
    *map(np.dtype, ("f2", "f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?")),
    *map(np.dtype, (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)),
]
SHAPES = [(), (1,), (7,), (3, 5), (1, 9), (5, 1), (2, 3, 5), (3, 3, 3), (0, 4), (3, 0, 2), (33, 17)]


def arrays(dtype: np.dtype[Any], order: Any) -> Tensors:
    """Numbers that are all different, as far as the dtype has so many; those of f64 are no f32."""
    made: dict[str, Any] = {}
    for shape in SHAPES:
        numbers = np.arange(np.prod(shape, dtype=int))
        drawn = numbers + 1 / 3 if dtype.kind == "f" else numbers % 2 == 1 if dtype.kind == "b" else numbers % 101
        made["x".join(map(str, shape)) or "scalar"] = np.asarray(drawn.reshape(shape).astype(dtype), order=order)
    return made


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("format", FORMATS)
def test_every_dtype_and_shape(tmp_path: Path, format: str, order: str) -> None:
    for dtype in DTYPES:
        tensors = arrays(dtype, order)
        checkpoint = open_checkpoint(FORMATS[format](tmp_path, tensors))
        for name, expected in tensors.items():
            got = checkpoint.read(name)
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (dtype, name)
            assert got.tobytes() == expected.tobytes(), (dtype, name)


@pytest.mark.parametrize("order", ["C", "F"])
def test_every_dtype_and_shape_in_npy(tmp_path: Path, order: str) -> None:
    for dtype in DTYPES:
        for name, expected in arrays(dtype, order).items():
            np.save(tmp_path / "x.npy", expected)
            got = open_checkpoint(tmp_path / "x.npy").read("x")
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (dtype, name)
            assert got.tobytes() == expected.tobytes(), (dtype, name)


@pytest.mark.parametrize("order", ["C", "F"])
def test_every_dtype_and_shape_in_memory(order: str) -> None:
    """Also every second element from the end, and bytes in the opposite order."""
    for dtype in DTYPES:
        tensors = dict(arrays(dtype, order))
        tensors |= {f"{name} turned": array[tuple(np.s_[::-2] for _ in array.shape)] for name, array in tensors.items()}
        other = dtype.newbyteorder() if dtype.isbuiltin == 1 else dtype
        swapped = {f"{name} swapped": array.astype(other) for name, array in tensors.items()}
        checkpoint = open_arrays({**tensors, **swapped})
        for name in (*tensors, *swapped):
            expected, got = tensors[name.removesuffix(" swapped")], np.asarray(checkpoint.read(name))
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (dtype, name)
            assert got.tobytes() == expected.tobytes(), (dtype, name)


GGUF = {"f4": 0, "f2": 1, "i1": 24, "i2": 25, "i4": 26, "i8": 27, "f8": 28, "bfloat16": 30}
"""The numbers of dtypes in a GGUF file, whose sizes stand in the opposite order."""


def test_every_dtype_and_shape_in_gguf(tmp_path: Path) -> None:
    for dtype in (np.dtype(name) if name != "bfloat16" else np.dtype(ml_dtypes.bfloat16) for name in GGUF):
        tensors = {name: array for name, array in arrays(dtype, "C").items() if array.ndim}
        number = GGUF["bfloat16" if dtype == ml_dtypes.bfloat16 else dtype.str[1:]]
        stored = [Stored(name, array.shape, number, array.tobytes()) for name, array in tensors.items()]
        (tmp_path / "x.gguf").write_bytes(gguf_bytes(stored))
        checkpoint = open_checkpoint(tmp_path / "x.gguf")
        for name, expected in tensors.items():
            got = checkpoint.read(name)
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (dtype, name)
            assert got.tobytes() == expected.tobytes(), (dtype, name)


MODEL = """language 1

block Block(x: f32[1]) -> f32[1] {{
  param weight: {dtype}[{shape}] transpose {order}
  return x
}}

model f(x: f32[1]) -> f32[1] {{
  weights "{file}"
  use block = Block
  return block(x) + cast(sum(block.weight), f32)
}}
"""


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("stored", [(2, 3, 5), (3, 3, 3)])
def test_a_transposed_parameter(tmp_path: Path, format: str, stored: tuple[int, ...]) -> None:
    """Axis i of a parameter is the axis of the checkpoint that `transpose` names in its place."""
    data = np.asarray(np.arange(np.prod(stored)).reshape(stored) / 3, order="F")
    file = FORMATS[format](tmp_path, {"block.weight": data})
    for order in permutations(range(3)):
        shape = ", ".join(str(stored[axis]) for axis in order)
        text = MODEL.format(dtype="f64", shape=shape, order=", ".join(map(str, order)), file=file)
        source_model = load_module(text, text=True)
        (parameter,) = source_model.module.parameters
        expected = np.empty(parameter.type.shape)
        for place in np.ndindex(*stored):
            expected[tuple(place[axis] for axis in order)] = data[place]
        assert np.array_equal(open_parameters(source_model)(parameter), expected), order
