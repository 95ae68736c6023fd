"""The recipes of contributing.md lead through files, names and commands that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "compiler" / "docs" / "contributing.md").read_text(encoding="utf-8")
RECIPES = ("An operator", "A pass", "A target")


def section(title: str) -> str:
    match = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert match, f"no section {title}"
    return match[1]


def steps(title: str) -> list[str]:
    """The numbered steps, each with its continuation lines."""
    return re.findall(r"^\d+\. (.*?)(?=^\d+\. |^\S|\Z)", section(title), re.MULTILINE | re.DOTALL)


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def is_path(code: str) -> bool:
    """`dialect/ops/unary.py`, also `tests/files/` and `.ci/run`; a name that the reader chooses has `<...>`."""
    return re.fullmatch(r"[\w.-]+(/[\w.-]*)+", code) is not None


def is_name(code: str) -> bool:
    return re.fullmatch(r"nacre(\.\w+)+", code) is not None


def resolve(name: str) -> object:
    """The object of a dotted name: the longest module in it, then attributes."""
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[split:]:
            fields = getattr(found, "__dataclass_fields__", {})
            found = getattr(found, attribute) if attribute not in fields else fields[attribute]
        return found
    raise AssertionError(name)


@pytest.mark.parametrize("title", RECIPES)
def test_every_step_names_something_that_exists(title: str) -> None:
    found = steps(title)
    assert len(found) >= 4
    for step in found:
        assert any(is_path(code) or is_name(code) for code in quoted(step)), f"names nothing: {step}"


@pytest.mark.parametrize("path", sorted({code for code in quoted(TEXT) if is_path(code)}))
def test_path_exists(path: str) -> None:
    assert (ROOT / path).exists()
    assert (ROOT / path).is_dir() == path.endswith("/")


@pytest.mark.parametrize("name", sorted({code for code in quoted(TEXT) if is_name(code)}))
def test_name_exists(name: str) -> None:
    resolve(name)


def test_commands_name_tests_that_exist() -> None:
    commands = "\n".join(re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
    named = re.findall(r"\b(?:tests|samples|compiler)/[\w./-]*", commands)
    assert named and all((ROOT / path).exists() for path in named)


def test_a_missing_name_is_found() -> None:
    with pytest.raises(AttributeError):
        resolve("nacre.dialect.operator.NoSuchThing")
    assert not (ROOT / "dialect/ops/no_such_family.py").exists() and is_path("dialect/ops/no_such_family.py")
