"""Sessions in Python: reading, assigning, saving and copying states, and one call at a time."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import pytest
from nacre.compiler.artifact.header import emit_header
from nacre.compiler.artifact.python_loader import emit_python
from nacre.compiler.artifact.spec import ArtifactSpec
from nacre.compiler.checking import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.states import initial_values
from nacre.runtime.arguments import Tensor
from nacre.runtime.loader import ArgumentError, BusyError, Model, NacreError, load
from nacre.runtime.states import read_metadata

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "i8": np.int8, "i64": np.int64}
TEXT = """language 1
dim T in 0..32
dim S in 0..32
model put(x: f16[T, 3], y: bf16[T, 3], z: i8[T, 3], at: i32) -> f32 {
  state half: f16[S, 3]
  state brain: bf16[S, 3]
  state small: i8[S, 3]
  state calls: i64
  half[at : at + T] = x
  brain[at : at + T] = y
  small[at : at + T] = z
  calls = calls + 1
  return sum(cast(half, f32)) + sum(cast(brain, f32)) + sum(cast(small, f32))
}
model count() -> calls: i64 {
  state calls: i64
  return calls
}
model slow(x: f32[512, 512]) -> y: f32[512, 512] {
  state calls: i64
  state last: f32[512, 512]
  calls = calls + 1
  repeat i in 0..12 { x = tanh(x @ x) }
  last = x
  return x * 2
}
model plain(x: f32[T]) -> f32[T] { return x + 1 }
"""


@pytest.fixture(scope="module", params=[0, 2])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("sessions")
    return nacre.compile(TEXT, folder / f"sessions{request.param}.so", opt_level=request.param)


def _rows(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(count)
    drawn = rng.integers(-9, 9, (3, count, 3))
    return [drawn[0].astype(np.float16), drawn[1].astype(ml_dtypes.bfloat16), drawn[2].astype(np.int8)]


def test_a_session_with_other_results_shares_the_states(model: Model) -> None:
    session = model.session(S=7)
    other = session.with_results("numpy")
    other.states["calls"] = 5
    assert session.states["calls"] == 5 and session.entries["count"]() == 5
    with pytest.raises(ArgumentError, match="results are `numpy` or `torch`, not `jax`"):
        session.with_results("jax")  # type: ignore[arg-type]  # the wrong word is the test


def test_a_view_shares_the_memory_of_a_state(model: Model) -> None:
    session = model.session(S=7)
    half, calls = session.states.view("half"), session.states.view("calls")
    assert half.shape == (7, 3) and half.dtype == np.float16 and half.ctypes.data % 64 == 0
    given = _rows(3)
    session.entries["put"](*given, np.int32(2))
    np.testing.assert_array_equal(half[2:5], given[0])
    half[0] = 5
    np.testing.assert_array_equal(session.states["half"], half)
    assert calls == 1
    session.reset()
    assert not half.any() and calls == 0
    assert session.fork().states.view("half").ctypes.data != half.ctypes.data
    assert model.session(S=0).states.view("brain").shape == (0, 3)
    del session
    half[...] = 1  # the array keeps the memory alive
    assert half.sum() == 21


@pytest.mark.parametrize("capacity", [0, 1, 7, 32])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_rows_of_every_dtype(model: Model, capacity: int, count: int) -> None:
    session = model.session(S=capacity)
    given = _rows(count)
    if count > capacity:
        with pytest.raises(ArgumentError, match="needs S - T >= 0"):
            session.entries["put"](*given, np.int32(0))
        return
    at = capacity - count
    total = session.entries["put"](*given, np.int32(at))
    assert total == sum(np.sum(x.astype(np.float32)) for x in given)
    for name, x in zip(("half", "brain", "small"), given, strict=True):
        found = session.states[name]
        assert found.shape == (capacity, 3) and found.dtype == x.dtype
        assert np.array_equal(found[at:], x) and not found[:at].astype(np.float32).any()
    assert session.entries["count"]() == 1 == session.states["calls"]


def test_a_negative_start_counts_from_the_end(model: Model) -> None:
    session = model.session(S=5)
    x, y, z = _rows(2)
    session.entries["put"](x, y, z, np.int32(-2))
    assert np.array_equal(session.states["half"][3:], x)


def test_states_are_read_assigned_and_reset(model: Model) -> None:
    session = model.session(S=2)
    assert list(session.states) == ["half", "brain", "small", "calls", "last"] and len(session.states) == 5
    session.states["calls"] = 41
    session.states["half"] = np.ones((2, 3), np.float16)
    copy = session.states["half"]
    session.entries["put"](*_rows(0), np.int32(0))
    assert session.states["calls"] == 42 and np.array_equal(copy, session.states["half"])
    session.reset("half")
    assert not session.states["half"].any() and session.states["calls"] == 42
    session.reset()
    assert session.states["calls"] == 0
    with pytest.raises(ArgumentError, match=r"state `half`: expected f16\[2, 3\], got f32\[2, 3\]"):
        session.states["half"] = np.ones((2, 3), np.float32)
    with pytest.raises(ArgumentError, match=r"state `half`: expected f16\[2, 3\], got f16\[3, 2\]"):
        session.states["half"] = np.ones((3, 2), np.float16)
    with pytest.raises(ArgumentError, match="there is no state `other`"):
        session.states["other"] = 1
    with pytest.raises(ArgumentError, match="there is no state `other`"):
        session.reset("other")
    with pytest.raises(KeyError, match="there is no state `other`; the states are"):
        session.states["other"]
    with pytest.raises(KeyError, match="there is no entry `other`; the entries are"):
        session.entries["other"]


def test_sessions_are_independent_and_fork_copies(model: Model) -> None:
    first, second = model.session(S=4), model.session(S=4)
    first.entries["put"](*_rows(4), np.int32(0))
    assert second.states["calls"] == 0 and not second.states["small"].any()
    branch = first.fork()
    assert {n: x.tobytes() for n, x in branch.states.items()} == {n: x.tobytes() for n, x in first.states.items()}
    branch.entries["put"](*_rows(1), np.int32(2))
    assert (first.states["calls"], branch.states["calls"]) == (1, 2)
    assert dict(branch.dims) == {"S": 4}


def test_states_outlive_the_names_of_their_session(model: Model) -> None:
    states = model.session(S=1).states
    states["calls"] = 3
    assert states["calls"] == 3


_OFFSETS = (b"[0]", b"[0, 1, 2]", b"[0, 1e999]", b"3")


def test_files_of_states(model: Model, tmp_path: Path) -> None:
    session = model.session(S=3)
    session.entries["put"](*_rows(3), np.int32(0))
    path = tmp_path / "states.safetensors"
    session.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["states.safetensors"]
    size = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + size])
    assert header["brain"]["dtype"] == "BF16" and header["brain"]["shape"] == [3, 3]
    other = model.session(S=3)
    other.restore(path)
    assert {n: x.tobytes() for n, x in other.states.items()} == {n: x.tobytes() for n, x in session.states.items()}
    with pytest.raises(NacreError, match=r"holds F16\[3, 3\] for the state `half`, expected F16\[4, 3\]"):
        model.session(S=4).restore(path)
    content = path.read_bytes()
    before = other.states["calls"]
    wrong = (b"[" * 100_000, *(b'{"half": {"dtype": "F16", "shape": [], "data_offsets": %s}}' % x for x in _OFFSETS))
    headers = [len(text).to_bytes(8, "little") + text for text in wrong]
    for damaged in (content[:5], content[: 8 + size + 4], b"\xff" * 40, content[:8] + b"[" * size, *headers):
        path.write_bytes(damaged)
        with pytest.raises(NacreError, match=r"not a safetensors file|is damaged|holds the states"):
            other.restore(path)
    assert other.states["calls"] == before


def test_a_file_of_states_keeps_its_permissions_and_its_link(model: Model, tmp_path: Path) -> None:
    """A new file has those of other new files."""
    session = model.session(S=3)
    target, other, link = (tmp_path / name for name in ("states.safetensors", "other", "link"))
    session.save(target)
    other.touch()
    assert target.stat().st_mode == other.stat().st_mode
    target.chmod(0o640)
    link.symlink_to(target)
    session.save(link)
    assert link.is_symlink() and target.stat().st_mode & 0o777 == 0o640
    with pytest.raises(FileNotFoundError):
        session.save(tmp_path / "none" / "states.safetensors")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "other", "states.safetensors"]


def test_a_second_call_at_the_same_time_is_refused(model: Model) -> None:
    session = model.session(S=1)
    x = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    refused: list[str] = []
    done: list[bool] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        for _ in range(3):
            try:
                session.entries["slow"](x)
                done.append(True)
            except BusyError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused and set(refused) == {"slow: the session's states are in use by another call"}
    # Every call that was not refused has counted.
    assert session.states["calls"] == len(done) == 12 - len(refused)


def test_reading_a_state_during_a_call_is_refused(model: Model) -> None:
    session = model.session(S=1)
    x = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    stop, refused = threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            try:
                session.entries["slow"](x)
            except BusyError:
                refused.append("call")

    thread = threading.Thread(target=work)
    thread.start()
    while "read" not in refused:
        try:
            session.states["calls"]
        except BusyError as error:
            assert "calls: the session's states are in use by another call" in str(error)
            refused.append("read")
    stop.set()
    thread.join()
    # An entry without states does not need them.
    assert session.entries["plain"](np.zeros(2, np.float32)).tolist() == [1, 1]


def test_an_entry_without_states_needs_no_session(model: Model) -> None:
    assert model.entries["plain"](np.zeros(2, np.float32)).tolist() == [1, 1]
    with pytest.raises(ArgumentError, match="entry `count` has states: call it on a session"):
        model.entries["count"]()


@pytest.mark.parametrize("size", [1.5, "3", True, None, 1 << 64])
def test_dims_of_a_session_are_sizes(model: Model, size: object) -> None:
    for call in (model.session, model.session_bytes):
        with pytest.raises(ArgumentError, match=f"dim `S` is {size!r}, not a size"):
            call(S=size)  # type: ignore[operator]  # the wrong type is the test
    assert model.session(S=np.int64(3)).dims == {"S": 3}


def test_a_model_without_states_has_no_session(tmp_path: Path) -> None:
    text = "language 1\nmodel f(x: f32) -> f32 { return x }\n"
    model = nacre.compile(text, tmp_path / "plain.so")
    with pytest.raises(ArgumentError, match="has no states"):
        model.session()
    assert "session" not in model.describe() and model.session_bytes() == 0


INITIAL = """language 1
dim B in 0..9
block Cell(x: f32[B, 4]) -> f32[B, 4] {
  param start: f32[4]
  state hidden: f32[B, 4] = start * 2 + 1
  hidden = hidden + x
  return hidden
}
model run(x: f32[B, 4]) -> y: f32[B, 4] {
  use cell[2] = Cell
  state best: f32[B] = -inf
  state table: f16[2, 2] from "table"
  state flag: bool[3] = [true, false, true]
  repeat i in 0..2 { x = cell[i](x) }
  best = maximum(best, max(x, axis=1))
  table = table + 1
  flag = not flag
  return x
}
"""


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("placement", ["embedded", "external"])
def test_initial_values(tmp_path: Path, level: int, placement: str) -> None:
    weights = {f"cell.{i}.start": np.arange(4, dtype=np.float32) + i for i in (0, 1)}
    weights |= {"table": np.array([[1, 2], [3, 4]], np.float16)}
    model = nacre.compile(INITIAL, tmp_path / "m.so", weights=weights, opt_level=level, placement=placement)
    for batch in (0, 1, 3):
        session = model.session(B=batch)
        for _ in range(2):
            hidden = [np.broadcast_to(weights[f"cell.{i}.start"] * 2 + 1, (batch, 4)) for i in (0, 1)]
            assert np.array_equal(session.states["cell.0.hidden"], hidden[0])
            assert np.array_equal(session.states["best"], np.full(batch, -np.inf, np.float32))
            assert session.states["table"].tolist() == [[1, 2], [3, 4]]
            x = np.ones((batch, 4), np.float32)
            y = session(x)
            assert np.array_equal(y, hidden[1] + hidden[0] + x)
            assert np.array_equal(session.states["best"], y.max(axis=1, initial=-np.inf))
            assert session.states["table"].tolist() == [[2, 3], [4, 5]]
            assert session.states["flag"].tolist() == [False, True, False]
            session.reset()


@pytest.mark.parametrize("stored", [False, True])
def test_a_state_begins_with_a_parameter_that_has_an_initial_value(tmp_path: Path, *, stored: bool) -> None:
    text = """
    model run(x: f32[3]) -> y: f32[3] {
      param weight: f32[3] = random_normal((3,), seed)
      state same: f32[3] = weight
      state total: f32[3] = weight * 2.0
      same = same + x
      total = total + same
      return total - 3.0 * weight
    }
    """
    weights = {"weight": np.arange(3, dtype=np.float32)} if stored else None
    session = nacre.compile(text, tmp_path / "m.so", weights=weights).session()
    first = np.array(session.states["same"])
    assert np.array_equal(session.states["total"], first * 2)
    assert np.array_equal(first, np.arange(3)) if stored else np.all(first != 0)
    x = np.ones(3, np.float32)
    np.testing.assert_allclose(session(x), x, atol=1e-6)


def test_the_interpreter_computes_the_same(model: Model) -> None:
    build = Build(read_model(TEXT), Options(level=2))
    module = build.source_model.module
    function, dims = module.function("put"), {"S": 6, "T": 2}
    values = initial_values(module, function, dims, build.read_parameters())
    session = model.session(S=6)
    for at in (0, 4, 2):
        inputs = [*_rows(2), np.array(at, np.int32)]
        total, *values = Interpreter(module, build.read_parameters()).run(function, [*inputs, *values])
        assert total == session.entries["put"](*inputs)
        for name, value in zip(function.states, values, strict=True):
            assert np.array_equal(session.states[name], value), name


def test_an_artifact_is_loaded_again(model: Model) -> None:
    again = load(model.path)
    session = again.session(S=2)
    session.entries["put"](*_rows(1), np.int32(1))
    assert session.states["calls"] == 1 and "states" in repr(session.states)


def test_the_functions_of_the_c_interface(model: Model) -> None:
    library = model.session(S=2)._session.library
    functions = library.functions
    assert functions["find_state"](b"calls") == 3 and functions["find_state"](b"none") == -1
    assert library.error() == "no state is named `none`"
    entry = functions["find_entry"](b"count")
    calls, dims = np.zeros(1, np.int64), np.zeros(1, np.int64)
    assert functions["bind"](entry, None, 0, dims.ctypes.data) == 1
    assert library.error() == "entry `count` has states, and the session was created without dims"
    session = model.session(S=2)
    handle = session._session.handle
    assert functions["session_bind"](handle, entry, None, 0, dims.ctypes.data) == 0
    tensor = Tensor()
    tensor.data, tensor.dtype, tensor.rank = calls.ctypes.data, 8, 0
    session.states["calls"] = 7
    assert functions["run"](handle, entry, None, 0, ctypes.addressof(tensor), 1, None, 0) == 0 and calls[0] == 7
    plain = model._session.handle
    assert functions["run"](plain, entry, None, 0, ctypes.addressof(tensor), 1, None, 0) == 1
    for state, size in ((3, 7), (9, 8), (-1, 8)):
        assert functions["state_read"](handle, state, calls.ctypes.data, size) == 1
    assert library.error() == "state -1 does not exist; the artifact has 5"
    assert functions["state_read"](plain, 3, calls.ctypes.data, 8) == 1
    assert library.error() == "the session has no states: it was created without dims"
    assert functions["state_reset"](plain, -1) == 1 == functions["state_reset"](plain, 3)
    assert library.error() == "the session has no states: it was created without dims"
    assert functions["session_bytes"](dims.ctypes.data, 2) == -1
    assert library.error() == "a session has 1 dim, got 2"


def test_a_call_with_dims_of_another_session_is_refused(model: Model) -> None:
    session = model.session(S=2)
    entry = session.entries["put"]
    given = _rows(1)
    plan = entry._prepare([*given, np.array(0, np.int32)])[1]
    plan.dims[list(entry.dims).index("S")] = 3
    with pytest.raises(NacreError, match="dim `S` is 3, the session was created with 2"):
        entry(*given, np.array(0, np.int32))
    plan.dims[list(entry.dims).index("S")] = 2


def test_the_generated_loader_and_header_name_sessions(tmp_path: Path) -> None:
    spec = _specification()
    text = emit_python(spec)
    assert "def count(*, session: Session, out: object = None)" in text
    assert "session.entries['count'](out=out)" in text
    header = emit_header(spec)
    assert " *   S in 0..32\n" in header and " *   half: f16[S, 3]\n" in header
    assert f" * Its states take {spec.session_bytes} bytes:\n" in header


def _specification() -> ArtifactSpec:
    build = Build(read_model(TEXT), Options(level=0))
    reader = build.read_parameters()
    program = build.generate(build.lower(build.optimize()))
    return build.specify(program, reader)


@pytest.mark.parametrize(("more", "is_read"), [(0, True), (1, False)])
def test_the_longest_header_of_a_file(tmp_path: Path, more: int, is_read: bool) -> None:
    """The format has headers of up to 100 MB."""
    size = 100_000_000 + more
    text = json.dumps({"__metadata__": {"kind": "long"}}).encode()
    path = tmp_path / "long.safetensors"
    path.write_bytes(size.to_bytes(8, "little") + text.ljust(size))
    if is_read:
        assert read_metadata(path) == {"kind": "long"}
    else:
        with pytest.raises(NacreError, match="is not a safetensors file"):
            read_metadata(path)


BIG = """language 1
model count(x: f32) -> f32 {
  state all: f32[5000000]
  all = all + x
  return all[0]
}
"""


PROBE = """
import sys
from pathlib import Path

import nacre
import numpy as np


def advised_kilobytes():
    size = total = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("Size:"):
            size = int(line.split()[1])
        if line.startswith("VmFlags:") and " hg" in line:
            total += size
    return total


model = nacre.load(sys.argv[1])
before = advised_kilobytes()
session = model.session()
print(advised_kilobytes() - before, session.count(np.float32(2)), session.count(np.float32(3)))
"""
"""Prints the memory for which a session asks the system for huge pages, in KiB. A process of its own, since memory that
another session left may be advised already."""


def test_large_states_are_on_huge_pages(unchecked: None, tmp_path: Path) -> None:
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("the system has no huge pages")
    model = nacre.compile(BIG, tmp_path / "big.so")
    done = subprocess.run([sys.executable, "-c", PROBE, model.path], capture_output=True, text=True, check=True)
    advised, *counts = map(float, done.stdout.split())
    assert advised >= 20_000_000 // 1024 and counts == [2, 5]
