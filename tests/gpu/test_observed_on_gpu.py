"""Observed calls on a GPU: the values between kernels, and the first value that two builds do not share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from fake_driver import Machine, kernels_of
from nacre.compiler.checking import read_model
from nacre.compiler.cli.main import run
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.tools.profile.profile import profile_entry
from nacre.dialect.interpreter import Interpreter
from nacre.runtime.arguments import Array
from nacre.runtime.library import OutOfRangeError
from nacre.runtime.loader import load
from nacre.runtime.observe import Event, calls, observe, record
from test_device_tensors import Interface

MODEL = """language 1
dim B in 1..8

model net(x: f32[B, 6], i: i64[B]) -> y: f32[B, 6], z: f32[B, 6] {
  state total: f32[6]
  h = cumsum(x, axis=1)
  rows = gather(h, i, axis=0)
  y = cumsum(rows * 2.0, axis=0)
  total = total + y[0]
  return y, tanh(cumsum(y, axis=1))
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("observed") / "model.so"
    build = Build(read_model(MODEL), Options(targets=parse_targets("cuda")))
    build.run(path)
    return build, path


@pytest.fixture
def session(machine: Machine, built: tuple[Build, Path]) -> Iterator[nacre.Session]:
    yield load(built[1], device="cuda").session()
    assert not machine.error


def inputs(batch: int = 3) -> tuple[Array, Array]:
    return np.random.default_rng(batch).normal(size=(batch, 6)).astype(np.float32), np.arange(batch)[::-1].copy()


def expected_values(build: Build, *given: Array) -> dict[str, Array]:
    assert build.optimized is not None
    values: dict[str, Array] = {}

    def keep(node: Any, results: Any) -> None:
        values.update(zip((v.name for v in node.outputs), results, strict=True))

    arguments = [*given, np.zeros(6, np.float32)]
    Interpreter(build.optimized, build.read_parameters(), observe=keep).run("net", arguments)
    return values


@pytest.mark.parametrize("on_device", [False, True])
def test_every_kernel_is_observed_with_its_results(
    machine: Machine, built: tuple[Build, Path], session: nacre.Session, on_device: bool
) -> None:
    x, i = inputs()
    expected = expected_values(built[0], x, i)
    outs = tuple(Interface(machine, np.zeros_like(x)) for _ in range(2)) if on_device else None
    seen: list[str] = []
    runs: set[int] = set()

    def tell(event: Event) -> None:
        assert event.entry == "net" and event.dims == {"B": 3} and event.shares == () and event.begin <= event.end
        runs.add(event.run)
        for value in event.call.values:
            seen.append(value.name)
            array = event.array(value)
            assert array.dtype == expected[value.name].dtype
            np.testing.assert_allclose(array, expected[value.name], rtol=1e-5, atol=1e-6, err_msg=value.name)

    with observe(session, tell):
        results = session.entries["net"](x, i, out=outs)
    arrays = [out.copy(to_device=False) if isinstance(out, Interface) else np.asarray(out) for out in results]
    session.reset()
    plain = session.entries["net"](x, i)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, plain, strict=True))
    assert len(seen) == len(set(seen)) >= 5 and len(runs) == 1
    for out in outs or ():
        out.release()


def test_observed_calls_between_replayed_graphs(machine: Machine, session: nacre.Session) -> None:
    """An observed call launches no graph, and leaves those of other calls as they are."""
    x, i = inputs()
    entry, numbers = session.entries["net"], [0]
    first = [np.asarray(y) for y in entry(x, i)]
    for observed in (False, False, True, False, True):
        begin = len(machine.log)
        if observed:
            with observe(session, lambda event: numbers.append(event.call.number)):
                results = entry(x, i)
        else:
            results = entry(x, i)
        assert ("cuGraphLaunch" in machine.log[begin:]) != observed
        assert all(np.array_equal(a, b) for a, b in zip(results, first, strict=True))
    assert numbers[1:] == 2 * sorted(set(numbers))
    np.testing.assert_allclose(session.states["total"], 6 * first[0][0], rtol=1e-6)


def test_index_out_of_range_in_an_observed_call(session: nacre.Session) -> None:
    x, i = inputs()
    i[1] = 3
    with observe(session, lambda event: None), pytest.raises(OutOfRangeError, match="index 3 is out of range"):
        session.entries["net"](x, i)
    i[1] = 1
    session.entries["net"](x, i)


@pytest.mark.parametrize("function", ["cuMemcpyDtoHAsync", "cuStreamSynchronize", "cuLaunchKernel"])
def test_device_that_fails_while_it_is_observed(machine: Machine, session: nacre.Session, function: str) -> None:
    x, i = inputs()
    session.entries["net"](x, i)
    events: list[int] = []
    with observe(session, lambda event: events.append(event.call.number)):
        machine.fail(function, 2)
        with pytest.raises(nacre.NacreError, match="CUDA error 999"):
            session.entries["net"](x, i)
    assert events == list(range(len(events))) and len(events) < len(calls(session)["net"])
    session.entries["net"](x, i)


def test_times_are_recorded_without_copies(machine: Machine, session: nacre.Session) -> None:
    x, i = inputs()
    session.entries["net"](x, i)

    def copies(observer: Any) -> int:
        begin = machine.log.count("cuMemcpyDtoHAsync")
        with observer:
            session.entries["net"](x, i)
        return machine.log.count("cuMemcpyDtoHAsync") - begin

    recorder = record(session)
    assert copies(observe(session, lambda event: None)) > copies(recorder)
    with record(session) as recording:
        session.entries["net"](x, i)
    records = recording.records
    assert list(records["call"]) == [*(call.number for call in calls(session)["net"]), -1]
    kernels, (run,) = records[:-1], records[-1:]
    assert (kernels["begin"] < kernels["end"]).all() and (kernels["end"][:-1] <= kernels["begin"][1:]).all()
    assert run["begin"] <= kernels["begin"][0] and kernels["end"][-1] <= run["end"] and not records["thread"].any()


@pytest.mark.parametrize(
    ("function", "nth"),
    [
        *(("cuEventCreate", nth) for nth in (1, 2, 3, 4)),
        *(("cuEventRecord", nth) for nth in (1, 2, 3, 12)),
        *(("cuEventElapsedTime", nth) for nth in (1, 2, 11)),
        *(("cuStreamSynchronize", nth) for nth in (1, 2, 3)),
        ("cuLaunchKernel", 2),
    ],
)
def test_device_that_fails_while_times_are_recorded(
    machine: Machine, session: nacre.Session, function: str, nth: int
) -> None:
    """The call fails, and leaves no event behind."""
    x, i = inputs()
    session.entries["net"](x, i)
    left = machine.left
    with record(session) as recording:
        machine.fail(function, nth)
        with pytest.raises(nacre.NacreError, match="CUDA error 999"):
            session.entries["net"](x, i)
        assert machine.left == left and -1 not in recording.records["call"]
        session.entries["net"](x, i)
    assert machine.left == left and recording.records["call"][-1] == -1


def test_index_out_of_range_while_times_are_recorded(machine: Machine, session: nacre.Session) -> None:
    x, i = inputs()
    i[1] = 3
    with record(session), pytest.raises(OutOfRangeError, match="index 3 is out of range"):
        session.entries["net"](x, i)


def test_loop_of_more_kernels_than_are_read_together(machine: Machine, tmp_path: Path) -> None:
    """The number of iterations is 300, and each one has a record."""
    text = """language 1
dim T in 1..400
model loop(x: f32[T, 4], h: f32[4]) -> f32[4] {
  scan t in 0..T with y = h { y = cumsum(x[t] + y) }
  return y
}
"""
    Build(read_model(text), Options(targets=parse_targets("cuda"))).run(tmp_path / "loop.so")
    model = load(tmp_path / "loop.so", device="cuda")
    x, h = np.full((300, 4), 1e-3, np.float32), np.zeros(4, np.float32)
    model(x, h)
    with record(model) as recording:
        model(x, h)
    records = recording.records
    _, counts = np.unique(records["call"], return_counts=True)
    assert max(counts) == 300 and (np.diff(records["begin"][:-1]) >= 0).all()
    profile = profile_entry(model, model.entries["loop"], [x, h], 0, 0.0)
    assert max(k.calls for k in profile.kernels()) == 300 and profile.outside > 0


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "chain.nacre"
    path.write_text("""language 1
dim B in 1..8

model m(x: f32[B, 8]) -> y: f32[B, 8] {
  first = cumsum(x, axis=1)
  second = cumsum(first, axis=0)
  return cumsum(second, axis=1)
}
""")
    return path


def test_diff_names_the_first_value_that_differs(
    machine: Machine, chain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = Build(read_model(chain), Options(targets=parse_targets("cuda")))
    build.run(Path("m.so"))
    command = ["diff", "m.so", str(chain), "-O0", "--at", "B=2", "--json"]
    assert run(command) == 0
    data = json.loads(capsys.readouterr().out)
    names = [point["point"] for point in data["points"]]
    assert data["note"] == "" and names[:2] == ["first", "second"] and names[-1] == "result y"
    machine.plant(r"add\.f32", "sub.f32", [kernels_of(build, "m")[1]])
    assert run(command) == 1
    assert json.loads(capsys.readouterr().out)["first_divergence"] == "second"
