"""Observing a loaded model: every intermediate tensor, times, threads, and what is refused."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.dialect.graph import Node
from nacre.dialect.interpreter import Interpreter
from nacre.runtime.arguments import Array
from nacre.runtime.loader import NacreError, load
from nacre.runtime.observe import Event, calls, evaluate, observe, record

TEXT = """dim B in 1..8
dim T in 1..64

block Layer(x: f32[B, T, 16]) -> f32[B, T, 16] {
  weight = reshape(iota(256, dtype=f32), [16, 16]) / 200.0
  return layer_norm(tanh(x @ weight) + x)
}

model main(x: f32[B, T, 16], ids: i64[T]) -> y: f32[B, T, 16], s: f32[B, T, T], again: i64[T], odd: bool[T] {
  use layer[3] = Layer
  y = x
  repeat i in 0..3 { y = layer[i](y) }
  return y, softmax(y @ x.mT), ids, (ids % 2) == 1
}

model other(x: f32[B]) -> f32[B] { return exp(x) }
"""


@pytest.fixture(scope="module", params=[0, 2])
def build(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    made = Build(read_model(TEXT), Options(level=request.param))
    path = tmp_path_factory.mktemp("observe") / "m.so"
    made.run(path)
    return made, path


@pytest.fixture(scope="module")
def model(build: tuple[Build, Path]) -> nacre.Model:
    return load(build[1])


def inputs(batch: int = 2, length: int = 5) -> tuple[Array, Array]:
    x = np.random.default_rng(1).normal(size=(batch, length, 16)).astype(np.float32)
    return x, np.arange(length)


@pytest.mark.parametrize("length", [1, 5])
def test_every_kernel_is_observed_with_its_results(build: tuple[Build, Path], length: int) -> None:
    made, path = build
    assert made.optimized is not None
    expected: dict[str, Array] = {}

    def keep(node: Node, results: Any) -> None:
        expected.update(zip((v.name for v in node.outputs), results, strict=True))

    x, ids = inputs(length=length)
    Interpreter(made.optimized, made.read_parameters(), observe=keep).run("main", [x, ids])
    expected["ids.2"] = ids
    message: list[str] = []
    numbers: list[int] = []
    model = load(path)

    def tell(event: Event) -> None:
        assert event.entry == "main" and event.dims == {"B": 2, "T": length}
        numbers.append(event.call.number)
        for value in event.call.values:
            array = event.array(value)
            message.append(value.name)
            assert array.dtype == expected[value.name].dtype and array.shape == expected[value.name].shape
            np.testing.assert_allclose(array, expected[value.name], rtol=1e-5, atol=1e-6)

    plain = model.entries["main"](x, ids)
    with observe(model, tell):
        observed = model.entries["main"](x, ids)
    assert all(np.array_equal(a, b) for a, b in zip(plain, observed, strict=True))
    assert len(message) == len(set(message)) >= 8 and numbers == list(range(len(calls(model)["main"])))


def test_a_call_has_its_operators_and_their_spans(model: nacre.Model) -> None:
    matmuls = [o for c in calls(model)["main"] for o in c.operations if o.op == "matmul"]
    assert [(o.scope, evaluate(o.flops, {"B": 1, "T": 2})) for o in matmuls] == [
        *((f"layer.{i}", 2 * 2 * 16 * 16) for i in range(3)),
        ("", 2 * 2 * 2 * 16),
    ]
    assert [o.at and o.at.split(":")[1] for o in matmuls] == ["6", "6", "6", "13"]
    (exp,) = calls(model)["other"]
    assert exp.kind == "elements" and evaluate(exp.bytes, {"B": 3}) == 24 and exp.values[0].output == 0


def test_kernels_read_data_that_an_observer_wrote(model: nacre.Model) -> None:
    def tell(event: Event) -> None:
        for value in event.call.values:
            event.array(value)[...] = 7

    with observe(model, tell):
        assert (model.entries["other"](np.ones(3, np.float32)) == 7).all()
    assert (model.entries["other"](np.zeros(3, np.float32)) == 1).all()


def test_times(model: nacre.Model) -> None:
    main, (x, ids) = model.entries["main"], inputs(8, 64)
    main(x, ids)
    with record(model) as recording:
        before = time.perf_counter_ns()
        main(x, ids)
        model.entries["other"](x[:, 0, 0].copy())
        after = time.perf_counter_ns()
    records = recording.records
    assert recording.lost == 0 and before <= records["begin"].min() and records["end"].max() <= after
    first, second = (records[records["run"] == run] for run in np.unique(records["run"]))
    assert set(second["entry"]) == {1} and list(second["call"]) == [0, -1]
    kernels, (whole,) = first[first["call"] >= 0], first[first["call"] < 0]
    assert sorted(set(kernels["call"])) == [c.number for c in recording.calls[0]]
    assert (kernels["begin"] <= kernels["share_begin"]).all() and (kernels["share_end"] <= kernels["end"]).all()
    assert (kernels["busy"] <= kernels["share_end"] - kernels["share_begin"]).all() and (kernels["busy"] > 0).all()
    each = {c: int(e - b) for c, b, e in zip(kernels["call"], kernels["begin"], kernels["end"], strict=True)}
    assert sum(each.values()) <= whole["end"] - whole["begin"]


def test_records_beyond_the_capacity_are_counted(model: nacre.Model) -> None:
    with record(model, capacity=3) as recording:
        for _ in range(5):
            model.entries["other"](np.ones(1, np.float32))
    assert len(recording.records) == 3 and recording.lost == 7


def test_threads_may_call_meanwhile(build: tuple[Build, Path]) -> None:
    model = load(build[1])
    runs: list[int] = []
    x = np.ones(4, np.float32)
    with observe(model, lambda event: runs.append(event.run)):
        threads = [threading.Thread(target=lambda: [model.entries["other"](x) for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(runs) == len(set(runs)) == 200


def test_images_that_are_stored_with_channels_last_are_those_of_the_model(tmp_path: Path) -> None:
    """All sizes of `h` are equal, so that the numbers alone tell the order of the axes."""
    text = """model net(x: f32[8, 8, 12, 12]) -> f32[8, 8, 4, 4] {
      weight = cos(reshape(iota(1600, dtype=f32), [8, 8, 5, 5])) / 9.0
      h = tanh(conv2d(x, weight))
      return tanh(conv2d(h, weight))
    }
    """
    x = np.random.default_rng(0).normal(size=(8, 8, 12, 12)).astype(np.float32)
    turned: set[tuple[int, ...]] = set()
    found: list[dict[str, Array]] = []
    for level in (0, 2):
        Build(read_model(text), Options(level=level)).run(tmp_path / f"{level}.so")
        points: dict[str, Array] = {}

        def tell(event: Event, points: dict[str, Array] = points) -> None:
            for value in event.call.values:
                if value.point is not None:
                    turned.add(value.point.axes)
                    points[value.point.name] = np.array(value.point.turn(event.array(value)))

        model = load(tmp_path / f"{level}.so")
        with observe(model, tell):
            model(x)
        found.append(points)
    plain, optimized = found
    assert turned == {(), (0, 3, 1, 2)}
    assert "h" in plain.keys() & optimized.keys()
    for name in plain.keys() & optimized.keys():
        np.testing.assert_allclose(optimized[name], plain[name], rtol=1e-4, atol=1e-4, err_msg=name)


def test_a_failure_comes_out_at_the_end(model: nacre.Model) -> None:
    message: list[str] = []

    def tell(event: Event) -> None:
        message.append(event.call.kind)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), observe(model, tell):
        model.entries["main"](*inputs())
        model.entries["main"](*inputs())
    assert len(message) == 1
    with observe(model, lambda event: message.append(event.entry)):
        model.entries["other"](np.ones(1, np.float32))
    assert message[1:] == ["other"]


def test_one_observer_at_a_time(model: nacre.Model) -> None:
    with record(model), pytest.raises(NacreError, match="is observed already"), record(model):
        pass
    with record(model):
        pass


def test_older_artifacts_say_so(build: tuple[Build, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(build[1])
    functions = {k: f for k, f in model._session.library.functions.items() if k not in ("describe_calls", "record")}
    monkeypatch.setattr(model._session.library, "functions", functions)
    with pytest.raises(NacreError, match="older Nacre: it cannot be observed"), observe(model, print):
        pass
    with pytest.raises(NacreError, match="older Nacre: it cannot be observed"), record(model):
        pass
