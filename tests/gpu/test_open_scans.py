"""Running sums and products whose length is that of a call: threads share the rows of a call, if they are few."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import nacre
import numpy as np
import pytest
from assembler import check_assembly
from fake_driver import Machine, schedules_of
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.validate.inputs import random_trial
from nacre.compiler.validate.judge import Judge

SOURCE = """language 1
dim R in 0..3
dim B in 0..64
dim T in 0..1000000
model rows(x: f32[R, T]) -> f32[R, T] { return cumsum(x, axis=1) }
model before(x: f64[R, T, 3]) -> f64[R, T, 3] { return cumsum(x, axis=1, exclusive=true) }
model back(x: f16[T]) -> f16[T] { return cumsum(x, axis=0, reverse=true) }
model brains(x: bf16[R, T]) -> bf16[R, T] { return cumsum(x, axis=1, exclusive=true, reverse=true) }
model both(x: i32[T, R]) -> i32[T, R] { return cumsum(x, axis=0, exclusive=true, reverse=true) }
model longs(x: i64[R, T]) -> i64[R, T] { return cumprod(x, axis=1) }
model factors(x: f32[R, T]) -> f32[R, T] { return cumprod(x, axis=1, exclusive=true) }
model double(x: f32[R, T]) -> f32[R, T] { return 2.0 * cumsum(x * x, axis=1) + 1.0 }
model short(x: f32[R, B]) -> f32[R, B] { return cumsum(x, axis=1) }
model recurrent(d: f32[R, T], x: f32[R, T]) -> f32[R, T] { return linear_recurrence(d, x, axis=1) }
"""
UNSPLIT = ("short", "recurrent")
"""A length of at most 64, and steps that no single operation combines."""
NAMES = [line.split("(")[0][6:] for line in SOURCE.splitlines() if line[:5] == "model"]
SIZES = (0, 1, 7, 448, 449, 511, 1025, 5003)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("scans") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


def test_scans_are_split(built: tuple[Build, Path], assembled: Path) -> None:
    split = {name for name in NAMES if "scan in parts of 256 threads" in schedules_of(built[0], name)}
    assert split == set(NAMES) - set(UNSPLIT)
    check_assembly(built[1], assembled, "sm_80", "sm_90")


@pytest.mark.parametrize("name", NAMES)
def test_numbers(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    (function,) = (function for function in built[0].source_model.module.functions if function.name == name)
    entry = nacre.load(built[1], device="cuda").entries[name]
    for length in SIZES:
        for rows in (0, 1, 3) if length == 1025 else (3,):
            dims = {"R": rows, "T": length, "B": min(length, 64)}
            trial = random_trial(function, dims, "special" if rows == 1 else "ordinary")
            judge = Judge(built[0].source_model.module, trial, {})
            first, again = (np.asarray(entry(*trial.arguments)) for _ in range(2))
            assert not machine.error
            assert first.tobytes() == again.tobytes()
            assert judge.difference([first]) is None, dims


@pytest.mark.parametrize("place", [0, 63, 64, 700, 1024])
def test_values_that_are_not_finite(machine: Machine, built: tuple[Build, Path], place: int) -> None:
    """A number that is NaN or infinite changes no element before it, in whichever part it is."""
    entry = nacre.load(built[1], device="cuda").entries["rows"]
    for value in (np.nan, np.inf, -np.inf):
        x = np.ones((2, 1025), np.float32)
        x[1, place] = value
        expected = np.cumsum(x, axis=1)
        np.testing.assert_array_equal(np.asarray(entry(x)), expected)
    assert not machine.error


@pytest.mark.parametrize(
    ("name", "dims", "expected"),
    [
        ("rows", {"R": 3, "T": 448}, [1]),
        ("rows", {"R": 3, "T": 449}, [1, 1]),
        ("rows", {"R": 3, "T": 20_000}, [4, 4]),
        ("rows", {"R": 1, "T": 200_000}, [4, 4]),
        ("rows", {"R": 0, "T": 20_000}, []),
        ("both", {"R": 2, "T": 100_000}, [7, 7, 196]),
    ],
)
def test_blocks(
    machine: Machine, built: tuple[Build, Path], name: str, dims: Mapping[str, int], expected: list[int]
) -> None:
    """A part has 64 elements at least, and a row 1024 parts at most. Elements in reverse are turned by a launch."""
    (function,) = (function for function in built[0].source_model.module.functions if function.name == name)
    trial = random_trial(function, dims)
    for processors in (1, 132):
        machine.reset(processors=processors)
        entry = nacre.load(built[1], device="cuda").entries[name]
        begin = machine.launches
        entry(*trial.arguments)
        assert [machine.blocks_of(number) for number in range(begin, machine.launches)] == expected
