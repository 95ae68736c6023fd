"""The interpreter finds faults in kernels: every mutation of `mutations` is noticed."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import mutations
import nacre
import numpy as np
import pytest
from compile_kernels import find_ptx
from fake_driver import Machine
from mutations import AMPERE, HOPPER, SHAPES, Mutation
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets

TOLERANCE = 1e-3
"""Results of f16 are rounded twice, by half of 2^-10 each."""
ALL = {**AMPERE, **HOPPER}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[Path, frozenset[str]]]:
    """The artifact of each model, and its kernels."""
    made = {}
    for target, source in (("sm_80", mutations.AMPERE_SOURCE), ("sm_90a", mutations.HOPPER_SOURCE)):
        path = tmp_path_factory.mktemp(target) / "model.so"
        build = Build(read_model(source), Options(targets=parse_targets(f"cuda:{target}")))
        build.run(path)
        assert build.program is not None
        for function in build.program.lowered.functions:
            made[function.name] = (path, frozenset(call.symbol for call in function.calls))
    return made


def error_of(machine: Machine, path: Path, name: str) -> float:
    """Returns the greatest error of a call, as a share of the greatest result; infinity where there is no result."""
    # A device keeps its modules while a session exists, also in the traceback of an error.
    gc.collect()
    machine.library.fake_clear()
    rng = np.random.default_rng(1)
    dtype = np.float16 if name in ("tensor", "attend", "tiles") else np.float32
    arrays = [rng.normal(size=shape).astype(dtype) for shape in SHAPES[name]]
    try:
        result = np.asarray(nacre.load(path, device="cuda").entries[name](*arrays)).astype(np.float64)
    except nacre.NacreError:
        assert machine.error, "the kernel was refused, not run"
        return float("inf")
    expected = mutations.reference(name, *arrays)
    error = np.max(np.abs(result - expected)) / np.max(np.abs(expected))
    return float("inf") if np.isnan(error) else float(error)


@pytest.mark.parametrize("name", ALL)
def test_mutations_are_noticed(machine: Machine, built: Mapping[str, tuple[Path, frozenset[str]]], name: str) -> None:
    path, symbols = built[name]
    # The four tiles of a Hopper kernel are those of two persistent blocks.
    machine.reset(capability=90 if name in HOPPER else 80, processors=2)
    mutants: dict[str, dict[str, str]] = {mutation.label: {} for mutation in ALL[name]}
    """By the label of a mutation, the modules that it changes, and their texts with it."""
    for text in find_ptx(path.read_bytes()):
        if any(f".entry {symbol}" in text for symbol in symbols):
            for mutation in ALL[name]:
                with suppress(LookupError):
                    mutants[mutation.label][text] = mutation.apply(text)
    assert error_of(machine, path, name) <= TOLERANCE
    survivors = []
    for mutation in ALL[name]:
        changed = mutants[mutation.label]
        assert changed, f"{name}: {mutation.label} changes nothing"
        machine.edit = lambda text, changed=changed: changed.get(text, text)
        error = error_of(machine, path, name)
        if error <= 2 * TOLERANCE:
            survivors.append(mutation.label)
    assert survivors == []


def test_there_are_enough() -> None:
    def count(tables: Sequence[Mapping[str, Sequence[Mutation]]]) -> int:
        return sum(len(each) for table in tables for each in table.values())

    assert count([AMPERE, HOPPER]) >= 60
