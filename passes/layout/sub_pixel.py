"""`sub-pixel`: replaces transposed convolutions by ordinary ones, which compute the phases as channels."""

from __future__ import annotations

import itertools
from typing import ClassVar

from ...dialect.dims import bounds, product
from ...dialect.graph import Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops.support.common import is_half
from ...dialect.ops.support.layouts import FIRST, LAST, last_order
from ..analysis.known_values import KnownValues
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter
from .channels_last_rules import MOVING_POSITIONS
from .phases import Phases, phases_of


@dataclass(frozen=True)
class SubPixel(Pass):
    """Replaces transposed convolutions by convolutions with stride 1, followed by data movement.

    The direct lowering spreads the input between zeros and multiplies all of them: `stride` times too many products
    along each axis. After this pass, one convolution computes all phases as channels. If that requires padding the
    kernel with zeros to more than `filling` percent of its size, up to two convolutions per axis compute the phases
    with equally many taps. With at least `channels` results, and a weight that is known or shared by many positions,
    the convolutions are channels last.

    The pass only reassociates sums. Leaves kernels with a dilation and a stride, and those of depthwise convolutions,
    unchanged. Leaves the reordered weight to `fold-parameters`.
    """

    name: ClassVar[str] = "sub-pixel"
    filling: int = 125
    channels: int = 8

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Rewriter(function, module, context, self).run())


class _Rewriter(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context, options: SubPixel) -> None:
        super().__init__(function)
        self.context, self.options = context, options
        self.known = KnownValues(self.definitions, module.parameter_index)

    def visit(self, node: Node) -> Replacement | None:
        phases = phases_of(node)
        if phases is None or phases.is_depthwise:
            return None
        if _rounds_once(node) and any(axis.spread < axis.stride for axis in phases.axes):
            return None  # phases without taps equal the bias
        if not self.context.allow("phases", node):
            return None
        b = NodeBuilder(self.names, node)
        value = self.rewritten(b, phases)
        return Replacement(tuple(b.nodes), (value,))

    def is_movable(self, x: Value, weight: Value) -> bool:
        """Returns whether the weight may be transposed: when the artifact is written, or in each call, if enough
        positions share it."""
        positions = product((x.type.shape[0], *x.type.shape[2:]))
        return bounds(positions)[0] >= MOVING_POSITIONS or self.known.find(weight) is not None

    def rewritten(self, b: NodeBuilder, phases: Phases) -> Value:
        x, weight, *bias = phases.node.inputs
        rank = len(phases.axes)
        moved = set(phases.strides) != {1}
        last = moved and phases.channels >= self.options.channels and self.is_movable(x, weight)
        layout = LAST if last else FIRST
        inside = [phases.for_phases(b, value) for value in bias] if _rounds_once(phases.node) or not moved else []
        filled = bool(inside) or phases.filling * 100 <= self.options.filling
        if last:
            x = b.transpose(x, axes=last_order(rank + 2))
        results = {}
        for parts in itertools.product(*(axis.parts(filled=filled) for axis in phases.axes)):
            kernel = phases.weight(b, weight, parts, layout)
            padding, source = phases.padding(parts), x
            if last and any(pair != (0, 0) for pair in padding):
                source = b.pad(x, widths=((0, 0), *padding, (0, 0)))
                padding = ((0, 0),) * rank
            attributes = phases.attributes(layout, padding)
            results[parts] = b.apply(f"conv{rank}d", [source, kernel, *inside], attributes)[0]
        y = phases.joined(b, results, layout)
        if inside or not bias:
            return y
        return b.add(y, b.reshape(bias[0], shape=(*bias[0].type.shape, *(1,) * rank)))


def _rounds_once(node: Node) -> bool:
    """Returns whether the sum is rounded to 16 bits only after the bias is added."""
    return len(node.inputs) > 2 and is_half(node.inputs[0].type.dtype) and node.attribute("into") is None
