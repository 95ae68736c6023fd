"""Special functions as expressions of elementary ones, computed in f64.

Results in f32 and shorter dtypes are the f64 ones, rounded. In f64, the error is below 1e-14 of the result, or of 1 if
the result is smaller: the logarithm of the gamma function passes through 0 at 1 and 2, and the digamma function near
1.46.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .....dialect.types import F64
from ...writing.tensors import Tensor, known
from ..writing.use import Convert, Converters, Use

_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip
"""The coefficients of Lanczos' series for g = 7, https://doi.org/10.1137/0701008."""
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)
"""The Bernoulli numbers B(2 k) / (2 k) of the asymptotic series."""
_SHIFT = 10
"""The series is summed at x + 10, where its last term is below 1e-15."""


def _in_f64(function: Callable[[Use, Tensor], Tensor]) -> Convert:
    return lambda use: [use.to(function(use, use.cast("self", F64)), use.dtype)]


def _number(value: float) -> Tensor:
    return known(value, F64)


def _sum_of_fractions(use: Use, x: Tensor, weights: Sequence[float]) -> Tensor:
    """Returns the sum of weights[k] / (x + k)."""
    g = use.g
    terms = [g.divide(_number(weight), g.add(x, _number(k))) for k, weight in enumerate(weights)]
    total = terms[0]
    for term in terms[1:]:
        total = g.add(total, term)
    return total


def _log_gamma(use: Use, x: Tensor) -> Tensor:
    g = use.g
    reflected = g.less(x, _number(0.5))
    y = g.where(reflected, g.subtract(_number(1.0), x), x)
    t = g.add(y, _number(6.5))
    series = g.add(_number(_LANCZOS[0]), _sum_of_fractions(use, y, _LANCZOS[1:]))
    power = g.multiply(g.subtract(y, _number(0.5)), g.subtract(g.log(t), _number(1.0)))
    found = g.add(power, g.add(g.log(series), _number(0.5 * math.log(2 * math.pi) - 7.0)))
    # gamma(x) gamma(1 - x) = pi / sin(pi x); the sine of the distance to the nearest integer is exact at poles.
    sine = g.abs(g.sin(g.multiply(_number(math.pi), g.subtract(x, g.round(x)))))
    mirrored = g.subtract(g.subtract(_number(math.log(math.pi)), g.log(sine)), found)
    infinite = g.equal(g.abs(x), _number(math.inf))
    return g.where(infinite, g.abs(x), g.where(reflected, mirrored, found))


def _digamma(use: Use, x: Tensor) -> Tensor:
    g = use.g
    reflected = g.less(x, _number(0.5))
    y = g.where(reflected, g.subtract(_number(1.0), x), x)
    far = g.add(y, _number(float(_SHIFT)))
    inverse = g.reciprocal(far)
    square = g.multiply(inverse, inverse)
    series = _number(_DIGAMMA[-1])
    for coefficient in _DIGAMMA[-2::-1]:
        series = g.add(g.multiply(series, square), _number(coefficient))
    found = g.subtract(g.log(far), g.add(g.multiply(_number(0.5), inverse), g.multiply(series, square)))
    found = g.subtract(found, _sum_of_fractions(use, y, [1.0] * _SHIFT))
    tangent = g.tan(g.multiply(_number(math.pi), g.subtract(x, g.round(x))))
    # At 0, the quotient is infinite and has the sign of the zero.
    slope = g.divide(_number(math.pi), g.where(g.equal(x, _number(0.0)), x, tangent))
    mirrored = g.subtract(found, slope)
    is_pole = g.logical_and(g.less(x, _number(0.0)), g.equal(x, g.floor(x)))
    return g.where(is_pole, _number(math.nan), g.where(reflected, mirrored, found))


def _inverse_error_function(use: Use, x: Tensor) -> Tensor:
    """Begins with Winitzki's approximation, which is right within 0.2 %, and corrects it by three steps of Halley. A
    step cubes the error."""
    g = use.g
    a, one = g.abs(x), _number(1.0)
    rest = g.subtract(one, a)
    log = g.add(g.log1p(g.negate(a)), g.log1p(a))
    middle = g.add(_number(2 / (math.pi * 0.147)), g.multiply(_number(0.5), log))
    scaled = g.divide(log, _number(0.147))
    root = g.sqrt(g.subtract(g.multiply(middle, middle), scaled))
    y = g.sqrt(g.divide(g.negate(scaled), g.add(root, middle)))
    for _ in range(3):
        residual = g.where(g.less(a, _number(0.5)), g.subtract(g.erf(y), a), g.subtract(rest, g.erfc(y)))
        density = g.multiply(_number(2 / math.sqrt(math.pi)), g.exp(g.negate(g.multiply(y, y))))
        step = g.divide(residual, density)
        y = g.subtract(y, g.divide(step, g.add(one, g.multiply(y, step))))
    y = g.where(g.equal(a, one), _number(math.inf), y)
    return g.where(g.less(x, _number(0.0)), g.negate(y), g.where(g.equal(x, _number(0.0)), x, y))


CONVERTERS: Converters = {
    "digamma.default": _in_f64(_digamma),
    "erfinv.default": _in_f64(_inverse_error_function),
    "lgamma.default": _in_f64(_log_gamma),
}
