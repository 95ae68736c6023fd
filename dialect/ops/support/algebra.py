"""Arithmetic notation for graphs: `g / (x * x + 1)` instead of nested calls of the builder.

It lets gradients and decompositions read as formulas. A `Term` is a value with the builder that extends its graph;
numbers become constants of the dtype of the other operand. Every method is an operator's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...dims import Shape
from ...graph import Value
from ...operator import Attributes, Builder, Decompose, Gradient, Use
from ...types import F32, DType
from .common import is_half


class Term:
    """A value in a formula: `x + 1`, `x.exp()`, `x.sum(axis=0, keepdims=True)`, `x.greater(0).select(x, y)`."""

    __slots__ = ("builder", "value")

    def __init__(self, builder: Builder, value: Value) -> None:
        self.builder, self.value = builder, value

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype

    @property
    def shape(self) -> Shape:
        return self.value.type.shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def lift(self, other: Term | float) -> Value:
        """Returns the other operand as a value; a number takes this term's dtype."""
        return other.value if isinstance(other, Term) else self.builder.like(other, self.value)

    def __getattr__(self, name: str) -> Callable[..., Term]:
        operator = getattr(self.builder, name)

        def apply(*others: Term | float, **attributes: Any) -> Term:
            return Term(self.builder, operator(self.value, *map(self.lift, others), **attributes))

        return apply

    def select(self, x: Term | float, y: Term | float) -> Term:
        """Returns `x` where this condition holds, else `y`; one of them is a term."""
        model = x if isinstance(x, Term) else y
        assert isinstance(model, Term), (x, y)
        return Term(self.builder, self.builder.where(self.value, model.lift(x), model.lift(y)))

    def __add__(self, other: Term | float) -> Term:
        return self.add(other)

    __radd__ = __add__

    def __mul__(self, other: Term | float) -> Term:
        return self.multiply(other)

    __rmul__ = __mul__

    def __sub__(self, other: Term | float) -> Term:
        return self.subtract(other)

    def __rsub__(self, other: float) -> Term:
        return Term(self.builder, self.lift(other)).subtract(self)

    def __truediv__(self, other: Term | float) -> Term:
        return self.divide(other)

    def __rtruediv__(self, other: float) -> Term:
        return Term(self.builder, self.lift(other)).divide(self)

    def __neg__(self) -> Term:
        return self.negate()


def terms(builder: Builder, values: Sequence[Value]) -> list[Term]:
    return [Term(builder, value) for value in values]


def decomposition(formula: Callable[..., Term], *, exact: bool = False) -> Decompose:
    """Returns a decomposition from `formula(*operands, **attributes)` with one result of the first operand's dtype.

    f16 and bf16 are computed in f32 throughout and rounded once, unless every step of the formula is `exact`.
    """

    def decompose(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
        dtype = operands[0].type.dtype
        inputs = terms(b, operands)
        if is_half(dtype) and not exact:
            return [formula(*(x.cast(dtype=F32) for x in inputs), **attributes).cast(dtype=dtype).value]
        return [formula(*inputs, **attributes).value]

    return decompose


def gradient_of(formula: Callable[..., Term | Sequence[Term | None] | None]) -> Gradient:
    """Returns a gradient rule from `formula(*operands, result, gradient, **attributes)`: one term per operand.

    None represents a gradient that is zero everywhere.
    """

    def differentiate(b: Builder, use: Use) -> Sequence[Value | None]:
        parts = formula(*terms(b, [*use.inputs, *use.outputs, use.gradient]), **use.attributes)
        listed = [parts] if parts is None or isinstance(parts, Term) else parts
        return [None if part is None else part.value for part in listed]

    return differentiate
