"""A fixed part of the backend tests: each passes that is listed as passed. `python tests/onnx/suite.py` runs all."""

from __future__ import annotations

from pathlib import Path

import pytest
import suite
from backend_cases import all_cases

PAGE = Path(__file__).parents[2] / "compiler" / "docs" / "onnx.md"
PART = 48
"""One of so many passed tests runs here."""


@pytest.mark.usefixtures("unchecked")
def test_every_test_is_listed_and_none_is_lost() -> None:
    """Both in one test: the package takes seconds to generate its tests, in each worker that asks for them."""
    listed = suite.read_results(suite.RESULTS.read_text())
    cases = all_cases()
    assert set(listed) == {case.name for case in cases}
    passed = [case for case in cases if listed[case.name] == "pass"]
    outcomes = suite.run_cases(passed[::PART])
    assert suite.find_lost(outcomes, listed) == []
    assert len(outcomes) == len(passed[::PART]) > 30


def test_every_failure_is_a_limit() -> None:
    text = suite.RESULTS.read_text()
    listed = suite.read_results(text)
    # A wrong value, a crash or a time-out is no limit of the compiler, but an error.
    assert not {"wrong-value", "crash", "time-out", "compiler-error"} & set(listed.values())
    assert text.startswith(f"# {len(listed)} tests: {sum(kind == 'pass' for kind in listed.values())} pass")


def test_the_page_has_the_counts() -> None:
    listed = suite.read_results(suite.RESULTS.read_text())
    families = ("node/", "simple/", "pytorch-converted/", "pytorch-operator/", "real/")
    rows = {"tests of onnx": list(listed), "Nacre": [name for name, kind in listed.items() if kind == "pass"]}
    page = PAGE.read_text(encoding="utf-8").splitlines()
    for head, names in rows.items():
        counts = [len(names), *(sum(name.startswith(family) for name in names) for family in families)]
        (row,) = (line for line in page if line.startswith(f"| {head}"))
        assert row.endswith(f"| {' | '.join(map(str, counts))} |"), (row, counts)
