"""Completion: the names in scope, operators, words of the language, dtypes, and keys of the checkpoint.

The text around the cursor is rarely complete, so the context is read from the line before the cursor; names come from
the last text that could be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lsprotocol import types as protocol

from ....dialect.ops import OPERATORS
from ....dialect.types import DTYPES
from ...readers.language import syntax
from ...readers.language.study import Study
from ...readers.language.unknown import FUNCTIONS
from ...readers.language.values import Kind
from ..help.sections import names_of
from .document import Document
from .locate import first_key

_Kind = protocol.CompletionItemKind
_ITEM_WORDS = ("block", "model", "dim", "config", "import", "test", "budget", "quantize", "language")
_BODY_WORDS = ("param", "state", "use", "weights", "repeat", "scan", "while", "return")
_EXPRESSION_WORDS = ("if", "else", "true", "false", "None", "and", "or", "not")
_MEMBERS = ("T", "mT", "shape", "dtype", "rank")
_KINDS = {
    Kind.BLOCK: _Kind.Class,
    Kind.MODEL: _Kind.Class,
    Kind.IMPORT: _Kind.Module,
    Kind.PARAMETER: _Kind.Field,
    Kind.STATE: _Kind.Field,
    Kind.INSTANCE: _Kind.Field,
    Kind.DIM: _Kind.Constant,
    Kind.CONSTANT: _Kind.Constant,
    Kind.HYPER: _Kind.TypeParameter,
}


@dataclass(frozen=True, slots=True)
class Proposal:
    """One proposal: the text to insert, its kind, and one line that describes it."""

    text: str
    kind: protocol.CompletionItemKind
    detail: str = ""


def complete(document: Document, line: int, column: int) -> list[Proposal]:
    """Returns the proposals at a location, in the order in which they are shown."""
    before = document.line(line)[: column - 1].rstrip("\n")
    study = document.readable or document.study
    if before.count('"') % 2 == 1:
        return list(_keys(document)) if re.search(r'\bfrom\s*"[^"]*$', before) else []
    if re.search(r"#", before):
        return []
    member = re.search(r"(\w+)(?:\[[^\]]*\])?\.\w*$", before)
    if member:
        return list(_members(study, member[1]))
    if re.search(r"(?::|->)\s*\w*$", before):
        return [Proposal(name, _Kind.TypeParameter, "dtype") for name in DTYPES]
    if re.search(r"\buse\s+[\w\s,\[\]+*/-]*=\s*\w*$", before):
        return [p for p in _names(document, line) if p.kind in (_Kind.Class, _Kind.Module)]
    if re.fullmatch(r"\s*\w*", before):
        words = _ITEM_WORDS if _block_at(study, line) is None else _BODY_WORDS
        return [*(Proposal(word, _Kind.Keyword) for word in words), *_names(document, line)]
    return [
        *_names(document, line),
        *_functions(),
        *(Proposal(word, _Kind.Keyword) for word in _EXPRESSION_WORDS),
    ]


def _names(document: Document, line: int) -> Iterator[Proposal]:
    """Yields the names of the file, and those of the block at the line."""
    study = document.readable or document.study
    block = _block_at(study, line)
    seen: set[str] = set()
    if block is not None:
        for each in study.occurrences.values():
            inside = block[0] <= each.definition.line < block[1] and each.definition.file == study.file
            if inside and each.definition == each.span and each.name not in seen and each.span.line <= line:
                seen.add(each.name)
                yield Proposal(each.name, _KINDS.get(each.kind, _Kind.Variable), each.kind.value)
    if study.scope is not None:
        for name, binding in study.scope.names.items():
            if name not in seen:
                yield Proposal(name, _KINDS.get(binding.kind, _Kind.Variable), binding.kind.value)


def _block_at(study: Study, line: int) -> tuple[int, int] | None:
    """Returns the first line of the block at a line, and the line where the next item begins."""
    if study.tree is None:
        return None
    starts = [item.span.line for item in study.tree.items]
    last = study.text.count("\n") + 2
    for item, end in zip(study.tree.items, [*starts[1:], last], strict=True):
        if isinstance(item, syntax.Block) and item.span.line < line < end:
            lines = study.text.split("\n")[item.span.line - 1 : line]
            if sum(text.count("{") - text.count("}") for text in lines) > 0 or line == item.span.line:
                return item.span.line, end
    return None


def _functions() -> Iterator[Proposal]:
    signatures = {name: section.heading.strip("`") for name, section in names_of("operators").items()}
    for name in sorted(FUNCTIONS):
        detail = signatures.get(name, "")
        if not detail and name in OPERATORS:
            detail = OPERATORS[name].summary
        yield Proposal(name, _Kind.Function, detail)


def _members(study: Study, name: str) -> Iterator[Proposal]:
    """Yields the names after a dot: of an imported file, of an instance, or of a tensor."""
    for each in study.occurrences.values():
        if each.name != name:
            continue
        if each.kind is Kind.IMPORT and study.scope is not None:
            module = study.scope.names[name].value
            for inner, binding in getattr(getattr(module, "file", None), "names", {}).items():
                yield Proposal(inner, _KINDS.get(binding.kind, _Kind.Variable), binding.kind.value)
            return
        for evaluation in study.evaluations.get(each.span, ()):
            block = getattr(evaluation.value, "block", None)
            if block is not None:
                for statement in syntax.walk(block.block.body):
                    if isinstance(statement, (syntax.Param, syntax.State, syntax.Instance)):
                        yield Proposal(statement.name.name, _Kind.Field, type(statement).__name__.lower())
                return
    for member in _MEMBERS:
        yield Proposal(member, _Kind.Property)


def _keys(document: Document) -> Iterator[Proposal]:
    """Yields the keys of the checkpoint; those that no parameter reads come first."""
    checkpoint = document.open_checkpoint()
    if checkpoint is None:
        return
    study = document.readable or document.study
    read = {first_key(p) for p in study.program.parameters.values() if p.formula is None}
    names = sorted(checkpoint.names(), key=lambda name: name in read)
    for name in names:
        stored = checkpoint.tensors[name]
        shape = ", ".join(map(str, stored.shape))
        yield Proposal(name, _Kind.Field, f"{stored.dtype or stored.stored_as}[{shape}]")
