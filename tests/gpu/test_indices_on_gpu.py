"""Operators that take indices on a GPU: results and errors are those of the CPU, also for equal indices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from fake_driver import Machine
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.runtime.library import OutOfRangeError

Array = npt.NDArray[Any]
MODEL = """language 1
dim N in 0..40
model written(x: f32[7, 3], i: i64[N], u: f32[N, 3]) -> f32[7, 3] { return scatter(x, reshape(i, (N, 1)), u, axis=0) }
model added(x: i32[7, 3], i: i32[N], u: i32[N, 3]) -> i32[7, 3] { return scatter_add(x, reshape(i, (N, 1)), u, axis=0) }
model cells(x: f32[4, 5], i: i64[N, 2], u: f32[N]) -> f32[4, 5] { return scatter_nd(x, i, u) }
model sums(x: i64[4, 5], i: i64[N, 2], u: i64[N]) -> i64[4, 5] { return scatter_nd_add(x, i, u) }
model rows(x: f16[6, 3], i: i32[N]) -> f16[N, 3] { return gather(x, i, axis=0) }
model tokens(x: f32[6, 3], i: i32[N]) -> f32[N, 3] { return gather(x, i, axis=0, mode="nonnegative") }
model picked(x: f32[4, 5], i: i64[N, 2]) -> f32[N] { return gather_nd(x, i) }
model beside(x: f64[6, N], i: i64[2, N]) -> f64[2, N] { return take_along_axis(x, i, axis=0) }
model window(x: f32[9, 4], i: i64) -> f32[3, 4] { return dynamic_slice(x, i, 0, sizes=(3, 4)) }
model clamped(x: f32[7, 3], i: i64[N], u: f32[N, 3]) -> f32[7, 3] {
  at = reshape(i, (N, 1))
  return scatter(x, at, u, axis=0, mode="drop") + scatter_add(x, at, u, axis=0, mode="clamp")
}
"""
BOUNDS = {
    **dict.fromkeys(("written", "added"), (7,)),
    **dict.fromkeys(("cells", "sums", "picked"), (4, 5)),
    **dict.fromkeys(("rows", "tokens", "beside"), (6,)),
    **{"window": (7,), "clamped": ()},
}
"""The sizes that indices of an entry address, one number for each of their columns."""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("indices") / "indices.so"
    path.with_suffix(".nacre").write_text(MODEL)
    Build(read_model(path.with_suffix(".nacre")), Options(targets=parse_targets("native,cuda"))).run(path)
    return path


def make_arguments(model: nacre.Model, name: str, count: int) -> tuple[list[Array], int]:
    """Returns arguments with equal and with negative indices, and the position of the indices."""
    rng = np.random.default_rng(count)
    entry = next(entry for entry in model.describe()["entries"] if entry["name"] == name)
    made: list[Array] = []
    place = next(n for n, argument in enumerate(entry["arguments"]) if argument["name"] == "i")
    for argument in entry["arguments"]:
        shape = tuple(count if size == "N" else size for size in argument["shape"])
        dtype = {"f": "float", "i": "int"}[argument["dtype"][0]] + argument["dtype"][1:]
        if argument["name"] == "i":
            sizes = np.asarray(BOUNDS[name] or (7,))
            made.append(
                rng.integers(-sizes, sizes, shape if len(sizes) > 1 else (*shape, 1)).reshape(shape).astype(dtype)
            )
        else:
            made.append(rng.integers(-99, 99, shape).astype(dtype))
    return made, place


def call(model: nacre.Model, name: str, arguments: list[Array]) -> tuple[bytes, str]:
    """Returns the bits of the result, or the message of the error."""
    try:
        return np.asarray(model.entries[name](*arguments)).tobytes(), ""
    except OutOfRangeError as error:
        return b"", str(error)


@pytest.mark.parametrize("name", BOUNDS)
def test_results_and_errors_are_those_of_the_cpu(machine: Machine, artifact: Path, name: str) -> None:
    cpu, gpu = (nacre.load(artifact, device=device) for device in ("cpu", "cuda"))
    for count in (0, 1, 33):
        arguments, place = make_arguments(cpu, name, count)
        assert call(gpu, name, arguments) == call(cpu, name, arguments), count
        if not arguments[place].size:
            continue
        for outside in (30, -31, 1 << 30):
            arguments[place].flat[arguments[place].size // 2 :: 5] = outside
            bits, message = call(gpu, name, arguments)
            assert (bits, message) == call(cpu, name, arguments), (count, outside)
            assert bool(message) == bool(BOUNDS[name])
            if message:
                assert "is out of range for an axis of size" in message and "indices.nacre:" in message
    assert machine.launches and not machine.error


INDEX_NOTATION = """language 1
dim B in 1..64
dim N in 3..64
model indexed(x: f32[B, N], w: f32[3, N], ids: i64[B]) -> f32[B, 3], f32[B, N-2], f32[B, N], f32 {
  product[b, o] = sum(i) x[b, i] * w[o, i]
  filtered[b, i] = sum(k) x[b, i+k] * w[k, 0]
  moved[b, i] = x[b, i-1] if i > 0 else 0
  total = sum(b) x[ids[b], 0] ** 2
  return product, filtered, moved, total
}
"""


def test_index_notation(machine: Machine, tmp_path: Path) -> None:
    Build(read_model(INDEX_NOTATION), Options(targets=parse_targets("cuda:sm_80"))).run(tmp_path / "m.so")
    rng = np.random.default_rng(1)
    x, w, ids = rng.normal(size=(5, 11)).astype(np.float32), rng.normal(size=(3, 11)).astype(np.float32), np.arange(5)
    product, filtered, moved, total = map(
        np.asarray, nacre.load(tmp_path / "m.so", device="cuda")(x, w, ids[::-1].copy())
    )
    np.testing.assert_allclose(product, x @ w.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(filtered, sum(x[:, k : k + 9] * w[k, 0] for k in range(3)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(moved, np.pad(x, ((0, 0), (1, 0)))[:, :-1])
    np.testing.assert_allclose(total, np.sum(x[:, 0] ** 2), rtol=1e-6)
    assert not machine.error
