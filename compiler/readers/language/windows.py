"""Windows of an axis that start at an integer scalar known at run time: `keys[at:at+T]`, read or assigned.

The length must be known from the dims, so the end repeats the start and adds the length to it. A negative start counts
from the end. Each call checks that the window is inside the axis.
"""

from __future__ import annotations

from dataclasses import replace

from ....dialect.diagnostics import Span
from ....dialect.dims import Size
from ....dialect.graph import Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import I64
from . import syntax
from .context import Context
from .operators import apply, single
from .statics import demand_size
from .values import ERROR, Frame, Poison


@dataclass(frozen=True, slots=True)
class Window:
    """A range of `size` elements that begins at the i64 scalar `start`."""

    start: Value
    size: Size


def pick_window(context: Context, frame: Frame, item: syntax.Slice) -> Window | Poison | None:
    """Returns the window that a range selects; None for a range that starts elsewhere."""
    first = None if item.start is None else context.evaluate(item.start, frame)
    if not isinstance(first, Value) or item.start is None:
        return None
    start = window_start(context, frame, first, item.start.span)
    if start is ERROR:
        return ERROR
    length = None if item.stop is None else _beyond(item.stop, item.start)
    if length is None or item.step is not None:
        shown = context.reporter.text(item.start.span) or "at"
        message = "a range that starts at a tensor needs a length that is known from the dims"
        return context.reporter.error("not-constant", message, item.span, help=f"`{shown}:{shown}+length`")
    size = demand_size(context, context.evaluate(length, frame), length.span, "the length of a range")
    return ERROR if size is ERROR else Window(start, size)


def window_start(context: Context, frame: Frame, value: Value, span: Span) -> Value | Poison:
    """Returns the start of a window as an i64 scalar."""
    if value.type.rank or not value.type.dtype.is_integer:
        message = f"the start of a range is an integer scalar, not {value.type}"
        return context.reporter.error("bad-index", message, span)
    if value.type.dtype == I64:
        return value
    return single(apply(context, frame, "cast", [value], {"dtype": I64}, span, [span], symbol="[]"))


def _beyond(stop: syntax.Expression, start: syntax.Expression) -> syntax.Expression | None:
    """Returns the length in `start + length`, also in `start + a - b`; None for other expressions."""
    if not isinstance(stop, syntax.Binary) or stop.operator not in ("+", "-"):
        return None
    if stop.operator == "+" and start in (stop.left, stop.right):
        return stop.right if stop.left == start else stop.left
    before = _beyond(stop.left, start)
    return None if before is None else replace(stop, left=before)
