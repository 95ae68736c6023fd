"""`random_bits`, `random_uniform` and `random_normal`: counter-based random numbers.

Each element is a function of the seed and of its index alone, so the numbers are the same for any number of threads,
any order of evaluation and any target. The generator is Squares (Widynski, 2020, https://arxiv.org/abs/2004.06278):
four rounds of squaring in 64 bits. Its key is the seed, mixed by SplitMix64, so that similar seeds give unrelated
numbers.

    x = index * key;  y = x;  z = y + key
    x = rotate(x * x + y);  x = rotate(x * x + z);  x = rotate(x * x + y);  bits = (x * x + z) >> 32

A uniform number is the 24 highest bits (f64: 53 of two outputs) times the spacing, in [0, 1). A normal number is
`sqrt(-2 * log(1 - u)) * cos(2 * pi * v)` (Box-Muller) of two uniform ones.
"""

from __future__ import annotations

import math

from ....dialect.diagnostics import Span
from ....dialect.dims import Size, multiply
from ....dialect.graph import Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import F32, F64, I64, U32, U64, DType
from .context import Context
from .nodes import Maker, demand_shape
from .values import ERROR, AnyValue, Frame, Given, Poison, contains_error, describe

MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15
MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""The constants of SplitMix64 (https://prng.di.unimi.it/splitmix64.c)."""


def random_bits(context: Context, frame: Frame, bound: dict[str, Given], span: Span) -> AnyValue:
    """Returns u32 numbers of 32 random bits."""
    source = _source(context, frame, bound, span, "random_bits")
    return ERROR if source is ERROR else source.shaped(source.bits(0, 1))


def random_uniform(context: Context, frame: Frame, bound: dict[str, Given], span: Span) -> AnyValue:
    """Returns floats that are uniform in [0, 1)."""
    source, dtype = _source(context, frame, bound, span, "random_uniform"), _dtype(context, bound, "random_uniform")
    if source is ERROR or dtype is ERROR:
        return ERROR
    return source.shaped(source.uniform(dtype, 0, 1))


def random_normal(context: Context, frame: Frame, bound: dict[str, Given], span: Span) -> AnyValue:
    """Returns floats of the normal distribution with mean 0 and variance 1."""
    source, dtype = _source(context, frame, bound, span, "random_normal"), _dtype(context, bound, "random_normal")
    if source is ERROR or dtype is ERROR:
        return ERROR
    wide = F64 if dtype == F64 else F32
    make, u, v = source.make, source.uniform(wide, 0, 2), source.uniform(wide, 1, 2)
    radius = make("sqrt", make("multiply", make("log1p", make("negate", u)), make.number(-2.0, wide)))
    value = make("multiply", radius, make("cos", make("multiply", v, make.number(2 * math.pi, wide))))
    return source.shaped(make.cast(value, dtype))


def _dtype(context: Context, bound: dict[str, Given], name: str) -> DType | Poison:
    given = bound.get("dtype")
    if given is None:
        return F32
    if isinstance(given.value, DType) and given.value.is_float and not given.value.is_storage:
        return given.value
    if given.value is ERROR:
        return ERROR
    message = f"`dtype` of `{name}` must be a float dtype, not {describe(given.value)}"
    return context.reporter.error("bad-attribute", message, given.span)


def _source(context: Context, frame: Frame, bound: dict[str, Given], span: Span, name: str) -> Source | Poison:
    """Returns the numbers of a call: its shape, and the key of its seed."""
    if contains_error(bound["shape"].value) or bound["seed"].value is ERROR:
        return ERROR
    shape = demand_shape(context, bound["shape"])
    return ERROR if shape is ERROR else read_source(context, frame, bound["seed"], shape, span, name)


def read_source(
    context: Context, frame: Frame, seed: Given, shape: tuple[Size, ...], span: Span, name: str
) -> Source | Poison:
    """Returns the numbers of a shape, for a seed that is an integer or an integer scalar."""
    if seed.value is ERROR:
        return ERROR
    make = Maker(context, frame, span)
    if isinstance(seed.value, int) and not isinstance(seed.value, bool):
        return Source(make, shape, make.number(mixed(seed.value & MASK), U64))
    if not isinstance(seed.value, Value) or seed.value.type.rank or not seed.value.type.dtype.is_integer:
        message = f"`seed` of `{name}` must be an integer or an integer scalar, not {describe(seed.value)}"
        return context.reporter.error("bad-attribute", message, seed.span)
    return Source(make, shape, _mixed_value(make, make.cast(make.cast(seed.value, I64), U64)))


def mixed(seed: int) -> int:
    """Returns SplitMix64 of a seed, made odd: the key of a stream of numbers."""
    x = (seed + STEP) & MASK
    for shift, factor in MIXING:
        x = ((x ^ (x >> shift)) * factor) & MASK
    return (x ^ (x >> 31)) | 1


def _mixed_value(make: Maker, seed: Value) -> Value:
    """Writes `mixed` for a seed that is known at run time."""
    x = make("add", seed, make.number(STEP, U64))
    for shift, factor in MIXING:
        x = make("bitwise_xor", x, make("shift_right", x, make.number(shift, U64)))
        x = make("multiply", x, make.number(factor, U64))
    x = make("bitwise_xor", x, make("shift_right", x, make.number(31, U64)))
    return make("bitwise_or", x, make.number(1, U64))


@dataclass(frozen=True, slots=True)
class Source:
    """Writes the nodes of one call, for elements in a row."""

    make: Maker
    shape: tuple[Size, ...]
    key: Value

    def bits(self, start: int, step: int) -> Value:
        """Returns 32 random bits for each element; its counter is `index * step + start`."""
        make, count = self.make, _product(self.shape)
        counter = make.cast(make("iota", shape=(count,), axis=0, dtype=I64), U64)
        if step != 1:
            counter = make("multiply", counter, make.number(step, U64))
        if start:
            counter = make("add", counter, make.number(start, U64))
        half = make.number(32, U64)
        x = y = make("multiply", counter, self.key)
        z = make("add", y, self.key)
        for addend in (y, z, y):
            x = make("add", make("multiply", x, x), addend)
            x = make("bitwise_or", make("shift_right", x, half), make("shift_left", x, half))
        x = make("add", make("multiply", x, x), z)
        return make.cast(make("shift_right", x, half), U32)

    def uniform(self, dtype: DType, start: int, step: int) -> Value:
        make = self.make
        if dtype == F64:
            high = make("shift_right", self.bits(2 * start, 2 * step), make.number(5, U32))
            low = make("shift_right", self.bits(2 * start + 1, 2 * step), make.number(6, U32))
            whole = make("add", make("multiply", make.cast(high, F64), make.number(2.0**26, F64)), make.cast(low, F64))
            return make("multiply", whole, make.number(2.0**-53, F64))
        # As many bits as the dtype holds exactly: rounding up to 1 would leave [0, 1).
        digits = dtype.float_format.fraction + 1
        kept = make("shift_right", self.bits(start, step), make.number(32 - digits, U32))
        return make.cast(make("multiply", make.cast(kept, F32), make.number(2.0**-digits, F32)), dtype)

    def shaped(self, value: Value) -> Value:
        return value if len(self.shape) == 1 else self.make("reshape", value, shape=self.shape)


def _product(sizes: tuple[Size, ...]) -> Size:
    total: Size = 1
    for size in sizes:
        total = multiply(total, size)
    return total
