"""Rules that move data movement and selection to quantized values: before a `dequantize`, or after a `quantize`.

With `dq` for `dequantize`, `move` for any movement and `choose` for a greatest or least element of the operand:

    move(dq(q, s, z)) == dq(move(q), s, z)                     where operands share s and z; s scalar, or axes permute
    choose(dq(q, s, z)) == dq(choose(q), s, z)                 where s > 0, and the selection is not empty
    bound(dq(q, s, z)) == dq(bound(q), s, z)                   where the bounds are 0, or beyond all quantized values
    quantize(move(x), s, z) == move(quantize(x, s, z))         for each operand
    quantize(choose(x), s, z) == choose(quantize(x, s, z))     where s > 0, and x has no NaN
    quantize(bound(x), s, z) == bound(quantize(x, s, z))       where s > 0; bounds at the ends of the range are dropped

The constant of a frame is moved too, as the quantized value of its number.
"""

from __future__ import annotations

from typing import Any

from ...dialect.dims import bounds
from ...dialect.graph import Node, Value
from ...dialect.operator import Builder
from ...dialect.ops import OPERATORS
from ...dialect.ops.pooling import pool_geometry
from ...dialect.ops.support.common import integer_range
from ...dialect.ops.support.layouts import spatial_axis
from ..fusion.fuse_maps import permutation
from .quantized_values import Bounded, Grid, Quantized, QuantizedValues


def moves(node: Node) -> bool:
    """Returns whether every element of the only result is copied from an operand, or is one fixed number."""
    operator = OPERATORS[node.op]
    return len(node.outputs) == 1 and bool(node.inputs) and any(map(operator.has, ("movement", "strided", "view")))


def chooses(node: Node) -> bool:
    """Returns whether every element of the result is the greatest or least of some elements of the only operand."""
    return len(node.inputs) == len(node.outputs) == 1 and OPERATORS[node.op].has("extreme")


def moved(node: Node) -> tuple[Value, ...]:
    """Returns the operands whose elements a movement moves. The other operands are indices."""
    return tuple(v for v in node.inputs if v.type.dtype is node.output.type.dtype)


# --- below a dequantize ---


def move_quantized(b: Builder, node: Node, known: QuantizedValues) -> Value | None:
    found = [known.quantized(value) for value in moved(node)]
    quantized = [c for c in found if c is not None]
    first = quantized[0] if quantized else None
    if first is None or len(quantized) < len(found) or not all(_is_alike(c, first, known) for c in quantized[1:]):
        return None
    attributes = dict(node.attributes)
    number = _frame(node)
    if number is not None:
        grid = known.grid(first.q.type.dtype, first.scale, first.zero)
        if grid is None or number != 0:
            return None
        attributes["value"] = grid.zero
    placed = [_moved_factor(b, node, first, factor) for factor in first.factors]
    factors = [value for value in placed if value is not None]
    if len(factors) < len(placed):
        return None
    moving = dict(zip((v.name for v in moved(node)), (c.q for c in quantized), strict=True))
    operands = [moving.get(value.name, value) for value in node.inputs]
    return b.dequantize(b.apply(node.op, operands, attributes)[0], *factors, dtype=node.output.type.dtype)


def _is_alike(x: Quantized, y: Quantized, known: QuantizedValues) -> bool:
    if x.q.type.dtype is not y.q.type.dtype or len(x.factors) != len(y.factors):
        return False
    return all(map(known.is_same, x.factors, y.factors))


def _moved_factor(b: Builder, node: Node, quantized: Quantized, factor: Value) -> Value | None:
    """Returns a scale or zero point for quantized values that were moved as the node moves; None if there is none."""
    if factor.type.rank == 0:
        return factor
    positions = permutation(node)
    if positions is None:
        return None
    order = tuple(positions.index(axis) for axis in range(len(positions)))
    return b.transpose(with_rank(b, factor, quantized.q.type.rank), axes=order)


def with_rank(b: Builder, value: Value, rank: int) -> Value:
    """Returns the value with as many axes as the tensor that it broadcasts to; a scalar stays as it is."""
    missing = rank - value.type.rank
    if not missing or value.type.rank == 0:
        return value
    return b.reshape(value, shape=((1,) * missing + value.type.shape))


def choose_quantized(b: Builder, node: Node, known: QuantizedValues) -> Value | None:
    quantized = known.quantized(node.inputs[0])
    if (
        quantized is None
        or known.grid(quantized.q.type.dtype, quantized.scale, quantized.zero) is None
        or _may_be_empty(node)
    ):
        return None
    chosen = b.apply(node.op, [quantized.q], dict(node.attributes))[0]
    return b.dequantize(chosen, *quantized.factors, dtype=node.output.type.dtype)


def _may_be_empty(node: Node) -> bool:
    """Returns whether an element may be the extreme of an empty selection, which no quantized value represents."""
    (x,) = node.inputs
    attributes = dict(node.attributes)
    find = OPERATORS[node.op].row_axes
    if find is not None:
        return any(bounds(x.type.shape[axis])[0] < 1 for axis in find(x.type, attributes))
    axis = spatial_axis(str(attributes["layout"]))
    return not pool_geometry(node.op, x.type.shape[axis : axis + x.type.rank - 2], attributes).never_empty


def bound_quantized(b: Builder, node: Node, bounded: Bounded, known: QuantizedValues) -> Value | None:
    quantized = known.quantized(bounded.value)
    grid = None if quantized is None else known.grid(quantized.q.type.dtype, quantized.scale, quantized.zero)
    if quantized is None or grid is None:
        return None
    least, greatest = integer_range(grid.dtype)
    if not (bounded.low == 0 or bounded.low <= grid.decode(least)):
        return None
    if not (bounded.high == 0 or bounded.high >= grid.decode(greatest)):
        return None
    return b.dequantize(_bound(b, quantized.q, bounded, grid), *quantized.factors, dtype=node.output.type.dtype)


# --- above a quantize ---


def quantize_moved(b: Builder, inner: Node, node: Node, known: QuantizedValues) -> Value | None:
    factors, dtype = node.inputs[1:], node.output.type.dtype
    attributes = dict(inner.attributes)
    number = _frame(inner)
    if number is not None:
        grid = known.grid(dtype, factors[0], factors[1] if len(factors) > 1 else None)
        if grid is None:
            return None
        attributes["value"] = grid.encode(number)
    moving = {v.name: b.apply("quantize", [v, *factors], dict(node.attributes))[0] for v in moved(inner)}
    return b.apply(inner.op, [moving.get(v.name, v) for v in inner.inputs], attributes)[0]


def quantize_chosen(b: Builder, inner: Node, node: Node, known: QuantizedValues) -> Value | None:
    (x,) = inner.inputs
    if _grid_of(node, known) is None or not known.is_number(x):
        return None
    return b.apply(inner.op, [_quantized_as(b, node, x)], dict(inner.attributes))[0]


def quantize_bounded(b: Builder, bounded: Bounded, node: Node, known: QuantizedValues) -> Value | None:
    grid = _grid_of(node, known)
    return None if grid is None else _bound(b, _quantized_as(b, node, bounded.value), bounded, grid)


def _grid_of(node: Node, known: QuantizedValues) -> Grid | None:
    _, scale, *zero = node.inputs
    return known.grid(node.output.type.dtype, scale, zero[0] if zero else None)


def _quantized_as(b: Builder, node: Node, x: Value) -> Value:
    return b.apply("quantize", [x, *node.inputs[1:]], dict(node.attributes))[0]


def _bound(b: Builder, q: Value, bounded: Bounded, grid: Grid) -> Value:
    low, high = grid.encode(bounded.low), grid.encode(bounded.high)
    least, greatest = integer_range(grid.dtype)
    limits: dict[str, Any] = {"low": low if low > least else None, "high": high if high < greatest else None}
    return q if set(limits.values()) == {None} else b.clip(q, **limits)


def _frame(node: Node) -> float | None:
    """Returns the constant that a movement surrounds its operand with, if there is one."""
    attributes = dict(node.attributes)
    number = attributes.get("value")
    assert number is None or isinstance(number, int | float), node
    return number if attributes.get("mode") == "constant" else None
