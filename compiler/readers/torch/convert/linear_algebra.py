"""Factorizations, inverses and solutions of matrices, the last two axes; the others are a batch.

PyTorch raises an error for a matrix that is singular or not positive definite. Here its results are NaN or infinite, as
no call fails for the values of a tensor, and the number that `_ex` operators return with them is 1. So a check of this
number does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import F32, F64, I32
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use


def _matrices(use: Use, name: str) -> Tensor:
    x = use.tensor(name)
    return x if x.dtype == F64 else use.to(x, F32)


def _status(use: Use, found: Tensor) -> Tensor:
    """Returns 0 for each matrix of finite numbers, and 1 for the others."""
    g = use.g
    finite = g.less(g.abs(found), g.like(float("inf"), found))
    return g.cast(g.logical_not(g.all(finite, axis=(found.rank - 2, found.rank - 1))), dtype=I32)


def _cholesky(use: Use) -> Sequence[Tensor]:
    x, g, upper = _matrices(use, "self"), use.g, use.flag("upper")
    found = g.cholesky(g.matrix_transpose(x) if upper else x)
    return [g.matrix_transpose(found) if upper else found, _status(use, found)]


def _inverse(use: Use) -> Sequence[Tensor]:
    found = use.g.inverse(_matrices(use, "A"))
    return [found, _status(use, found)]


def _sign_and_logarithm(use: Use) -> Sequence[Tensor]:
    """The rows are divided by the sums of their absolute values, whose logarithms are added: the determinant of the
    quotients is at most 1, and that of a large matrix overflows nowhere. The sign of NaN is 0 here."""
    g = use.g
    x = g.cast(_matrices(use, "A"), dtype=F64)
    total = g.sum(g.abs(x), axis=(x.rank - 1,), keepdims=True)
    is_usual = g.logical_and(g.greater(total, g.like(0.0, total)), g.less(total, g.like(float("inf"), total)))
    scale = g.where(is_usual, total, g.like(1.0, total))
    found = g.determinant(g.divide(x, scale))
    logarithm = g.add(g.log(g.abs(found)), g.sum(g.log(scale), axis=(x.rank - 2, x.rank - 1)))
    sign = g.where(g.isnan(found), g.like(0.0, found), g.sign(found))
    return [use.to(each, use.dtype) for each in (sign, logarithm)]


def _solve(use: Use) -> Sequence[Tensor | None]:
    """The factors of the matrix and the exchanged rows are not computed. x @ a = b is a.mT @ x.mT = b.mT. Whether a
    matrix is singular does not depend on b."""
    a, b, g, left = _matrices(use, "A"), _matrices(use, "B"), use.g, bool(use.number("left", True))
    is_vector = b.rank == 1 or b.shape == a.shape[:-1]
    if is_vector:
        found = g.squeeze(g.solve(a, g.unsqueeze(b, axes=(b.rank,))), axes=(b.rank,))
    elif left:
        found = g.solve(a, b)
    else:
        found = g.matrix_transpose(g.solve(g.matrix_transpose(a), g.matrix_transpose(b)))
    ones = g.full(shape=(a.shape[-1], 1), value=1, dtype=a.dtype)
    return [found, None, None, _status(use, g.solve(a, ones))]


def _triangular(use: Use, a: Tensor, b: Tensor, upper: bool, transpose: bool = False) -> Tensor:
    unit = use.flag("unitriangular")
    return use.g.triangular_solve(a, b, upper=upper, transpose=transpose, unit_diagonal=unit)


def _solve_triangular(use: Use) -> Sequence[Tensor]:
    a, b, g, upper = _matrices(use, "self"), _matrices(use, "B"), use.g, use.flag("upper")
    if bool(use.number("left", True)):
        return [_triangular(use, a, b, upper)]
    # x @ a = b is a.mT @ x.mT = b.mT.
    return [g.matrix_transpose(_triangular(use, a, g.matrix_transpose(b), upper, transpose=True))]


def _cholesky_solve(use: Use) -> Sequence[Tensor]:
    """With the factor l, solves l @ y = b and l.mT @ x = y; an upper factor is l.mT."""
    b, factor, upper = _matrices(use, "self"), _matrices(use, "input2"), use.flag("upper")
    y = use.g.triangular_solve(factor, b, upper=upper, transpose=upper)
    return [use.g.triangular_solve(factor, y, upper=upper, transpose=not upper)]


def _old_triangular_solve(use: Use) -> Sequence[Tensor]:
    b, a = _matrices(use, "self"), _matrices(use, "A")
    return [_triangular(use, a, b, bool(use.number("upper", True)), use.flag("transpose")), a]


def _svd(use: Use) -> Sequence[Tensor]:
    x = _matrices(use, "A")
    rows, columns = x.shape[-2:]
    if use.flag("full_matrices") and use.number("compute_uv", True) and rows != columns:
        use.fail("completes the singular vectors to a square matrix", help="call it with `full_matrices=False`")
    u, s, vh = use.g.apply("svd", [x], {})
    return [u, s, vh] if use.number("compute_uv", True) else [_nothing(use, 0), s, _nothing(use, 2)]


def _nothing(use: Use, number: int) -> Tensor:
    type = use.types[number]
    assert type is not None
    return use.g.full(shape=type.shape, value=0, dtype=type.dtype)


CONVERTERS: Converters = {
    "_linalg_check_errors.default": lambda use: [],
    "_linalg_det.default": lambda use: [use.g.determinant(_matrices(use, "A"))],
    "_linalg_slogdet.default": _sign_and_logarithm,
    "_linalg_solve_ex.default": _solve,
    "_linalg_svd.default": _svd,
    "cholesky_solve.default": _cholesky_solve,
    "cholesky.default": lambda use: _cholesky(use)[:1],
    "linalg_cholesky.default": lambda use: _cholesky(use)[:1],
    "linalg_cholesky_ex.default": _cholesky,
    "linalg_inv.default": lambda use: _inverse(use)[:1],
    "linalg_inv_ex.default": _inverse,
    "linalg_solve.default": lambda use: _solve(use)[:1],
    "linalg_solve_ex.default": lambda use: _solve(use)[::3],
    "linalg_solve_triangular.default": _solve_triangular,
    "triangular_solve.default": _old_triangular_solve,
}
