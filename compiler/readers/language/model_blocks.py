"""Restores blocks: consecutive nodes of one block instance become a node `block`, which is written as a call.

    %w = parameter() {name = "head.weight"} @head        head = block(%x) {path = "head"} do (%x) {
    %1 = transpose(%w) @head                               %w = parameter() {name = "weight"}
    %2 = matmul(%x, %1) @head                              %1 = transpose(%w) ... %2 = matmul(%x, %1)
                                                           yield %2 }

The names and scopes inside are relative to the instance. An instance of an array, as `layer.{}`, is selected by an
index, which is the first operand of the node. Nodes stay where they are if their instance is called several times in
one body, if no parameter tells which element of an array it is, or if a loop around it selects its parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ....dialect.graph import Function, Node, Parameter, Region, Value, walk

BLOCK = "block"
_CONSTANT = ("constant", "size_value")
_SOURCES = ("parameter", *_CONSTANT)


def restore_blocks(function: Function) -> Function:
    """Returns the function with a node `block` for each instance that its nodes name. A function with states is
    returned unchanged, since blocks of the text cannot assign them."""
    if function.states:
        return function
    return replace(function, body=_restore(function.body, function.results))


def has_index(node: Node) -> bool:
    """Returns whether a node `block` is an instance of an array."""
    return "{}" in str(node.attribute("path"))


def own_parameters(node: Node, parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Returns the parameters inside a node `block`, by their names relative to it; keys stay absolute."""
    path, skipped = str(node.attribute("path")), has_index(node)
    inside = {str(n.attribute("name")) for n in walk(node.regions[0].body) if n.op == "parameter"}
    return {
        name: replace(found, name=name, counts=found.counts[skipped:], source=found.key)
        for name in sorted(inside)
        if (found := parameters[f"{path}.{name}"])
    }


def outer_parameters(function: Function, parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Returns the parameters that nodes outside of blocks read."""
    read = {str(n.attribute("name")) for n in _outside(function.body) if n.op == "parameter"}
    return {name: parameter for name, parameter in parameters.items() if name in read}


def _outside(nodes: Iterable[Node]) -> Iterable[Node]:
    for node in nodes:
        yield node
        if node.op != BLOCK:
            for region in node.regions:
                yield from _outside(region.body)


def _head(scope: str) -> str:
    """Returns the first part of a path: `layer.{}` of `layer.{}.attention`."""
    first, _, rest = scope.partition(".")
    return f"{first}.{{}}" if rest == "{}" or rest.startswith("{}.") else first


def _used(nodes: Iterable[Node]) -> dict[str, Value]:
    """Returns the values that nodes use and do not define, by name."""
    used: dict[str, Value] = {}
    defined: set[str] = set()
    for node in nodes:
        used |= {v.name: v for v in node.inputs if v.name not in defined}
        for region in node.regions:
            own = {a.name for a in region.arguments}
            inside = _used([*region.body, Node("yield", region.results, ())])
            used |= {name: v for name, v in inside.items() if name not in own | defined}
        defined |= {v.name for v in node.outputs}
    return used


def _restore(body: Sequence[Node], results: Sequence[Value]) -> tuple[Node, ...]:
    uses = Counter(v.name for v in results)
    for node in body:
        uses.update(_used([node]).keys())
    runs = [
        (head, list(run)) for head, run in groupby((n for n in body if n.op not in _SOURCES), lambda n: _head(n.scope))
    ]
    calls = Counter(head for head, _ in runs)
    sources = {n.output.name: n for n in body if n.op in _SOURCES}
    made: dict[int, Node | None] = {}
    moved: set[str] = set()
    for head, run in runs:
        call = _Run(head, run, sources, uses, results).call() if head and calls[head] == 1 else None
        if call is None:
            continue
        node, taken = call
        moved |= taken
        made |= {id(inner): None for inner in run} | {id(run[-1]): node}
    kept: list[Node] = []
    for node in body:
        if node.op in _SOURCES and node.output.name in moved:
            continue
        found = made.get(id(node), node)
        if found is node:
            regions = tuple(Region(r.arguments, _restore(r.body, r.results), r.results) for r in node.regions)
            kept.append(replace(node, regions=regions))
        elif found is not None:
            kept.append(found)
    return tuple(kept)


@dataclass(frozen=True)
class _Run:
    """Consecutive nodes of the instance `head`, in a body with these `sources` and `uses` of values by name."""

    head: str
    nodes: Sequence[Node]
    sources: Mapping[str, Node]
    uses: Mapping[str, int]
    results: Sequence[Value]

    def call(self) -> tuple[Node, set[str]] | None:
        """Returns the node `block`, and the names of the sources that move into it; None if there is none."""
        used = _used(self.nodes)
        own_uses = Counter(name for node in self.nodes for name in _used([node]))
        read = [self.sources[name] for name in used if name in self.sources]
        own = [
            n
            for n in read
            if n.op == "parameter" and self._is_own(n) and own_uses[n.output.name] == self.uses[n.output.name]
        ]
        constants = [n for n in read if n.op in _CONSTANT]
        index = self._index(own)
        if index is None or len(self.nodes) + len(own) < 2:
            return None
        inside = {n.output.name for n in (*own, *constants)}
        arguments = tuple(v for name, v in used.items() if name not in inside)
        outputs = tuple(v for n in self.nodes for v in n.outputs if self.uses[v.name] > own_uses[v.name])
        defined = {v.name for n in self.nodes for v in n.outputs}
        if not outputs or any(v.name in defined for v in index):
            return None
        nodes = [*sorted((*own, *constants), key=lambda n: list(self.sources).index(n.output.name)), *self.nodes]
        body = tuple(self._inside(node) for node in nodes)
        # A constant that all its readers have taken is not written outside.
        taken = {n.output.name for n in own}
        taken |= {n.output.name for n in constants if own_uses[n.output.name] == self.uses[n.output.name]}
        region = Region(arguments, body, outputs)
        return Node(BLOCK, (*index, *arguments), outputs, (("path", self.head),), (region,)), taken

    def _is_own(self, node: Node) -> bool:
        return str(node.attribute("name")).startswith(f"{self.head}.")

    def _index(self, own: Sequence[Node]) -> tuple[Value, ...] | None:
        """Returns the index of the instance: nothing if it is no element of an array, None if it is unknown."""
        inner = [n for n in walk(self.nodes) if n.op == "parameter"]
        if any(not self._is_own(n) for n in inner):
            return None
        skipped = int("{}" in self.head)
        local = {v.name for n in walk(self.nodes) for v in (*n.outputs, *(a for r in n.regions for a in r.arguments))}
        if any(v.name not in local for n in (*own, *inner) for v in n.inputs[skipped:]):
            return None  # a loop around the instance selects a parameter inside of it
        if not skipped:
            return ()
        indices = {n.inputs[:1] for n in (*own, *inner)}
        return indices.pop() if len(indices) == 1 else None

    def _inside(self, node: Node) -> Node:
        """Returns a node with its scope, its name and its indices relative to the instance."""
        regions = tuple(Region(r.arguments, tuple(self._inside(n) for n in r.body), r.results) for r in node.regions)
        scope = node.scope.removeprefix(self.head).removeprefix(".") if _head(node.scope) == self.head else ""
        node = replace(node, scope=scope, regions=regions)
        if node.op != "parameter":
            return node
        name = str(node.attribute("name")).removeprefix(f"{self.head}.")
        inputs = node.inputs[1:] if "{}" in self.head else node.inputs
        return replace(node, inputs=inputs, attributes=(("name", name),))


def instance_name(node: Node) -> str:
    """Returns the name of the instance, without the braces of an array."""
    return str(node.attribute("path")).removesuffix(".{}")


def array_length(node: Node, parameters: Collection[Parameter]) -> int:
    """Returns the length of the array that the instance is an element of, given the parameters of the function."""
    path = f"{node.attribute('path')}."
    return next(p.counts[0] for p in parameters if p.name.startswith(path))
