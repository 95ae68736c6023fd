"""Invalid calls fail with a clear error and leave the device as it was."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nacre
import numpy as np

from .cases import call, load
from .compare import Array
from .driver import Driver, device_number, is_lost
from .records import DeviceLostError, Record, began, ended

MODEL = "errors"
"""The artifact: `pick(x: f32[B, 8], i: i64[B])` returns `x @ w.T` and rows of `w`, which has 20."""
OTHERS = {"errors-sm_90a": 90, "errors-sm_120a": 120}
"""Artifacts for one architecture alone."""
PROGRAM = Path(__file__).resolve().parents[1]


def arguments(batch: int) -> list[Array]:
    rng = np.random.default_rng(batch)
    return [rng.normal(size=(batch, 8)).astype(np.float32), rng.integers(-20, 20, batch)]


def message_of(action: Callable[[], object]) -> str:
    try:
        action()
    except nacre.NacreError as error:
        return str(error)
    return "no error"


class Checks:
    """Each method whose name begins with `check_` returns the actual message and the expected part of it."""

    def __init__(self, folder: Path, device: str, rounds: int) -> None:
        self.folder, self.device, self.rounds = folder, device, rounds
        self.driver = Driver()
        self.opened = self.driver.open(device_number(device))

    def model(self) -> nacre.Model:
        return load(self.folder, MODEL, self.device)

    def is_right(self, model: nacre.Model) -> bool:
        """Returns whether rows are looked up as on the host."""
        x, i = arguments(5)
        _, z = call(model, "pick", [x, i])
        weight = np.load(self.folder / f"{MODEL}.npz")["w"]
        return bool((z == weight[i]).all())

    def check_missing_driver(self) -> tuple[str, str]:
        code = f"import nacre; nacre.load({str(self.folder / MODEL) + '.so'!r}, device='cuda')"
        environment = os.environ | {"NACRE_CUDA_DRIVER": "/nowhere/libcuda.so", "PYTHONPATH": str(PROGRAM)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        return done.stderr, "there is no CUDA driver"

    def check_missing_device(self) -> tuple[str, str]:
        return message_of(lambda: load(self.folder, MODEL, "cuda:63")), "there is no device `cuda:63`"

    def check_other_architecture(self) -> tuple[str, str]:
        name = next(name for name, capability in OTHERS.items() if capability != self.opened.capability)
        return message_of(lambda: load(self.folder, name, self.device)), "and the device is sm_"

    def check_cpu(self) -> tuple[str, str]:
        return message_of(lambda: load(self.folder, MODEL, "cpu")), "the artifact has no code for a CPU"

    def check_index_out_of_range(self) -> tuple[str, str]:
        model = self.model()
        x, i = arguments(4)
        i[2] = 20
        message = message_of(lambda: call(model, "pick", [x, i]))
        return (message, "index 20 is out of range") if self.is_right(model) else ("wrong results later", "right ones")

    def check_out_of_memory(self) -> tuple[str, str]:
        model = self.model()
        with self.driver.filled(1 << 20):
            message = message_of(lambda: call(model, "pick", arguments(1 << 17)))
        return (message, "out of memory") if self.is_right(model) else ("wrong results later", "right ones")

    def check_leaks(self) -> tuple[str, str]:
        """The driver keeps some memory after the first rounds; no round after them may keep more."""
        free = []
        for _ in range(3 * self.rounds):
            model = self.model()
            assert self.is_right(model)
            message_of(lambda model=model: call(model, "pick", [arguments(2)[0], np.array([99, 99])]))
            del model
            gc.collect()
            free.append(self.driver.memory()[0])
        kept = free[self.rounds] - free[-1]
        return ("nothing is kept" if kept <= 0 else f"{kept} bytes are kept"), "nothing is kept"


CHECKS = tuple(name for name in dir(Checks) if name.startswith("check_"))


def check_errors(folder: Path, device: str, rounds: int, first: int) -> Iterator[Record]:
    checks = Checks(folder, device, rounds)
    for name in CHECKS[first:]:
        yield began(name.removeprefix("check_"))
        try:
            actual, expected = getattr(checks, name)()
            failure = None if expected in actual else f"expected `{expected}`, got `{actual[-300:]}`"
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        yield ended(name.removeprefix("check_"), failure)
        if failure and is_lost(device):
            raise DeviceLostError
