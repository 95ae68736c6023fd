"""With a fault planted, `--check-passes` names the stage and the source line; without it, it says nothing."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.base.compiler_errors import WrongNumbersError
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.readers.language import load_module
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.validate.checker import Checker
from nacre.compiler.weight_sizes import parse_bound
from nacre.passes.registry import PASSES
from planted.faults import FAULTS
from planted.planted import Planted
from planted.planting import plant, write_model


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_a_planted_fault_is_found(fault: Planted, tmp_path: Path) -> None:
    model, artifact = write_model(fault, tmp_path), tmp_path / "model.so"
    with plant(fault, tmp_path / "cache"), pytest.raises(WrongNumbersError) as caught:
        nacre.compile(model, artifact, check_passes=True, size=fault.size, target=fault.target or "native")
    wrong = caught.value
    assert wrong.diagnostic.span is not None
    found = (wrong.stage, wrong.diagnostic.span.line)
    assert found == (fault.stage, fault.line)
    assert not artifact.exists()
    with np.load(wrong.reproducer / "inputs.npz") as file:
        inputs = dict(file)
    states = ["total"] if "state total" in fault.model else []
    assert list(inputs) == [*fault.inputs, *states] and fault.name in (wrong.reproducer / "error.txt").read_text()


def test_the_call_at_which_a_process_dies_is_told(tmp_path: Path) -> None:
    fault = FAULTS["no-memory"]
    model = write_model(fault, tmp_path)
    with plant(fault, tmp_path / "cache"), pytest.raises(WrongNumbersError) as caught:
        nacre.compile(model, tmp_path / "model.so", check_passes=True)
    (told,) = (note.message for note in caught.value.diagnostic.notes if "watched" in note.message)
    assert told == "watched, it ends: SIGSEGV while running call 0"


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_without_it_all_is_quiet(fault: Planted, tmp_path: Path) -> None:
    source_model = load_module(write_model(fault, tmp_path))
    size = None if fault.size is None else parse_bound(fault.size)
    options = Options(size=size, targets=parse_targets(fault.target or "native"))
    build = Build(source_model, options, observer=Checker(source_model, options))
    if fault.stage in PASSES:
        build.optimize()
    else:
        build.run(tmp_path / "model.so")
