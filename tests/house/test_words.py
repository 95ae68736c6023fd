"""What no file of the tree says: where it was written, and where packages or discussions are hosted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = {"__pycache__", "build", "dist", "node_modules"}
KEPT_HIDDEN = {".ci", ".gitignore"}

# Written in pieces, so that this file does not hold what it looks for.
FORBIDDEN = {
    "a path of one machine": "(?<![\\w.])/(?:wor" + "k|roo" + "t|hom" + "e/\\w+|tmp/\\w+)/",
    "a registry's host": "py" + "pi\\.org|python" + "hosted\\.org|crates\\." + "io\\b|registry\\.npm" + "js",
    "a discussion by number": "\\b[Ii]ssue" + " #?\\d",
    "a folder outside of the tree": "shared" + "/(?:design|prototypes)",
}


def text_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith(".") and path.name not in KEPT_HIDDEN
        if hidden or path.name in SKIPPED or path.name.endswith(".egg-info") or path.is_symlink():
            continue
        if path.is_dir():
            yield from text_files(path)
        else:
            yield path


def find_words(text: str, pattern: str) -> list[int]:
    """The numbers of the lines that match."""
    return [number for number, line in enumerate(text.splitlines(), 1) if re.search(pattern, line)]


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_no_file_says(kind: str) -> None:
    found = []
    for path in text_files(ROOT):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}:{line}" for line in find_words(text, FORBIDDEN[kind])]
    assert not found, "\n".join([kind, *found])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("a path of one machine", "open('/wor" + "k/main/x')"),
        ("a path of one machine", "/hom" + "e/me/x.so"),
        ("a registry's host", "https://py" + "pi.org/simple"),
        ("a discussion by number", "see issue" + " #12"),
        ("a folder outside of the tree", "../shared" + "/design/x.md"),
    ],
)
def test_words_are_found(kind: str, text: str) -> None:
    assert find_words(f"first line\n{text}\n", FORBIDDEN[kind]) == [2]


def test_tree_is_read() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in text_files(ROOT)}
    assert {"README.md", ".ci/run", "pyproject.toml", "compiler/frontend/nacre.lark"} <= names
