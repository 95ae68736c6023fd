"""Short names of kernels, by the operators of their nodes."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialect.graph import Node
from ...dialect.ops import OPERATORS

_OPERATORS_NAMED = 4
"""The most operators in a kernel's name; a kernel of more operators is named by its kind."""


def inner_nodes(node: Node) -> tuple[Node, ...]:
    """Returns the nodes of a group, or the node."""
    return node.regions[0].body if OPERATORS[node.op].has("group") else (node,)


_KINDS = (
    ("attention", ("attention",)),
    ("contraction", ("contraction",)),
    ("rows", ("rowwise", "reduction")),
    ("sequence", ("sequential",)),
    ("elements", ("elementwise", "pointwise")),
    ("movement", ("movement", "generator")),
    ("check", ("checking",)),
)


KINDS = (*(kind for kind, _ in _KINDS), "other")
"""All kinds of kernels."""


def kind_of(nodes: Sequence[Node]) -> str:
    """Returns the kind of a kernel of these nodes, by the most expensive one."""
    operators = [OPERATORS[n.op] for n in nodes]
    if sum(o.has("contraction") for o in operators) > 1 and any(o.has("rowwise") for o in operators):
        return "attention"
    for kind, properties in _KINDS:
        if any(o.has(p) for o in operators for p in properties):
            return kind
    return "other"


def name_operators(node: Node) -> str:
    """Returns the operators that a kernel computes, where they are few, else its kind, as a part of a symbol."""
    inner = [n for n in inner_nodes(node) if n.op != "constant"]
    return "_".join(n.op for n in inner) if 0 < len(inner) <= _OPERATORS_NAMED else kind_of(inner)
