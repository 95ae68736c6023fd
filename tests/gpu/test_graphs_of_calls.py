"""Graphs of repeated calls on a GPU: their results are those of kernels launched alone, bit by bit."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from copy import copy
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
from test_device_tensors import Interface

Array = npt.NDArray[Any]
MOST_CALLS, MOST_PARTS, REMEMBERED = 16, 16, 16
MODEL = """language 1
dim B in 0..64
dim N in 1..8
model steps(x: f32[B, 8], y: f32[B, 8]) -> f32[B] { return sum(softmax(x @ y.T), axis=1) + sum(x, axis=1) }
model twin(x: f32[B, 8], y: f32[B, 8]) -> f32[B] { return sum(softmax(y @ x.T), axis=1) + sum(y, axis=1) }
model one(x: f32[B, 8]) -> f32[B, 8] { return x + x }
model pick(x: f32[20, 8], i: i64[B]) -> y: f32[B], z: f32[B, 8] {
  rows = gather(x, i, axis=0)
  return sum(softmax(rows), axis=1), rows
}
model count(x: f32[N]) -> total: f32[N], share: f32[N] {
  state sum: f32[N]
  sum = sum + x
  return sum, softmax(softmax(sum))
}
model halve(x: f32[4], end: f32) -> f32[4] {
  while max(value) > end with value = x { value = value * 0.5 }
  return softmax(value)
}
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "model.so"
    Build(read_model(MODEL), Options(targets=parse_targets("cuda"))).run(path)
    return path


@pytest.fixture
def models(machine: Machine, artifact: Path) -> Iterator[tuple[nacre.Model, nacre.Model]]:
    """With graphs and without."""
    yield nacre.load(artifact, device="cuda"), nacre.load(artifact, device="cuda", graphs=False)
    gc.collect()
    assert not machine.error and machine.library.fake_depth() == 0


def arrays(entry: str, size: int, seed: int = 0) -> tuple[Array, ...]:
    rng = np.random.default_rng([size, seed])
    if entry == "pick":
        return rng.normal(size=(20, 8)).astype(np.float32), rng.integers(-20, 20, size)
    return tuple(rng.normal(size=(size, 8)).astype(np.float32) for _ in range(1 if entry == "one" else 2))


def bits(results: object) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in (results if isinstance(results, tuple) else (results,))]


def calls_of(machine: Machine, model: nacre.Model, entry: str, *given: object) -> tuple[list[bytes], list[str]]:
    """Returns the bits of the results, and the calls of the driver besides copies of the host's tensors."""
    begin = len(machine.log)
    results = bits(model.entries[entry](*given))
    hidden = ("cuPointerGetAttribute", "cuCtx", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemAlloc", "cuMemFree")
    return results, [line for line in machine.log[begin:] if not line.startswith(hidden)]


@pytest.mark.parametrize(("entry", "size"), [("steps", 5), ("steps", 1), ("steps", 0), ("pick", 7), ("pick", 1)])
def test_graphs_agree_with_kernels(
    machine: Machine, models: tuple[nacre.Model, nacre.Model], entry: str, size: int
) -> None:
    model, plain = models
    for seed in range(4):
        machine.library.fake_clear()
        given = arrays(entry, size, seed)
        expected, alone = calls_of(machine, plain, entry, *given)
        launches = machine.launches
        results, done = calls_of(machine, model, entry, *given)
        assert results == expected
        assert machine.launches == 2 * launches
        assert not any("Graph" in line or "Capture" in line for line in alone)
        if size == 0:
            continue
        assert ("cuStreamBeginCapture" in done) is (seed == 1)
        assert ("cuLaunchKernel" in done) is (seed < 2)
        if seed >= 2:
            # The numbers that tell of an index out of range are read in between.
            assert done.count("cuGraphLaunch") == (1 if entry == "steps" else 2)
            assert set(done) == {"cuGraphLaunch", "cuStreamSynchronize"}


def test_one_kernel_is_launched_alone(machine: Machine, models: tuple[nacre.Model, nacre.Model]) -> None:
    models[0].entries["one"](*arrays("one", 3))
    for _ in range(4):
        assert calls_of(machine, models[0], "one", *arrays("one", 3))[1] == ["cuLaunchKernel", "cuStreamSynchronize"]


def test_failed_check_within_graphs(machine: Machine, models: tuple[nacre.Model, nacre.Model]) -> None:
    """The rest of the call runs without graphs, and reports the index as ever; the graphs stay."""
    x, i = arrays("pick", 6)
    for _ in range(3):
        expected = bits(models[0].entries["pick"](x, i))
    wrong = i.copy()
    wrong[4] = 20
    for model in (*models, models[0]):
        with pytest.raises(OutOfRangeError, match=r"index 20 is out of range for an axis of size 20 \(element 4"):
            model.entries["pick"](x, wrong)
        results, done = calls_of(machine, models[0], "pick", x, i)
        assert results == expected and "cuLaunchKernel" not in done


def test_call_that_fails_is_not_recorded(machine: Machine, models: tuple[nacre.Model, nacre.Model]) -> None:
    x, i = arrays("pick", 6)
    wrong = np.full_like(i, 20)
    models[0].entries["pick"](x, i)
    for _ in range(3):
        with pytest.raises(OutOfRangeError):
            models[0].entries["pick"](x, wrong)
    for _ in range(4):
        results, done = calls_of(machine, models[0], "pick", x, i)
        assert results == calls_of(machine, models[1], "pick", x, i)[0]
    assert "cuLaunchKernel" not in done


def test_states_within_graphs(machine: Machine, models: tuple[nacre.Model, nacre.Model]) -> None:
    sessions = [model.session(N=3) for model in models]
    for number in range(6):
        x = np.arange(3, dtype=np.float32) + number
        begin = machine.log.count("cuGraphLaunch")
        expected = bits(sessions[1].entries["count"](x))
        assert bits(sessions[0].entries["count"](x)) == expected
        assert machine.log.count("cuGraphLaunch") - begin == (number > 0)
    fork = sessions[0].fork()
    for _ in range(3):
        expected = bits(sessions[1].entries["count"](x))
        assert bits(fork.entries["count"](x)) == expected


@pytest.mark.parametrize("usual", [3, 0, 13, 14, 20])
def test_loop_whose_end_the_host_decides(machine: Machine, models: tuple[nacre.Model, nacre.Model], usual: int) -> None:
    """Calls with fewer and with more iterations than the recorded one; from 14 on there are too many parts, and nothing
    is recorded."""
    x = np.array([1, 0.5, 0.25, 0.75], np.float32)
    for turn, iterations in enumerate((usual, usual, usual, usual + 1, usual, 0, usual, 25, usual, usual + 2)):
        end = np.float32(2.0**-iterations)
        results, done = calls_of(machine, models[0], "halve", x, np.asarray(end))
        assert results == calls_of(machine, models[1], "halve", x, np.asarray(end))[0], iterations
        if turn == 2:
            assert ("cuStreamBeginCapture" in machine.log) is (usual + 1 < MOST_PARTS - 1)
    assert ("cuGraphLaunch" in done) is (usual + 1 < MOST_PARTS - 1)


def test_graphs_are_bounded(machine: Machine, models: tuple[nacre.Model, nacre.Model]) -> None:
    """More dims than a session keeps graphs of; those of the latest are kept, all are released."""
    model, plain = models
    for one in models:
        one.entries["steps"](*arrays("steps", 64))
    left = machine.left
    for size in range(1, MOST_CALLS + 5):
        given = arrays("steps", size)
        expected = bits(plain.entries["steps"](*given))
        for _ in range(3):
            assert bits(model.entries["steps"](*given)) == expected
    # A stream for recordings, and graphs of one part.
    assert machine.left == left + MOST_CALLS + 1
    assert "cuGraphLaunch" in calls_of(machine, model, "steps", *arrays("steps", 8))[1]
    assert "cuGraphLaunch" not in calls_of(machine, model, "steps", *arrays("steps", 1))[1]


def test_sizes_in_turn_are_not_recorded_again_and_again(
    machine: Machine, models: tuple[nacre.Model, nacre.Model]
) -> None:
    model = models[0]
    model.entries["steps"](*arrays("steps", 64))
    for _ in range(3):
        begin = machine.log.count("cuStreamBeginCapture")
        for size in range(1, REMEMBERED + 3):
            model.entries["steps"](*arrays("steps", size))
        assert machine.log.count("cuStreamBeginCapture") == begin


def test_other_tensors_of_the_device(machine: Machine, models: tuple[nacre.Model, nacre.Model]) -> None:
    """A graph has the pointers of its call; a call with others has another graph."""
    model, plain = models
    given = [tuple(Interface(machine, x) for x in arrays("steps", 5, seed)) for seed in range(3)]
    expected = [bits(plain.entries["steps"](*(t.host for t in each))) for each in given]
    for number in (0, 1, 2, 0, 1, 2, 0, 2, 1):
        results, done = calls_of(machine, model, "steps", *given[number])
        assert results == expected[number]
    assert "cuLaunchKernel" not in done
    for tensor in (t for each in given for t in each):
        tensor.release()


def test_all_remembered_calls_are_recorded(machine: Machine, models: tuple[nacre.Model, nacre.Model]) -> None:
    model = models[0]
    model.entries["steps"](*arrays("steps", 64))
    for turn in range(2):
        begin = machine.log.count("cuStreamBeginCapture")
        for size in range(1, REMEMBERED + 1):
            model.entries["steps"](*arrays("steps", size))
        assert machine.log.count("cuStreamBeginCapture") - begin == turn * REMEMBERED


def test_each_part_of_a_call_alone_has_its_own_graph(machine: Machine, models: tuple[nacre.Model, nacre.Model]) -> None:
    """The entry, the size, and the pointer of each argument and of the result."""
    model, plain = models
    (x, y), (x2, y2) = (tuple(Interface(machine, a) for a in arrays("steps", 5, seed)) for seed in range(2))
    out, out2 = (Interface(machine, np.zeros(5, np.float32)) for _ in range(2))
    short = copy(x), copy(y)
    for tensor in short:
        tensor.host = tensor.host[:4]
    calls: list[tuple[str, tuple[Interface, ...], Interface | None]] = [
        ("steps", (x, y), None),
        ("twin", (x, y), None),
        ("steps", (x2, y), None),
        ("steps", (x, y2), None),
        ("steps", short, None),
        ("steps", (x, y), out),
        ("steps", (x, y), out2),
    ]

    def result(one: nacre.Model, entry: str, given: tuple[Interface, ...], to: Interface | None) -> bytes:
        if to is None:
            return bits(one.entries[entry](*given))[0]
        to.host[...] = 0
        to.copy(to_device=True)
        one.entries[entry](*given, out=to)
        return to.copy(to_device=False).tobytes()

    expected = [result(plain, *call) for call in calls]
    assert len(set(expected)) == 5
    for turn in range(4):
        for call, right in zip(calls, expected, strict=True):
            begin = machine.log.count("cuGraphLaunch")
            assert result(model, *call) == right, (turn, call[0])
            assert machine.log.count("cuGraphLaunch") - begin == (turn > 0), (turn, call[0])
    for tensor in (x, y, x2, y2, out, out2):
        tensor.release()


def test_moved_memory_of_a_session_has_its_own_graph(machine: Machine, models: tuple[nacre.Model, nacre.Model]) -> None:
    """A graph has the address of intermediate values; a larger call moves them, for the same tensors of a device."""
    model, plain = models
    given = tuple(Interface(machine, a) for a in arrays("steps", 5))
    out = Interface(machine, np.zeros(5, np.float32))

    def call(one: nacre.Model) -> bytes:
        out.host[...] = 0
        out.copy(to_device=True)
        one.entries["steps"](*given, out=out)
        return out.copy(to_device=False).tobytes()

    expected = call(plain)
    for _ in range(3):
        assert call(model) == expected
    model.entries["steps"](*arrays("steps", 64))
    begin = machine.log.count("cuStreamBeginCapture")
    for _ in range(3):
        assert call(model) == expected
    assert machine.log.count("cuStreamBeginCapture") - begin == 1
    for tensor in (*given, out):
        tensor.release()


RECORDING = (
    *("cuStreamCreate", "cuStreamBeginCapture", "cuLaunchKernel", "cuStreamEndCapture"),
    *("cuGraphInstantiateWithFlags", "cuGraphLaunch"),
)


@pytest.mark.parametrize("function", RECORDING)
@pytest.mark.parametrize("entry", ["steps", "pick"])
def test_failure_of_a_recording(machine: Machine, artifact: Path, entry: str, function: str) -> None:
    """The error is reported, the next calls compute, and nothing is left."""
    for nth in (1, 2):
        model = nacre.load(artifact, device="cuda")
        given = arrays(entry, 6)
        expected = bits(model.entries[entry](*given))
        machine.fail(function, nth)
        begin = machine.log.count("cuLaunchKernel")
        for _ in range(2):
            try:
                assert bits(model.entries[entry](*given)) == expected
            except nacre.NacreError as error:
                assert "injected failure" in str(error)
                if function == "cuStreamBeginCapture" and nth == 1:
                    assert machine.log.count("cuLaunchKernel") == begin
                break
        else:
            assert nth == 2 and function != "cuLaunchKernel"
        machine.fail("", 0)
        for _ in range(3):
            assert bits(model.entries[entry](*given)) == expected
        del model
        gc.collect()
        assert machine.left == 0 and machine.library.fake_depth() == 0
