"""The grammar that is loaded from the cache is the one that was derived."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lark import Lark
from nacre.compiler.readers.language import load_module
from nacre.compiler.readers.language.grammar import grammar

TEXTS = [Path(__file__).parents[2] / "models" / f"{name}.nacre" for name in ("gpt2", "recurrent", "segment", "vision")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The cache folder of a process that has no grammar yet."""
    monkeypatch.setenv("NACRE_CACHE", str(tmp_path))
    grammar.cache_clear()
    yield tmp_path / "objects"
    grammar.cache_clear()


def again() -> Lark:
    grammar.cache_clear()
    return grammar()


def described(found: Lark) -> list[tuple[str, str, list[str], int]]:
    return [(t.name, t.pattern.value, sorted(t.pattern.flags), t.priority) for t in found.terminals]


def test_it_is_derived_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    derived = again()
    before = [load_module(path).module for path in TEXTS]
    monkeypatch.setattr(Lark, "__init__", None)
    loaded = again()
    assert loaded is not derived and len(list(folder.iterdir())) == 1
    assert described(loaded) == described(derived)
    assert [load_module(path).module for path in TEXTS] == before
    assert grammar() is loaded
    strange = 'model \u00d7 # a comment\n "open'
    assert list(map(repr, loaded.lex(strange))) == list(map(repr, derived.lex(strange)))


def test_a_damaged_file_is_made_again(folder: Path) -> None:
    whole = described(again())
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert described(again()) == whole


def test_no_cache_is_needed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NACRE_NO_CACHE", "1")
    assert again().terminals and not folder.exists()
