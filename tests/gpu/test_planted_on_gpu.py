"""Faults that are planted in what compiles for GPUs: `--check-passes` names the stage and the line of each."""

from __future__ import annotations

from pathlib import Path

import nacre
import pytest
from fake_driver import Machine
from nacre.compiler.base.compiler_errors import WrongNumbersError
from planted.in_gpu import FAULTS
from planted.planted import Planted
from planted.planting import plant, write_model


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_planted_fault_is_found(machine: Machine, fault: Planted, tmp_path: Path) -> None:
    model, artifact = write_model(fault, tmp_path), tmp_path / "model.so"
    assert fault.target is not None
    # A device gives wrong numbers where two tensors overlap, and reports no race.
    machine.find_races(False)
    with plant(fault, tmp_path / "cache"), pytest.raises(WrongNumbersError) as caught:
        nacre.compile(model, artifact, check_passes=True, target=fault.target)
    span = caught.value.diagnostic.span
    assert span is not None and (caught.value.stage, span.line) == (fault.stage, fault.line)
    assert not artifact.exists()
