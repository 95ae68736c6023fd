"""Threads that use one device at once: what a lock guards is reached by one of them at a time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread

import nacre
import numpy as np
import pytest
from fake_driver import Machine
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.runtime.loader import load_later

MODEL = """language 1
dim B in 1..64
model m(x: f32[B, 8]) -> f32[B, 20] {
  param w: f32[20, 8]
  return x @ w.T
}
"""
WEIGHT = np.random.default_rng(1).integers(-8, 8, (20, 8)).astype(np.float32)
INPUTS = [np.random.default_rng(n).integers(-8, 8, (n, 8)).astype(np.float32) for n in (5, 9)]
"""Small integers, whose products have exact sums."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("threads")
    np.savez(folder / "w.npz", w=WEIGHT)
    for weights in ("inside", "external"):
        options = Options(targets=parse_targets("cuda"), weights=weights)
        Build(read_model(MODEL, folder / "w.npz"), options).run(folder / f"{weights}.so")
    return folder


def meet(machine: Machine, function: str, first: Callable[[], object], second: Callable[[], object]) -> list[object]:
    """Runs `second` in another thread while `first` waits in a function of the driver; returns what both returned.
    Fails if both threads were in the function at once."""
    results: list[object] = [None, None]

    def work(number: int, task: Callable[[], object]) -> None:
        results[number] = task()

    threads = [Thread(target=work, args=each) for each in enumerate((first, second))]
    machine.library.fake_meet(function.encode())
    threads[0].start()
    deadline = time.monotonic() + 30
    while machine.library.fake_arrived() == 0:
        assert time.monotonic() < deadline and threads[0].is_alive(), f"{function} was not called"
        time.sleep(0.001)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert machine.library.fake_most_arrived() == 1, f"two threads met in {function}"
    assert not machine.error
    return results


def start(path: Path) -> nacre.Model:
    """Loads a model without the lock that `cached_property` of Python 3.11 has for all sessions of a process; later
    versions have none."""
    model = load_later(path)
    session = model._session
    if "external" in path.name:
        session.settings = (f"{path}.safetensors", *session.settings[1:])
    session.__dict__["handle"] = type(session).handle.func(session)
    return model


def assert_right(results: list[object]) -> None:
    for x, y in zip(INPUTS, results, strict=True):
        np.testing.assert_array_equal(np.asarray(y), x @ WEIGHT.T)


@pytest.mark.parametrize("function", ["cuMemcpyHtoDAsync", "cuStreamSynchronize"])
def test_calls_of_one_model(machine: Machine, folder: Path, function: str) -> None:
    model = nacre.load(folder / "inside.so", device="cuda")
    assert_right(meet(machine, function, lambda: model(INPUTS[0]), lambda: model(INPUTS[1])))


def test_a_stream_is_chosen_during_a_call(machine: Machine, folder: Path) -> None:
    model = nacre.load(folder / "inside.so", device="cuda")
    y, _ = meet(machine, "cuStreamSynchronize", lambda: model(INPUTS[0]), lambda: model.use_stream(1))
    assert_right([y, model(INPUTS[1])])


LOADING = [("inside", "cuModuleLoadDataEx"), ("external", "cuModuleLoadDataEx"), ("external", "cuMemAlloc")]


@pytest.mark.parametrize(("weights", "function"), LOADING)
def test_models_are_loaded_at_once(machine: Machine, folder: Path, weights: str, function: str) -> None:
    """Code and weights come to the device once."""
    load = partial(start, folder / f"{weights}.so")
    models = meet(machine, function, load, load)
    assert machine.log.count("cuModuleLoadDataEx") == 1
    assert_right([model(x) for model, x in zip(models, INPUTS, strict=True) if isinstance(model, nacre.Model)])
    assert machine.log.count("cuMemcpyHtoDAsync") == 3
    models.clear()
    gc.collect()
    assert machine.left == 0


def test_a_model_is_loaded_while_another_is_released(machine: Machine, folder: Path) -> None:
    """The code that the released model leaves is not taken by the other, which would run what was unloaded."""
    path = folder / "inside.so"
    models = [start(path)]
    known = len(machine.log)
    _, model = meet(machine, "cuDevicePrimaryCtxRelease", models.clear, partial(start, path))
    after = machine.log[known:]
    assert after.index("cuDevicePrimaryCtxRelease") < after.index("cuDevicePrimaryCtxRetain")
    assert isinstance(model, nacre.Model)
    assert_right([model(x) for x in INPUTS])
    del model
    gc.collect()
    assert machine.left == 0
