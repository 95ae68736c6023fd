"""Options and the cache of the whole test run, in which every build is checked."""

from __future__ import annotations

import os
import tempfile

import pytest
from nacre.compiler.checking.checker import VARIABLE


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update", action="store_true", help="rewrite the expectations of the file tests; read the diff afterwards"
    )


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One folder for all processes of the run: neither takes a test what the user compiled, nor leaves it anything."""
    root = tmp_path_factory.getbasetemp()
    os.environ["NACRE_CACHE"] = str((root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "cache")


@pytest.fixture(scope="session", autouse=True)
def own_temporary_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Reproducers of faults outlive the processes that write them, and go with the folders of the run."""
    tempfile.tempdir = os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("temporary"))


def pytest_configure(config: pytest.Config) -> None:
    # Set before processes of the run start. Whatever tests build is checked stage by stage, so that a pass or a kernel
    # that is wrong is named; and threads of the interpreter's products would only be in each other's way.
    os.environ.setdefault(VARIABLE, "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """For builds that are not to be checked: what is taken from a cache, or computes something else on purpose."""
    monkeypatch.delenv(VARIABLE, raising=False)
