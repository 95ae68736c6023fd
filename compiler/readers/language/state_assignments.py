"""Assignments to states: of the whole, `keys = k`, and of a part, `keys[:, :, at:at+T] = k`, an `update_slice`.

A part is a box: on each axis a constant range, or one that starts at a run-time scalar and has a length that is known
from the dims. Constant ranges must be inside of the state for all values of the dims; run-time starts are checked in
each call.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dialect.diagnostics import Span
from ....dialect.dims import Poly, Size, add, at_least, bounds, format_size
from ....dialect.graph import Value, fill_braces
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import TensorType
from . import syntax
from .context import Context
from .indexing import Pick, expand, pick_range, pick_single
from .operators import apply, literal, single
from .values import ERROR, AnyValue, Frame, Poison, contains_error, describe
from .windows import pick_window, window_start


def assign_state(context: Context, frame: Frame, name: syntax.Name, value: AnyValue, span: Span) -> Value | Poison:
    """Returns the value of a state after `name = value`."""
    current = frame.names[name.name].value
    if not isinstance(current, Value):
        return ERROR
    if isinstance(value, (bool, int, float, Poly, tuple)) and not contains_error(value):
        value = literal(context, frame, value, current.type.dtype, span)
    if contains_error(value):
        return ERROR
    if not isinstance(value, Value):
        message = f"`{name.name}` is {current.type} and cannot become {describe(value)}"
        return context.reporter.error("not-a-tensor", message, span)
    if value.type != current.type:
        return _refuse_type(context, f"the state `{name.name}`", current.type, value, span)
    _record(context, frame, name.name, value, span)
    return value


def _refuse_type(context: Context, what: str, type: TensorType, value: Value, span: Span) -> Poison:
    help_text = ""
    if value.type.dtype != type.dtype:
        help_text = context.reporter.conversion(span, type.dtype)
    elif value.type.rank == 0:
        help_text = f"`broadcast_to(x, ({', '.join(map(format_size, type.shape))}))` repeats a scalar"
    return context.reporter.error("state-type", f"{what} is {type}, not {value.type}", span, help=help_text)


def _record(context: Context, frame: Frame, name: str, value: Value, span: Span) -> None:
    """Makes the value that of the state of this name in the frame."""
    if context.writer.in_region or frame.path is None:
        context.writer.stateful = span
        return
    path = frame.path.child(name)
    fixed = [index for index in path.indices if isinstance(index, int)]
    kept = context.writer.states.get(fill_braces(path.pattern, fixed))
    if kept is not None and len(fixed) == len(path.indices):
        kept.current = value


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of one axis: its static start or the tensor that holds it, and its size; `drop` removes the axis."""

    start: Size | Value
    size: Size
    drop: bool = False


def assign_part(context: Context, frame: Frame, statement: syntax.AssignPart) -> Value | Poison:
    """Returns the value of a state after `name[items] = value`."""
    report, span = context.reporter.error, statement.span
    name = statement.name
    current = frame.names[name.name].value
    value = context.evaluate(statement.value, frame)
    if not isinstance(current, Value) or contains_error(value):
        return ERROR
    new_axes = [item.span for item in statement.items if isinstance(item, syntax.Nothing)]
    if new_axes:
        return report("bad-index", "an assigned part has no new axes", new_axes[0])
    items = expand(context, current, syntax.Index(name, statement.items, span=statement.target))
    if items is ERROR:
        return ERROR
    found = [_part(context, frame, current, axis, item) for axis, item in enumerate(items)]
    parts = [part for part in found if part is not ERROR]
    if len(parts) < len(found):
        return ERROR
    type = current.type.with_shape(tuple(part.size for part in parts if not part.drop))
    if isinstance(value, (bool, int, float, tuple)):
        value = literal(context, frame, value, type.dtype, statement.value.span)
        if isinstance(value, Value) and type.rank and not value.type.rank:
            value = _apply(context, frame, "broadcast_to", [value], {"shape": type.shape}, span)
    if value is ERROR:
        return ERROR
    if not isinstance(value, Value):
        return report("not-a-tensor", f"expected {type}, not {describe(value)}", statement.value.span)
    if value.type != type:
        return _refuse_type(context, f"this part of `{name.name}`", type, value, statement.value.span)
    dropped = tuple(axis for axis, part in enumerate(parts) if part.drop)
    if dropped:
        value = _apply(context, frame, "unsqueeze", [value], {"axes": dropped}, span)
        if value is ERROR:
            return ERROR
    written = _write(context, frame, current, value, parts, span)
    if written is not ERROR:
        written = context.writer.rename(written, name.name)
        _record(context, frame, name.name, written, span)
    return written


def _write(
    context: Context, frame: Frame, current: Value, update: Value, parts: Sequence[_Part], span: Span
) -> Value | Poison:
    axes = tuple(axis for axis, part in enumerate(parts) if isinstance(part.start, Value))
    given = [part.start for part in parts if isinstance(part.start, Value)]
    starts = tuple(0 if isinstance(part.start, Value) else part.start for part in parts)
    return _apply(context, frame, "update_slice", [current, update, *given], {"axes": axes, "starts": starts}, span)


def _apply(
    context: Context, frame: Frame, operator: str, inputs: Sequence[Value], attributes: dict[str, object], span: Span
) -> Value | Poison:
    return single(apply(context, frame, operator, inputs, attributes, span, [span] * len(inputs), symbol="[] ="))


def _part(
    context: Context, frame: Frame, current: Value, axis: int, item: syntax.Expression | syntax.Slice | None
) -> _Part | Poison:
    """Returns the part of an axis that an item of the index selects."""
    size = current.type.shape[axis]
    if item is None:
        return _Part(0, size)
    if isinstance(item, syntax.Slice):
        return _range_part(context, frame, item, size, axis)
    value = context.evaluate(item, frame)
    if isinstance(value, Value):
        start = window_start(context, frame, value, item.span)
        return ERROR if start is ERROR else _Part(start, 1, drop=True)
    pick = pick_single(context, frame, value, current, axis, item.span)
    if pick is ERROR:
        return ERROR
    return _static_part(context, pick, size, axis, item.span)


def _range_part(context: Context, frame: Frame, item: syntax.Slice, size: Size, axis: int) -> _Part | Poison:
    window = pick_window(context, frame, item)
    if window is ERROR:
        return ERROR
    if window is not None:
        return _Part(window.start, window.size)
    pick = pick_range(context, frame, item, size, axis)
    return ERROR if pick is ERROR else _static_part(context, pick, size, axis, item.span)


def _static_part(context: Context, pick: Pick, size: Size, axis: int, span: Span) -> _Part | Poison:
    report = context.reporter.error
    if pick.step != 1:
        return report("bad-index", "an assigned part has the step 1", span)
    if pick.moves is not None:
        # The loop around it is elaborated again with integers.
        context.writer.stateful = span
        return _Part(0, 1 if pick.stop is None else pick.stop, pick.drop)
    first, last = (
        default if bound is None else add(bound, size) if bounds(bound)[1] < 0 else bound
        for bound, default in ((pick.start, 0), (pick.stop, size))
    )
    length = add(last, -1 * first)
    if not (at_least(first, 0) and at_least(length, 0) and at_least(size, last)):
        label = f"the size of axis {axis} is {format_size(size)}"
        message = f"the range {format_size(first)}:{format_size(last)} may be outside of axis {axis}"
        return report("index-out-of-range", message, span, label)
    return _Part(first, length, pick.drop)
