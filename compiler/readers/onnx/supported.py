"""Finds every operator of a file that has no converter, before any node is converted."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from ....dialect.diagnostics import Diagnostic, Span
from ...base.shortened import shortened_code
from .convert import find_converter, operator_names
from .onnx_package import load_onnx
from .schemas import has_definition
from .writing.records import GraphRecord, ModelRecord, NodeRecord


def find_unsupported(model: ModelRecord, file: str) -> list[Diagnostic]:
    """Returns one error for each operator that is not supported, with the nodes that use it, and for operator sets that
    are newer than the installed package."""
    errors = []
    newest = int(load_onnx("defs").onnx_opset_version())
    version = model.opsets.get("", 1)
    if version > newest or version < 1:
        message = f"the file uses version {version} of the operators; versions 1 to {newest} are supported"
        errors.append(Diagnostic("unsupported-version", message, help="a newer package `onnx` may know it"))
        return errors
    unknown: dict[str, list[NodeRecord]] = {}
    bodies: list[tuple[Sequence[NodeRecord], Mapping[str, int]]] = [(model.graph.nodes, model.opsets)]
    bodies += [(function.nodes, function.opsets) for function in model.functions.values()]
    for nodes, opsets in bodies:
        for node in _walk(nodes):
            number = opsets.get(node.domain, 1)
            if (node.domain, node.op) in model.functions or find_converter(node.op, node.domain, number) is not None:
                continue
            if not has_definition(node.op, node.domain, number):
                unknown.setdefault(node.full_name, []).append(node)
    for name, uses in unknown.items():
        errors.append(_describe(name, uses, file, model.listing))
    return errors


def _walk(nodes: Sequence[NodeRecord]) -> Iterator[NodeRecord]:
    for node in nodes:
        yield node
        for attribute in node.attributes.values():
            if isinstance(attribute.value, GraphRecord):
                yield from _walk(attribute.value.nodes)


def _describe(name: str, uses: Sequence[NodeRecord], file: str, listing: str) -> Diagnostic:
    lines = listing.split("\n")
    first = uses[0].line
    width = len(lines[first - 1]) if 0 < first <= len(lines) else 1
    span = Span(file, first, 1, first, width + 1)
    named = shortened_code([node.name or ", ".join(node.outputs) for node in uses])
    close = difflib.get_close_matches(uses[0].op, operator_names(), 1, cutoff=0.6)
    help_text = f"the nearest supported name is `{close[0]}`" if close else ""
    message = f"the operator `{name}` is not supported; nodes: {named}"
    return Diagnostic("unsupported-operator", message, span, help=help_text)
