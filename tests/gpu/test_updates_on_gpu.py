"""Loops that write elements run in many threads: tokens that a call adds to a cache, rows of a gradient, trees."""

from __future__ import annotations

import gc
from pathlib import Path

import nacre
import numpy as np
import pytest
from assembler import check_assembly
from fake_driver import Machine, kernels_of, schedules_of
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets

SOURCE = """language 1
dim S in 1..40
dim T in 0..40
dim N in 0..20000
model rows(x: f32[2, T, 36], at: i64) -> f32[2, S, 36] {
  state kept: f32[2, S, 36]
  kept[:, at:at+T] = x
  return kept
}
model columns(x: f16[3, 9, 1], at: i64) -> f16[3, 9, S] {
  state turned: f16[3, 9, S]
  turned[:, :, at:at+1] = x
  return turned
}
model copied(x: f32[7, 20], y: f32[3, 9], i: i64, j: i64) -> f32[7, 20] { return dynamic_update_slice(x, y, i, j) }
model repeated(x: f32[5, 4], at: i64[T, 1], y: f32[T, 4]) -> f32[5, 4] { return scatter_nd(x, at, y) }
model rows_added(x: f32[50, 36], at: i64[T, 1], y: f32[T, 36]) -> f32[50, 36] { return scatter_add(x, at, y) }
model places(x: f16[5, S], at: i64[T, 2], y: f16[T]) -> f16[5, S] { return scatter_nd_add(x, at, y, mode="drop") }
model along(x: i32[S, 3, 7], at: i64[S, 3, T], y: i32[S, 3, T]) -> i32[S, 3, 7] { return scatter(x, at, y, axis=-1) }
model counted(x: i64[T]) -> i64[9] { return bincount(x, size=9) }
model factored(x: f32[T, 5, 5]) -> f32[T, 5, 5] { return cholesky(x) }
model three(x: f32[3, 5, 5]) -> f32[3, 5, 5] { return cholesky(x) }
model solved(x: f32[T, 5, 5], y: f32[T, 5, 3]) -> f32[T, 5, 3] { return triangular_solve(x, y) }
model inverted(x: f32[T, 5, 5]) -> f32[T, 5, 5] { return inverse(x) }
model summed(v: f32[3, 4, 2], leaves: i32[3, N], first: f32[2]) -> f32[N, 2] { return tree_sum(v, leaves, first) }
model singular(x: f32[T, 5, 5]) -> s: f32[T, 5] {
  u, s, vh = svd(x)
  return s
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("updates") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


@pytest.mark.parametrize("name", ["rows", "columns", "copied", "repeated", "rows_added", "places", "along", "counted"])
def test_schedules(built: tuple[Build, Path], name: str) -> None:
    found = schedules_of(built[0], name)
    assert any(each.startswith("updates of 256 threads") for each in found) and not any(
        "sequence" in each for each in found
    )


@pytest.mark.parametrize("name", ["factored", "solved", "inverted", "singular"])
def test_matrices_of_a_batch_have_threads(built: tuple[Build, Path], name: str) -> None:
    found = schedules_of(built[0], name)
    assert "loops of 64 threads, 4 blocks" in found and not any("sequence" in each for each in found)


def test_loops_of_few_threads_have_a_reason(built: tuple[Build, Path]) -> None:
    expected = "loops of 64 threads, 4 blocks: 3 threads can run the loops, fewer than those of a warp"
    assert expected in schedules_of(built[0], "three")


@pytest.mark.parametrize("count", [0, 1, 33])
def test_matrices(machine: Machine, built: tuple[Build, Path], count: int) -> None:
    entries = nacre.load(built[1], device="cuda").entries
    rng = np.random.default_rng(count)
    roots, y = (rng.normal(size=(count, 5, n)).astype(np.float32) for n in (5, 3))
    positive = roots @ roots.swapaxes(1, 2) + 5 * np.eye(5, dtype=np.float32)
    lower = np.linalg.cholesky(positive.astype(np.float64))
    np.testing.assert_allclose(entries["factored"](positive), lower, rtol=1e-5, atol=1e-5)
    solution = np.linalg.solve(lower, y.astype(np.float64))
    np.testing.assert_allclose(entries["solved"](lower.astype(np.float32), y), solution, rtol=1e-5, atol=1e-5)
    inverses = np.linalg.inv(positive.astype(np.float64))
    np.testing.assert_allclose(entries["inverted"](positive), inverses, rtol=1e-4, atol=1e-5)
    values = np.linalg.svd(roots.astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(entries["singular"](roots), values, rtol=1e-4, atol=1e-5)
    assert not machine.error


def test_blocks_of_rows_have_threads(machine: Machine, built: tuple[Build, Path]) -> None:
    """A thread adds the values of 256 rows in one column."""
    rng, entry = np.random.default_rng(5), nacre.load(built[1], device="cuda").entries["summed"]
    v, first = rng.normal(size=(3, 4, 2)).astype(np.float32), np.ones(2, np.float32)
    for rows in (0, 1, 256 * 64 + 3):
        leaves = rng.integers(0, 4, (3, rows)).astype(np.int32)
        expected = first + v[0, leaves[0]] + v[1, leaves[1]] + v[2, leaves[2]]
        np.testing.assert_array_equal(entry(v, leaves, first), expected)
        assert not machine.error
    assert machine.blocks == 3


def test_code_is_assembled_without_spills(built: tuple[Build, Path], assembled: Path) -> None:
    check_assembly(built[1], assembled, "sm_80", "sm_90")


@pytest.mark.parametrize("tokens", [0, 1, 7, 33])
def test_rows(machine: Machine, built: tuple[Build, Path], tokens: int) -> None:
    session = nacre.load(built[1], device="cuda").session(S=37)
    expected = np.zeros((2, 37, 36), np.float32)
    for at in (3, 1):
        x = np.random.default_rng(at).normal(size=(2, tokens, 36)).astype(np.float32)
        expected[:, at : at + tokens] = x
        np.testing.assert_array_equal(session.entries["rows"](x, np.int64(at)), expected)
        assert not machine.error


def test_columns(machine: Machine, built: tuple[Build, Path]) -> None:
    session = nacre.load(built[1], device="cuda").session(S=5)
    expected = np.zeros((3, 9, 5), np.float16)
    for at in (0, 4, 2):
        x = np.random.default_rng(at).normal(size=(3, 9, 1)).astype(np.float16)
        expected[:, :, at] = x[:, :, 0]
        np.testing.assert_array_equal(session.entries["columns"](x, np.int64(at)), expected)
        assert not machine.error


def test_copy_and_update(machine: Machine, built: tuple[Build, Path]) -> None:
    """Two launches of one kernel."""
    x, y = np.random.default_rng(1).normal(size=(7, 20)).astype(np.float32), np.ones((3, 9), np.float32)
    result = np.asarray(nacre.load(built[1], device="cuda").entries["copied"](x, y, np.int64(2), np.int64(11)))
    assert not machine.error
    x[2:5, 11:] = 1
    np.testing.assert_array_equal(result, x)


@pytest.mark.parametrize("updates", [0, 1, 33])
def test_updates_of_equal_places_keep_their_order(machine: Machine, built: tuple[Build, Path], updates: int) -> None:
    """The last element stays, and sums are rounded as those of the reference."""
    entries, rng = nacre.load(built[1], device="cuda").entries, np.random.default_rng(updates)
    x, y = (rng.normal(size=(n, 4)).astype(np.float32) for n in (5, updates))
    at = rng.integers(-5, 5, (updates, 1))
    expected = x.copy()
    expected[at[:, 0]] = y
    np.testing.assert_array_equal(entries["repeated"](x, at, y), expected)
    x, y = (rng.normal(size=(n, 36)).astype(np.float32) for n in (50, updates))
    np.add.at(expected := x.copy(), 3 * at[:, 0], y)
    np.testing.assert_array_equal(entries["rows_added"](x, 3 * at, y), expected)
    x, y = (rng.normal(size=size).astype(np.float16) for size in ((5, 37), updates))
    places = rng.integers(-3, 6, (updates, 2))
    inside = (places[:, 0] >= -5) & (places[:, 0] < 5)
    np.add.at(expected := x.copy(), tuple(places[inside].T), y[inside])
    np.testing.assert_array_equal(entries["places"](x, places, y), expected)
    x, y, along = (rng.integers(0, 7, (2, 3, n)) for n in (7, updates, updates))
    np.put_along_axis(expected := x.astype(np.int32), along, y.astype(np.int32), -1)
    np.testing.assert_array_equal(entries["along"](x.astype(np.int32), along, y.astype(np.int32)), expected)
    values = rng.integers(0, 9, updates)
    np.testing.assert_array_equal(entries["counted"](values), np.bincount(values, minlength=9))
    assert not machine.error


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"setp\.ge\.u64", "setp.gt.u64"),
        (r"(mov\.u32\s+%r\d+), %ctaid\.x;", r"\1, 0;"),
    ],
)
def test_planted_fault_is_found(machine: Machine, built: tuple[Build, Path], pattern: str, replacement: str) -> None:
    """A thread beyond the last element, and blocks that all write the same elements."""
    # A device keeps its modules while a session exists, also in the traceback of an error.
    gc.collect()
    machine.plant(pattern, replacement, kernels_of(built[0], "rows"))
    session = nacre.load(built[1], device="cuda").session(S=37)
    x = np.ones((2, 37, 36), np.float32)
    try:
        result = np.asarray(session.entries["rows"](x, np.int64(0)))
    except nacre.NacreError:
        assert machine.error
        return
    assert not (result == 1).all()


@pytest.mark.parametrize("name", ["rows_added", "places"])
def test_planted_owner_is_found(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    """Threads that update the places of others."""
    gc.collect()
    machine.plant(r"setp\.ne\.b64(\s+%p\d+, %rd\d+, %rd)", r"setp.eq.b64\1", kernels_of(built[0], name))
    entry = nacre.load(built[1], device="cuda").entries[name]
    x, at, y = (
        (np.zeros((50, 36), np.float32), np.arange(7)[:, None], np.ones((7, 36), np.float32))
        if name == "rows_added"
        else (np.zeros((5, 37), np.float16), np.ones((7, 2), np.int64), np.ones(7, np.float16))
    )
    try:
        result = np.asarray(entry(x, at, y))
    except nacre.NacreError:
        assert machine.error
        return
    assert result.sum() != y.sum()
