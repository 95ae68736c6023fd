"""Finds the calls of instances in a graph: consecutive nodes whose scopes begin with the path of one instance.

    %1 = matmul(%x, %w) @head      a call of `head`
    %2 = relu(%1) @head
    %3 = add(%2, %x)               no call
    %4 = matmul(%3, %w) @head      another call of `head`
    %5 = relu(%4) @head

An instance of an array has a number in its scope, `layer.0`, or braces if a loop's variable selects it, `layer.{}`.
Nodes without a separate body, which parameters and constants are, belong to the calls that read them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby

from ....dialect.graph import Function, Node, Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import I64, TensorType

CONSTANTS = ("constant", "size_value")
SOURCES = ("parameter", *CONSTANTS)
INDEX_ARITHMETIC = ("add", "subtract", "multiply", "floor_divide")


@dataclass(frozen=True, slots=True)
class Head:
    """The instance of a scope: `path` is that of the instance or of its array; `element` is empty, a number, or
    braces."""

    path: str
    element: str = ""

    @property
    def prefix(self) -> str:
        return f"{self.path}.{self.element}." if self.element else f"{self.path}."


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an instance: consecutive nodes."""

    head: Head
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """The paths of instances that get no block, without numbers."""

    paths: set[str] = field(default_factory=set)

    def inside(self, around: str) -> set[str]:
        """Returns the paths relative to an instance, whose path ends with a dot."""
        return {path.removeprefix(around) for path in self.paths if path.startswith(around)}


def head_of(scope: str, kept: Collection[str]) -> Head | None:
    """Returns the outermost instance of a scope whose path, without numbers, is not in `kept`."""
    parts = scope.split(".") if scope else []
    for number, part in enumerate(parts):
        path = ".".join(parts[: number + 1])
        if not _is_element(part) and without_numbers(path) not in kept:
            following = parts[number + 1] if number + 1 < len(parts) else ""
            return Head(path, following if _is_element(following) else "")
    return None


def _is_element(part: str) -> bool:
    return part == "{}" or part.isdecimal()


def without_numbers(path: str) -> str:
    """Returns a path with braces in place of its numbers.

    >>> without_numbers("layer.0.attention.1")
    'layer.{}.attention.{}'
    """
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "{}", path)


def count_uses(nodes: Iterable[Node], results: Sequence[Value] = ()) -> Counter[str]:
    """Returns the number of uses of each value in nodes, those of their regions included."""
    counts = Counter(v.name for v in results)
    for node in nodes:
        counts.update(v.name for v in node.inputs)
        for region in node.regions:
            counts.update(count_uses(region.body, region.results))
    return counts


def index_nodes(function: Function) -> frozenset[str]:
    """Returns the names of the values that serve only to select parameters."""
    found: set[str] = set()

    def visit(nodes: Sequence[Node], outer: Counter[str]) -> Counter[str]:
        """Returns the uses by nodes that select no parameter; `outer` are the uses by the results."""
        used = Counter(outer)
        for node in reversed(nodes):
            if _may_select(node) and not used[node.output.name]:
                found.add(node.output.name)
                continue
            for region in node.regions:
                used += visit(region.body, Counter(v.name for v in region.results))
            if node.op != "parameter":
                used.update(v.name for v in node.inputs)
        return used

    visit(function.body, Counter(v.name for v in function.results))
    return frozenset(found)


def _may_select(node: Node) -> bool:
    known = node.op in INDEX_ARITHMETIC or node.op == "constant"
    return known and node.output.type == TensorType(I64)


def find_calls(body: Sequence[Node], kept: Collection[str], indices: Collection[str]) -> Iterator[Call]:
    """Yields the calls of all instances in a body, also those inside loops and branches."""
    inner = [n for n in body if n.op not in SOURCES and not (n.outputs and n.outputs[0].name in indices)]
    for head, run in groupby(inner, lambda n: head_of(n.scope, kept)):
        nodes = tuple(run)
        if head is not None:
            yield Call(head, nodes)
            continue
        for node in nodes:
            for region in node.regions:
                yield from find_calls(region.body, kept, indices)


def split_call(call: Call, length: int) -> list[Call]:
    """Returns a call as several of `length` nodes each."""
    starts = range(0, len(call.nodes), length)
    return [Call(call.head, call.nodes[start : start + length]) for start in starts]


def period(nodes: Sequence[Node]) -> int:
    """Returns the number of nodes after which operators, scopes and source locations repeat. If no such number gives
    equal attributes, these may differ by sizes."""
    lengths = [n for n in range(1, len(nodes) // 2 + 1) if len(nodes) % n == 0]
    loose = [(n.op, n.scope, n.span) for n in nodes]
    for keys in ([(*key, n.attributes) for key, n in zip(loose, nodes, strict=True)], loose):
        for n in lengths:
            if keys[n:] == keys[:-n]:
                return n
    return len(nodes)


def sources_of(function: Function, indices: Collection[str]) -> Mapping[str, Node]:
    """Returns the nodes that make parameters, constants and indices, by the names of their values."""
    found: dict[str, Node] = {}

    def visit(nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node.op in SOURCES or (node.outputs and node.outputs[0].name in indices):
                found[node.output.name] = node
            for region in node.regions:
                visit(region.body)

    visit(function.body)
    return found
