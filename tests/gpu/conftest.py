"""The fake driver, one for all tests of a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_driver import Machine, start_machine


def _share(factory: pytest.TempPathFactory, name: str) -> Path:
    """Returns a folder for all processes of the run."""
    root = factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / name
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def machine_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each module is translated and compiled once in the run."""
    return _share(tmp_path_factory, "machine")


@pytest.fixture(scope="session")
def assembled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each kernel is assembled once in the run for an architecture."""
    return _share(tmp_path_factory, "assembled")


@pytest.fixture
def machine(machine_folder: Path) -> Iterator[Machine]:
    """The machine, as after its start; no test leaves anything allocated."""
    made = start_machine(machine_folder)
    made.reset()
    yield made
    made.reset()
