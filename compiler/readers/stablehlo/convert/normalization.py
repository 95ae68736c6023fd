"""Batch normalization and linear algebra."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.dims import product
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use


def _inference(use: Use) -> Sequence[Tensor]:
    x, scale, offset, mean, variance = use.operands
    axis, eps = use.integer("feature_index"), float(use.record.attributes["epsilon"])
    return [use.g.batch_norm(x, mean, variance, scale, offset, axis=axis, eps=eps)]


def _training(use: Use) -> Sequence[Tensor]:
    """Normalizes by the statistics of the operand, and returns them as further results."""
    g = use.g
    x, scale, offset = use.operands
    axis, eps = use.integer("feature_index"), float(use.record.attributes["epsilon"])
    axes = _others(x, axis)
    mean, variance = g.mean(x, axis=axes), g.variance(x, axis=axes)
    return [g.batch_norm(x, mean, variance, scale, offset, axis=axis, eps=eps), mean, variance]


def _gradient(use: Use) -> Sequence[Tensor]:
    """Returns the gradients, with n = (x - mean) / sqrt(variance + eps) and sums over all axes except the channels:

    d offset = sum(dy), d scale = sum(dy n), d x = scale / sqrt(variance + eps) (dy - mean(dy) - n mean(dy n))
    """
    g = use.g
    x, scale, mean, variance, dy = use.operands
    axis, eps = use.integer("feature_index"), float(use.record.attributes["epsilon"])
    axes = _others(x, axis)
    shape = tuple(size if number == axis else 1 for number, size in enumerate(x.shape))

    def spread(channel: Tensor) -> Tensor:
        return g.reshape(channel, shape=shape)

    inverse = g.rsqrt(g.add(variance, g.like(eps, variance)))
    normal = g.multiply(g.subtract(x, spread(mean)), spread(inverse))
    offset_gradient = g.sum(dy, axis=axes)
    scale_gradient = g.sum(g.multiply(dy, normal), axis=axes)
    count = g.size(product(x.shape[number] for number in axes), x.dtype)
    rest = g.subtract(dy, spread(g.divide(offset_gradient, count)))
    rest = g.subtract(rest, g.multiply(normal, spread(g.divide(scale_gradient, count))))
    return [g.multiply(spread(g.multiply(scale, inverse)), rest), scale_gradient, offset_gradient]


def _others(x: Tensor, axis: int) -> tuple[int, ...]:
    return tuple(number for number in range(x.rank) if number != axis)


def _cholesky(use: Use) -> Sequence[Tensor]:
    """Returns the lower factor, which reads the lower triangle. The upper factor is the transpose of the lower factor
    of the transposed matrix."""
    g = use.g
    if use.flag("lower"):
        return [g.cholesky(use.x)]
    return [g.matrix_transpose(g.cholesky(g.matrix_transpose(use.x)))]


def _triangular_solve(use: Use) -> Sequence[Tensor]:
    """Solves a x = b, or x a = b by transposing both sides: a.mT x.mT = b.mT."""
    g = use.g
    a, b = use.operands
    turn = use.word("transpose_a")
    if turn not in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"):
        use.fail("does not state whether the matrix is transposed", code="bad-attribute")
    is_left = use.flag("left_side")
    made = g.triangular_solve(
        a,
        b if is_left else g.matrix_transpose(b),
        upper=not use.flag("lower"),
        transpose=(turn != "NO_TRANSPOSE") == is_left,
        unit_diagonal=use.flag("unit_diagonal"),
    )
    return [made if is_left else g.matrix_transpose(made)]


CONVERTERS: Converters = {
    "batch_norm_inference": _inference,
    "batch_norm_training": _training,
    "batch_norm_grad": _gradient,
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
}
