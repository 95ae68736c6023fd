"""Producers and consumers of the values of a function, including its loops and groups, and subgraphs between values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.graph import Function, Node, Value, needed_nodes, read_values


@dataclass
class Flow:
    """A function as a graph. A value is identified by its name; values that enter or leave a region pass through the
    node that owns the region.

    `around` are the nodes that enclose a node, the outermost first, by the name of its first result; `order` is the
    order of the text.
    """

    function: Function
    values: dict[str, Value] = field(default_factory=dict)
    makers: dict[str, Node] = field(default_factory=dict)
    users: dict[str, list[Node]] = field(default_factory=dict)
    around: dict[str, tuple[Node, ...]] = field(default_factory=dict)
    order: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values |= {v.name: v for v in self.function.arguments}
        self._read(self.function.body, ())

    def _read(self, nodes: Sequence[Node], around: tuple[Node, ...]) -> None:
        for node in nodes:
            self.order.append(node)
            self.around[key(node)] = around
            self._use(node, node.inputs)
            for value in node.outputs:
                self.values[value.name], self.makers[value.name] = value, node
            for region in node.regions:
                self.values |= {v.name: v for v in region.arguments}
                self._read(region.body, (*around, node))
                self._use(node, region.results)

    def _use(self, node: Node, values: Iterable[Value]) -> None:
        for value in dict.fromkeys(values):
            users = self.users.setdefault(value.name, [])
            if node not in users:
                users.append(node)

    def siblings(self, node: Node) -> Sequence[Node]:
        """Returns the nodes of the body that contains the node."""
        around = self.around[key(node)]
        if not around:
            return self.function.body
        return next(r.body for r in around[-1].regions if node in r.body)


def key(node: Node) -> str:
    """Returns a key that is unique among the nodes of a function: the name of the first result."""
    return node.outputs[0].name if node.outputs else f"{node.op} without results"


def between(body: Sequence[Node], starts: Collection[str], ends: Collection[str]) -> tuple[Node, ...]:
    """Returns the nodes of a body through which one of the values `starts` reaches one of `ends`, in order."""
    reached = set(starts)
    forward = []
    for node in body:
        if any(v.name in reached for v in read_values(node)):
            forward.append(node)
            reached |= {v.name for v in node.outputs}
    return needed_nodes(forward, ends, set(starts) - set(ends))


def cut(function: Function, starts: Sequence[Value], ends: Sequence[Value]) -> Function:
    """Returns a function that computes `ends` from `starts`. Raises DiagnosticError if it needs more arguments."""
    given = {v.name for v in starts}
    body = needed_nodes(function.body, [v.name for v in ends], given)
    known = given | {v.name for node in body for v in node.outputs}
    used = [*ends, *(v for node in body for v in read_values(node))]
    missing = list(dict.fromkeys(f"`{v.name}`" for v in used if v.name not in known))
    if missing:
        message = f"{', '.join(f'`{v.name}`' for v in ends)} cannot be computed without {', '.join(missing)}"
        raise DiagnosticError([Diagnostic("missing-input", message, help="add it to the inputs")])
    names = tuple(f"result{n}" for n in range(len(ends))) if len(ends) > 1 else ("result",)
    return Function(function.name, tuple(starts), body, tuple(ends), names, function.span)
