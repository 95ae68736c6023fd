"""States that are written in place: addresses of memory, and pages that no call may write."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.runtime.loader import Model, OutOfRangeError
from nacre.runtime.observe import Event, observe

PAGE = mmap.PAGESIZE
LOOKUP = """language 1
model look_up(table: i64[8], values: f32[8], ids: i64[4]) -> f32[4] {
  state calls: i64
  calls = calls + 1
  return values[table[ids]]
}
"""
TEXT = f"""language 1
dim T in 0..8
dim S in 1..512
model put(row: f32[T, {PAGE // 4}], at: i64) -> total: f32[T] {{
  state rows: f32[S, {PAGE // 4}]
  rows[at : at + T] = row * 2
  return sum(row, axis=1)
}}
model count(x: f32[4]) -> y: f32[4] {{
  state n: i64
  state seen: f32[4]
  n = n + 1
  seen = maximum(seen, x)
  return seen * 2
}}
model two(x: f32[4], i: i64) -> f32[4] {{
  state seen: f32[4]
  seen[i : i + 1] = x[0:1]
  seen[i : i + 2] = x[1:3] + 1
  return seen + 0
}}
"""


@pytest.fixture(scope="module", params=[0, 2])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return nacre.compile(TEXT, tmp_path_factory.mktemp("place") / f"place{request.param}.so", opt_level=request.param)


def _copied(text: str, level: int) -> dict[str, tuple[int, str]]:
    build = Build(read_model(text), Options(level=level))
    build.generate(build.lower(build.optimize()))
    return {s.name: (int(str(s.copied)), s.reason) for report in build.report() for s in report.states}


def _addresses(session: Model, at: int) -> list[int]:
    """Returns the addresses of all tensors with the shape of the state that the kernels of a call write."""
    seen: list[int] = []

    def see(event: Event) -> None:
        arrays = (event.array(value) for value in event.call.values)
        seen.extend(array.__array_interface__["data"][0] for array in arrays if array.shape == (4, PAGE // 4))

    with observe(session, see):
        session.entries["put"](np.ones((1, PAGE // 4), np.float32), at)
    return seen


def test_every_call_writes_a_state_at_the_same_address(model: Model) -> None:
    session, other = model.session(S=4), model.session(S=4)
    (first,), (second,), (third,) = _addresses(session, 0), _addresses(session, 3), _addresses(other, 0)
    assert first == second != third


PROTECTED = """
import ctypes, sys
import numpy as np
from nacre.runtime.loader import load
from nacre.runtime.observe import observe

page, size, at, count = 4096, 64, int(sys.argv[2]), int(sys.argv[3])
session = load(sys.argv[1]).session(S=size)
places = []

def see(event):
    for value in event.call.values:
        if tuple(event.array(value).shape) == (size, page // 4):
            places.append(event.array(value).__array_interface__["data"][0])

rows = np.arange(count * page // 4, dtype=np.float32).reshape(count, page // 4)
with observe(session, see):
    session.entries["put"](rows, 0)
start = places[-1]
session.reset()
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

def protect(begin, end, access):
    first, last = -(-begin // page) * page, end // page * page
    assert last > first and libc.mprotect(first, last - first, access) == 0

def each(access):
    protect(start, start + at * page, access)
    protect(start + (at + count) * page, start + size * page, access)

each(1)
session.entries["put"](rows, at)
each(3)
found = session.states["rows"]
assert np.array_equal(found[at : at + count], rows * 2)
assert not found[:at].any() and not found[at + count :].any()
print("untouched")
"""


@pytest.mark.parametrize(("at", "count"), [(5, 1), (17, 3), (31, 8)])
def test_pages_beside_the_assigned_rows_are_not_written(model: Model, at: int, count: int) -> None:
    command = [sys.executable, "-c", PROTECTED, model.path, str(at), str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "untouched\n"), done.stderr


def test_a_chain_of_assignments_stays_in_place(model: Model) -> None:
    session = model.session(S=1)
    x = np.array([1, 2, 3, 4], np.float32)
    assert session.entries["two"](x, 1).tolist() == [0, 3, 4, 0]
    assert session.states["seen"].tolist() == [0, 3, 4, 0]


def test_states_are_computed_in_place_at_level_2() -> None:
    assert _copied(TEXT.replace("S,", "8,"), 2) == {"rows": (0, ""), "n": (0, ""), "seen": (0, "")}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("a, b = b, a\n  return x", "its new value is an argument or the old value of a state"),
        ("a = x\n  return x + b", "its new value is an argument or the old value of a state"),
        ("a = x * 2 + b * 0\n  return a", "its new value is a result as well"),
        ("old = a\n  a = x * 2\n  return cumsum(flip(old), axis=0) + cumsum(a, axis=0) + b", None),
    ],
)
def test_a_copy_has_a_reason(body: str, reason: str | None, tmp_path: Path) -> None:
    text = f"language 1\nmodel f(x: f32[6]) -> f32[6] {{\n  state a: f32[6]\n  state b: f32[6]\n  {body}\n}}\n"
    for level in (0, 2):
        found = _copied(text, level)
        if reason is not None:
            assert found["a"] == (24, reason)
        model = nacre.compile(text, tmp_path / f"copy{level}.so", opt_level=level)
        session = model.session()
        a, b, x = (np.arange(6, dtype=np.float32) + n for n in (1, 20, 300))
        session.states.update(a=a, b=b)
        result = session(x)
        if "flip" in body:
            assert np.array_equal(result, np.cumsum(a[::-1]) + np.cumsum(x * 2) + b)
            assert np.array_equal(session.states["a"], x * 2)
        elif "a, b" in body:
            assert np.array_equal(session.states["a"], b) and np.array_equal(session.states["b"], a)
        else:
            assert np.array_equal(session.states["a"], x if "a = x\n" in body else x * 2)


def test_rotation_of_three_states(tmp_path: Path) -> None:
    text = """language 1
model turn() -> f32 {
  state a: f32 = 1.0
  state b: f32 = 2.0
  state c: f32 = 3.0
  a, b, c = b, c, a
  return a
}
model half() -> f32 {
  state a: f32 = 1.0
  state b: f32 = 2.0
  a = b
  b = b + 1
  return a
}
"""
    for level in (0, 2):
        session = nacre.compile(text, tmp_path / f"turn{level}.so", opt_level=level).session()
        seen = [float(session.entries["turn"]()) for _ in range(4)]
        assert seen == [2, 3, 1, 2]
        assert {name: float(value) for name, value in session.states.items()} == {"a": 2, "b": 3, "c": 1}
        session.entries["half"]()
        assert {name: float(value) for name, value in session.states.items()} == {"a": 3, "b": 4, "c": 1}


@pytest.mark.parametrize("level", [0, 2])
def test_a_failed_check_of_an_index_that_follows_from_a_state_changes_no_state(tmp_path: Path, level: int) -> None:
    text = """language 1
model next(x: f32[3]) -> f32 {
  state n: i64
  state sum: f32[3]
  n = n + 1
  sum = sum + x
  return x[n - 1] + sum[0]
}
"""
    assert _copied(text, level)["n"][0] == 8
    session = nacre.compile(text, tmp_path / "next.so", opt_level=level).session()
    x = np.array([1, 2, 3], np.float32)
    assert [float(session(x)) for _ in range(3)] == [2, 4, 6]
    for _ in range(2):
        with pytest.raises(OutOfRangeError, match="index 3 is out of range for an axis of size 3"):
            session(x)
        assert session.states["n"] == 3 and session.states["sum"].tolist() == [3, 6, 9]


@pytest.mark.parametrize("level", [0, 2])
def test_an_index_that_another_read_gives_is_checked(level: int, tmp_path: Path) -> None:
    """Each of two reads has a check; the second one depends on the first read, whose indices are right."""
    session = nacre.compile(LOOKUP, tmp_path / "look_up.so", opt_level=level).session()
    table, values, ids = np.arange(8), np.arange(8, dtype=np.float32), np.array([0, 3, 2, 1])
    assert session(table, values, ids).tolist() == [0, 3, 2, 1]
    table[3] = 99
    with pytest.raises(OutOfRangeError, match="index 99 is out of range for an axis of size 8"):
        session(table, values, ids)
    with pytest.raises(OutOfRangeError, match="index 8 is out of range for an axis of size 8"):
        session(table, values, ids + 5)
    assert session.states["calls"] == 1
