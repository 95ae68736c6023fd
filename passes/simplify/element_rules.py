"""Algebra of elements of any dtype: casts, choices, logic, and the laws that operators state as properties."""

from __future__ import annotations

from collections.abc import Mapping

from ...dialect.dims import Shape
from ...dialect.graph import Value
from ...dialect.operator import InferenceError
from ...dialect.types import DType
from .rules import Match, Rule, Values

# --- casts ---


def contains(wide: DType, narrow: DType) -> bool:
    """Returns whether every value of `narrow` is a value of `wide`."""
    if wide is narrow or narrow.bits == 1:
        return True
    if narrow.is_float:
        return wide.is_float and wide.bits > narrow.bits
    if wide.is_float:
        return narrow.bits - narrow.is_signed <= wide.float_format.digits
    digits = wide.bits - wide.is_signed, narrow.bits - narrow.is_signed
    return wide.is_integer and digits[0] >= digits[1] and (wide.is_signed or not narrow.is_signed)


def cast_to_own_dtype(m: Match) -> Values:
    return m.same(m.inputs[0])


def cast_of_cast(m: Match) -> Values:
    # cast(cast(x, wide), t) == cast(x, t) where x -> wide loses nothing. An integer that went through a float would
    # saturate where a direct cast wraps, so that case requires that t holds all values of x.
    inner = m.definition(m.inputs[0], "cast")
    if inner is None:
        return None
    x, wide, target = inner.inputs[0], m.dtype, m.type.dtype
    if target.is_storage and x.type.dtype is target:
        # Infinities saturate on the way back.
        return None
    kept = x.type.dtype.is_float == wide.is_float or contains(target, x.type.dtype)
    return m.b.cast(x, dtype=target) if contains(wide, x.type.dtype) and kept else None


# --- choices and logic ---


def where_is_constant(m: Match) -> Values:
    # where(true, x, y) == x, where(false, x, y) == y, where(c, x, x) == x
    condition, x, y = m.inputs
    if x.name == y.name or m.is_filled(condition, True):
        return m.same(x)
    return m.same(y) if m.is_filled(condition, False) else None


def where_not(m: Match) -> Values:
    # where(not c, x, y) == where(c, y, x)
    condition, x, y = m.inputs
    inverted = m.definition(condition, "logical_not")
    return m.b.where(inverted.inputs[0], y, x) if inverted else None


OPPOSITE: Mapping[str, tuple[str, bool]] = {
    # not (x op y), and whether that holds for floats: every comparison but not_equal is false for NaN
    "equal": ("not_equal", True),
    "not_equal": ("equal", True),
    "less": ("greater_equal", False),
    "greater_equal": ("less", False),
    "greater": ("less_equal", False),
    "less_equal": ("greater", False),
}


def not_comparison(m: Match) -> Values:
    inner = m.definition(m.inputs[0], *OPPOSITE)
    if inner is None:
        return None
    opposite, floats = OPPOSITE[inner.op]
    return m.b.apply(opposite, inner.inputs) if floats or not inner.inputs[0].type.dtype.is_float else None


def clip_without_bounds(m: Match) -> Values:
    return m.inputs[0] if m.attribute("low") is None and m.attribute("high") is None else None


# --- laws that operators state as properties ---


def apply_twice(m: Match) -> Values:
    # idempotent: f(f(x)) == f(x); involution: f(f(x)) == x
    if len(m.inputs) != 1 or len(m.node.outputs) != 1:
        return None
    inner = m.definition(m.inputs[0], m.node.op)
    if inner is None or inner.attributes != m.node.attributes:
        return None
    if m.operator.has("idempotent"):
        return m.same(m.inputs[0])
    return m.same(inner.inputs[0]) if m.operator.has("involution") else None


def broadcast_by_operator(m: Match) -> Values:
    # x op broadcast(y) == x op y where the other operands already have the result's shape
    if not m.operator.has("elementwise") or len(m.inputs) < 2:
        return None
    for number, value in enumerate(m.inputs):
        broadcast = m.definition(value, "broadcast_to")
        if broadcast is not None:
            inputs = (*m.inputs[:number], broadcast.inputs[0], *m.inputs[number + 1 :])
            if _result_shape(m, inputs) == m.type.shape:
                return m.b.apply(m.node.op, inputs, dict(m.node.attributes))
    return None


def _result_shape(m: Match, inputs: tuple[Value, ...]) -> Shape | None:
    try:
        return m.operator.check([v.type for v in inputs], dict(m.node.attributes))[0].shape
    except InferenceError:
        return None


def broadcast_last(m: Match) -> Values:
    # f(broadcast(x)) == broadcast(f(x))
    if not m.operator.has("elementwise") or len(m.inputs) != 1 or len(m.node.outputs) != 1:
        return None
    broadcast = m.definition(m.inputs[0], "broadcast_to")
    if broadcast is None:
        return None
    (small,) = m.b.apply(m.node.op, broadcast.inputs, dict(m.node.attributes))
    return m.b.broadcast_to(small, shape=m.type.shape)


GENERAL: tuple[Rule, ...] = (apply_twice, broadcast_by_operator, broadcast_last)

BY_NAME: Mapping[str, tuple[Rule, ...]] = {
    "cast": (cast_to_own_dtype, cast_of_cast),
    "where": (where_is_constant, where_not),
    "logical_not": (not_comparison,),
    "clip": (clip_without_bounds,),
}
