"""With a fault planted, `--check-passes` names the stage and the source line; without it, it says nothing."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.checking.faults import WrongNumbers
from planted import FAULTS, Planted, plant, write_model


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_a_planted_fault_is_found(fault: Planted, tmp_path: Path) -> None:
    model, artifact = write_model(fault, tmp_path), tmp_path / "model.so"
    with plant(fault, tmp_path / "cache"), pytest.raises(WrongNumbers) as caught:
        nacre.compile(model, artifact, check_passes=True)
    wrong = caught.value
    print(wrong)
    assert wrong.diagnostic.span is not None
    assert (wrong.stage, wrong.diagnostic.span.line) == (fault.stage, fault.line)
    assert not artifact.exists()
    inputs = np.load(wrong.reproducer / "inputs.npz")
    assert list(inputs) == ["x"] and fault.name in (wrong.reproducer / "fault.txt").read_text()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_without_it_all_is_quiet(fault: Planted, tmp_path: Path) -> None:
    nacre.compile(write_model(fault, tmp_path), tmp_path / "model.so", check_passes=True)
