"""Floats of 8 bits as MLIR text: 8-bit integers that are decoded to f32, and that f32 is rounded to.

The conversions are integer arithmetic, the same for all formats, and vectorise like any other code; MLIR's own types
for them would become calls, or longer code. There are no branches, and the CPU's handling of denormal numbers in f32
does not matter.

The f8e4m3 number 1.0 is decoded through an f16, whose fraction is 7 bits longer and whose bias is larger by 8:

    f8e4m3    0 0111 000             bits 0x38: exponent 7, bias 7
    f16       0 00111 0000000000     the bits shifted left by 7: exponent 7, bias 15, so 2^-8
    f32       2^-8 * 2^8 == 1.0
"""

from __future__ import annotations

from ...dialect.types import BOOL, F16, F32, I8, I16, I32, DType
from .statements import Element, Statements

_FRACTION = F16.float_format.fraction
_WIDE = F32.float_format


def decode(s: Statements, x: Element) -> Element:
    """Returns the number in f32, exactly.

    Shifted so that the first bits of both fractions align, the value is an f16 with another bias, denormal numbers
    included; the instructions that widen f16 handle them at full speed.
    """
    format = x.dtype.float_format
    shift = _FRACTION - format.fraction
    bits = s.op("arith.shli", s.convert("arith.extsi", Element(x.name, I8), I16), s.constant(shift, I16))
    if shift < 8:
        # The sign occupies the exponent's first bits too.
        bits = s.op("arith.andi", bits, s.constant(-(1 << 15) | ((1 << (7 + shift)) - 1), I16))
    if format.finite:
        # One more than all ones carries into a bit that makes the f16 NaN. A select on floats would work too, but it
        # takes as many steps, and would be moved to the multiplications, which run more often.
        carried = s.op("arith.addi", bits, s.constant(1 << shift, I16))
        is_nan = s.op("arith.andi", carried, s.constant(1 << (7 + shift), I16))
        bits = s.op("arith.ori", bits, is_nan)
    number = s.convert("arith.extf", s.convert("arith.bitcast", bits, F16), F32)
    if format.bias == F16.float_format.bias:
        return number
    return s.op("arith.mulf", number, s.constant(2.0 ** (F16.float_format.bias - format.bias), F32))


def encode(s: Statements, x: Element, dtype: DType) -> Element:
    """Rounds an f32 to the nearest number, halves to even; saturates at the greatest number, and keeps NaN."""
    assert x.dtype is F32, x
    format = dtype.float_format
    bits = s.convert("arith.bitcast", x, I32)
    magnitude = s.op("math.absf", x)
    # Comparisons with NaN are false, so NaN passes both selections below.
    outside = s.op("arith.cmpf ogt,", magnitude, s.constant(format.largest, F32), dtype=BOOL)
    inside = s.select(outside, s.constant(format.largest, F32), magnitude)
    code = s.select(
        s.compare("lt", magnitude, s.constant(2.0 ** (1 - format.bias), F32)),
        _denormal(s, inside, dtype),
        _normal(s, inside, dtype),
    )
    is_nan = s.op("arith.cmpf uno,", x, x, dtype=BOOL)
    code = s.select(is_nan, s.constant(127, I32), code)
    sign = s.op("arith.andi", s.op("arith.shrui", bits, s.constant(24, I32)), s.constant(128, I32))
    return Element(s.convert("arith.trunci", s.op("arith.ori", code, sign), I8).name, dtype)


def _normal(s: Statements, x: Element, dtype: DType) -> Element:
    """Encodes a positive number that is not below the least normal one: the dropped bits are rounded in the integer,
    with a carry into the exponent."""
    format = dtype.float_format
    shift = _WIDE.fraction - format.fraction
    bits = s.convert("arith.bitcast", x, I32)
    odd = s.op("arith.andi", s.op("arith.shrui", bits, s.constant(shift, I32)), s.constant(1, I32))
    # Less than half, or exactly half where the lowest kept bit is odd: together with that bit, this carries.
    half = s.constant((1 << (shift - 1)) - 1 - ((_WIDE.bias - format.bias) << _WIDE.fraction), I32)
    return s.op("arith.shrui", s.op("arith.addi", s.op("arith.addi", bits, odd), half), s.constant(shift, I32))


def _denormal(s: Statements, x: Element, dtype: DType) -> Element:
    """Encodes a smaller number as a multiple of the least one: the addition of a large number with steps of this size
    rounds to them."""
    format = dtype.float_format
    large = s.constant(2.0 ** (1 - format.bias - format.fraction + _WIDE.fraction), F32)
    total = s.convert("arith.bitcast", s.op("arith.addf", x, large), I32)
    return s.op("arith.subi", total, s.convert("arith.bitcast", large, I32))
