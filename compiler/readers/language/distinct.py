"""`unique`: the distinct elements of a tensor in order, up to a stated number of them.

The elements are sorted. Each one that differs from the element before it begins a group, and the number of a group is a
cumulative sum.

    x               3  1  3  0  1
    sorted          0  1  1  3  3
    begins          1  1  0  1  0
    group           0  1  1  2  2
    values          0  1  3  0  0          of size 5, and the number 3
    counts          1  2  2  0  0
    inverse         2  1  2  0  1          the group of each element of x
"""

from __future__ import annotations

from ....dialect.diagnostics import Span
from ....dialect.dims import product
from ....dialect.graph import Value
from ....dialect.types import BOOL, I64
from .context import Context
from .nodes import Maker
from .selection import demand_bound, demand_mode
from .values import ERROR, AnyValue, Frame, Given, contains_error, describe


def unique(context: Context, frame: Frame, bound: dict[str, Given], span: Span) -> AnyValue:
    """Returns the values, the index among them of each element of `x`, how often each occurs, and their number."""
    size, mode = demand_bound(context, bound, "unique"), demand_mode(context, bound, "unique")
    x = bound["x"]
    if size is ERROR or mode is ERROR or contains_error(x.value):
        return ERROR
    if not isinstance(x.value, Value) or x.value.type.dtype in (BOOL,) or x.value.type.dtype.is_blocked:
        message = f"`x` of `unique` must be a tensor of numbers, not {describe(x.value)}"
        return context.reporter.error("not-a-tensor", message, x.span)
    make, shape, dtype = Maker(context, frame, span), x.value.type.shape, x.value.type.dtype
    total = product(shape)
    flat = x.value if len(shape) == 1 else make("reshape", x.value, shape=(total,))
    order = make("argsort", flat, axis=0)
    ordered = make("gather", flat, order, axis=0, mode="clamp")
    line = make("iota", shape=(total,), axis=0, dtype=I64)
    one, zero = make.number(1, I64), make.number(0, I64)
    before = make("gather", ordered, make("maximum", make("subtract", line, one), zero), axis=0, mode="clamp")
    begins = make.cast(make("logical_or", make("equal", line, zero), make("not_equal", ordered, before)), I64)
    group = make("subtract", make("cumsum", begins, axis=0), one)
    values = make("scatter", make("full", shape=(size,), value=0, dtype=dtype), group, ordered, axis=0, mode=mode)
    ones = make("full", shape=(total,), value=1, dtype=I64)
    counts = make("scatter_add", make("full", shape=(size,), value=0, dtype=I64), group, ones, axis=0, mode=mode)
    empty = make("full", shape=(total,), value=0, dtype=I64)
    inverse = make("scatter", empty, order, group, axis=0, mode="clamp")
    inverse = inverse if len(shape) == 1 else make("reshape", inverse, shape=shape)
    return values, inverse, counts, make("sum", begins, axis=0)
