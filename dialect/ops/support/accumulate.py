"""Accumulation in references and loop bodies: sums of f16 or bf16 elements are kept in f32 and rounded once.

The references accumulate like the lowerings, so that they differ from compiled code by the order of a sum at most.

A contraction may keep its sums `into` a dtype, which is also the dtype of the result: products of bytes are exact in
i32, and those of short floats are not rounded before they are summed in f32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...emitter import Scalar, ScalarEmitter
from ...graph import Node, Value
from ...operator import (
    Attributes,
    AttributeSpec,
    Builder,
    Case,
    Gradient,
    InferenceError,
    Operator,
    Use,
)
from ...types import (
    BF16,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    FLOATS,
    I8,
    I16,
    I32,
    INTEGERS,
    NUMBERS,
    STORAGE,
    U8,
    Array,
    DType,
    TensorType,
    dtype_of,
)
from .common import is_half

Numbers = npt.NDArray[Any]
"""An array in a reference computation."""

INTO = AttributeSpec("into", "dtype?", None)
"""The dtype of a contraction's sums and of its result, if it differs from the dtype of the operands."""

SPARSE = AttributeSpec("sparse", "bool?", None)
"""Whether many elements of the first factor are 0. Code for a single row then reads only the rows of the other factor
that are multiplied by another number. A product of 0 and an infinity or a NaN may become 0."""

ROUNDED = AttributeSpec("factors", "dtype?", None)
"""The dtype to which code may round the factors of a product in f32: i16, for integers with a scale for each block of
steps of a row, and of a column (`ROUNDED_STEPS` and `ROUNDED_LIMIT` of `emitter.py`)."""

DIAGONALS = (AttributeSpec("x_diagonal", "int?", None), AttributeSpec("y_diagonal", "int?", None))
"""The diagonal above which a factor is 0, where its column is greater than its row plus the number. Products with these
elements may be left out; a product of 0 and an infinity or a NaN may become 0."""


def without_diagonals(attributes: Attributes) -> dict[str, Any]:
    """Returns the attributes of a contraction whose factors are no longer 0 above these diagonals."""
    return {name: value for name, value in attributes.items() if name not in {spec.name for spec in DIAGONALS}}


FACTORS: Mapping[DType, tuple[DType, ...]] = {
    into: tuple(d for d in (*FLOATS, *INTEGERS, *STORAGE) if into in d.sums_in or d is into is F32)
    for into in (I32, F32)
}
"""The dtypes of factors by the dtype that their products are summed `into`. Any mixture is allowed, but a float sum
needs at least one float."""
FACTOR_DTYPES = (*NUMBERS, *STORAGE)
"""The dtypes that contractions accept. There are no sums in a dtype of STORAGE, so such operands require `into`."""


def infer_sum(operator: str, types: Sequence[TensorType], into: DType | None) -> DType:
    """Returns the dtype of a contraction's result. Raises InferenceError if operands of these dtypes have none."""
    first = types[0].dtype
    if into is None:
        for number, type in enumerate(types):
            if type.dtype == first and not first.is_storage:
                continue
            wide = next((wide for wide, short in FACTORS.items() if {first, type.dtype} <= {*short}), None)
            help = f"`{operator}(..., into={wide})` multiplies them directly" if wide else ""
            if type.dtype == first:
                message = f"`{operator}` cannot accumulate in {first}"
                raise InferenceError("dtype-mismatch", message, label=f"this is {type}", operand=number, help=help)
            raise InferenceError(
                "dtype-mismatch",
                f"`{operator}` mixes {first} and {type.dtype}",
                label=f"this is {type}, the other is {types[0]}",
                operand=number,
                help=help,
            )
        return first
    accepted = FACTORS.get(into)
    if accepted is None:
        choices = " or ".join(map(str, FACTORS))
        raise InferenceError("bad-attribute", f"`into` of `{operator}` is {into}, expected {choices}")
    for number, type in enumerate(types):
        if type.dtype not in accepted:
            raise InferenceError(
                "dtype-mismatch",
                f"`{operator}` does not sum products of {type.dtype} into {into}",
                label=f"this is {type}; accepted: {', '.join(map(str, accepted))}",
                operand=number,
            )
    if into.is_float and not any(type.dtype.is_float for type in types):
        raise InferenceError(
            "dtype-mismatch",
            f"`{operator}` sums products of {first} and {types[-1].dtype} into i32, not {into}",
            label=f"this is {first}",
            operand=0,
        )
    return into


def may_round(operator: Operator) -> bool:
    """Returns whether code of an operator can round factors."""
    return any(spec is ROUNDED for spec in operator.attributes)


def rounded_to(node: Node) -> DType | None:
    """Returns the dtype to which code may round the factors of a node, if there is one."""
    value = dict(node.attributes).get(ROUNDED.name)
    return value if isinstance(value, DType) else None


def check_rounding(operator: str, factors: DType | None, sums: DType) -> None:
    """Raises InferenceError if code can't round the factors of a contraction to a dtype."""
    if factors is not None and (factors is not I16 or sums is not F32):
        what = f"is {factors}, expected i16" if factors is not I16 else f"needs products in f32, not {sums}"
        raise InferenceError("bad-attribute", f"`factors` of `{operator}` {what}")


def widen(x: Numbers, into: DType | None = None) -> Numbers:
    """Returns the array in the dtype of its sums."""
    if into is not None:
        return x.astype(into.numpy)
    return x.astype(np.float32) if is_half(dtype_of(x)) else x


def finish(total: Array, x: Array, into: DType | None) -> Numbers:
    """Returns the sums in the dtype of the result, for a first operand `x`."""
    return np.asarray(total).astype(x.dtype if into is None else into.numpy)


def gradient_into(differentiate: Gradient) -> Gradient:
    """Returns the gradient rule for sums kept `into` a dtype, from the rule for operands that already have that
    dtype."""

    def differentiated(b: Builder, use: Use) -> Sequence[Value | None]:
        into: DType | None = use.attributes["into"]
        if into is None:
            return differentiate(b, use)
        wide = tuple(b.cast(x, dtype=into) for x in use.inputs)
        gradients = differentiate(b, replace(use, inputs=wide, attributes={**use.attributes, "into": None}))
        return [
            b.cast(g, dtype=x.type.dtype) if g is not None and x.type.dtype.is_differentiable else None
            for g, x in zip(gradients, use.inputs, strict=True)
        ]

    return differentiated


def multiply_add(s: ScalarEmitter, x: Scalar, y: Scalar, total: Scalar) -> Sequence[Scalar]:
    """Emits the body of a contraction: `total + x * y`, in the dtype of `total`."""
    product = s.binary("mul", s.cast(x, total.dtype), s.cast(y, total.dtype))
    return [s.binary("add", total, product)]


def add_up(s: ScalarEmitter, x: Scalar, total: Scalar) -> Sequence[Scalar]:
    """Emits the body of a sum, in the dtype of `total`."""
    return [s.binary("add", total, s.cast(x, total.dtype))]


_MIXTURES = (
    (U8, I8, I32),
    (I8, U8, I32),
    (I8, I8, I32),
    (U8, U8, I32),
    (F16, F16, F32),
    (BF16, BF16, F32),
    (F32, BF16, F32),
    (F32, I8, F32),
    (F8E4M3, F8E4M3, F32),
    (F8E5M2, F8E4M3, F32),
    (F32, F8E5M2, F32),
)


def mixtures(
    shapes: tuple[tuple[int, ...], ...],
    attributes: Attributes | None = None,
    *,
    terms: int,
    of: tuple[DType, ...] = FACTOR_DTYPES,
) -> tuple[Case, ...]:
    """Returns cases of a contraction whose sums are kept `into` another dtype; the first operand has one of the dtypes
    `of`, and the third one is a bias in the dtype of the sums."""
    cases = []
    for x, y, into in _MIXTURES:
        if x not in of:
            continue
        mixed = {1: y} | {number: into for number in range(2, len(shapes))}
        given = {**(attributes or {}), "into": into}
        cases.append(Case(shapes, given, dtypes=(x,), mixed=mixed, terms=terms))
    return tuple(cases)
