"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import I8, I32, U8
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use


def _matmul(use: Use) -> Sequence[Tensor]:
    a, b, g = use.input(0), use.input(1), use.g
    # A vector is a matrix of one row on the left, of one column on the right.
    left = g.unsqueeze(a, axes=(0,)) if a.rank == 1 else a
    right = g.unsqueeze(b, axes=(1,)) if b.rank == 1 else b
    result = g.matmul(left, right)
    dropped = (*((result.rank - 2,) if a.rank == 1 else ()), *((result.rank - 1,) if b.rank == 1 else ()))
    return [g.squeeze(result, axes=dropped) if dropped else result]


def _gemm(use: Use) -> Sequence[Tensor]:
    a, b, c, g = use.input(0), use.input(1), use.optional(2), use.g
    if use.integer("transA", 0):
        a = g.transpose(a, axes=(1, 0))
    if use.integer("transB", 0):
        b = g.transpose(b, axes=(1, 0))
    result = g.matmul(a, b)
    alpha, beta = use.number("alpha", 1.0), use.number("beta", 1.0)
    if alpha != 1:
        result = g.multiply(result, g.like(alpha, result))
    if c is None or beta == 0:
        return [result]
    return [g.add(result, c if beta == 1 else g.multiply(c, g.like(beta, c)))]


def _einsum(use: Use) -> Sequence[Tensor]:
    equation = use.string("equation").replace(" ", "")
    return [use.g.einsum(*use.inputs, equation=equation)]


def shifted(use: Use, x: Tensor, zero: Tensor | None, axis: int | None = None) -> Tensor:
    """Returns x - zero as i32; a vector of zero points belongs to an axis."""
    g = use.g
    wide = g.cast(x, dtype=I32)
    if zero is None or (zero.array is not None and not zero.array.any()):
        return wide
    offset = g.cast(zero, dtype=I32)
    if offset.rank == 1 and axis is not None and offset.shape != (1,):
        offset = g.reshape(offset, shape=(*offset.shape, *(1,) * (x.rank - axis - 1)))
    elif offset.rank == 1:
        offset = g.reshape(offset, shape=())
    return g.subtract(wide, offset)


def integer_matmul(use: Use, a: Tensor, a_zero: Tensor | None, b: Tensor, b_zero: Tensor | None) -> Tensor:
    """Returns the product of two quantized matrices as i32."""
    if _is_zero(a_zero) and _is_zero(b_zero) and a.dtype in (I8, U8) and b.dtype in (I8, U8):
        return use.g.matmul(a, b, into=I32)
    # The zero point of a matrix a belongs to its rows, that of b to its columns.
    rows = a.rank - 2 if a.rank >= 2 else None
    return use.g.matmul(shifted(use, a, a_zero, rows), shifted(use, b, b_zero, b.rank - 1))


def _is_zero(zero: Tensor | None) -> bool:
    return zero is None or (zero.array is not None and not zero.array.any())


def _matmul_integer(use: Use) -> Sequence[Tensor]:
    return [integer_matmul(use, use.input(0), use.optional(2), use.input(1), use.optional(3))]


CONVERTERS: Converters = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "MatMulInteger": _matmul_integer,
}
