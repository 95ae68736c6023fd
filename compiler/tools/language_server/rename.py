"""The edits of a rename, in all files of a folder that use the name.

A rename must not change the model. The name of a parameter is its key in the checkpoint, so a renamed parameter states
its old key. The name of an instance or of a state is part of such keys and cannot be renamed if a key contains it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ....dialect.diagnostics import Span
from ...readers.language import syntax
from ...readers.language.grammar import grammar
from ...readers.language.study import Occurrence, Study, study
from ...readers.language.values import Kind
from .document import Document

MOST_FILES = 500
"""The most files of a folder that are searched for a name."""

Edits = Mapping[Path, list[tuple[Span, str]]]


class RenameError(Exception):
    """The reason why a name cannot be changed, as the editor shows it."""


def rename(
    document: Document, line: int, column: int, new: str, folder: Path | None, open_texts: Mapping[Path, str]
) -> Edits:
    """Returns the edits by file. `folder` is searched for files that import the definition; `open_texts` are texts of
    open files, which may differ from the files on disk. Raises RenameError."""
    occurrence = document.occurrence(line, column)
    if occurrence is None:
        raise RenameError("there is no name that can be changed here")
    _check(document, occurrence, new)
    edits: dict[Path, list[tuple[Span, str]]] = {}
    definition = _identity(occurrence.definition)
    for path in _files(document, folder):
        text = document.text if path == document.path.resolve() else open_texts.get(path)
        if text is None:
            text = path.read_text(encoding="utf-8", errors="replace")
            if occurrence.name not in text:
                continue
        found = document.study if path == document.path.resolve() else study(text, path, document.checkpoint)
        spans = [o.span for o in found.occurrences.values() if _identity(o.definition) == definition]
        if not spans:
            continue
        if _has_syntax_errors(found):
            raise RenameError(f"`{path.name}` has syntax errors")
        _check_free(found, new)
        edits[path] = [(span, new) for span in sorted(spans, key=lambda s: (s.line, s.column))]
        edits[path] += _old_keys(found, occurrence, spans)
    return edits


def _check(document: Document, occurrence: Occurrence, new: str) -> None:
    if not re.fullmatch(r"[A-Za-z_]\w*", new, re.ASCII):
        raise RenameError(f"`{new}` is not a name")
    words = {t.pattern.value for t in grammar().terminals if t.pattern.type == "str"}
    if new in words:
        raise RenameError(f"`{new}` is a word of the language")
    if _has_syntax_errors(document.study):
        raise RenameError("the file has syntax errors")
    if occurrence.kind in (Kind.INSTANCE, Kind.STATE):
        raise RenameError(f"the name of {occurrence.kind} is part of the keys in the checkpoint or of a saved session")
    if occurrence.kind is Kind.MODEL:
        raise RenameError("the name of a model is the name by which the artifact is called")


def _has_syntax_errors(found: Study) -> bool:
    return found.tree is None or any(d.code == "syntax" for d in found.diagnostics)


def _check_free(found: Study, new: str) -> None:
    """Raises RenameError if the file already uses the new name."""
    if any(each.name == new for each in found.occurrences.values()):
        raise RenameError(f"`{new}` is used already in `{Path(found.file).name}`")


def _identity(span: Span) -> tuple[Path, int, int]:
    return Path(span.file).resolve(), span.line, span.column


def _files(document: Document, folder: Path | None) -> list[Path]:
    own = document.path.resolve()
    others = sorted(folder.rglob("*.nacre"))[:MOST_FILES] if folder is not None else []
    return list(dict.fromkeys([own, *(path.resolve() for path in others)]))


def _old_keys(found: Study, occurrence: Occurrence, spans: list[Span]) -> list[tuple[Span, str]]:
    """Returns the insertions that keep the keys of a renamed parameter: ` from "{path}.old"` after its type."""
    if occurrence.kind is not Kind.PARAMETER or found.tree is None:
        return []
    edits: list[tuple[Span, str]] = []
    for block in found.tree.items:
        if not isinstance(block, syntax.Block):
            continue
        for node in syntax.walk(block.body):
            if isinstance(node, syntax.Param) and node.name.span in spans and node.key is None:
                if node.span == node.name.span:
                    raise RenameError(
                        f"`{occurrence.name}` is declared together with others, and cannot state its old key"
                    )
                end = node.type.span
                at = Span(end.file, end.end_line, end.end_column, end.end_line, end.end_column)
                prefix = "" if isinstance(block, syntax.Model) else "{path}."
                edits.append((at, f' from "{prefix}{occurrence.name}"'))
    return edits
