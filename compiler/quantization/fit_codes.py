"""Quantizes a matrix in blocks with the least error of its products: numerical code only, no graph.

Let w be the rows of the matrix, q their dequantized values, and H the sum of x x^T over all x that multiply the matrix.
The total squared error is the sum of (w - q) H (w - q)^T over the rows. Let H = R R^T with R upper triangular. Then the
error is the sum over columns k of R_kk^2 (t_k - q_k)^2, where t_k = w_k + sum over j < k of (w_j - q_j) R_jk / R_kk:
columns are rounded one after the other, and each compensates the errors of those before it. (Babai's nearest plane;
known for weights of networks as GPTQ, https://arxiv.org/abs/2210.17323.)

The scale of a block is the best of a few that shrink or stretch its range, each column weighted by its R_kk^2. Without
H all columns have equal weights and no error is compensated.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops.block_quantization import packed_codes
from ...dialect.ops.support.block_codes import code_range, largest_number, nearest_in_table, scales_dtype
from ...dialect.types import Array, DType

Numbers = npt.NDArray[np.floating]
DAMPING = 0.01
"""The share of the mean of H's diagonal that is added to it: few samples leave some directions undetermined."""
_SHARES = (1.1, 1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
_ROWS = 4096
"""The number of rows that are fitted at a time, so that memory does not grow with tables."""


@dataclass(frozen=True, slots=True)
class Codes:
    """The planes of a block-quantized matrix, as `join_blocks` takes them."""

    codes: Array
    scales: Array
    zeros: Array | None


def fit_codes(weight: Array, moments: Numbers | None, dtype: DType) -> Codes:
    """Quantizes a matrix [rows, columns], in blocks along its rows. `moments` is H, [columns, columns]."""
    factor = None if moments is None else _factor(moments)
    parts = [_fit_rows(weight[begin : begin + _ROWS], factor, dtype) for begin in range(0, max(len(weight), 1), _ROWS)]
    codes, scales, zeros = (np.concatenate(planes) for planes in zip(*parts, strict=True))
    held = scales.astype(scales_dtype(dtype).numpy)
    return Codes(packed_codes(codes, dtype), held, zeros.astype(np.uint8) if dtype.has_zero else None)


def _factor(moments: Numbers) -> Numbers:
    """Returns the upper triangular R."""
    mean = np.trace(moments) / len(moments)
    damped = moments + np.eye(len(moments)) * (DAMPING * mean if mean > 0 else 1.0)
    # With both axes reversed, the lower Cholesky factor is the upper one.
    return np.linalg.cholesky(damped[::-1, ::-1])[::-1, ::-1]


def _fit_rows(weight: Array, factor: Numbers | None, dtype: DType) -> tuple[Array, Array, Array]:
    """Returns quantized values [rows, blocks, block], scales and zero points [rows, blocks]."""
    limit = largest_number(dtype)
    exact = np.clip(np.nan_to_num(weight.astype(np.float64), nan=0.0), -limit, limit)
    rows, columns = exact.shape
    lost = np.zeros_like(exact)
    codes = np.zeros((rows, columns // dtype.block, dtype.block), np.int16)
    scales, zeros = (np.zeros(codes.shape[:2]) for _ in range(2))
    for number, begin in enumerate(range(0, columns, dtype.block)):
        here = slice(begin, begin + dtype.block)
        if factor is None:
            target = exact[:, here]
            scale, zero = _choose_scales(target, np.ones(dtype.block), dtype)
            codes[:, number] = _encode(target, scale, zero, dtype)
        else:
            diagonal = np.diag(factor)[here]
            feedback = factor[:, here] / diagonal
            target = exact[:, here] + lost[:, :begin] @ feedback[:begin]
            scale, zero = _choose_scales(target, diagonal**2, dtype)
            for k in range(dtype.block):
                codes[:, number, k] = code = _encode(target[:, k], scale[:, 0], zero[:, 0], dtype)
                lost[:, begin + k] = exact[:, begin + k] - (code - zero[:, 0]) * scale[:, 0]
                target[:, k + 1 :] += np.outer(lost[:, begin + k], feedback[begin + k, k + 1 :])
        scales[:, number], zeros[:, number] = scale[:, 0], zero[:, 0]
    return codes, scales, zeros


def _choose_scales(target: Numbers, weights: Numbers, dtype: DType) -> tuple[Numbers, Numbers]:
    """Returns for each row of a block its scale, rounded to its dtype, and its zero point, both [rows, 1]: those with
    the least weighted sum of squared errors, where `weights` are those of the columns."""
    x = target.astype(np.float32)
    best = np.full((len(x), 1), np.inf)
    scale, zero = np.zeros((len(x), 1)), np.zeros((len(x), 1))
    for tried, middle in _candidates(x, dtype):
        restored = (_encode(x, tried, middle, dtype) - middle) * tried
        error = ((restored - x) ** 2) @ weights[:, None]
        better = error < best
        best, scale, zero = (np.where(better, new, old) for new, old in ((error, best), (tried, scale), (middle, zero)))
    return scale, zero


def _candidates(x: Numbers, dtype: DType) -> Iterator[tuple[Numbers, Numbers]]:
    least, most = code_range(dtype)
    low, high = np.minimum(x.min(1, keepdims=True), 0), np.maximum(x.max(1, keepdims=True), 0)
    nothing = np.zeros_like(low)
    for share in _SHARES:
        if dtype.has_zero:
            for other in _SHARES:
                scale = _held((high * share - low * other) / most, dtype)
                yield scale, np.clip(np.round(low * other * -_inverse(scale)), least, most)
        elif dtype.bits == 8:
            yield _held(np.maximum(-low, high) * share / most, dtype), nothing
        else:
            # In a range such as -8 to 7, -8 has no negative: the scale may have either sign.
            for end in (low, high):
                yield _held(end * share / least, dtype), nothing


def _held(scale: Numbers, dtype: DType) -> Numbers:
    """Returns scales as the dtype stores them; those beyond its range saturate."""
    stored = scales_dtype(dtype)
    with np.errstate(over="ignore"):
        held = scale.astype(stored.numpy).astype(np.float32)
    return np.where(np.isfinite(held), held, np.copysign(np.float32(stored.float_format.largest), held))


def _inverse(scale: Numbers) -> Numbers:
    return np.where(scale == 0, 0.0, 1 / np.where(scale == 0, 1, scale))


def _encode(x: Numbers, scale: Numbers, zero: Numbers, dtype: DType) -> Numbers:
    if dtype.table:
        return nearest_in_table(x * _inverse(scale), dtype)
    return np.clip(np.round(x * _inverse(scale)) + zero, *code_range(dtype))
