"""The fake driver, one for all tests of a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_driver import Machine, start_machine


@pytest.fixture(scope="session")
def machine_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all processes of the run: each module is translated and compiled once."""
    root = tmp_path_factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "machine"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def machine(machine_folder: Path) -> Iterator[Machine]:
    """The machine, as after its start; no test leaves anything allocated."""
    made = start_machine(machine_folder)
    made.reset()
    yield made
    made.reset()
