"""A pytest plugin: writes a line for each test, with its seconds and the mutants that it reached."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from reached import SEEN

LOG = "NACRE_REACH_LOG"
"""Names the file of these lines."""


_failed: set[str] = set()


def _write(test: str, seconds: float) -> None:
    infected = [number for number, state in enumerate(SEEN[:]) if state == 2]
    line = {"test": test, "seconds": round(seconds, 3), "infected": infected, "failed": test in _failed}
    with Path(os.environ[LOG]).open("a") as log:
        log.write(json.dumps(line) + "\n")
    SEEN[:] = bytes(len(SEEN))


def pytest_collection_finish() -> None:
    _write("", 0.0)  # what the imports of all modules reach


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.add(report.nodeid)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    begin = time.monotonic()
    yield
    _write(item.nodeid, time.monotonic() - begin)
