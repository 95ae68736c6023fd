"""Contenders of one piece of a model, timed beside PyTorch eager on one thread: what the sweeps have in common."""

from __future__ import annotations

import argparse
import fnmatch
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Contender, Plan, Timing, interleave, summarize
from nacre.compiler.tools.profile.machine import processor
from nacre.dialect.types import BF16, F16, F64, Array

OURS, TORCH = "nacre", "torch"
BUSY = "Other work ran on the machine at the same time; ratios vary by about 0.1 from run to run.\n"
NEAR = {BF16.numpy: 2**-7, F16.numpy: 2**-10, F64.numpy: 1e-9}
"""A result that is further from PyTorch's, as a share of the largest number, is wrong: two units of short floats."""
OTHERWISE_NEAR = 1e-3


@dataclass(frozen=True)
class Sweep:
    """How each line of a sweep is measured. With `cpu_time`, by the time of the calling thread, not of the clock."""

    plan: Plan
    cpu_time: bool = False


@dataclass(frozen=True)
class Measured:
    """Times by contender. `wrong` are the contenders whose results differ from PyTorch's, only ours is timed then."""

    timings: dict[str, Timing]
    wrong: tuple[str, ...] = field(default=())

    def ratio(self, peer: str) -> float | None:
        return self.timings[peer].ratio if peer in self.timings else None


def tensor(array: Array) -> torch.Tensor:
    """The tensor shares the array's memory: the speed of the caches depends on the pages by 5%."""
    if array.dtype == BF16.numpy:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def as_array(result: torch.Tensor) -> Array:
    return result.view(torch.int16).numpy().view(BF16.numpy) if result.dtype == torch.bfloat16 else result.numpy()


def listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def torch_contender(function: Any, arrays: Sequence[Array]) -> Contender:
    operands = [tensor(array) for array in arrays]

    def call() -> Any:
        with torch.inference_mode():
            return function(*operands)

    return Contender(TORCH, call, lambda results: [as_array(result) for result in listed(results)])


def is_near(contender: Contender, expected: Sequence[Array], *, signed: bool = True, units: float = 1.0) -> bool:
    """Returns whether the results are those of another contender, but for their signs unless they are `signed`.
    `units` multiplies the distance that is allowed."""
    results = contender.results()
    if len(results) < len(expected):
        return False
    for result, wanted in zip(results, expected, strict=False):
        if result.shape != wanted.shape:
            return False
        got, exact = (a.astype(np.float64) if signed else np.abs(a, dtype=np.float64) for a in (result, wanted))
        # A code may be rounded the other way.
        step = 1.0 if wanted.dtype == np.int8 else 0.0
        near = NEAR.get(wanted.dtype, OTHERWISE_NEAR) * units
        allowed = step + near * np.abs(exact).max(initial=1e-30)
        if not np.abs(got - exact).max(initial=0.0) <= allowed:
            return False
    return True


def measure(contenders: Sequence[Contender], sweep: Sweep, *, signed: bool = True, units: float = 1.0) -> Measured:
    """Times contenders in turn, PyTorch among them. A peer whose results differ from PyTorch's is not timed."""
    expected = next(c for c in contenders if c.name == TORCH).results()
    wrong = tuple(c.name for c in contenders if not is_near(c, expected, signed=signed, units=units))
    timed = [c for c in contenders if c.name not in wrong or c.name == OURS]
    if sweep.cpu_time:
        timed = [c.timed_by(time.thread_time) for c in timed]
    return Measured(summarize(interleave(timed, sweep.plan).seconds, OURS), wrong)


def format_ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def format_note(sweep: Sweep, packages: Iterable[str], command: str) -> str:
    """The lines above a table: the machine, the clock, the peers, and how to repeat it."""
    clock = "thread CPU time" if sweep.cpu_time else "wall time"
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    return (
        f"One thread of {processor()}, {clock}, median of {sweep.plan.rounds} rounds beside {versions}.\n"
        "A number is the peer's time over ours, so that above 1 we are faster.\n"
        f"{BUSY if sweep.cpu_time else ''}"
        f"`python tests/bench/{command} --markdown FILE` writes this file."
    )


def options(description: str | None) -> argparse.ArgumentParser:
    """The options that sweeps have in common."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=9, metavar="N")
    parser.add_argument("--slot", type=float, default=0.01, metavar="SECONDS", help="of each contender in each round")
    parser.add_argument("--cpu-time", action="store_true", help="time of the calling thread, not of the clock")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    return parser


def parse(parser: argparse.ArgumentParser, known: Iterable[str]) -> argparse.Namespace:
    """Reads the command line. `chosen` are those of the known names that it gives, as names or patterns."""
    given = parser.parse_args()
    given.chosen = [name for name in known if not given.names or any(fnmatch.fnmatch(name, p) for p in given.names)]
    if not given.chosen:
        parser.error(f"nothing is called {' or '.join(given.names)}")
    given.sweep = Sweep(Plan(given.rounds, given.slot), given.cpu_time)
    return given


def use_one_core() -> None:
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
