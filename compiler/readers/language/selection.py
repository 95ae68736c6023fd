"""`nonzero` and `masked_select`: elements that a mask selects, up to a stated number of them.

The position of an element among the selected ones is a cumulative sum of the mask; a scatter writes its index there.
The elements that are not selected write to an additional element at the beginning, which is cut off.

    mask            0  1  0  1  1
    cumulative sum  0  1  1  2  3
    position         0  1  0  2  3          where(mask, sum, 0)
    scattered       2 | 1  3  4  0  0      of size + 1 elements, with size = 5
    result              1  3  4  0  0      and the count 3

A call in which more than `size` elements are selected fails, unless `mode` is "drop".
"""

from __future__ import annotations

from ....dialect.diagnostics import Span
from ....dialect.dims import Size, add, multiply
from ....dialect.graph import Value
from ....dialect.types import BOOL, I64
from .context import Context, check_size
from .nodes import Maker
from .statics import demand_size
from .values import ERROR, AnyValue, Frame, Given, Poison, contains_error, describe, show

MODES = ("error", "drop")


def nonzero(context: Context, frame: Frame, bound: dict[str, Given], span: Span) -> AnyValue:
    """Returns the indices of the elements that are true or not zero, and their number."""
    size, mode = demand_bound(context, bound, "nonzero"), demand_mode(context, bound, "nonzero")
    x = bound["x"]
    if size is ERROR or mode is ERROR or contains_error(x.value):
        return ERROR
    if not isinstance(x.value, Value) or not x.value.type.rank or x.value.type.dtype.is_blocked:
        message = f"`x` of `nonzero` must be a tensor with an axis, not {describe(x.value)}"
        return context.reporter.error("not-a-tensor", message, x.span)
    make = Maker(context, frame, span)
    mask = x.value
    if mask.type.dtype != BOOL:
        mask = make("not_equal", mask, make.number(0, mask.type.dtype))
    found, count = _positions(make, make("flatten", mask) if mask.type.rank > 1 else mask, size, mode)
    return (_unravelled(make, found, mask.type.shape) if mask.type.rank > 1 else found), count


def masked_select(context: Context, frame: Frame, bound: dict[str, Given], span: Span) -> AnyValue:
    """Returns the slices of the first axes of `x` that the mask selects, followed by zeros, and their number."""
    report = context.reporter.error
    size, mode = demand_bound(context, bound, "masked_select"), demand_mode(context, bound, "masked_select")
    x, mask = bound["x"], bound["mask"]
    if size is ERROR or mode is ERROR or contains_error(x.value) or contains_error(mask.value):
        return ERROR
    for name, given in (("x", x), ("mask", mask)):
        if not isinstance(given.value, Value):
            message = f"`{name}` of `masked_select` must be a tensor, not {describe(given.value)}"
            return report("not-a-tensor", message, given.span)
    assert isinstance(x.value, Value) and isinstance(mask.value, Value)
    if mask.value.type.dtype != BOOL:
        message = f"`mask` of `masked_select` must be bool, not {mask.value.type}"
        return report("dtype-mismatch", message, mask.span)
    rank, shape = mask.value.type.rank, x.value.type.shape
    if not rank or mask.value.type.shape != shape[:rank]:
        label = f"the mask is {mask.value.type}, `x` is {x.value.type}"
        message = "the mask of `masked_select` must have the first axes of `x`"
        return report("shape-mismatch", message, mask.span, label)
    make = Maker(context, frame, span)
    flat, rows, total = mask.value, x.value, _product(shape[:rank])
    if rank > 1:
        flat = make("flatten", flat)
        rows = make("reshape", rows, shape=(total, *shape[rank:]))
    found, count = _positions(make, flat, size, mode)
    # The index after the last one reads zero.
    is_found = make("less", make("iota", shape=(size,), axis=0, dtype=I64), count)
    index = make("where", is_found, found, make.number(total, I64))
    return make("gather", rows, index, axis=0, mode="drop"), count


def demand_bound(context: Context, bound: dict[str, Given], name: str) -> Size | Poison:
    """Returns the argument `size`, the declared maximum."""
    given = bound["size"]
    size = demand_size(context, given.value, given.span, f"`size` of `{name}`, the largest number of elements")
    return ERROR if size is ERROR else check_size(context, size, given.span)


def demand_mode(context: Context, bound: dict[str, Given], name: str) -> str | Poison:
    """Returns whether a call fails if more elements are selected than `size` permits; the argument `mode`."""
    given = bound.get("mode")
    if given is None:
        return MODES[0]
    if given.value is ERROR or given.value in MODES:
        return given.value  # type: ignore[return-value]  # a text, or an error
    choices = " or ".join(f'"{mode}"' for mode in MODES)
    message = f"`mode` of `{name}` is {show(given.value)}, expected {choices}"
    return context.reporter.error("bad-attribute", message, given.span)


def _product(sizes: tuple[Size, ...]) -> Size:
    total: Size = 1
    for size in sizes:
        total = multiply(total, size)
    return total


def _positions(make: Maker, mask: Value, size: Size, mode: str) -> tuple[Value, Value]:
    """Returns the indices of the selected elements of a vector, and their number."""
    ones = make.cast(mask, I64)
    position = make("where", mask, make("cumsum", ones, axis=0), make.number(0, I64))
    positions = make("full", shape=(add(size, 1),), value=0, dtype=I64)
    indices = make("iota", shape=mask.type.shape, axis=0, dtype=I64)
    written = make("scatter", positions, position, indices, axis=0, mode=mode)
    found = make("slice", written, starts=(1,), stops=(None,), steps=(1,))
    return found, make("sum", ones, axis=0)


def _unravelled(make: Maker, flat: Value, shape: tuple[Size, ...]) -> Value:
    """Returns the index on each axis of flat indices, along a new last axis."""
    columns: list[Value] = []
    for size in reversed(shape):
        divisor = make("maximum", make.number(size, I64), make.number(1, I64))
        columns.append(make("remainder", flat, divisor))
        flat = make("floor_divide", flat, divisor)
    return make("stack", *reversed(columns), axis=-1)
