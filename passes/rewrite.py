"""Rebuilds functions: fresh names, clones, and a walk that replaces nodes.

A pass decides on the rewrites; this module keeps the graph valid.

The last node of a replacement takes the name of the replaced value, and the others numbered names:

    %1 = softmax(%x)    becomes    %1_1 = max(%x), %1_2 = subtract(%x, %1_1), ..., %1 = divide(%1_3, %1_4)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from ..dialect.graph import Constant, Function, Node, Region, Value, constant_of, substitute_values, walk
from ..dialect.lazy_dataclass import dataclass
from ..dialect.operator import Builder
from ..dialect.ops import OPERATORS
from ..dialect.types import Array, TensorType


def defined_values(function: Function) -> Iterator[Value]:
    """Yields every value of the function, those in regions included."""
    yield from function.arguments
    for node in walk(function.body):
        for region in node.regions:
            yield from region.arguments
        yield from node.outputs


class Names:
    """A source of names that no value of the function has: a stem and a number."""

    def __init__(self, function: Function) -> None:
        self._used = {value.name for value in defined_values(function)}
        self._counts: Counter[str] = Counter()

    def claim(self, name: str) -> str:
        """Returns the name itself, unless a value has it."""
        if name in self._used:
            return self.fresh(name)
        self._used.add(name)
        return name

    def fresh(self, stem: str) -> str:
        while True:
            self._counts[stem] += 1
            name = f"{stem}_{self._counts[stem]}"
            if name not in self._used:
                self._used.add(name)
                return name


class NodeBuilder(Builder):
    """Writes the nodes that replace a node, with its scope and span. Names begin with that of its result."""

    def __init__(self, names: Names, node: Node) -> None:
        super().__init__(OPERATORS, scope=node.scope, span=node.span)
        self._names = names
        self._stem = node.outputs[0].name if node.outputs else node.op

    def fresh(self, type: TensorType) -> Value:
        return Value(self._names.fresh(self._stem), type)


def constant_node(value: Value, array: Array, like: Node) -> Node:
    """Returns a node that gives `value` the data `array`, with the scope and span of `like`."""
    constant = Constant(array)
    assert constant.type == value.type, (constant, value)
    return Node("constant", (), (value,), (("value", constant),), (), like.scope, like.span)


def constant_array(node: Node | None) -> Array | None:
    """Returns the data of a constant, or None if the node is not a constant or its data was not kept."""
    constant = None if node is None else constant_of(node)
    return None if constant is None else constant.array


def rename_results(nodes: Iterable[Node], values: Mapping[str, Value]) -> tuple[Node, ...]:
    """Returns the nodes with results renamed, and their uses among them."""
    return tuple(
        replace(substitute_values(node, values), outputs=tuple(values.get(v.name, v) for v in node.outputs))
        for node in nodes
    )


def clone(
    nodes: Iterable[Node], names: Names, values: dict[str, Value], change: Callable[[Node], Node] = lambda node: node
) -> list[Node]:
    """Copies nodes under fresh names. `values` maps inputs to their replacements; the copies' results are added to
    it."""

    def fresh(value: Value) -> Value:
        values[value.name] = Value(names.fresh(value.name), value.type)
        return values[value.name]

    copies: list[Node] = []
    for node in nodes:
        node = change(node)
        inputs = tuple(values.get(v.name, v) for v in node.inputs)
        regions: list[Region] = []
        for region in node.regions:
            arguments = tuple(map(fresh, region.arguments))
            body = tuple(clone(region.body, names, values, change))
            regions.append(Region(arguments, body, tuple(values.get(v.name, v) for v in region.results)))
        outputs = tuple(map(fresh, node.outputs))
        copies.append(replace(node, inputs=inputs, outputs=outputs, regions=tuple(regions)))
    return copies


@dataclass(frozen=True, slots=True)
class Replacement:
    """The nodes that replace a node, and the values that replace its results."""

    nodes: tuple[Node, ...]
    values: tuple[Value, ...]


def _keep_names(node: Node, replacement: Replacement) -> Replacement:
    """Gives the results of new nodes the names of the results that they replace."""
    made = {value.name for new in replacement.nodes for value in new.outputs}
    renamed: dict[str, Value] = {}
    for old, new in zip(node.outputs, replacement.values, strict=True):
        assert old.type == new.type, (node, replacement)
        if new.name in made:
            renamed.setdefault(new.name, old)
    nodes = rename_results(replacement.nodes, renamed)
    return Replacement(nodes, tuple(renamed.get(v.name, v) for v in replacement.values))


class Rewriter:
    """Walks a function in order and replaces the nodes that `visit` rewrites; replacements are visited again.

    `visit` receives a node whose inputs are final, before its regions are walked, and once more if they changed.
    `definitions` holds the final node of every earlier value.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.names = Names(function)
        self.definitions: dict[str, Node] = {}
        self._values: dict[str, Value] = {}

    def visit(self, node: Node) -> Replacement | None:
        raise NotImplementedError

    def run(self) -> Function:
        body = self.walk(self.function.body)
        return replace(self.function, body=body, results=tuple(map(self.final, self.function.results)))

    def final(self, value: Value) -> Value:
        return self._values.get(value.name, value)

    def walk(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        body: list[Node] = []
        for node in nodes:
            self._place(node, body, 0)
        return tuple(body)

    def walk_region(self, region: Region, node: Node) -> Region:
        """Returns a region of a node that stays."""
        body = self.walk(region.body)
        return Region(region.arguments, body, tuple(map(self.final, region.results)))

    def _place(self, node: Node, body: list[Node], depth: int) -> None:
        assert depth < 1000, f"rewriting does not terminate at {node}"
        node = substitute_values(node, self._values)
        replacement = self.visit(node)
        if replacement is None:
            regions = tuple(self.walk_region(r, node) for r in node.regions)
            if regions != node.regions:
                # The new regions may enable a rewrite of the node.
                self._place(replace(node, regions=regions), body, depth + 1)
                return
            body.append(node)
            for value in node.outputs:
                self.definitions[value.name] = node
            return
        replacement = _keep_names(node, replacement)
        for new in replacement.nodes:
            self._place(new, body, depth + 1)
        for old, value in zip(node.outputs, replacement.values, strict=True):
            final = self.final(value)
            if final.name != old.name:
                self._values[old.name] = final


def count_uses(nodes: Iterable[Node], results: Iterable[Value]) -> Counter[str]:
    """Returns the number of uses of each value, including uses inside regions."""
    uses = Counter(value.name for value in results)
    for node in walk(nodes):
        uses.update(value.name for value in node.inputs)
        for region in node.regions:
            uses.update(value.name for value in region.results)
    return uses
