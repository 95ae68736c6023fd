"""Sums of products: matrix multiplication with batch dims."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dims import Shape, product
from ..emitter import ZERO, Emitter, IndexMap, Loop, Result, Tensor, loop
from ..graph import Value
from ..operator import Attributes, Builder, Case, Channels, InferenceError, LateCases, Operand, Operator, Use
from ..types import DType, TensorType
from .support.accumulate import (
    DIAGONALS,
    FACTOR_DTYPES,
    INTO,
    ROUNDED,
    SPARSE,
    Numbers,
    check_rounding,
    finish,
    gradient_into,
    infer_sum,
    mixtures,
    multiply_add,
    widen,
)
from .support.common import broadcast_shapes, compute_dtype, lower_cast, sum_to


def _infer_matmul(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, y = types
    dtype = infer_sum("matmul", types, attributes["into"])
    check_rounding("matmul", attributes["factors"], dtype)
    if x.rank < 2 or y.rank < 2:
        raise InferenceError(
            "rank-mismatch", f"`@` multiplies matrices, not {x} and {y}", operand=0 if x.rank < 2 else 1
        )
    if x.shape[-1] != y.shape[-2]:
        raise InferenceError(
            "shape-mismatch",
            f"`@` cannot multiply {x} by {y}",
            label=f"inner dimensions {x.shape[-1]} and {y.shape[-2]} differ",
        )
    batch = broadcast_shapes([x.shape[:-2], y.shape[:-2]], "@")
    return (TensorType(dtype, (*batch, x.shape[-2], y.shape[-1])),)


def _batch_map(shape: Shape, batch: Shape) -> IndexMap:
    offset = len(batch) - len(shape)
    return tuple(ZERO if s == 1 and batch[offset + i] != 1 else loop(offset + i) for i, s in enumerate(shape))


def _lower_matmul(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, y = operands
    result = types[0]
    batch = result.shape[:-2]
    n = len(batch)
    rows, columns = Loop(result.shape[-2]), Loop(result.shape[-1])
    x_diagonal, y_diagonal = attributes["x_diagonal"], attributes["y_diagonal"]
    inners = Loop(
        x.type.shape[-1],
        parallel=False,
        sparse=bool(attributes["sparse"]),
        rounds_factors=attributes["factors"] is not None,
        # x[i, k] == 0 for k > i + x_diagonal, and y[k, j] == 0 for k < j - y_diagonal
        until=None if x_diagonal is None else (n, x_diagonal),
        since=None if y_diagonal is None else (n + 2, -y_diagonal),
    )
    # Rows, inner, columns: the innermost loop runs along a row of the result and of `y`.
    row, inner, column = loop(n), loop(n + 1), loop(n + 2)
    (total,) = e.structured(
        [*(Loop(size) for size in batch), rows, inners, columns],
        [
            (x, (*_batch_map(x.type.shape[:-2], batch), row, inner)),
            (y, (*_batch_map(y.type.shape[:-2], batch), inner, column)),
        ],
        [
            Result(
                result.with_dtype(compute_dtype(result.dtype)), (*(loop(i) for i in range(n)), row, column), initial=0
            )
        ],
        multiply_add,
    )
    return [lower_cast(e, total, result.dtype)]


def _matmul(x: Numbers, y: Numbers, into: DType | None, **hints: DType | bool | int | None) -> Numbers:
    return finish(np.matmul(widen(x, into), widen(y, into)), x, into)


def _differentiate_matmul(b: Builder, use: Use) -> Sequence[Value]:
    x, y = use.inputs
    g = use.gradient
    return [
        sum_to(b, b.matmul(g, b.matrix_transpose(y)), x.type.shape),
        _differentiate_matrix(b, x, g)
        if y.type.rank == 2
        else sum_to(b, b.matmul(b.matrix_transpose(x), g), y.type.shape),
    ]


def _differentiate_matrix(b: Builder, x: Value, g: Value) -> Value:
    """Returns the gradient of the matrix in x @ y: one product with the rows of all batches, without a transposition of
    x."""
    rows = product(x.type.shape[:-1])
    flat_x, flat_g = (b.reshape(v, shape=(rows, v.type.shape[-1])) if v.type.rank > 2 else v for v in (x, g))
    return b.einsum(flat_x, flat_g, equation="rk,rn->kn")


matmul = Operator(
    name="matmul",
    summary="the matrix product x @ y over the last two axes; leading axes broadcast; `into` is the dtype of the "
    "sums and of the result: i32 for any combination of i8 and u8, f32 for short floats and for i8 with a "
    "float; with `sparse`, rows of y may be left out where the element of x is 0; with `x_diagonal` or `y_diagonal`, "
    "that factor is 0 where its column is greater than its row plus the number, and its products may be left out; with "
    "`factors` i16, code may round factors in f32 to integers of 13 bits, with a scale for each block of up to 128 "
    "steps",
    operands=(Operand("x", FACTOR_DTYPES, mixed=True), Operand("y", FACTOR_DTYPES, mixed=True)),
    attributes=(INTO, SPARSE, *DIAGONALS, ROUNDED),
    infer=_infer_matmul,
    reference=_matmul,
    gradient=gradient_into(_differentiate_matmul),
    lower=_lower_matmul,
    summed_axes=lambda types, attributes: ((-1,), (-2,)),
    channels=lambda attributes: Channels(-1, -1),
    cases=LateCases(
        lambda: (
            tuple(
                Case(shapes, terms=max(1, shapes[0][-1]))
                for shapes in (
                    ((3, 5), (5, 7)),
                    ((1, 1), (1, 1)),
                    ((0, 3), (3, 2)),
                    ((3, 0), (0, 2)),
                    ((2, 1, 3, 5), (4, 5, 1)),
                    ((17, 33), (33, 9)),
                )
            )
            + mixtures(((3, 37), (37, 5)), terms=37)
            + mixtures(((2, 1, 3, 4), (5, 4, 1)), terms=4)
        )
    ),
    properties=frozenset({"contraction"}),
)

OPERATORS = (matmul,)
