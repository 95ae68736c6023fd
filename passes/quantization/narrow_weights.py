"""`narrow-weights`: multiplies weights of a short dtype as they are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ...dialect.graph import Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Builder
from ...dialect.ops import OPERATORS
from ...dialect.types import F32
from ..analysis.factors import summed_axes
from ..analysis.known_values import KnownValues
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter
from .integer_contractions import along_channels, arrangement_of
from .quantized_movements import with_rank


@dataclass(frozen=True)
class NarrowWeights(Pass):
    """Rewrites contractions of an f32 activation and a dequantized weight to contractions with the short weight.

    - `contraction(x, dequantize(q, scale))` becomes `contraction(x, q, into=f32) * scale`, where the scale is constant
      along the sums and there is no zero point
    - `contraction(x, cast(w, f32))` becomes `contraction(x, w, into=f32)`

    The artifact then stores the short weight, and the kernel widens it while it multiplies. Each product is exact or
    rounded once, and the sum is scaled once. The difference to a widened weight is that of a reassociated sum.

    Assumes that `qdq-propagation` has rewritten contractions of two quantized operands. Leaves the computation of the
    quantized values to `fold-parameters`.
    """

    name: ClassVar[str] = "narrow-weights"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Narrower(function, module, context).run())


@dataclass(frozen=True, slots=True)
class _Short:
    """A weight as it is stored. Its scale, if there is one, is 1 along all summed axes."""

    value: Value
    scale: Value | None


class _Narrower(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context) -> None:
        super().__init__(function)
        self.context = context
        self.known = KnownValues(self.definitions, module.parameter_index)

    def visit(self, node: Node) -> Replacement | None:
        summed = summed_axes(node)
        if summed is None or node.attribute("into") is not None or node.output.type.dtype is not F32:
            return None
        for number, axes in enumerate(summed):
            weight, other = node.inputs[number], node.inputs[1 - number]
            if self.known.is_known(other):
                continue
            b = NodeBuilder(self.names, node)
            short = self.short(weight, axes)
            value = None if short is None else _multiply(b, node, number, short)
            if value is not None and self.context.allow(node.op, node):
                return Replacement(tuple(b.nodes), (value,))
        return None

    def short(self, weight: Value, axes: tuple[int, ...]) -> _Short | None:
        node = self.definitions.get(weight.name)
        if node is None or not OPERATORS[node.op].has("conversion"):
            return None
        stored, *factors = node.inputs
        if F32 not in stored.type.dtype.sums_in or self.known.find(stored) is None:
            return None
        if not factors:
            return _Short(stored, None)
        scale, *zeros = factors
        if zeros or scale.type.dtype is not F32 or self.known.find(scale) is None:
            return None
        shape = (*(1,) * (weight.type.rank - scale.type.rank), *scale.type.shape)
        return _Short(stored, scale) if all(shape[axis] == 1 for axis in axes) else None


def _multiply(b: NodeBuilder, node: Node, number: int, short: _Short) -> Value | None:
    """Returns the contraction with the short weight, scaled, with its bias added afterwards."""
    align = _alignment(node, number)
    if align is None:
        return None
    inputs = list(node.inputs[:2])
    inputs[number] = short.value
    # Without a scale, sums may start from the bias.
    bias = node.inputs[2:]
    attributes = {**dict(node.attributes), "into": F32}
    if short.scale is None:
        return b.apply(node.op, [*inputs, *bias], attributes)[0]
    (value,) = b.apply(node.op, inputs, attributes)
    value = b.multiply(value, align(b, with_rank(b, short.scale, short.value.type.rank)))
    for each in bias:
        value = b.add(value, _along(b, node, each))
    return value


def _alignment(node: Node, number: int) -> Callable[[Builder, Value], Value] | None:
    """Returns the broadcast of an operand's scale to the result."""
    if OPERATORS[node.op].has("transposed"):
        return (lambda b, value: _along(b, node, value)) if number == 1 and node.attribute("groups") == 1 else None
    arrangement = arrangement_of(node)
    return None if arrangement is None else arrangement.sides[number].align


def _along(b: Builder, node: Node, value: Value) -> Value:
    """Broadcasts per-channel values to the result of a convolution."""
    if not OPERATORS[node.op].has("transposed"):
        return along_channels(b, node, value)
    if value.type.elements == 1:
        return b.reshape(value, shape=())
    return b.reshape(value, shape=(node.output.type.shape[1], *(1,) * (node.output.type.rank - 2)))
