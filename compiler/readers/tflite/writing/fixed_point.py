"""Fixed-point arithmetic of quantized operators: a real factor is an integer of 31 bits and a power of two.

    factor == multiplier * 2 ** (exponent - 31),   2 ** 30 <= multiplier < 2 ** 31
    0.3    == 1288490189 * 2 ** (-1 - 31),         up to 2 ** -31 of the factor

Most reference kernels round such products twice, those of fully connected layers once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .....dialect.types import I32, U8, DType
from ...writing.tensors import Tensor, known
from .use import Use, integer


def encode_factor(factor: float) -> tuple[int, int]:
    """Returns the multiplier and the exponent of a factor that is not negative."""
    if factor == 0:
        return 0, 0
    fraction, exponent = math.frexp(factor)
    multiplier = math.floor(fraction * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier, exponent = multiplier // 2, exponent + 1
    if exponent < -31:
        return 0, 0
    return multiplier, exponent


def scaled(use: Use, x: Tensor, factors: float | Sequence[float], rounding: str = "twice") -> Tensor:
    """Returns an i32 tensor times a factor, or times one factor for each index of the last axis."""
    pairs = [encode_factor(float(factor)) for factor in (factors if isinstance(factors, Sequence) else [factors])]
    if any(exponent > 30 for _, exponent in pairs):
        use.fail("has a quotient of scales above 2**30", code="bad-size")
    name = use.result.name.split(";")[0].strip("/").replace("/", ".") or use.operator.name
    parts = [
        known(_column(pairs, part), label=f"{name}.{word}") for part, word in enumerate(("multiplier", "exponent"))
    ]
    return use.g.fixed_point_multiply(x, *parts, rounding=rounding)


def _column(pairs: Sequence[tuple[int, int]], part: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    """Returns one part (multiplier or exponent) of all factors as a vector; as a scalar if all are equal."""
    column = np.array([pair[part] for pair in pairs], np.int32)
    return column[0].reshape(()) if column.size and np.all(column == column[0]) else column


def shifted(use: Use, x: Tensor, zero: int) -> Tensor:
    """Returns quantized values minus their zero point, in i32."""
    wide = use.g.cast(x, dtype=I32)
    return use.g.subtract(wide, integer(zero, wide)) if zero else wide


def narrowed(
    use: Use, x: Tensor, zero: int, limits: tuple[int, int] | None = None, dtype: DType | None = None
) -> Tensor:
    """Returns i32 values plus a zero point, clipped, in the dtype of the result."""
    g, to = use.g, dtype or use.dtype
    low, high = limits or to.integer_range
    if zero:
        x = g.add(x, integer(zero, x))
    return g.cast(g.clip(x, low=low, high=high), dtype=to)


def looked_up(use: Use, x: Tensor, table: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Tensor:
    """Returns the entries of a table of 256, in order of the 8-bit values that select them."""
    g = use.g
    index = g.cast(x, dtype=I32)
    if x.dtype != U8:
        index = g.add(index, known(np.int32(128)))
    return g.gather(known(table, label=f"{use.operator.name.lower()}.table"), index, axis=0, mode="clamp")
