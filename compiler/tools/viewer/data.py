"""The data of a page, as JSON: the graph after every pass, with common parts written once.

Nodes, boxes, bodies and grids are tables that refer to each other by number. A body that no pass changed is shared by
all stages, so a page of many stages is little larger than one of the last.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....dialect.diagnostics import Span
from ....dialect.graph import Function, Module, Node, walk
from ....dialect.ops import OPERATORS
from ....dialect.printer import format_attribute
from ....passes.manager import Rewrite, Stage
from ....passes.registry import PASSES
from ..explorer.measured_times import Measured, Profile, join_profile
from . import placement
from .box_costs import Amount, Cost, CostCounter
from .layout import lay_out
from .tree import Body, Item, build_tree, usual_depth

_Name = tuple[str, str]
"""A function, and the first result of a node in it."""

Json = Any
"""A value that `json.dumps` accepts."""


@dataclass(frozen=True, slots=True)
class Source:
    """A model file: its name as in spans, and its text."""

    name: str
    text: str


@dataclass
class Table:
    """Distinct values by number. Values with equal `keys` are identical."""

    rows: list[Json] = field(default_factory=list)
    _numbers: dict[Hashable, int] = field(default_factory=dict)

    def number(self, key: Hashable, row: Json) -> int:
        found = self._numbers.setdefault(key, len(self.rows))
        if found == len(self.rows):
            self.rows.append(row)
        return found


@dataclass(frozen=True, slots=True)
class _Shown:
    """A node by its number, and the properties whose change is displayed: not the names of its operands."""

    number: int
    what: Hashable


@dataclass
class PageData:
    """Collects stages in order and returns the data of a page. `dims` are the sizes at which costs are counted; `depth`
    is the number of block levels that are initially open."""

    sources: Sequence[Source]
    dims: Mapping[str, int]
    depth: int | None = None
    nodes: Table = field(default_factory=Table)
    items: Table = field(default_factory=Table)
    bodies: Table = field(default_factory=Table)
    grids: Table = field(default_factory=Table)
    stages: list[Json] = field(default_factory=list)
    costs: dict[_Name, Cost] = field(default_factory=dict)
    parameters: dict[_Name, str] = field(default_factory=dict)
    """The parameter of a value, by function and value name."""
    counter: CostCounter = field(init=False)
    read_sources: range = field(init=False)
    """The sources, by number, in which the spans of the next graph are."""
    _before: dict[_Name, _Shown] = field(default_factory=dict)
    _now: dict[_Name, _Shown] = field(default_factory=dict)
    """The nodes of this stage, and those of the previous one in `_before`, except nodes inside kernels."""

    def __post_init__(self) -> None:
        self.counter = CostCounter(self.dims)
        self.read_sources = range(len(self.sources))

    def add(self, stage: Stage, rewrites: Sequence[Rewrite]) -> None:
        """Adds the graph after a pass, with the rewrites of the pass."""
        if stage.number and not stage.changed:
            same = {**self.stages[-1], "added": [], "changed": [], "removed": 0}
            self.stages.append(same | self.headline(stage, rewrites))
            return
        root, depth = self.show(stage.module)
        marks = {"added": [], "changed": [], "removed": 0} if not stage.number else self.marks()
        self.stages.append({"root": root, "depth": depth, **marks, **self.headline(stage, rewrites)})

    def show(self, module: Module) -> tuple[int, int]:
        """Adds the boxes of a graph; returns the number of its body, and the levels that are open at first."""
        self._before, self._now = self._now, {}
        return self.root(module)

    def shown_nodes(self) -> list[int]:
        """Returns the nodes of the last graph by number, without those inside kernels."""
        return [shown.number for shown in self._now.values()]

    def profiled(self, profile: Profile) -> Json:
        """Returns the data of a profile of the last stage. Raises DiagnosticError if it is of another graph."""
        nodes = {name: Measured(shown.number, self.costs[name].flops.value) for name, shown in self._now.items()}
        calls = join_profile(profile, nodes)
        peak = {"flops": profile.flops_per_second, "bytes": profile.bytes_per_second}
        return {
            **profile.shown,
            "entry": profile.entry,
            "peak": {**peak, "products": dict(profile.products_per_second)},
            "nodes": {number: call.seconds for number, call in calls.items()},
            "ideal": {number: call.ideal for number, call in calls.items() if call.ideal is not None},
        }

    def headline(self, stage: Stage, rewrites: Sequence[Rewrite]) -> dict[str, Json]:
        what = "The graph of the kernels in the artifact." if stage.number else "The graph as the model file says it."
        if stage.name in PASSES:
            what = inspect.getdoc(PASSES[stage.name]) or ""
        return {
            "name": stage.name if stage.number else "graph",
            "what": " ".join(what.split("\n\n")[0].split()),
            "rules": sorted(Counter(r.rule for r in rewrites).items()),
        }

    def marks(self) -> dict[str, Json]:
        """Returns the differences from the previous stage: added and changed nodes, and the number of removed nodes."""
        before, now = self._before, self._now
        added = [now[name].number for name in now if name not in before]
        changed = [now[name].number for name in now if name in before and now[name].what != before[name].what]
        return {"added": added, "changed": changed, "removed": len(before.keys() - now.keys())}

    def root(self, module: Module) -> tuple[int, int]:
        self.costs = {
            (function.name, name): cost
            for function in module.functions
            for name, cost in self.counter.count(function).items()
        }
        self.parameters = {
            (function.name, value): name
            for function in module.functions
            for value, name in _parameters(function).items()
        }
        tree = build_tree(module)
        function = module.functions[0].name if len(module.functions) == 1 else None
        return self.body(tree, function), usual_depth(tree) if self.depth is None else self.depth

    def body(self, body: Body, function: str | None, fused: bool = False) -> int:
        """Adds a body of a function, or (None) the body with a box for each function; returns its number."""
        grid = lay_out(body)
        edges = [[source, target, turns] for (source, target), turns in zip(body.edges, grid.turns, strict=True)]
        layout = self.grids.number((grid, body.edges), {"rows": grid.rows, "columns": grid.columns, "edges": edges})
        items = tuple(self.item(item, item.key if function is None else function, fused) for item in body.items)
        return self.bodies.number((layout, items), {"grid": layout, "items": items})

    def item(self, item: Item, function: str, fused: bool) -> int:
        width, height = placement.folded_size(item)
        body = None if item.body is None else self.body(item.body, function, fused or item.role == "kernel")
        row = {
            "key": item.key,
            "role": item.role,
            "title": item.title,
            "caption": item.caption,
            "lines": item.lines,
            "kind": item.kind,
            "value": None if item.value is None else item.value.name,
            "width": width,
            "height": height,
            "heading": placement.heading_width(item),
            "node": None if item.node is None else self.node(item.node, function, fused),
            "body": body,
        }
        return self.items.number(tuple(row.values()), row)

    def node(self, node: Node, function: str, fused: bool) -> int:
        name = node.outputs[0].name
        cost = self.costs[function, name]
        attributes = tuple((key, format_attribute(value)) for key, value in node.attributes)
        operands = tuple((v.name, str(v.type), self.parameters.get((function, v.name))) for v in node.inputs)
        results = tuple((v.name, str(v.type)) for v in node.outputs)
        flops, moved = _amount(cost.flops), _amount(cost.bytes)
        row = (function, node.op, results, operands, attributes, node.scope, self.span(node.span), flops, moved)
        number = self.nodes.number(row, row)
        if not fused:
            self._now[function, name] = _Shown(
                number, (node.op, results, attributes, tuple(type for _, type, _ in operands))
            )
        return number

    def span(self, span: Span | None) -> tuple[int, int, int, int, int] | None:
        if span is None:
            return None
        for number in self.read_sources:
            if self.sources[number].name == span.file:
                return (number, span.line, span.column, span.end_line, span.end_column)
        return None


NODE_FIELDS = ("function", "op", "results", "operands", "attributes", "scope", "span", "flops", "bytes")

MEASURES = {
    "gap": placement.GAP,
    "rowGap": placement.ROW_GAP,
    "edgeRoom": placement.EDGE_ROOM,
    "margin": placement.MARGIN,
    "header": placement.HEADER,
    "run": placement.RUN,
    "padding": placement.PADDING,
    "lineHeight": placement.LINE_HEIGHT,
    "titleHeight": placement.TITLE_HEIGHT,
}
"""The measures that `geometry.js` and `view.js` share with `placement.py`."""


def _parameters(function: Function) -> dict[str, str]:
    """Returns the names of parameters by value name, including arguments of kernels."""
    found: dict[str, str] = {}
    for node in walk(function.body):
        if node.op == "parameter":
            found[node.output.name] = str(node.attribute("name"))
        elif OPERATORS[node.op].has("group"):
            arguments = zip(node.regions[0].arguments, node.inputs, strict=True)
            found |= {argument.name: found[value.name] for argument, value in arguments if value.name in found}
    return found


def _amount(amount: Amount | None) -> tuple[str, int] | None:
    return None if amount is None else (amount.formula, amount.value)
