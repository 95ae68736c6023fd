"""Elementary functions of f32 on a GPU: the stated errors, special values, and arguments of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from double_math import OPERATORS, reference
from fake_driver import Machine
from nacre.compiler.api import read_model
from nacre.compiler.codegen.elementary.double_math import DOUBLE
from nacre.compiler.codegen.elementary.vector_math import SINGLE
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets

Array = npt.NDArray[Any]
SPECIAL = (0.0, 1e-45, 2.0**-126, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 2.5, 127.0, 2.0**24 + 2, 3.4e38, np.inf)
BINARY = frozenset({"powf", "atan2"})


def arguments(name: str) -> list[Array]:
    """Returns random bits, numbers around the ends of results, and special values; of two arguments, all pairs of
    special values."""
    rng = np.random.default_rng(len(name))
    ends = np.array([*SPECIAL, *(-x for x in SPECIAL), np.nan])
    if name in BINARY:
        pairs = [grid.reshape(-1) for grid in np.meshgrid(ends, ends)]
        x = np.concatenate([np.exp2(rng.uniform(-40, 40, 900)), 1 + rng.uniform(-0.01, 0.01, 300), pairs[0]])
        y = np.concatenate([rng.uniform(-4, 4, 900), rng.uniform(-500, 500, 300), pairs[1]])
        return [x.astype(np.float32), y.astype(np.float32)]
    bits = rng.integers(0, 1 << 32, 1500, dtype=np.uint32).view(np.float32)
    parts = (rng.uniform(-110, 95, 1500), rng.uniform(-11, 11, 1500), rng.uniform(0.4, 2, 1000), ends)
    return [np.concatenate([bits, *(part.astype(np.float32) for part in parts)])]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("math") / "math.so"
    text = "language 1\ndim N in 0..100000\n"
    for name in SINGLE.formulas:
        names = ["x", "y"] if name in BINARY else ["x"]
        takes = ", ".join(f"{n}: f32[N]" for n in names)
        text += (
            f"model compute_{name}({takes}) -> f32[N] {{ return {OPERATORS.get(name, name)}({', '.join(names)}) }}\n"
        )
    Build(read_model(text), Options(targets=parse_targets("cuda:sm_80"))).run(path)
    return path


def error_of(model: nacre.Model, name: str) -> tuple[float, list[Array]]:
    """Returns the largest error in units in the last place, and the first arguments whose special result is wrong."""
    x = arguments(name)
    got = np.asarray(model.entries[f"compute_{name}"](*x))
    with np.errstate(all="ignore"):
        exact = reference(name)(*(array.astype(np.longdouble) for array in x))
        rounded = exact.astype(np.float32)
        step = np.spacing(np.maximum(np.abs(rounded), np.float32(2.0**-126))).astype(np.longdouble)
        apart = np.abs(got.astype(np.longdouble) - exact) / step
        same = (got == rounded) & (np.signbit(got) == np.signbit(rounded)) | (np.isnan(got) & np.isnan(rounded))
    # A result within one unit of the largest number may be rounded to infinity, and of the smallest one to zero.
    is_special = np.isnan(exact) | np.isinf(exact) | (exact == 0)
    numbers = np.where(is_special | ~np.isfinite(rounded), 0, apart)
    wrong = is_special & ~same
    return float(np.max(np.where(np.isnan(numbers), np.inf, numbers))), [a[wrong][:3] for a in x if wrong.any()]


@pytest.mark.parametrize("name", SINGLE.formulas)
def test_error_is_at_most_the_stated_one(machine: Machine, artifact: Path, name: str) -> None:
    error, wrong = error_of(nacre.load(artifact, device="cuda"), name)
    assert not wrong and 0.4 < error <= SINGLE.ulp[name], (error, wrong)
    assert not machine.error


def test_doubles_have_the_same_functions() -> None:
    assert set(DOUBLE.formulas) == set(SINGLE.formulas) == set(SINGLE.ulp)


def test_planted_fault_is_found(machine: Machine, artifact: Path) -> None:
    """The first part of ln 2 is a little larger."""
    machine.edit = lambda text: text.replace("0fBF317200", "0fBF317300")
    error, _ = error_of(nacre.load(artifact, device="cuda"), "exp")
    assert error > 3 * SINGLE.ulp["exp"]
