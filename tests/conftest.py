"""Options and the cache of the whole test run."""

from __future__ import annotations

import os
from collections.abc import Iterator

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


@pytest.fixture(scope="module")
def checked() -> Iterator[None]:
    """Whatever these tests compile is checked stage by stage: a pass or a kernel that is wrong is named."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "1")
        yield
