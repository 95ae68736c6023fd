"""`channels-last`: changes the layout of convolutions and the operators between them to channels last.

    x [N, C, H, W] -> conv2d -> relu -> conv2d -> y [N, D, H, W]

becomes one region in the new layout, with transposes at its borders only:

    x -> transpose -> [N, H, W, C] conv2d -> relu -> conv2d [N, H, W, D] -> transpose -> y
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from ...dialect.graph import Function, Module, Node, Value, read_values, substitute_values
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import axis_order
from ...dialect.ops.support.layouts import first_order
from ..analysis.known_values import KnownValues, definitions_in
from ..manager import Context, Pass
from ..rewrite import Names, NodeBuilder, rename_results
from .channels_last_rules import Layouts, Made, Opened, Site, move, rule_of

LAST_SUFFIX = "_last"
"""The suffix of the name of a value that is a channels-last copy of another value."""


@dataclass(frozen=True)
class ChannelsLast(Pass):
    """Changes the layout of convolutions to [N, *spatial, C], and propagates the layout.

    The rewrite starts at convolutions with at least `channels` output channels, except a single one that gains
    nothing, and at tensors already in this layout. A convolution of at most `direct` input channels reads a
    channels-first tensor directly. Pooling, elementwise operators, reductions, concatenations, slices and padding
    between convolutions use the new layout, by the rules in `channels_last_rules`. At the borders, the pass inserts at
    most one transpose per value, or a reshape if only an axis of size 1 moves. Loops, and functions without such a
    convolution, are not changed. Neither are convolutions at few positions whose weight changes from call to call. With
    `mean`, a symbolic number of positions counts with the mean of its least and its greatest value; without, with the
    least one.

    If all convolutions are depthwise on images of a known size, they keep the channels-first layout: chains of such
    layers can be computed channel by channel.

    The gradient of a weight with at least `channels` output channels per group is computed channels last, between
    transposes of its own if its operands are not in this layout.

    With `pads`, the padding of a convolution becomes a `pad` node before it. Its bias becomes an `add` node after it.
    Both can then be fused with their neighbours. The pass only reassociates sums. Leaves transposes of weights to
    `fold-parameters`, and unused nodes to `dce`.
    """

    name: ClassVar[str] = "channels-last"
    channels: int = 8
    direct: int = 8
    pads: bool = True
    mean: bool = True

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: self._rewrite_function(function, module, context))

    def _rewrite_function(self, function: Function, module: Module, context: Context) -> Function:
        known = KnownValues(definitions_in(function.body), module.parameter_index)
        layouts = Layouts(known, self.channels, self.direct, self.pads, self.mean)
        reasons = [node for node in function.body if layouts.is_reason(node) or layouts.is_weight_reason(node)]
        layouts.stays = bool(reasons) and all(layouts.is_apart(node) for node in reasons)
        if not reasons or (not layouts.stays and len(reasons) == 1 and layouts.is_small_reason(reasons[0])):
            return function
        return _Rewriter(function, layouts, context).run()


class _Rewriter:
    def __init__(self, function: Function, layouts: Layouts, context: Context) -> None:
        self.function, self.layouts, self.context = function, layouts, context
        self.names = Names(function)
        self.body: list[Node] = []
        self.aliases: dict[str, Value] = {}

    def run(self) -> Function:
        for node in self.function.body:
            self.add(node)
        results = tuple(self.aliases.get(v.name, v) for v in self.function.results)
        for value in results:
            self.need(value)
        return replace(self.function, body=tuple(self.body), results=results)

    def add(self, node: Node) -> None:
        node = substitute_values(node, self.aliases)
        rule = rule_of(node)
        site = Site(node, NodeBuilder(self.names, node), self.layouts)
        made = rule(site) if rule is not None else None
        if made is None or not self.context.allow(node.op, node):
            self.keep(node)
        elif isinstance(made, Opened):
            self.open(node, made)
        else:
            self.use(node, made, site)

    def keep(self, node: Node) -> None:
        for value in read_values(node):
            self.need(value)
        self.emit([node])
        if len(node.outputs) == 1 and axis_order(node) == first_order(node.output.type.rank):
            self.layouts.last[node.output.name] = node.inputs[0]

    def open(self, node: Node, made: Opened) -> None:
        inner = {v.name for n in made.nodes for v in n.outputs}
        pairs = list(zip(made.values, node.outputs, strict=True))
        for each in rename_results(made.nodes, {new.name: old for new, old in pairs if new.name in inner}):
            self.add(each)
        self.aliases |= {old.name: new for new, old in pairs if new.name not in inner}

    def use(self, node: Node, made: Made, site: Site) -> None:
        inner = {v.name for n in site.b.nodes for v in n.outputs}
        pairs = list(zip(node.outputs, made.values, strict=True))
        named = {new.name: self.named(old, new, made) for old, new in pairs if new.name in inner}
        self.emit(rename_results(site.b.nodes, named))
        self.layouts.last |= {name: named.get(v.name, v) for name, v in site.found.items()}
        for value, new in pairs:
            final = named.get(new.name, new)
            if made.last:
                self.layouts.last[value.name] = final
                self.layouts.only_last[value.name] = node
            elif final.name != value.name:
                self.aliases[value.name] = final

    def named(self, value: Value, new: Value, made: Made) -> Value:
        """Returns the value that replaces another one, with a name derived from it."""
        return replace(new, name=self.names.claim(f"{value.name}{LAST_SUFFIX}") if made.last else value.name)

    def emit(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self.body.append(node)
            self.layouts.definitions.update((v.name, node) for v in node.outputs)

    def need(self, value: Value) -> None:
        """Ensures that the value exists in channels-first layout, under its own name."""
        source = self.layouts.only_last.pop(value.name, None)
        if source is not None:
            b = NodeBuilder(self.names, source)
            moved = move(b, self.layouts.last[value.name], first_order(value.type.rank))
            self.emit(rename_results(b.nodes, {moved.name: value}))
