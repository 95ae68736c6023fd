"""`pytest -m quick` runs something of every folder of tests, and its list names nothing that is not there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def entries(name: str) -> tuple[str, ...]:
    """A list of `conftest.py`, which cannot be imported by its name."""
    for node in ast.parse((TESTS / "conftest.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return tuple(ast.literal_eval(node.value))
    raise AssertionError(f"there is no list {name}")


@pytest.mark.parametrize("entry", [*entries("QUICK"), *entries("SLOW")])
def test_an_entry_is_there(entry: str) -> None:
    path, _, test = entry.partition("::")
    assert (TESTS / path).exists()
    assert f"def {test.partition('[')[0]}(" in (TESTS / path).read_text() if test else True


def test_every_folder_has_quick_tests() -> None:
    folders = {path.parent.name for path in TESTS.glob("*/test_*.py")}
    missing = folders - {entry.split("/")[0] for entry in entries("QUICK")}
    assert not missing, missing
