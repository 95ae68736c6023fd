"""Elementary functions of f64 on a GPU: the stated errors, special values, and arguments of any size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from assembler import check_assembly
from double_math import OPERATORS, arguments, errors_of
from fake_driver import Machine
from nacre.compiler.api import read_model
from nacre.compiler.codegen.elementary.double_math import DOUBLE
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("math") / "math.so"
    text = "language 1\ndim N in 0..100000\n"
    for name in DOUBLE.formulas:
        names = ["x", "y"][: len(arguments(name))]
        takes = ", ".join(f"{n}: f64[N]" for n in names)
        called = f"{OPERATORS.get(name, name)}({', '.join(names)})"
        text += f"model compute_{name}({takes}) -> f64[N] {{ return {called} }}\n"
    Build(read_model(text), Options(targets=parse_targets("cuda:sm_80"))).run(path)
    return path


def measure(model: nacre.Model, name: str) -> Mapping[str, Any]:
    x = arguments(name)
    return errors_of(name, x, np.asarray(model.entries[f"compute_{name}"](*x)))


@pytest.mark.parametrize("name", DOUBLE.formulas)
def test_error_is_the_stated_one(machine: Machine, artifact: Path, name: str) -> None:
    found = measure(nacre.load(artifact, device="cuda"), name)
    assert not found["wrong"], found
    # The bound is tight enough that a lost term of a series is noticed.
    assert DOUBLE.ulp[name] / 3 <= found["ulp"] <= DOUBLE.ulp[name], found
    assert not machine.error


def test_functions_are_assembled(artifact: Path, assembled: Path) -> None:
    check_assembly(artifact, assembled, "sm_80")


def test_planted_fault_is_found(machine: Machine, artifact: Path) -> None:
    """The lowest bit of the first part of ln 2 is flipped."""
    machine.edit = lambda text: text.replace("FE62E42FEE00000", "FE62E42FEE00001")
    assert measure(nacre.load(artifact, device="cuda"), "exp")["ulp"] > 3 * DOUBLE.ulp["exp"]
