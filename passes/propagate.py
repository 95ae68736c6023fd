"""`propagate`: what is computed of dequantised codes is computed of the codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..dialect.graph import Function, Module, Node, Value
from ..dialect.operator import Builder
from ..dialect.ops import OPERATORS
from ..dialect.types import F32, I8, I32, U8
from .code_movements import (
    bound_codes,
    choose_codes,
    chooses,
    move_codes,
    moves,
    quantize_bounded,
    quantize_chosen,
    quantize_moved,
    with_rank,
)
from .code_values import Codes, CodeValues
from .integer_contractions import Arrangement, Side, along_channels, arrangement_of, as_convolution, padded_with
from .known_values import KnownValues
from .manager import Context, Pass
from .rewrite import NodeBuilder, Replacement, Rewriter, count_uses


@dataclass(frozen=True)
class Propagate(Pass):
    """Rewrites what `quantize` and `dequantize` nodes of integers stand around. With `dq` for `dequantize`:

    - `contraction(dq(a, sa, za), dq(b, sb))` becomes `cast(contraction(a, b, into=i32) - za * sum(b)) * (sa * sb)`,
      where the scales are the same all along the sums; what a convolution is padded with is then the zero point, and
      also what a transposed one puts between its numbers, which becomes one of these
    - what moves numbers, or takes the greatest or least of them, as `relu`, `concat` and `max_pool2d` do, is done with
      their codes, behind a `dequantize` as before a `quantize`
    - `quantize(dq(q, s, z), s, z)` becomes `q`
    - with `requantize`, `quantize(cast(total) * m + bias, s, z)` becomes `requantize(total, m / s, z, bias / s)`, where
      all but the sums is known

    Sums of codes are exact, where those of the numbers that they stand for are rounded: results differ as those of
    another order of sums do. What is requantised is rounded once for m / s and once for bias / s in place of once for
    the product with 1 / s, so that a number that is very nearly between two codes may become the other one. Bounds of
    activations that are those of the codes cost nothing.

    Assumes that parameters are numbers. Leaves sums and products of what is known to `fold-parameters`, and what nobody
    reads any more to `dce`.
    """

    name: ClassVar[str] = "propagate"
    requantize: bool = True

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Propagator(function, module, context, self.requantize).run())


class _Propagator(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context, requantize: bool) -> None:
        super().__init__(function)
        self.context, self.requantize = context, requantize
        self.made_of = KnownValues(self.definitions, module.parameter_index)
        self.known = CodeValues(self.definitions, self.made_of)
        self.uses = count_uses(function.body, function.results)

    def visit(self, node: Node) -> Replacement | None:
        if len(node.outputs) != 1:
            return None
        if OPERATORS[node.op].has("contraction"):
            rule = self.contract
        elif node.op == "quantize" and node.output.type.dtype.is_integer:
            rule = self.encode
        elif node.output.type.dtype is F32:
            rule = self.compute_with_codes
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
        found = [self.known.codes(v) for v in node.inputs[:2]]
        codes = [c for c in found if c is not None and c.q.type.dtype in (I8, U8) and c.scale.type.dtype is F32]
        if len(codes) < 2 or node.attribute("into") is not None:
            return None
        x, y = (_spread(b, c) for c in codes)
        zero = 0 if x.zero is None else self.known.integer(x.zero)
        convolution = None
        if y.zero is None and zero is not None:
            convolution = as_convolution(b, node, y.q, y.scale, x.q, zero)
            if convolution is not None:
                node = convolution.node
                x, y = Codes(node.inputs[0], x.scale, x.zero), Codes(node.inputs[1], convolution.scale, None)
        arrangement = arrangement_of(node)
        if arrangement is None or not arrangement.fits:
            return None
        if not all(_same_along(c, side) for c, side in zip((x, y), arrangement.sides, strict=True)):
            return None
        total = self.total(node, b, arrangement, x, y)
        if total is None:
            return None
        scales = [side.place(b, c.scale) for c, side in zip((x, y), arrangement.sides, strict=True)]
        known = [self.made_of.find(c.scale) is not None for c in codes]
        result = b.cast(total, dtype=F32)
        if all(known):
            result = b.multiply(result, b.multiply(*scales))
        else:
            # What is known first: it is read with the weight.
            for scale in scales if known[0] else scales[::-1]:
                result = b.multiply(result, scale)
        for bias in node.inputs[2:]:
            result = b.add(result, along_channels(b, node, bias))
        return result if convolution is None else convolution.finish(b, result)

    def total(self, node: Node, b: NodeBuilder, arrangement: Arrangement, x: Codes, y: Codes) -> Value | None:
        """The sums of products of codes, each without its zero point, in i32."""
        attributes = {**dict(node.attributes), "into": I32}
        if x.zero is None and y.zero is None:
            return b.apply(node.op, [x.q, y.q], attributes)[0]
        number = 0 if y.zero is None else 1
        own, other = ((x, y), (y, x))[number]
        own_side, other_side = arrangement.sides[number], arrangement.sides[1 - number]
        if own.zero is None or other.zero is not None or not own_side.counted:
            return None
        codes = x.q
        if "padding" in attributes:
            zero = self.known.integer(own.zero)
            if zero is None:
                return None
            codes, attributes = padded_with(b, node, x.q, zero)
            attributes["into"] = I32
        total = b.apply(node.op, [codes, y.q], attributes)[0]
        sums = b.sum(b.cast(other.q, dtype=I32), axis=other_side.summed, keepdims=True)
        zero_point = own_side.place(b, b.cast(own.zero, dtype=I32))
        return b.subtract(total, b.multiply(zero_point, other_side.place(b, sums)))

    # --- what moves and chooses ---

    def compute_with_codes(self, node: Node, b: NodeBuilder) -> Value | None:
        if moves(node):
            return move_codes(b, node, self.known)
        if chooses(node):
            return choose_codes(b, node, self.known)
        bounded = self.known.bounded(node)
        return None if bounded is None else bound_codes(b, node, bounded, self.known)

    # --- codes ---

    def encode(self, node: Node, b: NodeBuilder) -> Value | None:
        x, *factors = node.inputs
        codes = self.known.codes(x)
        if codes is not None:
            return self.cancelled(node, codes)
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

    def cancelled(self, node: Node, codes: Codes) -> Value | None:
        """`quantize(dq(q, s, z), s, z) == q`: a code is at most 2**16 steps, a rounding error of which is no half."""
        _, scale, *zero = node.inputs
        given = zero[0] if zero and self.known.integer(zero[0]) != 0 else None
        pair = (given, codes.zero)
        if codes.q.type.dtype is not node.output.type.dtype or not self.has_reciprocal(scale, codes.scale):
            return None
        same = pair == (None, None) or (given and codes.zero and self.known.is_same(given, codes.zero))
        return codes.q if same else None

    def has_reciprocal(self, x: Value, y: Value) -> bool:
        """Are they one constant, and no number whose reciprocal cannot be told exactly enough?"""
        array = self.known.array(x)
        if array is None or not self.known.is_same(x, y):
            return False
        return bool(((abs(array) > 1e-30) & (abs(array) < 1e30)).all())

    def requantized(self, node: Node, b: NodeBuilder) -> Value | None:
        """`round((f32(total) * m + bias) / s) == round(f32(total) * (m / s) + bias / s)`, but for rounding."""
        x, scale, *zero = node.inputs
        if self.made_of.find(scale) is None:
            return None
        value, bias = self.with_known(x, "add")
        value, multiplier = self.with_known(value, "multiply")
        cast = self.only_use(value)
        if multiplier is None or cast is None or cast.op != "cast" or cast.inputs[0].type.dtype is not I32:
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
        """What is computed, and what is known, of an operation that nobody else reads; the value where it is none."""
        node = self.only_use(value)
        if node is not None and node.op == op:
            for x, known in (node.inputs, node.inputs[::-1]):
                if self.made_of.find(known) is not None and x.type == value.type:
                    return x, known
        return value, None

    def only_use(self, value: Value) -> Node | None:
        """The node that gives a value which nobody reads but the one that asks. What this pass has made is not counted:
        whatever it is made for is its only use."""
        return self.definitions.get(value.name) if self.uses[value.name] <= 1 else None


def _spread(b: Builder, codes: Codes) -> Codes:
    rank = codes.q.type.rank
    zero = None if codes.zero is None else with_rank(b, codes.zero, rank)
    return Codes(codes.q, with_rank(b, codes.scale, rank), zero)


def _same_along(codes: Codes, side: Side) -> bool:
    """Are scale and zero point the same all along the sums?"""
    return all(v.type.rank == 0 or all(v.type.shape[axis] == 1 for axis in side.summed) for v in codes.factors)
