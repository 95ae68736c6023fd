"""Softmax and normalization along the last axis.

Softmax of quantized values follows gemmlowp. Differences to the maximum have only 256 values, so a table gives their
exponentials as 31-bit fractions. The sum of exponentials has 12 integer bits; three steps of Newton's method compute
its reciprocal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .....dialect.types import F64, I8, I32, I64, U8
from ...writing.tensors import Elements, Tensor, known
from ..writing.fixed_point import encode_factor
from ..writing.use import Converters, Use
from .activations import divided, multiplied
from .unary import function

_ONE = (1 << 31) - 1
_DIFFERENCE_BITS, _SUM_BITS = 5, 12
_STEPS = (
    (-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242),
)  # fmt: skip
"""Powers of two, and exp of their negation as a 31-bit fraction."""


def _product(x: int, y: int) -> int:
    return multiplied(x, (y, 0))


def _exp(x: int) -> int:
    """Returns exp of a number that is not positive, with 5 integer bits, as a 31-bit fraction."""
    if x == 0:
        return _ONE
    quarter = 1 << (31 - _DIFFERENCE_BITS - 2)
    rest = (x & (quarter - 1)) - quarter
    # exp(-1/8) * (1 + a + a**2 / 2 + a**3 / 6 + a**4 / 24) where a - 1/8 is the rest
    a = (rest << _DIFFERENCE_BITS) + (1 << 28)
    square = _product(a, a)
    cube, fourth = _product(square, a), divided(_product(square, square), 2)
    tail = divided(_product(fourth + cube, 715827883) + square, 1)
    result = 1895147668 + _product(1895147668, a + tail)
    whole = rest - x
    for power, factor in _STEPS:
        if whole & (1 << (31 - _DIFFERENCE_BITS + power)):
            result = _product(result, factor)
    return result


def _exponentials(scale: float, beta: float) -> Elements:
    """Returns exp(beta * scale * difference) for differences from -255 to 0; 0 below the least one that has bits."""
    factor = min(beta * scale * (1 << (31 - _DIFFERENCE_BITS)), float(_ONE))
    multiplier, shift = encode_factor(factor)
    radius = math.floor(((1 << _DIFFERENCE_BITS) - 1) * (1 << (31 - _DIFFERENCE_BITS)) / (1 << max(shift, 0)))
    made = [0 if -d > radius else _exp(multiplied(d, (multiplier, shift))) for d in range(-255, 1)]
    return np.asarray(made, np.int32)


def _softmax(use: Use) -> Sequence[Tensor]:
    x, g, beta = use.input(), use.g, float(use.number("beta"))
    if not x.rank:
        use.fail("takes a scalar", code="unsupported-rank")
    if not use.is_quantized:
        return [g.softmax(x if beta == 1 else g.multiply(x, g.like(beta, x)), axis=-1)]
    if x.dtype not in (I8, U8) or use.dtype != x.dtype:
        use.fail(f"takes quantized {x.dtype} to {use.dtype}; i8 and u8 are supported", code="unsupported-dtype")
    to = use.quantized_result
    if to.zero != use.dtype.integer_range[0] or not math.isclose(float(to.scale), 1 / 256, rel_tol=1e-3):
        use.fail("has a result whose scale is not 1/256", code="unsupported-attribute")
    table = _exponentials(float(use.quantized(0).scale), beta)
    summands = np.asarray([divided(int(each), _SUM_BITS) for each in table], np.int32)
    wide = g.cast(x, dtype=I32)
    position = g.add(g.subtract(wide, g.max(wide, axis=-1, keepdims=True)), known(np.int32(255)))
    total = g.sum(g.gather(known(summands, label="softmax.sums"), position, mode="clamp"), axis=-1, keepdims=True)
    # The leading bit of the sum, from the exponent of a float.
    exponent = g.shift_right(g.bitcast(g.cast(total, dtype=F64), dtype=I64), known(np.int64(52)))
    room = g.subtract(known(np.int64(1023 + 31)), exponent)
    fraction = g.subtract(g.shift_left(g.cast(total, dtype=I64), room), known(np.int64(1 << 31)))
    reciprocal = _reciprocal(use, fraction)
    bits = g.cast(g.subtract(room, known(np.int64(_SUM_BITS + 31 - 8))), dtype=I32)
    share = g.fixed_point_multiply(
        g.gather(known(table, label="softmax.exp"), position, mode="clamp"), reciprocal, bits
    )
    low, high = use.dtype.integer_range
    return [g.cast(g.clip(g.add(share, known(np.int32(low))), low=low, high=high), dtype=use.dtype)]


def _reciprocal(use: Use, x: Tensor) -> Tensor:
    """Returns 1 / (1 + x) as a 31-bit fraction, x a fraction in 0..1 in i64."""
    g = use.g
    none = known(np.int32(0))

    def product(a: Tensor, b: Tensor) -> Tensor:
        return g.fixed_point_multiply(a, b, none)

    def raised(a: Tensor, bits: int) -> Tensor:
        wide = g.shift_left(g.cast(a, dtype=I64), known(np.int64(bits)))
        return g.cast(g.clip(wide, low=-(1 << 31), high=_ONE), dtype=I32)

    half = g.cast(g.shift_right(g.add(x, known(np.int64(1 << 31))), known(np.int64(1))), dtype=I32)
    # 48/17 - 32/17 * half, with 2 integer bits
    y = g.add(product(half, known(np.int32(-1010580540))), known(np.int32(1515870810)))
    for _ in range(3):
        y = g.add(y, raised(product(y, g.subtract(known(np.int32(1 << 29)), product(half, y))), 2))
    return raised(y, 1)


def _l2_normalization(use: Use) -> Sequence[Tensor]:
    if use.is_quantized:
        use.fail("takes quantized values, which is not supported", code="unsupported-dtype")
    x, g = use.input(), use.g
    total = g.sum(g.square(x), axis=-1, keepdims=True)
    return [use.activated(g.divide(x, g.maximum(g.sqrt(total), g.like(1e-6, x))))]


def _local_response(use: Use) -> Sequence[Tensor]:
    x, g, radius = use.input(), use.g, use.integer("radius")
    if use.is_quantized or x.rank != 4 or not 0 <= radius <= 1024:
        use.fail("takes quantized values, another rank than 4, or a radius out of range")
    squares = g.pad(g.square(x), widths=((0, 0),) * 3 + ((radius, radius),))
    size = x.shape[3]
    total = None
    for first in range(2 * radius + 1):
        part = g.slice(squares, starts=(None,) * 3 + (first,), stops=(None,) * 3 + (first + size,))
        total = part if total is None else g.add(total, part)
    assert total is not None
    base = g.add(g.multiply(total, g.like(use.number("alpha"), x)), g.like(use.number("bias"), x))
    return [g.divide(x, g.power(base, g.like(use.number("beta"), x)))]


CONVERTERS: Converters = {
    "SOFTMAX": _softmax,
    "LOG_SOFTMAX": function("log_softmax"),
    "L2_NORMALIZATION": _l2_normalization,
    "LOCAL_RESPONSE_NORMALIZATION": _local_response,
}
