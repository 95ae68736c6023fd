"""`Det`: the determinant of matrices of a known size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.types import I64, TensorType
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use
from .control_flow import scan


def _determinant(use: Use) -> Sequence[Tensor]:
    """Eliminates one column in each step of a loop, with the greatest element of the column as pivot."""
    x, g = use.input(), use.g
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        use.fail(f"takes square matrices, not {x.type}", code="shape-mismatch")
    size, batch = x.shape[-1], x.shape[:-2]
    line = g.iota(shape=(size,))
    one, zero = g.like(1, x), g.like(0, x)
    last = x.rank - 1

    def step(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        number, matrix, total = arguments
        column = g.gather(matrix, number, axis=last)
        below = g.greater_equal(line, number)
        best = g.argmax(g.where(below, g.abs(column), g.like(-1, x)), axis=last - 1, keepdims=True)
        # Row `number` and row `best` change places.
        rows = g.where(g.equal(line, number), best, g.where(g.equal(line, best), number, line))
        rows = g.unsqueeze(rows, axes=(last,))
        matrix = g.take_along_axis(matrix, rows, axis=last - 1, mode="clamp")
        sign = g.where(g.equal(g.squeeze(best, axes=(last - 1,)), number), one, g.negate(one))
        pivot_row = g.gather(matrix, number, axis=last - 1)
        pivot = g.gather(pivot_row, number, axis=last - 1)
        safe = g.where(g.equal(pivot, zero), one, pivot)
        column = g.where(g.greater(line, number), g.gather(matrix, number, axis=last), zero)
        factors = g.divide(column, g.unsqueeze(safe, axes=(last - 1,)))
        product = g.multiply(g.unsqueeze(factors, axes=(last,)), g.unsqueeze(pivot_row, axes=(last - 1,)))
        return [g.subtract(matrix, product), g.multiply(total, g.multiply(sign, pivot))]

    start = g.broadcast_to(known(np.ones((), x.dtype.numpy)), shape=batch)
    region = g.region([TensorType(I64), x.type, start.type], step)
    return [scan(use, [x, start], region, size)[1]]


CONVERTERS: Converters = {"Det": _determinant}
