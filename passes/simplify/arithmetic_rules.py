"""Algebra of numbers: neutral elements, signs, powers, quotients.

A comment at each rule states the law, and whether it holds for floats.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...dialect.graph import Constant, Value
from ...dialect.ops import OPERATORS
from ...dialect.types import DType
from .rules import Match, Rule, Values

# --- neutral and absorbing elements ---

Number = float | int | bool
_NONE: tuple[Number, ...] = ()

NEUTRAL: Mapping[str, tuple[tuple[Number, ...], tuple[Number, ...], tuple[Number, ...]]] = {
    # Right operands e with `x op e == x`:   for floats           for integers  for bool
    "add": ((-0.0,), (0,), ()),  # x + 0.0 turns -0.0 into 0.0; x + -0.0 does not
    "subtract": ((0.0,), (0,), ()),
    "multiply": ((1.0,), (1,), ()),
    "divide": ((1.0,), (), ()),
    "floor_divide": ((), (1,), ()),
    "power": ((1.0,), (1,), ()),
    "maximum": ((-np.inf,), (), ()),
    "minimum": ((np.inf,), (), ()),
    "bitwise_and": ((), (-1,), (True,)),
    "bitwise_or": ((), (0,), (False,)),
    "bitwise_xor": ((), (0,), (False,)),
    "shift_left": ((), (0,), ()),
    "shift_right": ((), (0,), ()),
    "logical_and": ((), (), (True,)),
    "logical_or": ((), (), (False,)),
    "logical_xor": ((), (), (False,)),
}

ABSORBING: Mapping[str, tuple[tuple[Number, ...], tuple[Number, ...]]] = {
    # Right operands z with `x op z == z`: for integers  for bool. No float but NaN absorbs NaN.
    "multiply": ((0,), ()),
    "bitwise_and": ((0,), (False,)),
    "bitwise_or": ((-1,), (True,)),
    "logical_and": ((), (False,)),
    "logical_or": ((), (True,)),
}


def _of_kind(
    dtype: DType, floats: tuple[Number, ...], integers: tuple[Number, ...], bools: tuple[Number, ...]
) -> tuple[Number, ...]:
    return floats if dtype.is_float else integers if dtype.is_integer else bools


def neutral_operand(m: Match) -> Values:
    x, e = m.inputs
    numbers = _of_kind(m.dtype, *NEUTRAL[m.node.op])
    return m.same(x) if any(m.is_filled(e, number) for number in numbers) else None


def absorbing_operand(m: Match) -> Values:
    numbers = _of_kind(m.dtype, (), *ABSORBING[m.node.op])
    for number in numbers:
        if m.is_filled(m.inputs[1], number):
            return m.filled(number)
    return None


# --- one value as both operands ---

SAME_IS: Mapping[str, tuple[Number, bool]] = {
    # `x op x`, and whether that holds for floats: inf - inf and NaN - NaN are not 0, NaN is not equal to itself
    "subtract": (0, False),
    "squared_difference": (0, False),
    "bitwise_xor": (0, False),
    "logical_xor": (False, False),
    "equal": (True, False),
    "less_equal": (True, False),
    "greater_equal": (True, False),
    "not_equal": (False, False),
    "less": (False, True),
    "greater": (False, True),
}


def same_operands(m: Match) -> Values:
    x, y = m.inputs
    if x.name != y.name:
        return None
    if m.operator.has("selecting"):
        return x
    number, floats = SAME_IS[m.node.op]
    return m.filled(number) if floats or not m.dtype.is_float else None


def multiply_same(m: Match) -> Values:
    # x * x == square(x)
    x, y = m.inputs
    return m.b.square(x) if x.name == y.name else None


# --- order and grouping ---


def constant_to_the_right(m: Match) -> Values:
    # c op x == x op c
    x, y = m.inputs
    if m.definition(x, "constant") is None or m.definition(y, "constant") is not None:
        return None
    return m.b.apply(m.node.op, (y, x), dict(m.node.attributes))


def group_constants(m: Match) -> Values:
    # (x op c) op d == x op (c op d): integers wrap, so they may; floats would round differently
    x, d = m.inputs
    if m.dtype.is_float or m.definition(d, "constant") is None:
        return None
    inner = m.definition(x, m.node.op)
    if inner is None or m.definition(inner.inputs[1], "constant") is None:
        return None
    apply = getattr(m.b, m.node.op)
    constant: Value = apply(inner.inputs[1], d)
    # The product of the constants must not be broadcast to more than both of them.
    return (
        apply(inner.inputs[0], constant) if constant.type.shape in (d.type.shape, inner.inputs[1].type.shape) else None
    )


# --- signs ---


def add_negated(m: Match) -> Values:
    # x + -y == x - y, -x + y == y - x
    x, y = m.inputs
    for left, right in ((x, y), (y, x)):
        negated = m.definition(right, "negate")
        if negated:
            return m.b.subtract(left, negated.inputs[0])
    return None


def subtract_negated(m: Match) -> Values:
    # x - -y == x + y
    negated = m.definition(m.inputs[1], "negate")
    return m.b.add(m.inputs[0], negated.inputs[0]) if negated else None


def subtract_from_zero(m: Match) -> Values:
    # 0 - x == -x for integers; for floats -0.0 - x == -x, while 0.0 - 0.0 is no -0.0
    zero, x = m.inputs
    if x.type != m.type or not m.is_filled(zero, -0.0 if m.dtype.is_float else 0):
        return None
    return m.b.negate(x)


def both_negated(m: Match) -> Values:
    # -x * -y == x * y, -x / -y == x / y
    x, y = (m.definition(v, "negate") for v in m.inputs)
    return m.b.apply(m.node.op, (x.inputs[0], y.inputs[0])) if x and y else None


def times_minus_one(m: Match) -> Values:
    # x * -1 == -x
    x, factor = m.inputs
    if x.type != m.type or not (m.dtype.is_float or m.dtype.is_signed) or not m.is_filled(factor, -1):
        return None
    return m.b.negate(x)


def even_function(m: Match) -> Values:
    # |-x| == |x|, (-x)^2 == x^2, |x|^2 == x^2
    inner = m.definition(m.inputs[0], "negate", *(("abs",) if m.node.op == "square" else ()))
    return m.b.apply(m.node.op, inner.inputs) if inner else None


# --- powers and quotients ---


def power_of_two_exponent(m: Match) -> Values:
    # x^2 == x * x up to the rounding of `power`
    x, exponent = m.inputs
    return m.b.square(x) if x.type == m.type and m.is_filled(exponent, 2) else None


def power_minus_one(m: Match) -> Values:
    # x^-1 == 1 / x for floats, zeros and infinities included
    x, exponent = m.inputs
    if not m.dtype.is_float or x.type != m.type or not m.is_filled(exponent, -1):
        return None
    return m.b.reciprocal(x)


def divide_by_power_of_two(m: Match) -> Values:
    # x / 2^k == x * 2^-k: both are the same number, rounded once
    x, divisor = m.inputs
    array = m.array(divisor)
    if array is None or array.size == 0:
        return None
    wide = array.astype(np.float64)
    # 2^-k must itself be a normal number of the dtype; within these bounds it is for every float type.
    exact = np.isfinite(wide) & (np.abs(np.frexp(wide)[0]) == 0.5) & (np.abs(np.frexp(wide)[1]) <= 13)
    if not exact.all():
        return None
    inverse = m.b.apply("constant", (), {"value": Constant((1 / wide).astype(array.dtype))})[0]
    return m.b.multiply(x, inverse)


GENERAL: tuple[Rule, ...] = ()

_COMMUTATIVE, _SELECTING = (
    tuple(name for name, operator in OPERATORS.items() if operator.has(property))
    for property in ("commutative", "selecting")
)
_GROUPED = ("add", "multiply", "bitwise_and", "bitwise_or", "bitwise_xor")

BY_RULE: Mapping[Rule, tuple[str, ...]] = {
    constant_to_the_right: _COMMUTATIVE,
    neutral_operand: tuple(NEUTRAL),
    absorbing_operand: tuple(ABSORBING),
    multiply_same: ("multiply",),
    same_operands: (*_SELECTING, *SAME_IS),
    group_constants: _GROUPED,
    add_negated: ("add",),
    subtract_negated: ("subtract",),
    subtract_from_zero: ("subtract",),
    both_negated: ("multiply", "divide"),
    times_minus_one: ("multiply",),
    even_function: ("abs", "square"),
    power_of_two_exponent: ("power",),
    power_minus_one: ("power",),
    divide_by_power_of_two: ("divide",),
}
BY_NAME: Mapping[str, tuple[Rule, ...]] = {
    name: tuple(rule for rule, names in BY_RULE.items() if name in names)
    for name in sorted({name for names in BY_RULE.values() for name in names})
}
