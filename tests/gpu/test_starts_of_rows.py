"""Attention with a sliding window on a GPU: each row has a start of its own, and tiles of keys before the starts of a
block's rows are not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from assembler import check_assembly
from fake_driver import Machine, kernels_of, schedules_of
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.targets.target import parse_targets
from test_ends_of_rows import TILE, PartlyWritten, check, length
from test_flash_attention import softmax

Array = npt.NDArray[Any]
Built = tuple[Build, Path, str]
"""A build, the path of its artifact, and the precision of products of f32."""
MASKED = """
  scores = mask_before(scores, starts, fill=-inf, mode="clamp")
  scores = mask_before(mask_after(scores, ends, fill=-inf, mode="clamp"), start, fill=-inf, mode="clamp")
  weights = softmax(mask_after(scores, n, fill=-inf, mode="clamp"))"""
VALUES = 'mask_after(mask_before({v}, start, axis=-2, mode="clamp"), n, axis=-2, mode="clamp")'
HEADS = {"one": 2}
"""The heads of an entry with several."""
ROWS = "starts: i64[1, {t}], ends: i64[1, {t}], start: i64, n: i64"


def model(name: str, dtype: str, rows: str = "T", heads: int = 1, *, turned: bool = False) -> str:
    """Attention with bounds of rows that are arguments; values are perhaps contiguous along the keys."""
    values = f"{heads}, 64, S" if turned else f"{heads}, S, 64"
    shapes = f"q: {dtype}[{heads}, {rows}, 64], k: {dtype}[{heads}, S, 64], v: {dtype}[{values}], {ROWS.format(t=rows)}"
    return f"""model {name}({shapes}) -> {dtype}[{heads}, {rows}, 64] {{
  scores = q @ k.mT * 0.125{MASKED}
  return weights @ {VALUES.format(v="v.mT" if turned else "v")}
}}
"""


SOURCE = f"""language 1
dim T in 0..200
dim S in 0..4100
model window(q: f32[2, 2, T, 32], k: f32[2, 32, S], v: f32[2, S, 24], at: i64, width: i64) -> f32[2, 2*T, 24] {{
  n = at + T
  position = at + (iota((2 * T,), dtype=i64) % T)[None, :]
  starts, ends, start = (maximum(position + 1 - width, 0), position + 1, maximum(at + 1 - width, 0))
  scores = rearrange(q, "k g n d -> k (g n) d") @ k{MASKED}
  return weights @ {VALUES.format(v="v")}
}}
model bytes(
  q: f32[2, 4, 32], k: i8[2, 32, S], v: i8[2, S, 32], starts: i64[1, 4], start: i64, n: i64,
  ks: f32[2, 1, S], vs: f32[2, 1, S]
) -> f32[2, 4, 32] {{
  scores = mask_before(q @ cast(k, f32) * ks, starts, fill=-inf, mode="clamp")
  scores = mask_before(scores, start, fill=-inf, mode="clamp")
  shares = softmax(mask_after(scores, n, fill=-inf, mode="clamp")) * vs
  shares = mask_after(mask_before(shares, start, mode="clamp"), n, mode="clamp")
  return shares @ {VALUES.format(v="cast(v, f32)")}
}}
{model("listed", "f16")}{model("turned", "f16", turned=True)}{model("exact", "f32")}{model("few", "f32", "3")}
{model("one", "f16", "1", HEADS["one"])}
model first(q: f16[1, T, 64], k: f16[1, S, 64], v: f16[1, S, 64], starts: i64[1, T]) -> f16[1, T, 64] {{
  keep = iota((1, S), axis=1) <= iota((T, 1), axis=0)
  scores = where(keep, q @ k.mT * 0.125, -65504.0)
  return softmax(mask_before(scores, starts, fill=-inf, mode="clamp")) @ v
}}
"""
LISTED = ("listed", "turned", "exact", "few", "one")
COUNTS = {"few": 3, "one": 1}
"""The rows of an entry in which they are the same in each call."""


@pytest.fixture(scope="module", params=["f32", "tf32"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The artifact with exact products of f32, and with those of tensor cores."""
    path = tmp_path_factory.mktemp("starts") / "model.so"
    build = Build(in_precision(read_model(SOURCE), request.param), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path, request.param


def reference(q: Array, k: Array, v: Array, starts: Array, ends: Array, start: int, n: int) -> Array:
    """The results in f64, for keys along the last axis."""
    size = v.shape[1]
    keys, begin, end = np.arange(size), length(start, size), length(n, size)
    keep = (keys >= length(starts, size)[..., None]) & (keys < length(ends, size)[..., None])
    inside = (keys >= begin) & (keys < end)
    scores = np.where(keep & inside, q.astype(np.float64) @ k.astype(np.float64), -np.inf)
    return softmax(scores) @ np.where(inside[:, None], v.astype(np.float64), 0.0)


def compare(built: Built, result: object, expected: Array) -> None:
    """Factors of tf32 have 11 bits; weights and values are rounded once each."""
    if built[2] == "tf32" and np.asarray(result).dtype == np.float32:
        assert np.array_equal(np.isnan(np.asarray(result)), np.isnan(expected))
        assert np.nanmax(np.abs(np.asarray(result) - expected), initial=0) <= 0.02
        return
    check(result, expected)


def tensors(name: str, rows: int, size: int, start: int, n: int) -> tuple[Array, Array, Array]:
    """Queries, keys and values; what is masked for all rows is not a number."""
    rng = np.random.default_rng(rows + size)
    dtype = np.float32 if name in ("exact", "few") else np.float16
    q, k, v = (rng.standard_normal((HEADS.get(name, 1), count, 64)).astype(dtype) for count in (rows, size, size))
    v[:, : length(start, size)], v[:, length(n, size) :] = np.nan, np.inf
    k[:, : length(start, size)], k[:, length(n, size) :] = np.nan, np.inf
    return q, k, v


def test_windows_after_a_cache(machine: Machine, built: Built) -> None:
    """The rows of two heads are one axis: a block may have rows of both. Queries come one by one, and in chunks."""
    model, rng = nacre.load(built[1], device="cuda"), np.random.default_rng(1)
    for rows, size, at, width in (
        *((1, 300, 0, 1), (1, 300, 299, 7), (1, 1100, 1050, 300), (7, 257, 250, 33), (40, 600, 500, 130)),
        *((70, 600, 63, 5), (130, 130, 0, 64), (3, 600, 400, 10000), (2, 90, 80, 0), (3, 0, 0, 4), (0, 5, 2, 1)),
    ):
        q = (rng.standard_normal((2, 2, rows, 32)) * 0.25).astype(np.float32)
        k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 32, size), (2, size, 24)))
        start = max(at + 1 - width, 0)
        v[:, :start], v[:, at + rows :] = np.nan, np.inf
        result = model.entries["window"](q, k, v, np.asarray(at), np.asarray(width))
        assert not machine.error
        position = at + np.tile(np.arange(rows), 2)
        starts = np.maximum(position + 1 - width, 0)
        expected = reference(q.reshape(2, 2 * rows, 32), k, v, starts, position + 1, start, at + rows)
        compare(built, result, expected)


@pytest.mark.parametrize("name", LISTED)
def test_rows_without_order(machine: Machine, built: Built, name: str) -> None:
    model, rng = nacre.load(built[1], device="cuda"), np.random.default_rng(2)
    for start, n in ((0, 600), (129, 600), (1, 300), (300, 300), (600, 600), (590, -3), (64, 0)):
        rows, size = COUNTS.get(name, 70), 600
        q, k, v = tensors(name, rows, size, start, n)
        starts, ends = rng.integers(-700, 600, rows), rng.integers(200, 700, rows)
        starts[-1] = 40
        if rows > 1:
            starts[0] = 599
        given = v if name != "turned" else np.ascontiguousarray(v.swapaxes(-1, -2))
        result = model.entries[name](q, k, given, starts[None], ends[None], np.asarray(start), np.asarray(n))
        assert not machine.error
        scaled = q.astype(np.float64) * 0.125
        with np.errstate(invalid="ignore"):
            compare(built, result, reference(scaled, k.swapaxes(-1, -2), v, starts, ends, start, n))


def test_masked_shares(machine: Machine, built: Built) -> None:
    """Shares are 0 before the start, whatever the scales there are, and in rows without keys."""
    model, rng = nacre.load(built[1], device="cuda"), np.random.default_rng(3)
    for size, start, n in ((1100, 900, 1000), (600, 7, 599), (600, 64, 65), (600, 599, 600), (40, 9, 9), (40, 0, 0)):
        q = (rng.standard_normal((2, 4, 32)) * 0.25).astype(np.float32)
        k, v = (rng.integers(-127, 128, shape).astype(np.int8) for shape in ((2, 32, size), (2, size, 32)))
        ks, vs = (rng.uniform(0, 0.01, (2, 1, size)).astype(np.float32) for _ in range(2))
        vs[..., :start], vs[..., n:] = np.nan, np.inf
        starts = np.minimum(np.array([0, start, start + 5, n - 1]), max(n - 1, 0))
        given = starts[None], np.asarray(start), np.asarray(n), ks, vs
        result = model.entries["bytes"](q, k, v, *given)
        assert not machine.error
        ends = np.full(4, n)
        values = v * np.where((np.arange(size) >= start) & (np.arange(size) < n), vs, 0.0).swapaxes(-1, -2)
        expected = np.zeros((2, 4, 32))
        if start < n:
            expected = reference(q, k * ks.astype(np.float64), values, starts, ends, start, n)
        compare(built, result, expected)


@pytest.mark.parametrize("rows", [1, 67, 130])
def test_starts_and_a_causal_mask(machine: Machine, built: Built, rows: int) -> None:
    """Masked scores are finite here: a row whose start is behind its own key sees keys that the mask excludes."""
    model = nacre.load(built[1], device="cuda")
    for size in (rows, 300, 1):
        q, k, v = tensors("first", rows, size, 0, size)
        starts = np.maximum(np.arange(rows) - 20, 0)
        starts[rows // 2] = size - 1
        result = model.entries["first"](q, k, v, starts[None])
        assert not machine.error
        keys = np.arange(size)
        scores = np.where(keys <= np.arange(rows)[:, None], q.astype(np.float64) @ k.swapaxes(-1, -2) * 0.125, -65504.0)
        keep = keys >= np.minimum(starts, size)[:, None]
        compare(built, result, softmax(np.where(keep, scores, -np.inf)) @ v.astype(np.float64))


@pytest.mark.parametrize(("name", "rows"), [("listed", 130), ("exact", 130), ("few", 3), ("one", 1)])
def test_keys_before_the_starts_are_not_read(machine: Machine, built: Built, name: str, rows: int) -> None:
    """Of 4096 keys, those of the tiles with a window of 512 alone are in memory."""
    model, size, width = nacre.load(built[1], device="cuda"), 4096, 512
    position = size - rows + np.arange(rows)
    starts, start = position + 1 - width, size - rows + 1 - width
    q, k, v = tensors(name, rows, size, start, size)
    written = range(start // TILE * TILE, size)
    with np.errstate(invalid="ignore"):
        turned = k.swapaxes(-1, -2)
        expected = reference(q.astype(np.float64) * 0.125, turned, v, starts, position + 1, start, size)
    # The least start of the rows bounds the keys by itself too.
    for least in (start, 0):
        if least == 0:
            v[:, :start] = 0
        device = [PartlyWritten(machine, each, written) for each in (k, v)]
        given = starts[None], position[None] + 1, np.asarray(least), np.asarray(size)
        result = model.entries[name](q, *device, *given)
        assert not machine.error
        compare(built, result, expected)
        for tensor in device:
            tensor.release()


def test_code_is_assembled_without_spills(built: Built, assembled: Path) -> None:
    check_assembly(built[1], assembled, "sm_80", "sm_90")
    for name in ("window", "bytes", "first", *LISTED):
        assert any(each.startswith("flash attention") for each in schedules_of(built[0], name)), name


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"min\.u32", "max.u32"),
        (r"st\.shared\.b16", "// "),
    ],
)
def test_planted_fault_is_found(machine: Machine, built: Built, pattern: str, replacement: str) -> None:
    """With the greatest start of the rows, and with values before the start that are not cleared."""
    machine.plant(pattern, replacement, kernels_of(built[0], "listed"))
    model = nacre.load(built[1], device="cuda")
    q, k, v = tensors("listed", 64, 600, 100, 600)
    starts, ends = np.where(np.arange(64) % 32 == 16, 100, 500), np.full(64, 600)
    result = np.asarray(model.entries["listed"](q, k, v, starts[None], ends[None], np.asarray(100), np.asarray(600)))
    with np.errstate(invalid="ignore"):
        expected = reference(q.astype(np.float64) * 0.125, k.swapaxes(-1, -2), v, starts, ends, 100, 600)
    assert not np.max(np.abs(result - expected)) <= 0.01
