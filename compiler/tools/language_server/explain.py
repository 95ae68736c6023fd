"""Hover texts: the type of a name or an expression, the origin of each size, bytes and operations.

A function, a keyword or an operator shows its section of the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ....dialect.diagnostics import Span
from ....dialect.dims import Size, format_size, product
from ....dialect.graph import Node, Value
from ...lower.cost import count_operations
from ...readers.language import syntax
from ...readers.language.study import Evaluation, Occurrence, Study
from ...readers.language.values import Kind, contains_tensor, describe, show
from ..help.sections import find
from .document import Document, contains, size

_SHOWN = 3
"""The most types that are shown for one expression."""


def explain(document: Document, line: int, column: int) -> tuple[str, Span | None] | None:
    """Returns a text in Markdown and the span that it explains; None where there is nothing to say."""
    study = document.readable or document.study
    occurrence = document.occurrence(line, column)
    if occurrence is not None:
        return _explain_name(study, occurrence), occurrence.span
    word = word_at(document.line(line), column)
    if word and not word[0].isdigit():
        sections = find(word)
        if sections:
            return "\n\n".join("\n".join((f"**{s.heading}**", *s.lines)) for s in sections[:2]).strip(), None
    spans = [span for span in study.evaluations if contains(span, line, column)]
    if not spans:
        return None
    span = min(spans, key=size)
    return _explain_values(study, "", study.evaluations[span]), span


def word_at(line: str, column: int) -> str:
    """Returns the word around a column, which counts from 1."""
    for match in re.finditer(r"\w+", line):
        if match.start() < column <= match.end() + 1:
            return match[0]
    return ""


def _explain_name(study: Study, occurrence: Occurrence) -> str:
    found = study.evaluations.get(occurrence.span) or _assigned(study, occurrence) or _elsewhere(study, occurrence)
    kind = occurrence.kind
    if found:
        return _explain_values(study, occurrence.name, found, "" if kind is Kind.LOCAL else kind.value)
    declared = _declaration(study, occurrence)
    text = f"```nacre\n{declared or occurrence.name}\n```"
    return text if declared else f"{text}\n\n{kind.value}"


def _elsewhere(study: Study, occurrence: Occurrence) -> list[Evaluation]:
    """Returns the values that the name has where it is used."""
    for other in study.occurrences.values():
        if other.definition == occurrence.definition and study.evaluations.get(other.span):
            return study.evaluations[other.span]
    return []


def _assigned(study: Study, occurrence: Occurrence) -> list[Evaluation]:
    """Returns the values of the assignment whose target the name is."""
    for node in syntax.walk(study.tree):
        if isinstance(node, syntax.Assign) and any(target.span == occurrence.span for target in node.targets):
            if len(node.targets) == 1:
                return study.evaluations.get(node.value.span, [])
            parts = node.value.items if isinstance(node.value, syntax.Tuple) else ()
            for target, part in zip(node.targets, parts, strict=False):
                if target.span == occurrence.span:
                    return study.evaluations.get(part.span, [])
    return []


def _declaration(study: Study, occurrence: Occurrence) -> str:
    """Returns the line that defines a name in this file."""
    span = occurrence.definition
    lines = study.text.split("\n")
    if span.file != study.file or not 1 <= span.line <= len(lines):
        return ""
    return lines[span.line - 1].strip().removesuffix("{").rstrip()


def _explain_values(study: Study, name: str, evaluations: list[Evaluation], kind: str = "") -> str:
    head = " ".join(filter(None, (f"({kind})" if kind else "", name)))
    shown = [f"{head}: {_show(e)}" if head else _show(e) for e in evaluations[:_SHOWN]]
    lines = ["```nacre", *dict.fromkeys(shown), "```"]
    first = evaluations[0]
    lines += [f"- {note}" for note in study.origins(first, _show(first))]
    if isinstance(first.value, Value):
        lines += _costs(first)
    return "\n".join(lines)


def _show(evaluation: Evaluation) -> str:
    value = evaluation.value
    if isinstance(value, Value):
        return str(value.type)
    if isinstance(value, tuple) and contains_tensor(value):
        return ", ".join(str(v.type) if isinstance(v, Value) else show(v) for v in value)
    return describe(value) if not isinstance(value, (int, float, bool, str, tuple)) else show(value)


def _costs(evaluation: Evaluation) -> Iterable[str]:
    """Yields the bytes of a tensor, and the operations of the node that computes it."""
    value = evaluation.value
    assert isinstance(value, Value)
    if not value.type.dtype.is_blocked:
        yield f"- {_format(product((*value.type.shape, value.type.dtype.numpy.itemsize)))} bytes"
    node = _maker(evaluation, value)
    if node is not None:
        count = count_operations([node])
        if count != 0:
            yield f"- {_format(count)} operations (`{node.op}`)"


def _format(count: Size) -> str:
    return f"{count:,}" if isinstance(count, int) else f"`{format_size(count)}`"


def _maker(evaluation: Evaluation, value: Value) -> Node | None:
    nodes = (node for body in evaluation.writer.bodies for node in body.all_nodes)
    return next((node for node in nodes if value in node.outputs), None)
