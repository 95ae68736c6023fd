"""Functions of the bits of an element, and roundings that depend on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .....dialect.types import BOOL, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use

_UNSIGNED: Mapping[DType, DType] = {I8: U8, I16: U16, I32: U32, I64: U64}
_WORDS: Mapping[DType, tuple[DType, int, int]] = {F32: (U32, 8, 23), F64: (U64, 11, 52)}
"""The integers with the bits of a float, and the number of bits of its exponent and of its mantissa."""


def _as_unsigned(use: Use, x: Tensor) -> Tensor:
    return use.g.bitcast(x, dtype=_UNSIGNED[x.dtype]) if x.dtype in _UNSIGNED else x


def _back(use: Use, x: Tensor, dtype: DType) -> Tensor:
    return x if x.dtype == dtype else use.g.bitcast(x, dtype=dtype)


def _shift_right_logical(use: Use) -> Sequence[Tensor]:
    x, count = (_as_unsigned(use, each) for each in use.operands)
    return [_back(use, use.g.shift_right(x, count), use.dtype)]


def _ones(use: Use, x: Tensor) -> Tensor:
    """Counts the bits that are set: sums of 1, 2 and 4 neighbours, and then of the bytes by a product."""
    g, bits = use.g, 8 * x.dtype.numpy.itemsize
    whole = (1 << bits) - 1

    def like(byte: int) -> Tensor:
        return g.like(whole // 255 * byte, x)

    def shifted(value: Tensor, count: int) -> Tensor:
        return g.shift_right(value, g.like(count, x))

    pairs = g.subtract(x, g.bitwise_and(shifted(x, 1), like(0x55)))
    fours = g.add(g.bitwise_and(pairs, like(0x33)), g.bitwise_and(shifted(pairs, 2), like(0x33)))
    eights = g.bitwise_and(g.add(fours, shifted(fours, 4)), like(0x0F))
    return shifted(g.multiply(eights, like(1)), bits - 8)


def _popcnt(use: Use) -> Sequence[Tensor]:
    return [_back(use, _ones(use, _as_unsigned(use, use.x)), use.dtype)]


def _count_leading_zeros(use: Use) -> Sequence[Tensor]:
    """Sets all bits after the first one that is set; the others are the leading zeros."""
    g, x = use.g, _as_unsigned(use, use.x)
    step, bits = 1, 8 * x.dtype.numpy.itemsize
    while step < bits:
        x = g.bitwise_or(x, g.shift_right(x, g.like(step, x)))
        step *= 2
    return [_back(use, _ones(use, g.bitwise_not(x)), use.dtype)]


def _bitcast_convert(use: Use) -> Sequence[Tensor]:
    if use.x.dtype.numpy.itemsize != use.dtype.numpy.itemsize or BOOL in (use.x.dtype, use.dtype):
        use.fail(f"converts {use.x.dtype} to {use.dtype}, which has another width")
    return [_back(use, use.x, use.dtype)]


def _round_away(use: Use) -> Sequence[Tensor]:
    """Rounds to the nearest whole number, and a half away from zero. `x - trunc(x)` is exact."""
    g, x = use.g, use.x
    whole = g.trunc(x)
    is_far = g.greater_equal(g.abs(g.subtract(x, whole)), g.like(0.5, x))
    return [g.where(is_far, g.add(whole, g.sign(x)), whole)]


def _reduce_precision(use: Use) -> Sequence[Tensor]:
    """Rounds to the nearest number with fewer bits of mantissa, ties to even. Numbers beyond the range of the exponent
    become infinite; numbers below it become zero."""
    g, x = use.g, use.x
    exponent, mantissa = use.integer("exponent_bits"), use.integer("mantissa_bits")
    if x.dtype not in _WORDS:
        use.fail(f"reduces {x.dtype}; f32 and f64 are supported", code="unsupported-dtype")
    word, most, whole = _WORDS[x.dtype]
    sign = 1 << (most + whole)
    bits = g.bitcast(x, dtype=word)
    rounded = bits
    if mantissa < whole:
        cut = whole - mantissa
        last = g.bitwise_and(g.shift_right(bits, g.like(cut, bits)), g.like(1, bits))
        moved = g.add(g.add(bits, g.like((1 << (cut - 1)) - 1, bits)), last)
        rounded = g.bitwise_and(moved, g.like((sign << 1) - (1 << cut), bits))
    result = g.bitcast(rounded, dtype=x.dtype)
    if exponent < most:
        bias, reduced = (1 << (most - 1)) - 1, (1 << (exponent - 1)) - 1
        size = g.bitwise_and(rounded, g.like(sign - 1, rounded))
        sign_only = g.bitwise_and(bits, g.like(sign, bits))
        infinite = g.bitwise_or(sign_only, g.like(((1 << most) - 1) << whole, bits))
        is_over = g.greater_equal(size, g.like((bias + reduced + 1) << whole, bits))
        is_under = g.less(size, g.like((bias - reduced + 1) << whole, bits))
        result = g.where(is_over, g.bitcast(infinite, dtype=x.dtype), result)
        result = g.where(is_under, g.bitcast(sign_only, dtype=x.dtype), result)
    return [g.where(g.isnan(x), x, result)]


_INFINITIES = {"chlo.is_inf": None, "chlo.is_pos_inf": 1, "chlo.is_neg_inf": -1}


def _is_infinite(use: Use) -> Sequence[Tensor]:
    g, x, side = use.g, use.x, _INFINITIES[use.record.name]
    if side is None:
        return [g.isinf(x)]
    return [g.equal(x, g.like(side * float("inf"), x))]


_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip
"""The polynomials of Giles, "Approximating the erfinv function" (2012), for single precision."""


def _erf_inv(use: Use) -> Sequence[Tensor]:
    """Returns x p(w) with w = -log(1 - x^2): p is a polynomial of w for w below 5, and one of sqrt(w) in the tails."""
    g, x = use.g, use.x
    if x.dtype == F64:
        use.fail("of f64 is not supported", code="unsupported-dtype")
    x = g.cast(x, dtype=F32)
    w = g.negate(g.log1p(g.negate(g.square(x))))
    is_central = g.less(w, g.like(5.0, w))
    centre, tail = g.subtract(w, g.like(2.5, w)), g.subtract(g.sqrt(w), g.like(3.0, w))
    found = [g.like(each[0], x) for each in (_CENTRE, _TAIL)]
    for a, b in zip(_CENTRE[1:], _TAIL[1:], strict=True):
        found = [g.add(g.multiply(p, v), g.like(c, x)) for p, v, c in zip(found, (centre, tail), (a, b), strict=True)]
    made = g.multiply(x, g.where(is_central, *found))
    edge = g.multiply(x, g.like(float("inf"), x))
    made = g.where(g.equal(g.abs(x), g.like(1.0, x)), edge, made)
    return [g.cast(made, dtype=use.dtype)]


CONVERTERS: Converters = {
    "bitcast_convert": _bitcast_convert,
    "count_leading_zeros": _count_leading_zeros,
    "popcnt": _popcnt,
    "shift_right_logical": _shift_right_logical,
    "round_nearest_afz": _round_away,
    "reduce_precision": _reduce_precision,
    "chlo.erf_inv": _erf_inv,
    **dict.fromkeys(_INFINITIES, _is_infinite),
}
