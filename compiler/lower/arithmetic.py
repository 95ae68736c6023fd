"""Semantics of the emitter protocol's scalar functions, per kind of dtype: two tables of formulas.

Floats here are f32 and f64 only. Functions that a formula names (`math.exp`) are approximate: they are the tiler's, or
the C library's where the tiler has none. The others are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...dialect.types import BOOL, F32, I32, I64, Kind
from .statements import Element, Statements

Unary = Callable[[Statements, Element], Element]
Binary = Callable[[Statements, Element, Element], Element]
BOOLEAN, SIGNED, UNSIGNED, FLOAT = Kind.BOOL, Kind.SIGNED, Kind.UNSIGNED, Kind.FLOAT
WHOLE = (SIGNED, UNSIGNED)

PREDICATES = frozenset({"isnan", "isinf", "isfinite"})
"""Unary functions whose result is bool."""


def _plain(name: str) -> Unary:
    return lambda s, x: s.op(name, x)


def _plain2(name: str) -> Binary:
    return lambda s, x, y: s.op(name, x, y)


def _same(s: Statements, x: Element) -> Element:
    return x


def _zero(s: Statements, x: Element) -> Element:
    return s.constant(0, x.dtype)


def _one(s: Statements, x: Element) -> Element:
    return s.constant(1, x.dtype)


def _infinity(s: Statements, x: Element) -> Element:
    return s.constant(float("inf"), x.dtype)


# Unary


def _negate_integer(s: Statements, x: Element) -> Element:
    return s.op("arith.subi", _zero(s, x), x)


def _abs_signed(s: Statements, x: Element) -> Element:
    # The least integer has no counterpart and stays itself.
    return s.select(s.compare("lt", x, _zero(s, x)), _negate_integer(s, x), x)


def _sign_float(s: Statements, x: Element) -> Element:
    # Comparisons with NaN are false, so NaN stays; both zeros become +0.
    zero = _zero(s, x)
    at_most = s.select(s.compare("lt", x, zero), s.constant(-1, x.dtype), s.select(s.compare("eq", x, zero), zero, x))
    return s.select(s.compare("gt", x, zero), _one(s, x), at_most)


def _sign_signed(s: Statements, x: Element) -> Element:
    zero = _zero(s, x)
    at_most = s.select(s.compare("lt", x, zero), s.constant(-1, x.dtype), zero)
    return s.select(s.compare("gt", x, zero), _one(s, x), at_most)


def _sign_unsigned(s: Statements, x: Element) -> Element:
    return s.select(s.compare("ne", x, _zero(s, x)), _one(s, x), _zero(s, x))


def _reciprocal_root(s: Statements, x: Element) -> Element:
    return s.op("arith.divf", _one(s, x), s.op("math.sqrt", x))


def _not_integer(s: Statements, x: Element) -> Element:
    return s.op("arith.xori", x, s.constant(-1, x.dtype))


def _not_bool(s: Statements, x: Element) -> Element:
    return s.op("arith.xori", x, s.constant(True, BOOL))


def _is_nan(s: Statements, x: Element) -> Element:
    return s.op("arith.cmpf uno,", x, x, dtype=BOOL)


def _is_infinite(s: Statements, x: Element) -> Element:
    return s.compare("eq", s.op("math.absf", x), _infinity(s, x))


def _is_finite(s: Statements, x: Element) -> Element:
    return s.compare("lt", s.op("math.absf", x), _infinity(s, x))


_LIBRARY = (
    "cbrt exp exp2 expm1 log log2 log1p log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc"
)

UNARY: Mapping[tuple[Kind, str], Unary] = {
    **{(FLOAT, name): _plain(f"math.{name}") for name in _LIBRARY.split()},
    **{(FLOAT, name): _plain(f"math.{name}") for name in ("ceil", "floor", "trunc", "sqrt")},
    **{(kind, name): _same for kind in WHOLE for name in ("ceil", "floor", "round", "trunc")},
    **{(kind, "neg"): _negate_integer for kind in WHOLE},
    **{(kind, "not"): _not_integer for kind in WHOLE},
    (FLOAT, "round"): _plain("math.roundeven"),
    (FLOAT, "neg"): _plain("arith.negf"),
    (FLOAT, "abs"): _plain("math.absf"),
    (FLOAT, "sign"): _sign_float,
    (FLOAT, "rsqrt"): _reciprocal_root,
    (FLOAT, "isnan"): _is_nan,
    (FLOAT, "isinf"): _is_infinite,
    (FLOAT, "isfinite"): _is_finite,
    (SIGNED, "abs"): _abs_signed,
    (UNSIGNED, "abs"): _same,
    (SIGNED, "sign"): _sign_signed,
    (UNSIGNED, "sign"): _sign_unsigned,
    (BOOLEAN, "not"): _not_bool,
}


# Binary


def _divide_signed(s: Statements, x: Element, y: Element) -> Element:
    """Divides with truncation; x / 0 is 0, and the least integer / -1 wraps to itself: neither may reach the hardware's
    division."""
    is_zero, is_minus = s.compare("eq", y, _zero(s, y)), s.compare("eq", y, s.constant(-1, y.dtype))
    safe = s.select(s.op("arith.ori", is_zero, is_minus), _one(s, y), y)
    quotient = s.select(is_minus, _negate_integer(s, x), s.op("arith.divsi", x, safe))
    return s.select(is_zero, _zero(s, x), quotient)


def _divide_unsigned(s: Statements, x: Element, y: Element) -> Element:
    is_zero = s.compare("eq", y, _zero(s, y))
    return s.select(is_zero, _zero(s, x), s.op("arith.divui", x, s.select(is_zero, _one(s, y), y)))


def _remainder_of(divide: Binary) -> Binary:
    def remainder(s: Statements, x: Element, y: Element) -> Element:
        rest = s.op("arith.subi", x, s.op("arith.muli", divide(s, x, y), y))
        return s.select(s.compare("eq", y, _zero(s, y)), _zero(s, x), rest)

    return remainder


_remainder_signed = _remainder_of(_divide_signed)


def _needs_step(s: Statements, rest: Element, y: Element) -> Element:
    """Returns whether rounding down differs from truncating: there is a remainder with the sign opposite to the
    divisor."""
    zero = _zero(s, y)
    differs = s.op("arith.xori", s.compare("lt", rest, zero), s.compare("lt", y, zero))
    return s.op("arith.andi", s.compare("ne", rest, zero), differs)


def _floor_divide_signed(s: Statements, x: Element, y: Element) -> Element:
    quotient = _divide_signed(s, x, y)
    step = _needs_step(s, _remainder_signed(s, x, y), y)
    return s.select(step, s.op("arith.subi", quotient, _one(s, x)), quotient)


def _modulo_signed(s: Statements, x: Element, y: Element) -> Element:
    rest = _remainder_signed(s, x, y)
    return s.select(_needs_step(s, rest, y), s.op("arith.addi", rest, y), rest)


def _zero_with_sign(s: Statements, x: Element) -> Element:
    word = I32 if x.dtype == F32 else I64
    sign = s.op("arith.andi", s.convert("arith.bitcast", x, word), s.constant(-(1 << (word.bits - 1)), word))
    return s.convert("arith.bitcast", sign, x.dtype)


def _modulo_float(s: Statements, x: Element, y: Element) -> Element:
    rest = s.op("arith.remf", x, y)
    signed_zero = _zero_with_sign(s, y)
    moved = s.select(_needs_step(s, rest, y), s.op("arith.addf", rest, y), rest)
    return s.select(s.compare("eq", rest, _zero(s, y)), signed_zero, moved)


def _floor_divide_float(s: Statements, x: Element, y: Element) -> Element:
    """Returns (x - mod(x, y)) / y, an integer up to rounding, which is then rounded to the nearest integer.

    The result is x / y where y is 0; a zero has the sign of x / y.
    """
    true_quotient = s.op("arith.divf", x, y)
    rest = s.op("arith.remf", x, y)
    near = s.op("arith.divf", s.op("arith.subf", x, rest), y)
    near = s.select(_needs_step(s, rest, y), s.op("arith.subf", near, _one(s, x)), near)
    whole = s.op("math.floor", near)
    above = s.compare("gt", s.op("arith.subf", near, whole), s.constant(0.5, x.dtype))
    whole = s.select(above, s.op("arith.addf", whole, _one(s, x)), whole)
    signed_zero = _zero_with_sign(s, true_quotient)
    whole = s.select(s.compare("eq", near, _zero(s, x)), signed_zero, whole)
    return s.select(s.compare("eq", y, _zero(s, y)), true_quotient, whole)


def _power_unsigned(s: Statements, x: Element, y: Element) -> Element:
    """Computes the power modulo 2^n for elements of n bits, with squarings for the low bits of the exponent only.

    The exponent is n * m + low. For odd x and n = 2^k, b = x^n is 1 modulo 2^(k + 2), so that few terms of the binomial
    series of b^m = (1 + (b - 1))^m are not 0 modulo 2^n:

        b^m = 1 + (b - 1) m (1 + (b - 1) (m - 1) / 2 (1 + (b - 1) (m - 2) / 3 (1 + ...)))

    A division by j shifts b - 1 by the powers of 2 in j, and multiplies by the inverse of its odd part. The bits that
    the shift loses are beyond n bits after the product with the factors in front. For even x, b is 0.
    """
    bits = x.dtype.bits
    low_bits = bits.bit_length() - 1
    zero, one = _zero(s, x), _one(s, x)
    result, base, rest = one, x, y
    for _ in range(low_bits):
        odd = s.compare("ne", s.op("arith.andi", rest, one), zero)
        result = s.select(odd, s.op("arith.muli", result, base), result)
        base = s.op("arith.muli", base, base)
        rest = s.op("arith.shrui", rest, one)
    above, series = s.op("arith.subi", base, one), one
    for j in reversed(range(1, -(-bits // (low_bits + 2)))):
        shift = (j & -j).bit_length() - 1
        factor = s.op("arith.shrui", above, s.constant(shift, x.dtype)) if shift else above
        if j >> shift > 1:
            factor = s.op("arith.muli", factor, s.constant(pow(j >> shift, -1, 1 << bits), x.dtype))
        times = s.op("arith.subi", rest, s.constant(j - 1, x.dtype)) if j > 1 else rest
        series = s.op("arith.addi", s.op("arith.muli", s.op("arith.muli", factor, times), series), one)
    is_odd = s.compare("ne", s.op("arith.andi", x, one), zero)
    whole = s.select(is_odd, series, s.select(s.compare("eq", rest, zero), one, zero))
    return s.op("arith.muli", result, whole)


def _power_signed(s: Statements, x: Element, y: Element) -> Element:
    """Computes the power; a negative exponent gives the truncated reciprocal: 1 for 1, 1 or -1 for -1, else 0."""
    zero, one, minus = _zero(s, x), _one(s, x), s.constant(-1, x.dtype)
    is_odd = s.compare("ne", s.op("arith.andi", y, one), zero)
    of_minus = s.select(s.compare("eq", x, minus), s.select(is_odd, minus, one), zero)
    reciprocal = s.select(s.compare("eq", x, one), one, of_minus)
    return s.select(s.compare("lt", y, zero), reciprocal, _power_unsigned(s, x, y))


def _shift(name: str, past: Binary) -> Binary:
    """Returns a shift with any count; `past` gives the result for a count of the width or more."""

    def shift(s: Statements, x: Element, y: Element) -> Element:
        # In an unsigned comparison, a negative count is a large one.
        inside = s.op("arith.cmpi ult,", y, s.constant(x.dtype.bits, y.dtype), dtype=BOOL)
        return s.select(inside, s.op(name, x, s.select(inside, y, _zero(s, y))), past(s, x, y))

    return shift


def _no_bits(s: Statements, x: Element, y: Element) -> Element:
    return _zero(s, x)


def _sign_bits(s: Statements, x: Element, y: Element) -> Element:
    return s.select(s.compare("lt", x, _zero(s, x)), s.constant(-1, x.dtype), _zero(s, x))


BINARY: Mapping[tuple[Kind, str], Binary] = {
    **{(FLOAT, name): _plain2(f"arith.{name}f") for name in ("add", "sub", "mul", "div")},
    **{(kind, name): _plain2(f"arith.{name}i") for kind in WHOLE for name in ("add", "sub", "mul")},
    **{(kind, name): _plain2(f"arith.{name}i") for kind in (BOOLEAN, *WHOLE) for name in ("and", "or", "xor")},
    # NaN if either operand is; +0 is larger than -0.
    (FLOAT, "max"): _plain2("arith.maximumf"),
    (FLOAT, "min"): _plain2("arith.minimumf"),
    (SIGNED, "max"): _plain2("arith.maxsi"),
    (SIGNED, "min"): _plain2("arith.minsi"),
    (UNSIGNED, "max"): _plain2("arith.maxui"),
    (UNSIGNED, "min"): _plain2("arith.minui"),
    (BOOLEAN, "max"): _plain2("arith.ori"),
    (BOOLEAN, "min"): _plain2("arith.andi"),
    (FLOAT, "pow"): _plain2("math.powf"),
    (FLOAT, "atan2"): _plain2("math.atan2"),
    (FLOAT, "rem"): _plain2("arith.remf"),
    (FLOAT, "mod"): _modulo_float,
    (FLOAT, "floordiv"): _floor_divide_float,
    (SIGNED, "div"): _divide_signed,
    (UNSIGNED, "div"): _divide_unsigned,
    (SIGNED, "floordiv"): _floor_divide_signed,
    (UNSIGNED, "floordiv"): _divide_unsigned,
    (SIGNED, "rem"): _remainder_signed,
    (UNSIGNED, "rem"): _remainder_of(_divide_unsigned),
    (SIGNED, "mod"): _modulo_signed,
    (UNSIGNED, "mod"): _remainder_of(_divide_unsigned),
    (SIGNED, "pow"): _power_signed,
    (UNSIGNED, "pow"): _power_unsigned,
    **{(kind, "shl"): _shift("arith.shli", _no_bits) for kind in WHOLE},
    (SIGNED, "shr"): _shift("arith.shrsi", _sign_bits),
    (UNSIGNED, "shr"): _shift("arith.shrui", _no_bits),
}
