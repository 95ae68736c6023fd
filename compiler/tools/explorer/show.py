"""Graphs and nodes as compact HTML for a notebook: one self-contained element without a script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from ....dialect.graph import Function, Node, Value, walk
from ....dialect.ops import OPERATORS
from ....dialect.printer import format_attribute
from .flow import Flow, key

_STYLE = (
    "<style>.nacre{font:13px/1.5 ui-monospace,monospace}.nacre table{border-collapse:collapse}"
    ".nacre td,.nacre th{text-align:left;padding:0 .8em 0 0;border:0;vertical-align:top}"
    ".nacre td.n,.nacre th.n{text-align:right}.nacre th{opacity:.6;font-weight:normal}"
    ".nacre summary{cursor:pointer}.nacre details>*:not(summary){margin-left:1.2em}"
    ".nacre i{opacity:.6;font-style:normal}.nacre b.bar{display:inline-block;height:.7em;background:#4a8fc7}</style>"
)


def _page(body: str) -> str:
    return f'<div class="nacre">{_STYLE}{body}</div>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: range = range(0)) -> str:
    """Formats a table; `numbers` are the columns with numbers."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "".join(f"<{tag}{' class=n' if i in numbers else ''}>{cell}</{tag}>" for i, cell in enumerate(cells))

    lines = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
    return f"<table><tr>{row(head, 'th')}</tr>{lines}</table>"


def _types(values: Iterable[Value]) -> str:
    return escape(", ".join(f"{v.name}: {v.type}" for v in values))


def _attributes(node: Node) -> str:
    """Formats the attributes that differ from their defaults."""
    specs = {spec.name: spec for spec in OPERATORS[node.op].attributes}
    given = [(n, v) for n, v in node.attributes if n not in specs or v != specs[n].default]
    return escape(", ".join(f"{name}={format_attribute(value)}" for name, value in given))


def _row(node: Node) -> tuple[str, ...]:
    operands = escape(", ".join(v.name for v in node.inputs))
    return escape(key(node)), escape(node.op), operands, _attributes(node), escape(_results(node))


def _results(node: Node) -> str:
    return ", ".join(str(v.type) for v in node.outputs)


_HEAD = ("node", "operator", "operands", "attributes", "type")


def node_table(nodes: Sequence[Node]) -> str:
    return _page(_table((*_HEAD, "scope"), [(*_row(node), escape(node.scope)) for node in nodes]))


def node_page(node: Node, flow: Flow) -> str:
    """Returns the page of a node with all its properties."""
    users = dict.fromkeys(n for v in node.outputs for n in flow.users.get(v.name, ()))
    rows = [
        ("operator", f"{escape(node.op)} <i>{escape(OPERATORS[node.op].summary)}</i>"),
        ("reads", _types(node.inputs)),
        ("gives", _types(node.outputs)),
        ("attributes", _attributes(node)),
        ("read by", escape(", ".join(f"{key(user)} ({user.op})" for user in users))),
        ("inside", escape(", ".join(f"{key(n)} ({n.op})" for region in node.regions for n in region.body))),
        ("scope", escape(node.scope)),
        ("source", escape(str(node.span)) if node.span else ""),
    ]
    return _page(_table((escape(key(node)), ""), [(what, said) for what, said in rows if said]))


@dataclass
class _Scope:
    """The nodes of one block, and the blocks nested in it, in the order in which they begin."""

    parts: list[Node | str] = field(default_factory=list)
    inner: dict[str, _Scope] = field(default_factory=dict)


def graph_page(function: Function) -> str:
    """Returns the page of a function as a tree of its blocks, which open at a click."""
    root = _Scope()
    for node in walk(function.body):
        at = root
        for name in node.scope.split(".") if node.scope else ():
            if name not in at.inner:
                at.inner[name] = _Scope()
                at.parts.append(name)
            at = at.inner[name]
        at.parts.append(node)
    results = zip(function.result_names, function.results, strict=True)
    head = f"{function.name}({', '.join(f'{v.name}: {v.type}' for v in function.arguments)})"
    head += f" -> ({', '.join(f'{name}: {v.type}' for name, v in results)})"
    return _page(f"<b>{escape(head)}</b>{_scope_body(root)}")


def _count(scope: _Scope) -> int:
    return sum(not isinstance(part, str) for part in scope.parts) + sum(map(_count, scope.inner.values()))


def _scope_body(scope: _Scope) -> str:
    pieces: list[str] = []
    run: list[Node] = []
    for part in [*scope.parts, ""]:
        if isinstance(part, Node):
            run.append(part)
            continue
        if run:
            pieces.append(_table(_HEAD, map(_row, run)))
            run = []
        if part:
            inner = scope.inner[part]
            head = f"{escape(part)} <i>{_count(inner)} nodes</i>"
            pieces.append(f"<details><summary>{head}</summary>{_scope_body(inner)}</details>")
    return "".join(pieces)


@dataclass(frozen=True, slots=True)
class CostRow:
    """The cost of a node, or of a group of `operators`."""

    node: Node
    operators: str
    flops: int
    bytes: int
    seconds: float
    bound: str


def costs_page(head: str, rows: Sequence[CostRow]) -> str:
    """Returns the page of the costs, in the order of the rows, with a bar for each share of the time."""
    total = sum(row.seconds for row in rows) or 1.0
    lines = []
    for row in rows:
        share = row.seconds / total
        bar = f'<b class="bar" style="width:{share * 12:.2f}em"></b> {share:.1%}'
        figures = (f"{row.flops:,}", f"{row.bytes:,}", f"{row.seconds * 1e6:,.1f}", bar, row.bound)
        lines.append((escape(key(row.node)), escape(row.operators), escape(row.node.scope), *figures))
    return _page(f"<b>{escape(head)}</b>{_table(_COSTS, lines, numbers=range(3, 6))}")


_COSTS = ("node", "operator", "scope", "flop", "bytes", "us", "share", "bound")
