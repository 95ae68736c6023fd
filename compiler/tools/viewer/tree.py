"""A graph as nested boxes: the blocks of the source, loops, kernels, and nodes inside them.

A body is a directed acyclic graph: boxes follow the boxes that they read. If a block's nodes and others would form a
cycle, the block is divided into two parts. Parameters and constants have no boxes; they appear in the text of their
readers. This module determines neither positions nor sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from ....dialect.graph import Constant, Function, Module, Node, Region, Value, read_values, walk
from ....dialect.ops import OPERATORS
from ....dialect.printer import format_constant
from ....passes.rewrite import count_uses
from ...lower.kinds import kind_of
from .groups import Group, components, find_edges, find_ranks, group_nodes, is_leaf

Role = Literal["node", "kernel", "loop", "block", "input", "result"]

_TITLE = 30
_LINE = 36
_MOST_LINES = 5
_FAR = 24
"""An edge that spans more ranks than this is not drawn: a port replaces its end."""
_MOST_BOXES = 60
"""The maximum number of legible boxes: a picture is initially unfolded to the largest depth below it."""
_MOST_RANKS = 2
"""The maximum number of ranks whose boxes may share one input port of a value."""


@dataclass(frozen=True, slots=True)
class Item:
    """A box. `key` is unique in its body and stays the same while passes rewrite its contents.

    `caption` is a line above the title: the block whose only node this is. A box with a `body` can be unfolded. `node`
    is the node that the box represents, if it is a single one; `value` is the entering or leaving value, if the box is
    a port.
    """

    key: str
    role: Role
    title: str
    caption: str = ""
    lines: tuple[str, ...] = ()
    kind: str = ""
    node: Node | None = None
    value: Value | None = None
    body: Body | None = None

    @property
    def is_port(self) -> bool:
        return self.value is not None


@dataclass(frozen=True, slots=True)
class Body:
    """Boxes in topological order, and the pairs (writer, reader) of boxes by number."""

    items: tuple[Item, ...]
    edges: tuple[tuple[int, int], ...]


def build_tree(module: Module) -> Body:
    """Returns the body of the module's only function, or a body with a block for each function."""
    bodies = [(function, _FunctionTree(function).body()) for function in module.functions]
    if len(bodies) == 1:
        return bodies[0][1]
    return Body(tuple(Item(f.name, "block", f.name, body=body) for f, body in bodies), ())


def nodes_of(item: Item) -> tuple[Node, ...]:
    """Returns the nodes in a box, each with those nested in it."""
    if item.node is not None:
        return (item.node,)
    return () if item.body is None else tuple(node for inner in item.body.items for node in nodes_of(inner))


def usual_depth(body: Body) -> int:
    """Returns the number of levels of a body that can be unfolded, except kernels, within the limit of boxes."""
    depth = 0
    while count_boxes(body, depth) < count_boxes(body, depth + 1) <= _MOST_BOXES:
        depth += 1
    return depth


def count_boxes(body: Body, depth: int) -> int:
    inside = (item.body for item in body.items if depth and item.body is not None and item.role != "kernel")
    return len(body.items) + sum(count_boxes(inner, depth - 1) for inner in inside)


@dataclass
class _FunctionTree:
    function: Function
    leaves: dict[str, Node] = field(default_factory=dict)
    """The parameter or constant of each value name, including arguments of kernels."""
    uses: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        nodes = tuple(walk(self.function.body))
        self.uses = count_uses(self.function.body, self.function.results)
        regions = [region for node in nodes for region in node.regions]
        handed_on = {v.name for results in (self.function.results, *(r.results for r in regions)) for v in results}
        for node in nodes:
            if is_leaf(node) and node.output.name not in handed_on:
                self.leaves[node.output.name] = node
            elif OPERATORS[node.op].has("group"):
                for argument, value in zip(node.regions[0].arguments, node.inputs, strict=True):
                    if value.name in self.leaves:
                        self.leaves[argument.name] = self.leaves[value.name]

    def body(self) -> Body:
        function = self.function
        names = {v.name: name for v, name in zip(function.results, function.result_names, strict=False)}
        return self.lay_out(function.body, (), function.results, names)

    def lay_out(
        self,
        nodes: Iterable[Node],
        prefix: tuple[str, ...] | None,
        results: Sequence[Value] = (),
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> Body:
        """Returns the boxes of nodes in the block `prefix`; without a prefix, each node is a separate box.

        `results` have output ports, as do values that are used elsewhere; `names` are the outside names of results.
        """
        shown = [node for node in nodes if node.outputs and not (is_leaf(node) and node.output.name in self.leaves)]
        groups = group_nodes(shown, prefix)
        made = {v.name: number for number, group in enumerate(groups) for node in group.nodes for v in node.outputs}
        leaving = self.leaving(shown, made, results)
        boxes = [self.box(group, prefix) for group in groups]
        inner = find_edges(groups, made)
        ranks = find_ranks(len(groups), inner)
        inner = [(source, reader) for source, reader in inner if ranks[reader] - ranks[source] <= _FAR]
        inputs, reads = self.entering(groups, made, ranks)
        first, last = len(inputs), len(inputs) + len(groups)
        outputs = [_port("result", v, names.get(v.name, v.name)) for v in leaving]
        edges = [(first + source, first + reader) for source, reader in inner]
        edges += [(port, first + reader) for port, reader in reads]
        edges += [(first + made[v.name], last + i) for i, v in enumerate(leaving) if v.name in made]
        return Body((*inputs, *boxes, *outputs), tuple(sorted(edges)))

    def entering(
        self, groups: Sequence[Group], made: Mapping[str, int], ranks: Sequence[int]
    ) -> tuple[list[Item], list[tuple[int, int]]]:
        """Returns input ports of the values that come from outside or from distant ranks, and their readers. A value
        with readers on many ranks has a port for each rank, so that no edges span the whole block."""
        outside = [
            (v, number)
            for number, group in enumerate(groups)
            for node in group.nodes
            for v in read_values(node)
            if v.name not in self.leaves and (v.name not in made or ranks[number] - ranks[made[v.name]] > _FAR)
        ]
        heights: dict[str, set[int]] = {}
        for value, number in outside:
            heights.setdefault(value.name, set()).add(ranks[number])
        ports: dict[tuple[str, int], int] = {}
        items: list[Item] = []
        parts: Counter[str] = Counter()
        reads: dict[tuple[int, int], None] = {}
        for value, number in outside:
            port = value.name, ranks[number] if len(heights[value.name]) > _MOST_RANKS else 0
            if port not in ports:
                ports[port] = len(items)
                parts[value.name] += 1
                items.append(_port("input", value, value.name, parts[value.name]))
            reads[ports[port], number] = None
        return items, list(reads)

    def leaving(self, nodes: Sequence[Node], made: Mapping[str, int], results: Sequence[Value]) -> list[Value]:
        inside = count_uses(nodes, ())
        values = {v.name: v for node in nodes for v in node.outputs if self.uses[v.name] > inside[v.name]}
        return list({v.name: v for v in (*results, *values.values())}.values())

    def box(self, group: Group, prefix: tuple[str, ...] | None) -> Item:
        if group.block is None:
            return self.node_box(group.nodes[0])
        body = self.lay_out(group.nodes, (*(prefix or ()), group.block))
        inner = [item for item in body.items if item.role not in ("input", "result")]
        if len(inner) == 1 and inner[0].role != "block":
            caption = f"{group.title}.{inner[0].caption}" if inner[0].caption else group.title
            return replace(inner[0], caption=caption)
        kind = kind_of([n for node in group.nodes for n in walk([node])])
        return Item(group.key, "block", group.title, kind=kind, body=body)

    def node_box(self, node: Node) -> Item:
        key, types = node.outputs[0].name, tuple(dict.fromkeys(str(v.type) for v in node.outputs))
        lines = (*types, *self.operands(node))
        if not node.regions:
            return Item(key, "node", node.op, "", shorten_lines(lines), kind_of([node]), node)
        region = node.regions[0]
        if node.op == "repeat":
            title, kind = f"repeat {node.attribute('count')} times", kind_of(list(walk(region.body)))
            body = self.lay_out(region.body, components(node.scope), region.results)
            return Item(key, "loop", title, "", shorten_lines(lines), kind, node, body=body)
        title = _kernel_title(region)
        body = self.lay_out(region.body, None, region.results)
        return Item(key, "kernel", title, "", shorten_lines(lines), kind_of(region.body), node, body=body)

    def operands(self, node: Node) -> list[str]:
        """Returns the operands without boxes: parameters by the end of their path, constants by their values."""
        leaves = dict.fromkeys(self.leaves[v.name].output.name for v in node.inputs if v.name in self.leaves)
        return [_leaf_text(self.leaves[name], components(node.scope)) for name in leaves]


def _leaf_text(leaf: Node, scope: tuple[str, ...]) -> str:
    if leaf.op == "constant":
        value = leaf.attribute("value")
        assert isinstance(value, Constant), leaf
        return format_constant(value).removeprefix("constant<").removesuffix(">")
    name = str(leaf.attribute("name"))
    around = ".".join(scope)
    short = name.removeprefix(f"{around}.") if around and name.startswith(f"{around}.") else name
    text = f"{short} {leaf.output.type}"
    # The end of a path is more specific than its beginning.
    return text if len(text) <= _LINE else f"…{text[1 - _LINE :]}"


def _port(role: Role, value: Value, name: str, part: int = 1) -> Item:
    """Returns a port with the name of its value in the text; numbered values have no name."""
    title = shorten(name, _TITLE) if name[0].isalpha() else ""
    key = f"{role} {value.name}" + (f" {part}" if part > 1 else "")
    return Item(key, role, title, lines=(str(value.type),), value=value)


def _kernel_title(region: Region) -> str:
    """Returns the title of a kernel: its computing operators, or those that move elements if there are no others."""
    nodes = [node for node in region.body if not is_leaf(node)]
    computing = [node for node in nodes if kind_of([node]) != "movement"]
    return shorten(" + ".join(node.op for node in computing or nodes), _TITLE)


def shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def shorten_lines(lines: Sequence[str]) -> tuple[str, ...]:
    kept = tuple(shorten(line, _LINE) for line in lines[:_MOST_LINES])
    return kept if len(lines) <= _MOST_LINES else (*kept[:-1], f"and {len(lines) - len(kept) + 1} more")
