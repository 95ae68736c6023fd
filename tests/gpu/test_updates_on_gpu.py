"""Loops that write elements at places of their own run in many threads: tokens that a call adds to a cache."""

from __future__ import annotations

import gc
from pathlib import Path

import nacre
import numpy as np
import pytest
from fake_driver import Machine, kernels_of, schedules_of
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets

SOURCE = """language 1
dim S in 1..40
dim T in 0..40
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
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("updates") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


def test_schedules(built: tuple[Build, Path]) -> None:
    """Elements whose places are in a tensor may be written several times, in order."""
    for name in ("rows", "columns", "copied"):
        found = schedules_of(built[0], name)
        assert "updates of 256 threads" in found and not any("sequence" in each for each in found)
    assert "sequence of 1 threads, 1 block" in schedules_of(built[0], "repeated")


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


def test_repeated_places_keep_the_last_element(machine: Machine, built: tuple[Build, Path]) -> None:
    model = nacre.load(built[1], device="cuda")
    x, y = np.zeros((5, 4), np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    result = np.asarray(model.entries["repeated"](x, np.array([[1], [3], [1]]), y))
    assert not machine.error
    np.testing.assert_array_equal(result, [[0] * 4, y[2], [0] * 4, y[1], [0] * 4])


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
