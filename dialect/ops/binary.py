"""Elementwise operators of two operands, with broadcasting: arithmetic, minimum and maximum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..emitter import Scalar, ScalarEmitter
from ..graph import Value
from ..operator import Attributes, Builder, Case, Gradient, Operand, Operator, Use
from ..types import NUMBERS, DType, TensorType
from .common import broadcast_shapes, lower_elementwise, sum_to

BROADCAST_CASES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((3, 5), (3, 5)),
    ((), ()),
    ((1,), (1,)),
    ((0,), (0,)),
    ((2, 1, 7), (3, 1)),
    ((3, 0), (1, 1)),
    ((33,), ()),
)


def _binary(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    gradient: Callable[[Builder, Value, Value, Value, Value], Sequence[Value]] | None,
    *,
    dtypes: tuple[DType, ...] = NUMBERS,
    properties: Sequence[str] = (),
    function: str | None = None,
    **case: Any,
) -> Operator:
    """A record from a formula. `gradient(b, x, y, result, gradient)` gives the partial products before broadcasting."""

    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        return (TensorType(types[0].dtype, broadcast_shapes([t.shape for t in types], name)),)

    def differentiate(b: Builder, use: Use) -> Sequence[Value]:
        assert gradient is not None
        x, y = use.inputs
        parts = gradient(b, x, y, use.outputs[0], use.gradient)
        return [sum_to(b, part, operand.type.shape) for part, operand in zip(parts, use.inputs, strict=True)]

    def element(s: ScalarEmitter, x: Scalar, y: Scalar) -> Scalar:
        return s.binary(function or name, x, y)

    rule: Gradient | None = None if gradient is None else differentiate
    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", dtypes), Operand("y", dtypes)),
        infer=infer,
        reference=reference,
        gradient=rule,
        lower=lower_elementwise(element),
        cases=tuple(Case(shapes, **case) for shapes in BROADCAST_CASES),
        properties=frozenset({"elementwise", *properties}),
    )


OPERATORS = (
    _binary("add", "x + y", np.add, lambda b, x, y, r, g: (g, g), properties=["commutative"], function="add"),
    _binary(
        "multiply",
        "x * y",
        np.multiply,
        lambda b, x, y, r, g: (b.multiply(g, y), b.multiply(g, x)),
        properties=["commutative"],
        function="mul",
    ),
)
