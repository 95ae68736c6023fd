"""Elementary functions of f32 as straight-line arithmetic, so that loops that call them become vector code.

Each is a `func.func private` on scalars that is always inlined; LLVM's loop vectoriser does the rest. No branch, no
table, no conversion that is undefined for NaN: special values come out as the reference has them. Coefficients are
least-maximum fits of the stated series on the stated interval. The error bound of each function, in units in the last
place, stands in `ULP`; a test measures it over all exponents.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

ULP = {"exp": 1.1, "log": 0.9, "tanh": 1.2, "erf": 1.2}
"""The largest error of each function against the exact result, for every f32 argument."""


def _bits(value: float) -> str:
    return f"0x{struct.unpack('<I', struct.pack('<f', value))[0]:08X}"


class _Scalars:
    """Lines of arithmetic on one f32; every value is named once."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def let(self, text: str) -> str:
        name = f"%s{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def number(self, value: float) -> str:
        return self.let(f"arith.constant {_bits(value)} : f32")

    def integer(self, value: int) -> str:
        return self.let(f"arith.constant {value} : i32")

    def add(self, x: str, y: str) -> str:
        return self.let(f"arith.addf {x}, {y} : f32")

    def subtract(self, x: str, y: str) -> str:
        return self.let(f"arith.subf {x}, {y} : f32")

    def multiply(self, x: str, y: str) -> str:
        return self.let(f"arith.mulf {x}, {y} : f32")

    def divide(self, x: str, y: str) -> str:
        return self.let(f"arith.divf {x}, {y} : f32")

    def fma(self, x: str, y: str, z: str) -> str:
        # The intrinsic itself: `math.fma` would be taken for a function of libm.
        return self.let(f"llvm.intr.fma({x}, {y}, {z}) : (f32, f32, f32) -> f32")

    def compare(self, predicate: str, x: str, y: str) -> str:
        return self.let(f"arith.cmpf {predicate}, {x}, {y} : f32")

    def select(self, condition: str, x: str, y: str, type: str = "f32") -> str:
        return self.let(f"arith.select {condition}, {x}, {y} : {type}")

    def as_float(self, bits: str) -> str:
        return self.let(f"arith.bitcast {bits} : i32 to f32")

    def as_bits(self, x: str) -> str:
        return self.let(f"arith.bitcast {x} : f32 to i32")

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """Horner's scheme; the constant comes first."""
        total = self.number(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, self.number(c))
        return total

    def magnitude(self, x: str) -> str:
        return self.as_float(self.let(f"arith.andi {self.as_bits(x)}, {self.integer(0x7FFFFFFF)} : i32"))

    def with_sign_of(self, x: str, sign: str) -> str:
        """`x`, which is not negative, with the sign bit of `sign`."""
        bit = self.let(f"arith.andi {self.as_bits(sign)}, {self.integer(-0x80000000)} : i32")
        return self.as_float(self.let(f"arith.ori {self.as_bits(x)}, {bit} : i32"))


_ROUND = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6


def _exp(s: _Scalars, x: str) -> str:
    # exp(x) = 2**n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. Beyond the clamp the result is 0 or infinity anyway.
    high, low = s.number(89.0), s.number(-105.0)
    x = s.select(s.compare("ogt", x, high), high, x)
    x = s.select(s.compare("olt", x, low), low, x)
    shifted = s.fma(x, s.number(1.4426950408889634), s.number(_ROUND))
    n = s.subtract(shifted, s.number(_ROUND))
    r = s.fma(n, s.number(-_LN2_HIGH), x)
    r = s.fma(n, s.number(-_LN2_LOW), r)
    tail = s.polynomial(r, [0.5, 0.166665181517601, 0.04166620597243309, 0.008368954062461853, 0.0013950599823147058])
    square = s.multiply(r, r)
    p = s.add(s.fma(tail, square, r), s.number(1.0))
    # 2**n in two factors, so that neither leaves the normal numbers where the product is denormal or overflows.
    count = s.let(f"arith.subi {s.as_bits(shifted)}, {s.integer(0x4B400000)} : i32")
    half = s.let(f"arith.shrsi {count}, {s.integer(1)} : i32")
    rest = s.let(f"arith.subi {count}, {half} : i32")
    for part in (half, rest):
        biased = s.let(f"arith.addi {part}, {s.integer(127)} : i32")
        p = s.multiply(p, s.as_float(s.let(f"arith.shli {biased}, {s.integer(23)} : i32")))
    return p


def _log(s: _Scalars, x: str) -> str:
    # log(2**e * (1 + m)) = e * ln 2 + log(1 + m), sqrt(1/2) <= 1 + m < sqrt(2). Denormals are scaled up first.
    tiny = s.compare("olt", x, s.number(2.0**-126))
    scaled = s.select(tiny, s.multiply(x, s.number(2.0**23)), x)
    correction = s.select(tiny, s.number(-23.0), s.number(0.0))
    bits = s.as_bits(scaled)
    offset = s.let(f"arith.subi {bits}, {s.integer(0x3F3504F3)} : i32")
    exponent = s.let(f"arith.shrsi {offset}, {s.integer(23)} : i32")
    moved = s.let(f"arith.shli {exponent}, {s.integer(23)} : i32")
    mantissa = s.as_float(s.let(f"arith.subi {bits}, {moved} : i32"))
    e = s.add(s.let(f"arith.sitofp {exponent} : i32 to f32"), correction)
    m = s.subtract(mantissa, s.number(1.0))
    tail = s.polynomial(
        m,
        [
            0.3333331346511841,
            -0.25000008940696716,
            0.2000211924314499,
            -0.1666799634695053,
            0.14219550788402557,
            -0.12405591458082199,
            0.11888174712657928,
            -0.11675640940666199,
            0.06746601313352585,
        ],
    )
    square = s.multiply(m, m)
    small = s.multiply(tail, s.multiply(square, m))
    small = s.fma(e, s.number(_LN2_LOW), small)
    small = s.fma(square, s.number(-0.5), small)
    result = s.fma(e, s.number(_LN2_HIGH), s.add(m, small))
    zero, infinity = s.number(0.0), s.number(float("inf"))
    result = s.select(s.compare("oeq", x, zero), s.number(float("-inf")), result)
    result = s.select(s.compare("oeq", x, infinity), infinity, result)
    # Negative or NaN: not ordered at or above zero.
    return s.select(s.compare("oge", x, zero), result, s.number(float("nan")))


def _tanh(s: _Scalars, x: str) -> str:
    # Near zero the odd series; elsewhere 1 - 2 / (exp(2|x|) + 1), which is 1 in f32 from 9.02 on.
    a = s.magnitude(x)
    square = s.multiply(x, x)
    series = s.polynomial(
        square,
        [
            -0.33333325386047363,
            0.13332995772361755,
            -0.053922124207019806,
            0.021575838327407837,
            -0.007892183028161526,
            0.0019017993472516537,
        ],
    )
    near = s.fma(s.multiply(series, square), a, a)
    grown = _exp(s, s.add(a, a))
    far = s.subtract(s.number(1.0), s.divide(s.number(2.0), s.add(grown, s.number(1.0))))
    return s.with_sign_of(s.select(s.compare("olt", a, s.number(0.7)), near, far), x)


def _erf(s: _Scalars, x: str) -> str:
    # Near zero the odd series; elsewhere 1 - exp(-q(|x|)) with q = -log(erfc), which is 1 in f32 from 3.92 on.
    a = s.magnitude(x)
    square = s.multiply(x, x)
    series = s.polynomial(
        square,
        [
            0.12837916612625122,
            -0.3761262595653534,
            0.11283600330352783,
            -0.026854444295167923,
            0.005189535208046436,
            -0.0008020841050893068,
            7.889119297033176e-05,
        ],
    )
    near = s.fma(series, a, a)
    limit = s.number(4.0)
    bounded = s.select(s.compare("ogt", a, limit), limit, a)
    q = s.polynomial(
        bounded,
        [
            -0.00018344422278460115,
            1.1295567750930786,
            0.6332626342773438,
            0.10837247967720032,
            -0.025178968906402588,
            0.004193611443042755,
            -0.0004391064285300672,
            2.149611827917397e-05,
        ],
    )
    far = s.subtract(s.number(1.0), _exp(s, s.subtract(s.number(0.0), q)))
    return s.with_sign_of(s.select(s.compare("olt", a, s.number(0.97)), near, far), x)


_FUNCTIONS: dict[str, Callable[[_Scalars, str], str]] = {"exp": _exp, "log": _log, "tanh": _tanh, "erf": _erf}


def function_name(name: str) -> str:
    return f"nacre_{name}_f32"


def emit_function(name: str) -> str:
    """The text of `@nacre_<name>_f32(%x: f32) -> f32`."""
    s = _Scalars()
    result = _FUNCTIONS[name](s, "%x")
    lines = "\n".join(s.lines)
    return f"func.func private @{function_name(name)}(%x: f32) -> f32 {{\n{lines}\n  return {result} : f32\n}}\n"


FUNCTIONS = tuple(_FUNCTIONS)
