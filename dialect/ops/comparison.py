"""Comparisons, logic on booleans, tests for special floats, and selection by a condition.

A comparison with NaN is false, except `not_equal`. Only `where` has a gradient: all other results are booleans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..emitter import Scalar, ScalarEmitter
from ..graph import Value
from ..operator import Attributes, Builder, Case, LateCases, Operand, Operator, Use
from ..types import BOOL, COMPUTED, FLOATS, DType, TensorType
from .binary import BROADCAST_CASES, binary
from .support.algebra import Term
from .support.common import (
    SHAPES,
    broadcast_shapes,
    lower_elementwise,
    sum_to,
    through_f32,
)


def _comparison(name: str, sign: str, reference: Callable[..., Any], predicate: str, *properties: str) -> Operator:
    def element(s: ScalarEmitter, x: Scalar, y: Scalar) -> Scalar:
        return s.compare(predicate, x, y)

    return binary(name, f"x {sign} y", reference, element, None, dtypes=COMPUTED, result=BOOL, properties=properties)


def _logical(name: str, summary: str, reference: Callable[..., Any], function: str, *properties: str) -> Operator:
    return binary(name, summary, reference, function, None, dtypes=(BOOL,), properties=["commutative", *properties])


def _test(
    name: str, summary: str, reference: Callable[..., Any], function: str, dtypes: tuple[DType, ...], *properties: str
) -> Operator:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        return (types[0].with_dtype(BOOL),)

    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", dtypes),),
        infer=infer,
        reference=through_f32(reference),
        gradient=None,
        lower=lower_elementwise(lambda s, x: s.unary(function, x)),
        cases=LateCases(lambda: tuple(Case((shape,)) for shape in SHAPES)),
        properties=frozenset({"elementwise", *properties}),
    )


def _infer_where(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    return (TensorType(types[1].dtype, broadcast_shapes([t.shape for t in types], "where")),)


def _differentiate_where(b: Builder, use: Use) -> Sequence[Value | None]:
    condition, x, y = use.inputs
    g, chosen = Term(b, use.gradient), Term(b, condition)
    return [
        None,
        sum_to(b, chosen.select(g, 0.0).value, x.type.shape),
        sum_to(b, chosen.select(0.0, g).value, y.type.shape),
    ]


where = Operator(
    name="where",
    summary="x where the condition is true, else y",
    operands=(Operand("condition", (BOOL,), "condition"), Operand("x"), Operand("y")),
    infer=_infer_where,
    reference=np.where,
    gradient=_differentiate_where,
    lower=lower_elementwise(lambda s, condition, x, y: s.select(condition, x, y)),
    cases=LateCases(
        lambda: (
            *(Case((shapes[0], *shapes)) for shapes in BROADCAST_CASES),
            Case(((5,), (3, 1), ())),
            Case(((3, 1), (), (1, 5))),
        )
    ),
    properties=frozenset({"elementwise", "choosing", "exact"}),
)

OPERATORS = (
    _comparison("equal", "==", np.equal, "eq", "commutative"),
    _comparison("not_equal", "!=", np.not_equal, "ne", "commutative"),
    _comparison("less", "<", np.less, "lt"),
    _comparison("less_equal", "<=", np.less_equal, "le"),
    _comparison("greater", ">", np.greater, "gt"),
    _comparison("greater_equal", ">=", np.greater_equal, "ge"),
    _logical("logical_and", "true where x and y are true", np.logical_and, "and", "selecting"),
    _logical("logical_or", "true where x or y is true", np.logical_or, "or", "selecting"),
    _logical("logical_xor", "true where exactly one of x and y is true", np.logical_xor, "xor"),
    _test("logical_not", "true where x is false", np.logical_not, "not", (BOOL,), "involution"),
    _test("isnan", "true where x is NaN", np.isnan, "isnan", FLOATS),
    _test("isinf", "true where x is infinite, of either sign", np.isinf, "isinf", FLOATS),
    _test("isfinite", "true where x is neither infinite nor NaN", np.isfinite, "isfinite", FLOATS),
    where,
)
