"""Checkpoints of every format give the same names, types and data."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import nacre
import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy
from nacre.compiler.weights import open_checkpoint
from nacre.dialect import types
from nacre.dialect.diagnostics import DiagnosticError

TENSORS: dict[str, npt.NDArray[Any]] = {
    "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "a.bias": np.array([1, -2, 3], np.float16),
    "ids": np.arange(5, dtype=np.int64),
    "flags": np.array([[True], [False]]),
    "scalar": np.array(3.5, np.float64),
    "empty": np.zeros((0, 4), np.int8),
    "brain": np.array([1.5, -0.25], ml_dtypes.bfloat16),
    "finite": np.array([1.5, -448, 2.0**-9], ml_dtypes.float8_e4m3fn),
    "upper": np.array([1.5, np.inf, 2.0**-16], ml_dtypes.float8_e5m2),
}


def write(tmp_path: Path, kind: str) -> Path:
    """Writes TENSORS in a format, and says what to open."""
    if kind == "safetensors":
        safetensors.numpy.save_file(TENSORS, tmp_path / "x.safetensors")
        return tmp_path / "x.safetensors"
    if kind == "folder":
        safetensors.numpy.save_file(TENSORS, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text("{}")
        return tmp_path
    if kind == "sharded":
        names = list(TENSORS)
        shards = {"one.safetensors": names[:3], "two.safetensors": names[3:]}
        for file, part in shards.items():
            # A shard may hold another tensor of the same name: the index tells which one counts.
            stale = {n: np.ones_like(TENSORS[n]) for n in ("a.weight", "flags") if n not in part}
            safetensors.numpy.save_file({n: TENSORS[n] for n in part} | stale, tmp_path / file)
        index = {"metadata": {}, "weight_map": {n: f for f, part in shards.items() for n in part}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
        return tmp_path
    save = np.savez if kind == "npz" else np.savez_compressed
    save(tmp_path / "x.npz", **TENSORS)  # type: ignore[arg-type]  # a keyword of numpy's own is a bool
    return tmp_path / "x.npz"


@pytest.mark.parametrize("kind", ["safetensors", "folder", "sharded", "npz", "compressed"])
def test_every_format_gives_the_same(tmp_path: Path, kind: str) -> None:
    checkpoint = open_checkpoint(write(tmp_path, kind))
    assert sorted(checkpoint.names()) == sorted(TENSORS)
    for name, expected in TENSORS.items():
        assert checkpoint.info(name) == (types.dtype_of(expected), expected.shape)
        got = checkpoint.read(name)
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        assert got.tobytes() == expected.tobytes()
        assert not got.flags.writeable and got.flags.aligned


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">i8", "?"])
def test_npy_in_any_order(tmp_path: Path, order: str, dtype: str) -> None:
    expected = np.asarray(np.arange(6).reshape(2, 3).astype(dtype), order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "ids.npy", expected)
    checkpoint = open_checkpoint(tmp_path / "ids.npy")
    assert checkpoint.names() == ("ids",)
    assert np.array_equal(checkpoint.read("ids"), expected)
    assert checkpoint.read("ids").dtype.isnative


def test_large_tensors_are_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(1000, np.float32))
    array = open_checkpoint(tmp_path / "x.npy").read("x")
    assert isinstance(array.base, np.memmap)


def test_a_missing_tensor_lists_the_closest(tmp_path: Path) -> None:
    tensor = np.zeros(1, np.float32)
    names = ["bert.encoder.layer.0.weight", "bert.encoder.layer.1.weight", "pooler.bias"]
    safetensors.numpy.save_file(dict.fromkeys(names, tensor), tmp_path / "x.safetensors")
    checkpoint = open_checkpoint(tmp_path / "x.safetensors")
    assert checkpoint.closest("encoder.layer.1.weight", 1) == ["bert.encoder.layer.1.weight"]
    assert checkpoint.closest("poler.bias") == ["pooler.bias"]
    assert checkpoint.closest("zzz") == []
    with pytest.raises(DiagnosticError, match=r"has no tensor `encoder.layer.0.weight`(.|\n)*closest names are `bert"):
        checkpoint.read("encoder.layer.0.weight")


def test_a_dtype_that_nacre_lacks_is_named_when_read(tmp_path: Path) -> None:
    header = json.dumps({"x": {"dtype": "F8_E8M0", "shape": [2], "data_offsets": [0, 2]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    checkpoint = open_checkpoint(tmp_path / "x.safetensors")
    assert checkpoint.info("x") == (None, (2,))
    with pytest.raises(DiagnosticError, match=r"tensor `x` .* is F8_E8M0, which is not supported"):
        checkpoint.read("x")


def test_a_checkpoint_of_another_model_is_one_error() -> None:
    names = [f"layer{i}" for i in range(9)]
    text = "model m(x: f32[3]) -> f32[3] {\n" + "".join(f"  param {name}: f32[3]\n" for name in names)
    text += f"  return x * {' * '.join(names)}\n}}"
    with pytest.raises(DiagnosticError) as caught:
        nacre.compile(text, weights={"other": np.ones(3, np.float32)})
    (error,) = caught.value.diagnostics
    assert error.message == "`<memory>` has no tensor `layer0`, `layer1`, `layer2` and 6 more"
    assert error.label == "9 of 9 parameters are missing" and "its first key is `other`" in error.help
