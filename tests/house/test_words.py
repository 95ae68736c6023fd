"""Words that files must not contain: paths and hosts in any file, unclear phrases in pages and help texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from nacre.compiler.cli.main import all_commands

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
    assert {"README.md", ".ci/run", "pyproject.toml", "compiler/readers/language/nacre.lark"} <= names


UNCLEAR = r"\b(whoever|of which|that which|told|faults?)\b|(^|[.:] )(What|Who|Those|Which) "
"""Phrases that have a plainer alternative in user-facing text."""


def help_texts() -> Iterator[tuple[str, str]]:
    for name, command in all_commands().items():
        yield name, command.help or ""
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield f"{name} {parameter.opts[0]}", parameter.help or ""


def pages() -> Iterator[tuple[str, str]]:
    own = (ROOT / "README.md", ROOT / "runtime" / "ABI.md")
    for path in (*own, *sorted((ROOT / "compiler" / "docs").rglob("*.md"))):
        yield path.name, re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_user_facing_text_is_plain() -> None:
    found = [f"{name}:{line}" for name, text in (*help_texts(), *pages()) for line in find_words(text, UNCLEAR)]
    assert not found


TERMS = r"(?i)(?<!in[ -])(?<!last )\b(?!\w*in_place)(?:\w*_)?(?:places?|codes|told|schemes?|blame\w*)\b"
"""Invented terms for iterations, indices, addresses, quantized values and schedules."""


def test_tiler_uses_the_terms_of_the_field() -> None:
    files = sorted((ROOT / "compiler" / "codegen" / "tiler").rglob("*.py"))
    found = [f"{path.name}:{line}" for path in files for line in find_words(path.read_text(encoding="utf-8"), TERMS)]
    assert files and not found


def test_unclear_phrases_are_found() -> None:
    assert find_words("fine\nWhat is stored\nthe axes, of which one is first\nerrors are told", UNCLEAR) == [2, 3, 4]
    assert find_words("in place\nat a place\nadd_codes(x)\nthe last place\ndecodes", TERMS) == [2, 3]
