"""`propagate`: what is computed of dequantised codes is computed of the codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..dialect.graph import Function, Module, Node, Value
from ..dialect.operator import Builder
from ..dialect.ops import OPERATORS
from ..dialect.ops.common import integer_range
from ..dialect.types import F32, I8, I32, U8
from .fuse_maps import permutation
from .integer_contractions import Arrangement, Side, along_channels, arrangement_of, padded_with
from .known_values import KnownValues
from .manager import Context, Pass
from .rewrite import NodeBuilder, Replacement, Rewriter, constant_array, count_uses


@dataclass(frozen=True)
class Propagate(Pass):
    """Rewrites what `quantize` and `dequantize` nodes stand around. With `dq` for `dequantize`:

    - `contraction(dq(a, sa, za), dq(b, sb))` becomes `cast(contraction(a, b, into=i32) - za * sum(b)) * (sa * sb)`,
      where the scales are the same all along the sums; what a convolution is padded with is then the zero
      point
    - `move(dq(q, s, z))` becomes `dq(move(q), s, z)` for transposes, and for any movement if there is one scale
    - `quantize(move(x), s, z)` becomes `move(quantize(x, s, z))`, likewise, where nobody else reads what is moved
    - `quantize(relu(x), s, z)` becomes `quantize(x, s, z)` where `z` is the least code
    - `quantize(dq(q, s, z), s, z)` becomes `q`

    Sums of codes are exact, where those of the numbers that they stand for are rounded: results differ as those of
    another order of sums do. Leaves sums and products of what is known to `fold-parameters`, and what nobody reads any
    more to `dce`.
    """

    name: ClassVar[str] = "propagate"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Propagator(function, module, context).run())


@dataclass(frozen=True, slots=True)
class _Codes:
    """The operands of a `dequantize`; a zero point of 0 is none."""

    q: Value
    scale: Value
    zero: Value | None

    @property
    def factors(self) -> tuple[Value, ...]:
        return (self.scale,) if self.zero is None else (self.scale, self.zero)


class _Propagator(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context) -> None:
        super().__init__(function)
        self.context = context
        self.known = KnownValues(self.definitions, module.parameter_index)
        self.uses = count_uses(function.body, function.results)

    def visit(self, node: Node) -> Replacement | None:
        if len(node.outputs) != 1:
            return None
        if OPERATORS[node.op].has("contraction"):
            rule = self.contract
        elif _only_moves(node):
            rule = self.move
        elif node.op == "quantize":
            rule = self.encode
        else:
            return None
        builder = NodeBuilder(self.names, node)
        value = rule(node, builder)
        if value is None or not self.context.allow(rule.__name__, node):
            return None
        assert value.type == node.output.type, (node, value)
        return Replacement(tuple(builder.nodes), (value,))

    def codes(self, value: Value) -> _Codes | None:
        """What a value in f32 was dequantised from."""
        node = self.definitions.get(value.name)
        if node is None or node.op != "dequantize" or value.type.dtype is not F32:
            return None
        q, scale, *zero = node.inputs
        return _Codes(q, scale, zero[0] if zero and self.number(zero[0]) != 0 else None)

    def number(self, value: Value) -> int | None:
        """The element of an integer constant that has but one."""
        array = constant_array(self.definitions.get(value.name))
        return int(array.reshape(-1)[0].item()) if array is not None and array.size == 1 else None

    # --- contractions ---

    def contract(self, node: Node, b: NodeBuilder) -> Value | None:
        arrangement = arrangement_of(node)
        if arrangement is None or not arrangement.fits or node.attribute("into") is not None:
            return None
        found = [self.codes(v) for v in node.inputs[:2]]
        codes = [c for c in found if c is not None and c.q.type.dtype in (I8, U8) and c.scale.type.dtype is F32]
        if len(codes) < 2:
            return None
        x, y = (_spread(b, c) for c in codes)
        if not all(_same_along(c, side) for c, side in zip((x, y), arrangement.sides, strict=True)):
            return None
        total = self.total(node, b, arrangement, x, y)
        if total is None:
            return None
        scales = [side.place(b, c.scale) for c, side in zip((x, y), arrangement.sides, strict=True)]
        known = [self.known.find(c.scale) is not None for c in codes]
        result = b.cast(total, dtype=F32)
        if all(known):
            result = b.multiply(result, b.multiply(*scales))
        else:
            # What is known first: it is read with the weight.
            for scale in scales if known[0] else scales[::-1]:
                result = b.multiply(result, scale)
        for bias in node.inputs[2:]:
            result = b.add(result, along_channels(b, node, bias))
        return result

    def total(self, node: Node, b: NodeBuilder, arrangement: Arrangement, x: _Codes, y: _Codes) -> Value | None:
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
            zero = self.number(own.zero)
            if zero is None:
                return None
            codes, attributes = padded_with(b, node, x.q, zero)
            attributes["into"] = I32
        total = b.apply(node.op, [codes, y.q], attributes)[0]
        sums = b.sum(b.cast(other.q, dtype=I32), axis=other_side.summed, keepdims=True)
        zero_point = own_side.place(b, b.cast(own.zero, dtype=I32))
        return b.subtract(total, b.multiply(zero_point, other_side.place(b, sums)))

    # --- movements ---

    def move(self, node: Node, b: NodeBuilder) -> Value | None:
        """`move(dq(q, s, z)) == dq(move(q), s, z)`."""
        codes = self.codes(node.inputs[0])
        if codes is None:
            return None
        moved = [self.moved(b, node, codes, v) for v in codes.factors]
        factors = [v for v in moved if v is not None]
        if len(factors) < len(moved):
            return None
        return b.dequantize(_apply_move(b, node, codes.q), *factors, dtype=F32)

    def moved(self, b: Builder, node: Node, codes: _Codes, factor: Value) -> Value | None:
        """A scale or zero point for codes that were moved as the node moves; None where that cannot be said."""
        if factor.type.rank == 0:
            return factor
        places = permutation(node)
        if places is None:
            return None
        order = tuple(places.index(axis) for axis in range(len(places)))
        return b.transpose(_full(b, factor, codes.q.type.rank), axes=order)

    # --- codes of what is known in codes already ---

    def encode(self, node: Node, b: NodeBuilder) -> Value | None:
        x, *factors = node.inputs
        codes = self.codes(x)
        if codes is not None:
            return self.cancelled(node, codes)
        inner = self.definitions.get(x.name)
        if inner is None or self.uses[x.name] > 1 or not all(v.type.rank == 0 for v in factors):
            return None
        attributes = dict(node.attributes)
        if _only_moves(inner):
            return _apply_move(b, inner, b.apply("quantize", [inner.inputs[0], *factors], attributes)[0])
        zero = self.number(factors[1]) if len(factors) > 1 else 0
        if inner.op == "relu" and zero == integer_range(node.output.type.dtype)[0]:
            # What is not above 0 becomes the least code either way, and NaN the zero point, which is the same.
            return b.apply("quantize", [inner.inputs[0], *factors], attributes)[0]
        return None

    def cancelled(self, node: Node, codes: _Codes) -> Value | None:
        """`quantize(dq(q, s, z), s, z) == q`: a code is at most 2**16 steps, a rounding error of which is no half."""
        _, scale, *zero = node.inputs
        same = codes.q.type.dtype is node.output.type.dtype and self.is_same(scale, codes.scale)
        given = zero[0] if zero and self.number(zero[0]) != 0 else None
        pair = (given, codes.zero)
        if not same or not (pair == (None, None) or (given and codes.zero and self.is_same(given, codes.zero))):
            return None
        return codes.q

    def is_same(self, x: Value, y: Value) -> bool:
        """Are they one constant, and no number whose reciprocal cannot be told exactly enough?"""
        arrays = [constant_array(self.definitions.get(v.name)) for v in (x, y)]
        if arrays[0] is None or arrays[1] is None or not np.array_equal(arrays[0], arrays[1]):
            return False
        if not x.type.dtype.is_float:
            return True
        return bool(np.all((np.abs(arrays[0]) > 1e-30) & (np.abs(arrays[0]) < 1e30)))


def _full(b: Builder, value: Value, rank: int) -> Value:
    """The value with as many axes as the tensor that it broadcasts to, a scalar as it is."""
    missing = rank - value.type.rank
    if not missing or value.type.rank == 0:
        return value
    return b.reshape(value, shape=((1,) * missing + value.type.shape))


def _spread(b: Builder, codes: _Codes) -> _Codes:
    rank = codes.q.type.rank
    zero = None if codes.zero is None else _full(b, codes.zero, rank)
    return _Codes(codes.q, _full(b, codes.scale, rank), zero)


def _same_along(codes: _Codes, side: Side) -> bool:
    """Are scale and zero point the same all along the sums?"""
    return all(v.type.rank == 0 or all(v.type.shape[axis] == 1 for axis in side.summed) for v in codes.factors)


def _only_moves(node: Node) -> bool:
    """Is every element of the result one of the only operand's?"""
    operator = OPERATORS[node.op]
    return len(node.inputs) == 1 and (operator.has("strided") or operator.has("view"))


def _apply_move(b: Builder, node: Node, value: Value) -> Value:
    return b.apply(node.op, [value], dict(node.attributes))[0]
