"""Elementwise operators of two operands, with broadcasting: arithmetic, minimum and maximum, bits and shifts.

Integers wrap; a division of integers by zero gives 0. A shift by a negative count, or by at least the width, shifts
everything out. For `maximum` and `minimum`, +0 is greater than -0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..emitter import Scalar, ScalarEmitter
from ..graph import Value
from ..operator import Attributes, Builder, Case, Gradient, LateCases, Operand, Operator, Use
from ..types import BOOL, FLOATS, INTEGERS, NUMBERS, DType, TensorType
from .support.algebra import Term, terms
from .support.common import (
    broadcast_shapes,
    compute_dtype,
    elementwise_properties,
    greater_of,
    lesser_of,
    lower_elementwise,
    sum_to,
    through_f32,
)

BROADCAST_CASES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((3, 5), (3, 5)),
    ((), ()),
    ((1,), (1,)),
    ((0,), (0,)),
    ((2, 1, 7), (3, 1)),
    ((3, 0), (1, 1)),
    ((33,), ()),
)

Partials = Callable[[Term, Term, Term, Term], tuple["Term | None", "Term | None"]]
"""`partials(x, y, result, gradient)` returns the gradient of each operand before the sum over broadcast axes."""


def broadcast_gradient(partials: Partials) -> Gradient:
    def differentiate(b: Builder, use: Use) -> Sequence[Value | None]:
        parts = partials(*terms(b, [*use.inputs, *use.outputs, use.gradient]))
        return [
            None if part is None else sum_to(b, part.value, operand.type.shape)
            for part, operand in zip(parts, use.inputs, strict=True)
        ]

    return differentiate


def binary(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    lower: str | Callable[[ScalarEmitter, Scalar, Scalar], Scalar],
    partials: Partials | None,
    *,
    dtypes: tuple[DType, ...] = NUMBERS,
    result: DType | None = None,
    properties: Sequence[str] = (),
    domain: tuple[float, float] = (-2.0, 2.0),
) -> Operator:
    """Builds the record of a binary operator: `lower` is the emitter's name of the function or a body for one
    element."""

    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        return (TensorType(result or types[0].dtype, broadcast_shapes([t.shape for t in types], name)),)

    def element(s: ScalarEmitter, x: Scalar, y: Scalar) -> Scalar:
        return s.binary(lower, x, y) if isinstance(lower, str) else lower(s, x, y)

    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", dtypes), Operand("y", dtypes)),
        infer=infer,
        reference=through_f32(reference),
        gradient=None if partials is None else broadcast_gradient(partials),
        lower=lower_elementwise(element),
        cases=LateCases(lambda: tuple(Case(shapes, domain=domain) for shapes in BROADCAST_CASES)),
        properties=elementwise_properties(lower, *properties),
    )


def _power_gradients(x: Term, y: Term, result: Term, gradient: Term) -> tuple[Term, Term]:
    """x ** 0 is 1 everywhere, but x ** -1 is infinite at 0. 0 ** y is 0 for a positive y, but the logarithm of 0 is
    infinite."""
    by_x = y.equal(0).select(0.0, y * x.power(y - 1))
    return gradient * by_x, gradient * x.equal(0).select(0.0, result * x.log())


def _reference_power(x: Any, y: Any) -> Any:
    if x.dtype.kind not in "iu":
        # numpy computes the square root for an exponent of 1/2, which differs from `pow` for -0 and -inf.
        return np.where((y == 0.5) & ((x == 0) | np.isinf(x)), np.abs(x), np.power(x, y))
    negative = y < 0
    raised = np.power(x, np.where(negative, y & y.dtype.type(1), y))
    return np.where(negative & (x != 1) & (x != -1), x.dtype.type(0), raised)


def _squared_difference(s: ScalarEmitter, x: Scalar, y: Scalar) -> Scalar:
    wide = compute_dtype(x.dtype)
    difference = s.binary("sub", s.cast(x, wide), s.cast(y, wide))
    return s.cast(s.binary("mul", difference, difference), x.dtype)


def _pick(predicate: str) -> Partials:
    """Returns partials that give the gradient to the selected operand; equal operands get half each."""

    def partials(x: Term, y: Term, r: Term, g: Term) -> tuple[Term, Term]:
        half = x.equal(y).select(g * 0.5, 0.0)
        return getattr(x, predicate)(y).select(g, half), getattr(y, predicate)(x).select(g, half)

    return partials


_BITS = (*INTEGERS, BOOL)
_COMMUTATIVE = ["commutative"]
_APART = (0.3, 3.0)
"""A domain away from zero, where quotients and powers are smooth."""

# fmt: off
OPERATORS = (
    binary("add", "x + y", np.add, "add", lambda x, y, r, g: (g, g),
           properties=[*_COMMUTATIVE, "rounded"]),
    binary("subtract", "x - y", np.subtract, "sub", lambda x, y, r, g: (g, -g), properties=["rounded"]),
    binary("multiply", "x * y", np.multiply, "mul", lambda x, y, r, g: (g * y, g * x),
           properties=[*_COMMUTATIVE, "rounded"]),
    binary("divide", "x / y", np.divide, "div", lambda x, y, r, g: (g / y, -g * r / y), dtypes=FLOATS,
           properties=["rounded"], domain=_APART),
    binary("floor_divide", "the greatest integer less than or equal to x / y; 0 for integers if y is 0",
           np.floor_divide, "floordiv",
           lambda x, y, r, g: (None, None), domain=_APART),
    binary("remainder", "x - floor_divide(x, y) * y; the result has the sign of y; 0 for integers if y is 0",
           np.remainder, "mod",
           lambda x, y, r, g: (g, -g * (x / y).floor()), domain=_APART),
    binary("power", "x ** y; for integers, 0 where the exponent is negative, unless x is 1 or -1", _reference_power,
           "pow", _power_gradients, domain=_APART),
    binary("maximum", "the greater of x and y; NaN where either is NaN", greater_of, "max", _pick("greater"),
           properties=[*_COMMUTATIVE, "selecting", "exact", "extreme"]),
    binary("minimum", "the lesser of x and y; NaN where either is NaN", lesser_of, "min", _pick("less"),
           properties=[*_COMMUTATIVE, "selecting", "exact", "extreme"]),
    binary("atan2", "the angle of a point, from -pi to pi; x is its ordinate, y its abscissa, as in NumPy's `arctan2`",
           np.arctan2, "atan2",
           lambda x, y, r, g: (g * y / (x * x + y * y), -g * x / (x * x + y * y)), dtypes=FLOATS),
    binary("squared_difference", "(x - y) ** 2", lambda x, y: np.square(x - y), _squared_difference,
           lambda x, y, r, g: (2 * g * (x - y), -2 * g * (x - y)), properties=_COMMUTATIVE),
    binary("bitwise_and", "x & y", np.bitwise_and, "and", None, dtypes=_BITS,
           properties=[*_COMMUTATIVE, "selecting"]),
    binary("bitwise_or", "x | y", np.bitwise_or, "or", None, dtypes=_BITS,
           properties=[*_COMMUTATIVE, "selecting"]),
    binary("bitwise_xor", "x ^ y", np.bitwise_xor, "xor", None, dtypes=_BITS, properties=_COMMUTATIVE),
    binary("shift_left", "x << y, 0 where y is not in 0..bits-1", np.left_shift, "shl", None, dtypes=INTEGERS),
    binary("shift_right", "x >> y, keeping the sign; only the sign where y is not in 0..bits-1", np.right_shift,
           "shr", None, dtypes=INTEGERS),
)
# fmt: on
