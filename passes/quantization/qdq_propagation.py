"""`qdq-propagation`: pushes `dequantize` and `quantize` through integer-compatible operators."""

from __future__ import annotations

from typing import ClassVar

from ...dialect.graph import Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Builder
from ...dialect.ops import OPERATORS
from ...dialect.ops.support.accumulate import ROUNDED, without_diagonals
from ...dialect.types import F32, I32
from ..analysis.factors import is_cast
from ..analysis.known_values import KnownValues
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter, count_uses
from .integer_contractions import Arrangement, Side, along_channels, arrangement_of, as_convolution, padded_with
from .quantized_movements import (
    bound_quantized,
    choose_quantized,
    chooses,
    move_quantized,
    moves,
    quantize_bounded,
    quantize_chosen,
    quantize_moved,
    with_rank,
)
from .quantized_values import Quantized, QuantizedValues


@dataclass(frozen=True)
class QdqPropagation(Pass):
    """Pushes `dequantize` and `quantize` through integer-compatible operators.

    With `dq` for `dequantize`:

    - `contraction(dq(a, sa, za), dq(b, sb))` becomes `cast(contraction(a, b, into=i32) - za * sum(b)) * (sa * sb)`,
      where the scales are constant along the sums; a convolution is then padded with the zero point, and a transposed
      convolution, which inserts zero points between elements, becomes a convolution
    - operators that move or select elements, such as `relu`, `concat` and `max_pool2d`, work on quantized values, after
      a `dequantize` as well as before a `quantize`
    - `quantize(dq(q, s, z), s, z)` becomes `q`
    - with `requantize`, `quantize(cast(total) * m + bias, s, z)` becomes `requantize(total, m / s, zero=z,
      offset=bias / s)`, where everything except the sums is known at compile time

    Integer sums are exact, whereas sums of dequantized values are rounded; the difference is that of a reassociated
    sum. `requantize` rounds m / s and bias / s, instead of the product with 1 / s, so a value very close to the
    midpoint of two integers may round to the other one. Clamps to the range of the quantized type are removed.

    Assumes that parameters are finite. Leaves arithmetic on known values to `fold-parameters`,
    and unused nodes to `dce`.
    """

    name: ClassVar[str] = "qdq-propagation"
    requantize: bool = True

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Propagation(function, module, context, self.requantize).run())


class _Propagation(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context, requantize: bool) -> None:
        super().__init__(function)
        self.context, self.requantize = context, requantize
        self.made_of = KnownValues(self.definitions, module.parameter_index)
        self.known = QuantizedValues(self.definitions, self.made_of)
        self.uses = count_uses(function.body, function.results)

    def visit(self, node: Node) -> Replacement | None:
        if len(node.outputs) != 1:
            return None
        if OPERATORS[node.op].has("contraction"):
            rule = self.contract
        elif node.op == "quantize" and node.output.type.dtype.is_integer:
            rule = self.encode
        elif node.output.type.dtype is F32:
            rule = self.compute_quantized
        else:
            return None
        builder = NodeBuilder(self.names, node)
        value = rule(node, builder)
        if value is None or not self.context.allow(rule.__name__, node):
            return None
        assert value.type == node.output.type, (node, value)
        return Replacement(tuple(builder.nodes), (value,))

    # --- contractions ---

    def contract(self, node: Node, b: NodeBuilder) -> Value | None:
        found = [self.known.quantized(v) for v in node.inputs[:2]]
        quantized = [c for c in found if c is not None and I32 in c.q.type.dtype.sums_in and c.scale.type.dtype is F32]
        if len(quantized) < 2 or node.attribute("into") is not None:
            return None
        x, y = (_spread(b, c) for c in quantized)
        zero = 0 if x.zero is None else self.known.integer(x.zero)
        convolution = None
        if y.zero is None and zero is not None:
            convolution = as_convolution(b, node, y.q, y.scale, x.q, zero)
            if convolution is not None:
                node = convolution.node
                x, y = Quantized(node.inputs[0], x.scale, x.zero), Quantized(node.inputs[1], convolution.scale, None)
        arrangement = arrangement_of(node)
        if arrangement is None or not arrangement.fits:
            return None
        if not all(_same_along(c, side) for c, side in zip((x, y), arrangement.sides, strict=True)):
            return None
        total = self.total(node, b, arrangement, x, y)
        if total is None:
            return None
        scales = [side.align(b, c.scale) for c, side in zip((x, y), arrangement.sides, strict=True)]
        known = [self.made_of.find(c.scale) is not None for c in quantized]
        result = b.cast(total, dtype=F32)
        if all(known):
            result = b.multiply(result, b.multiply(*scales))
        else:
            # The known scale comes first: it is read with the weight.
            for scale in scales if known[0] else scales[::-1]:
                result = b.multiply(result, scale)
        for bias in node.inputs[2:]:
            result = b.add(result, along_channels(b, node, bias))
        return result if convolution is None else convolution.finish(b, result)

    def total(self, node: Node, b: NodeBuilder, arrangement: Arrangement, x: Quantized, y: Quantized) -> Value | None:
        """Returns the sums of products of quantized values, each without its zero point, in i32."""
        # A quantized value that stands for 0 is the zero point.
        attributes = {**without_diagonals(dict(node.attributes)), "into": I32}
        # Sums of products of integers are exact.
        attributes.pop(ROUNDED.name, None)
        if x.zero is None and y.zero is None:
            return b.apply(node.op, [x.q, y.q], attributes)[0]
        number = 0 if y.zero is None else 1
        own, other = ((x, y), (y, x))[number]
        own_side, other_side = arrangement.sides[number], arrangement.sides[1 - number]
        if own.zero is None or other.zero is not None or not own_side.counted:
            return None
        quantized = x.q
        if "padding" in attributes:
            zero = self.known.integer(own.zero)
            if zero is None:
                return None
            quantized, attributes = padded_with(b, node, x.q, zero)
            attributes["into"] = I32
        total = b.apply(node.op, [quantized, y.q], attributes)[0]
        sums = b.sum(b.cast(other.q, dtype=I32), axis=other_side.summed, keepdims=True)
        zero_point = own_side.align(b, b.cast(own.zero, dtype=I32))
        return b.subtract(total, b.multiply(zero_point, other_side.align(b, sums)))

    # --- movements and selections ---

    def compute_quantized(self, node: Node, b: NodeBuilder) -> Value | None:
        if moves(node):
            return move_quantized(b, node, self.known)
        if chooses(node):
            return choose_quantized(b, node, self.known)
        bounded = self.known.bounded(node)
        return None if bounded is None else bound_quantized(b, node, bounded, self.known)

    # --- quantized values ---

    def encode(self, node: Node, b: NodeBuilder) -> Value | None:
        x, *factors = node.inputs
        quantized = self.known.quantized(x)
        if quantized is not None:
            return self.cancelled(node, quantized)
        inner = self.only_use(x)
        if inner is None or not all(v.type.rank == 0 for v in factors):
            return None
        if moves(inner) and not OPERATORS[inner.op].has("gathering"):
            return quantize_moved(b, inner, node, self.known)
        if chooses(inner):
            return quantize_chosen(b, inner, node, self.known)
        bounded = self.known.bounded(inner)
        if bounded is not None:
            return quantize_bounded(b, bounded, node, self.known)
        return self.requantized(node, b) if self.requantize else None

    def cancelled(self, node: Node, quantized: Quantized) -> Value | None:
        """Applies `quantize(dq(q, s, z), s, z) == q`. A value is at most 2**16 steps, so the rounding error is below
        half a step."""
        _, scale, *zero = node.inputs
        given = zero[0] if zero and self.known.integer(zero[0]) != 0 else None
        pair = (given, quantized.zero)
        if quantized.q.type.dtype is not node.output.type.dtype or not self.has_reciprocal(scale, quantized.scale):
            return None
        same = pair == (None, None) or (given and quantized.zero and self.known.is_same(given, quantized.zero))
        return quantized.q if same else None

    def has_reciprocal(self, x: Value, y: Value) -> bool:
        """Returns whether both are one constant with a sufficiently exact reciprocal."""
        array = self.known.array(x)
        if array is None or not self.known.is_same(x, y):
            return False
        return bool(((abs(array) > 1e-30) & (abs(array) < 1e30)).all())

    def requantized(self, node: Node, b: NodeBuilder) -> Value | None:
        """Applies `round((f32(total) * m + bias) / s) == round(f32(total) * (m / s) + bias / s)`, up to rounding."""
        x, scale, *zero = node.inputs
        if self.made_of.find(scale) is None:
            return None
        value, bias = self.with_known(x, "add")
        value, multiplier = self.with_known(value, "multiply")
        cast = self.only_use(value)
        if multiplier is None or cast is None or not is_cast(cast) or cast.inputs[0].type.dtype is not I32:
            return None
        (total,) = cast.inputs
        if total.type.shape != node.output.type.shape:
            return None
        dtype = node.output.type.dtype
        operands = [total, b.divide(multiplier, scale)]
        if zero or bias is not None:
            operands += zero or [b.scalar(0, dtype)]
        if bias is not None:
            operands.append(b.divide(bias, scale))
        return b.apply("requantize", operands, {"dtype": dtype})[0]

    def with_known(self, value: Value, op: str) -> tuple[Value, Value | None]:
        """Returns the computed and the known operand of a single-use operation; the value itself otherwise."""
        node = self.only_use(value)
        if node is not None and node.op == op:
            for x, known in (node.inputs, node.inputs[::-1]):
                if self.made_of.find(known) is not None and x.type == value.type:
                    return x, known
        return value, None

    def only_use(self, value: Value) -> Node | None:
        """Returns the node that computes the value, if the value has one use. The count omits values that this pass has
        created: each is created for exactly one use."""
        return self.definitions.get(value.name) if self.uses[value.name] <= 1 else None


def _spread(b: Builder, quantized: Quantized) -> Quantized:
    rank = quantized.q.type.rank
    zero = None if quantized.zero is None else with_rank(b, quantized.zero, rank)
    return Quantized(quantized.q, with_rank(b, quantized.scale, rank), zero)


def _same_along(quantized: Quantized, side: Side) -> bool:
    """Returns whether scale and zero point are constant along the sums."""
    return all(v.type.rank == 0 or all(v.type.shape[axis] == 1 for axis in side.summed) for v in quantized.factors)
