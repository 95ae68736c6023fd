"""Attention to a cache on a GPU: each row has an end of its own, and tiles of keys behind those of a block's rows are
not read."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from assembler import check_assembly
from fake_driver import Machine, kernels_of
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from test_device_tensors import Interface
from test_flash_attention import softmax

Array = npt.NDArray[Any]
TILE = 64
"""The keys of a tile of 16-bit numbers; two tiles of f32 have as many."""
MASKED = """
  weights = softmax(mask_after(scores, n, fill=-inf, mode="clamp"))
  return weights @ mask_after(v, n, axis=-2, mode="clamp")
}
"""
SOURCE = f"""language 1
dim T in 0..200
dim S in 0..1100
model after(q: f32[2, 2, T, 32], k: f32[2, 32, S], v: f32[2, S, 24], at: i64) -> f32[2, 2*T, 24] {{
  n = at + T
  ends = at + (iota((2 * T,), dtype=i64) % T)[None, :] + 1
  scores = mask_after(rearrange(q, "k g n d -> k (g n) d") @ k, ends, fill=-inf, mode="clamp"){MASKED}
model listed(q: f16[1, T, 64], k: f16[1, S, 64], v: f16[1, S, 64], ends: i64[1, T], n: i64) -> f16[1, T, 64] {{
  scores = mask_after(q @ k.mT * 0.125, ends, fill=-inf, mode="clamp"){MASKED}
model exact(q: f32[1, T, 64], k: f32[1, S, 64], v: f32[1, S, 64], ends: i64[1, T], n: i64) -> f32[1, T, 64] {{
  scores = mask_after(q @ k.mT * 0.125, ends, fill=-inf, mode="clamp"){MASKED}
model few(q: f32[1, 3, 64], k: f32[1, S, 64], v: f32[1, S, 64], ends: i64[1, 3], n: i64) -> f32[1, 3, 64] {{
  scores = mask_after(q @ k.mT * 0.125, ends, fill=-inf, mode="clamp"){MASKED}
model first(q: f16[1, T, 64], k: f16[1, S, 64], v: f16[1, S, 64]) -> f16[1, T, 64] {{
  keep = iota((1, S), axis=1) <= iota((T, 1), axis=0)
  return softmax(where(keep, q @ k.mT * 0.125, -inf)) @ v
}}
model near(q: f16[1, T, 64], k: f16[1, S, 64], v: f16[1, S, 64], ends: i64[1, T], n: i64) -> f16[1, T, 64] {{
  scores = mask_after(q @ k.mT * 0.125, ends, fill=-3.0, mode="clamp"){MASKED}
"""
LISTED = ("listed", "exact", "few", "near")
ROWS = {"few": 3}
"""The rows of an entry in which they are the same in each call."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("ends") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


def length(number: Array | int, size: int) -> Array:
    """The length that a number means within an axis of a size: negative ones count from the end."""
    wide = np.asarray(number, np.int64)
    return np.clip(np.where(wide < 0, wide + size, wide), 0, size)


def reference(q: Array, k: Array, v: Array, ends: Array, n: int, *, low: float = -np.inf) -> Array:
    """The results in f64, for keys along the last axis."""
    keys, size = np.arange(v.shape[1]), v.shape[1]
    scores = np.where(keys < length(ends, size)[:, None], q.astype(np.float64) @ k.astype(np.float64), low)
    inside = keys < length(n, size)
    return softmax(np.where(inside, scores, -np.inf)) @ np.where(inside[:, None], v.astype(np.float64), 0.0)


def tensors(name: str, rows: int, size: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(rows + size)
    shapes = (1, rows, 64), (1, size, 64), (1, size, 64)
    dtype = np.float16 if name in ("listed", "first", "near") else np.float32
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    return q, k, v


def check(result: object, expected: Array) -> None:
    array = np.asarray(result)
    assert np.array_equal(np.isnan(array), np.isnan(expected))
    # Scores of f16 are sums that are rounded once, and so are results.
    tolerance = 0.004 if array.dtype == np.float16 else 4e-6
    assert np.nanmax(np.abs(array.astype(np.float64) - expected), initial=0) <= tolerance


def test_rows_after_others(machine: Machine, built: tuple[Build, Path]) -> None:
    """The rows of two heads are one axis: a block may have rows of both."""
    model, rng = nacre.load(built[1], device="cuda"), np.random.default_rng(1)
    for rows, size, at in ((1, 300, 0), (7, 257, 250), (40, 90, 50), (70, 600, 63), (130, 130, 0), (3, 0, 0)):
        q = rng.standard_normal((2, 2, rows, 32)).astype(np.float32)
        k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 32, size), (2, size, 24)))
        result = model.entries["after"](q, k, v, np.asarray(at))
        assert not machine.error
        ends = at + np.tile(np.arange(rows), 2) + 1
        check(result, reference(q.reshape(2, 2 * rows, 32), k, v, ends, at + rows))


@pytest.mark.parametrize("name", LISTED)
def test_rows_without_order(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    model, rng = nacre.load(built[1], device="cuda"), np.random.default_rng(2)
    for n in (600, 300, 1, 0):
        rows, size = ROWS.get(name, 70), 600
        q, k, v = tensors(name, rows, size)
        ends = rng.integers(-700, 700, rows)
        ends[: rows // 3] = rng.integers(0, 9, rows // 3)
        ends[-1] = 0
        result = model.entries[name](q, k, v, ends[None], np.asarray(n))
        assert not machine.error
        turned = k.swapaxes(-1, -2)
        scaled = q.astype(np.float64) * 0.125
        check(result, reference(scaled, turned, v, ends, n, low=-3.0 if name == "near" else -np.inf))


class PartlyWritten(Interface):
    """A tensor in which only a range of keys, along the second axis, was written. The machine reports a read of any
    other element."""

    def __init__(self, machine: Machine, array: Array, written: range) -> None:
        self.written = written
        super().__init__(machine, array)

    def copy(self, *, to_device: bool) -> Array:
        assert to_device
        batch, keys = self.host.shape[:2]
        each = self.host.nbytes // (batch * keys)
        for element in range(batch):
            begin, count = each * (element * keys + self.written.start), each * len(self.written)
            target, source = ctypes.c_uint64(self.address + begin), ctypes.c_void_p(self.host.ctypes.data + begin)
            self.call("cuMemcpyHtoDAsync_v2", target, source, ctypes.c_size_t(count), None)
        return self.host


@pytest.mark.parametrize(("name", "rows"), [("listed", 130), ("exact", 130), ("few", 3), ("first", TILE)])
def test_keys_behind_the_ends_are_not_read(machine: Machine, built: tuple[Build, Path], name: str, rows: int) -> None:
    model, size = nacre.load(built[1], device="cuda"), 1024
    q, k, v = tensors(name, rows, size)
    ends = np.minimum(np.arange(rows) + 1, TILE)
    given = [] if name == "first" else [ends[None], np.asarray(size)]
    device = [PartlyWritten(machine, each, range(TILE)) for each in (k, v)]
    result = model.entries[name](q, *device, *given)
    assert not machine.error
    check(result, reference(q.astype(np.float64) * 0.125, k.swapaxes(-1, -2), v, ends, size))
    for tensor in device:
        tensor.release()


def test_code_is_assembled_without_spills(built: tuple[Build, Path], assembled: Path) -> None:
    check_assembly(built[1], assembled, "sm_80", "sm_90")


@pytest.mark.parametrize(
    ("name", "pattern", "replacement"),
    [
        ("listed", r"shfl\.sync\.bfly\.b32 (.*), 16, 31, -1;", r"shfl.sync.bfly.b32 \1, 8, 31, -1;"),
        ("listed", r"max\.u32", "min.u32"),
    ],
)
def test_planted_fault_is_found(
    machine: Machine, built: tuple[Build, Path], name: str, pattern: str, replacement: str
) -> None:
    """With ends of other lanes, so that warps leave the loop apart or too soon, and with the least end."""
    machine.plant(pattern, replacement, kernels_of(built[0], name))
    model = nacre.load(built[1], device="cuda")
    q, k, v = tensors(name, 64, 600)
    ends = np.where(np.arange(64) % 32 == 16, 400, 5)
    try:
        result = np.asarray(model.entries[name](q, k, v, ends[None], np.asarray(600)))
    except nacre.NacreError:
        assert machine.error
        return
    expected = reference(q.astype(np.float64) * 0.125, k.swapaxes(-1, -2), v, ends, 600)
    assert not np.max(np.abs(result - expected)) <= 0.01
