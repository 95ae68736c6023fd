"""With a fault planted, `--check-passes` names the stage and the source line; without it, it says nothing."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.checking.checker import Checker
from nacre.compiler.checking.faults import WrongNumbers
from nacre.compiler.frontend import load_module
from nacre.compiler.pipeline import Build, Options
from nacre.passes.registry import PASSES
from planted import FAULTS, Planted, plant, write_model


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_a_planted_fault_is_found(fault: Planted, tmp_path: Path) -> None:
    model, artifact = write_model(fault, tmp_path), tmp_path / "model.so"
    with plant(fault, tmp_path / "cache"), pytest.raises(WrongNumbers) as caught:
        nacre.compile(model, artifact, check_passes=True)
    wrong = caught.value
    assert wrong.diagnostic.span is not None
    assert (wrong.stage, wrong.diagnostic.span.line) == (fault.stage, fault.line)
    assert not artifact.exists()
    inputs = np.load(wrong.reproducer / "inputs.npz")
    assert list(inputs) == ["x"] and fault.name in (wrong.reproducer / "fault.txt").read_text()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_without_it_all_is_quiet(fault: Planted, tmp_path: Path) -> None:
    elaborated = load_module(write_model(fault, tmp_path))
    build = Build(elaborated, observer=Checker(elaborated, Options()))
    if fault.stage in PASSES:
        build.optimize()
    else:
        build.run(tmp_path / "model.so")
