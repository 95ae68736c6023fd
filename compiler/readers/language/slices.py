"""Slices of tensors that are not states: the assignment `y[:, t] = h`, and the slices of one axis as a list.

An assignment to a slice gives the name a new tensor; other names of the old one keep it. A slice is a box: on each axis
an index or a range. Both may move with the variable of a loop, and must be inside for all its values. Both may start at
an integer scalar known at run time; each call checks that such a slice is inside.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dialect.diagnostics import Note, Span
from ....dialect.dims import Poly, Size, add, at_least, bounds, format_size, multiply
from ....dialect.graph import Value
from ....dialect.types import I64
from . import syntax
from .context import Context
from .indexing import Pick, expand, pick_range, pick_single
from .operators import apply, literal, single
from .values import ERROR, FIXED, AnyValue, Binding, Frame, Kind, Poison, contains_error, describe
from .windows import pick_window, window_start

UNSTACKED = 1024


def unstack(context: Context, frame: Frame, x: Value, axis: int, span: Span) -> AnyValue:
    """Returns the slices of one axis as a list."""
    count = x.type.shape[axis]
    if isinstance(count, Poly) or count > UNSTACKED:
        message = f"axis {axis} of {x.type} cannot become a list"
        label = f"its size is {format_size(count)}, expected a number up to {UNSTACKED}"
        return context.reporter.error("not-constant", message, span, label)
    found: list[AnyValue] = []
    for index in range(count):
        starts, stops = [None] * axis + [index], [None] * axis + [index + 1]
        rest = (None,) * (x.type.rank - axis - 1)
        attributes = {"starts": (*starts, *rest), "stops": (*stops, *rest), "steps": (1,) * x.type.rank}
        part = apply(context, frame, "slice", [x], attributes, span, [span])
        found.append(apply(context, frame, "squeeze", [part], {"axes": (axis,)}, span, [span]))
    return ERROR if any(map(contains_error, found)) else tuple(found)


def assign_slice(context: Context, frame: Frame, statement: syntax.AssignPart, first: Binding) -> Value | Poison:
    """Returns the tensor after `name[items] = value`."""
    report, name = context.reporter.error, statement.name.name
    value = context.evaluate(statement.value, frame)
    current = first.value
    if current is ERROR or contains_error(value):
        return ERROR
    if not isinstance(current, Value) or first.kind in FIXED or first.kind is Kind.PARAMETER:
        notes = [Note(f"the definition of `{name}`", first.span)]
        message = f"a slice of `{name}` cannot be assigned: it is {first.kind}"
        if not isinstance(current, Value):
            message = f"a slice of `{name}` cannot be assigned: it is {describe(current)}"
        return report("not-a-state", message, statement.target, notes=notes)
    new_axes = [item.span for item in statement.items if isinstance(item, syntax.Nothing)]
    if new_axes:
        return report("bad-index", "an assigned part has no new axes", new_axes[0])
    items = expand(context, current, syntax.Index(statement.name, statement.items, span=statement.target))
    if items is ERROR:
        return ERROR
    picks = [_pick(context, frame, current, axis, item) for axis, item in enumerate(items)]
    sizes = zip(picks, current.type.shape, strict=True)
    boxes = [_box(context, pick, size, axis) for axis, (pick, size) in enumerate(sizes) if pick is not ERROR]
    parts = [box for box in boxes if box is not None]
    if len(parts) < len(items):
        return ERROR
    update = _update(context, frame, statement, current, value, [size for _, size, dropped in parts if not dropped])
    if update is ERROR:
        return ERROR
    dropped = tuple(axis for axis, part in enumerate(parts) if part[2])
    if dropped:
        update = _apply(context, frame, "unsqueeze", [update], {"axes": dropped}, statement.span)
    if update is ERROR:
        return ERROR
    written = _write(context, frame, current, update, [start for start, _, _ in parts], statement.span)
    return written if written is ERROR else context.writer.rename(written, name)


def _pick(
    context: Context, frame: Frame, x: Value, axis: int, item: syntax.Expression | syntax.Slice | None
) -> tuple[Pick, Span | None] | Poison:
    if item is None:
        return Pick(), None
    if isinstance(item, syntax.Slice):
        window = pick_window(context, frame, item)
        if window is not None:
            return ERROR if window is ERROR else (Pick(stop=window.size, at=window.start), item.span)
        found = pick_range(context, frame, item, x.type.shape[axis], axis)
        return ERROR if found is ERROR else (found, item.span)
    value = context.evaluate(item, frame)
    if isinstance(value, Value):
        if value.type.rank or not value.type.dtype.is_integer:
            message = f"the index of an assigned part is an integer, not {describe(value)}"
            help_text = "`scatter` writes at several indices" if value.type.dtype.is_integer else ""
            return context.reporter.error("bad-index", message, item.span, help=help_text)
        start = window_start(context, frame, value, item.span)
        return ERROR if start is ERROR else (Pick(stop=1, drop=True, at=start), item.span)
    single_pick = pick_single(context, frame, value, x, axis, item.span)
    return ERROR if single_pick is ERROR else (single_pick, item.span)


def _box(
    context: Context, found: tuple[Pick, Span | None], size: Size, axis: int
) -> tuple[Size | Value, Size, bool] | None:
    """Returns the start, the length and whether the axis is dropped; None after reporting an error."""
    pick, span = found
    if pick.step != 1:
        context.reporter.error("bad-index", "an assigned part has the step 1", span)
        return None
    if pick.at is not None:
        return pick.at, 1 if pick.stop is None else pick.stop, pick.drop
    if pick.moves is not None:
        return pick.moves, 1 if pick.stop is None else pick.stop, pick.drop
    first, last = (
        default if bound is None else add(bound, size) if bounds(bound)[1] < 0 else bound
        for bound, default in ((pick.start, 0), (pick.stop, size))
    )
    length = add(last, multiply(-1, first))
    if not (at_least(first, 0) and at_least(length, 0) and at_least(size, last)):
        label = f"the size of axis {axis} is {format_size(size)}"
        message = f"the range {format_size(first)}:{format_size(last)} may be outside of axis {axis}"
        context.reporter.error("index-out-of-range", message, span, label)
        return None
    return first, length, pick.drop


def _update(
    context: Context, frame: Frame, statement: syntax.AssignPart, current: Value, value: AnyValue, shape: Sequence[Size]
) -> Value | Poison:
    """Returns the assigned value as a tensor of the slice."""
    report, span, type = context.reporter.error, statement.value.span, current.type.with_shape(tuple(shape))
    if isinstance(value, (bool, int, float, Poly)):
        number = literal(context, frame, value, type.dtype, span)
        if number is ERROR or not type.rank:
            return number
        return _apply(context, frame, "broadcast_to", [number], {"shape": type.shape}, span)
    if isinstance(value, tuple):
        value = literal(context, frame, value, type.dtype, span)
    if value is ERROR:
        return ERROR
    if not isinstance(value, Value):
        return report("not-a-tensor", f"expected {type}, not {describe(value)}", span)
    if value.type != type:
        help_text = ""
        if value.type.dtype != type.dtype:
            help_text = context.reporter.conversion(span, type.dtype)
        message = f"this part of `{statement.name.name}` is {type}, not {value.type}"
        return report("shape-mismatch" if not help_text else "dtype-mismatch", message, span, help=help_text)
    return value


def _write(
    context: Context, frame: Frame, current: Value, update: Value, starts: Sequence[Size | Value], span: Span
) -> Value | Poison:
    writer = context.writer
    moves = {
        axis: start if isinstance(start, Value) else writer.size_value(start, frame.scope, span)
        for axis, start in enumerate(starts)
        if isinstance(start, Value) or (isinstance(start, Poly) and writer.depends_on_loop(start))
    }
    axes, moving = tuple(moves), list(moves.values())
    attributes: dict[str, object]
    fixed = tuple(0 if axis in moves else start for axis, start in enumerate(starts))
    assert all(value.type.dtype == I64 for value in moving), moving
    if any(isinstance(start, Value) for start in starts):
        attributes = {"axes": axes, "starts": fixed, "mode": "error"}
        return _apply(context, frame, "update_slice", [current, update, *moving], attributes, span)
    sizes = [start for start in starts if not isinstance(start, Value)]
    if len(axes) == 1 and writer.depends_on_scan(sizes[axes[0]]) and _covers(current, update, axes[0]):
        # The axis may be empty, where the loop does not run.
        attributes = {"axis": axes[0], "mode": "clamp"}
        shape: dict[str, object] = {"shape": (1,) * current.type.rank}
        index = _apply(context, frame, "reshape", moving, shape, span)
        return (
            ERROR if index is ERROR else _apply(context, frame, "scatter", [current, index, update], attributes, span)
        )
    # Every start is known to be inside in all iterations of the loops.
    attributes = {"axes": axes, "starts": fixed, "mode": "clamp"}
    return _apply(context, frame, "update_slice", [current, update, *moving], attributes, span)


def _covers(current: Value, update: Value, axis: int) -> bool:
    """Returns whether the update has one slice of an axis, with all elements of the other axes."""
    sizes = zip(current.type.shape, update.type.shape, strict=True)
    return all(part == (1 if number == axis else size) for number, (size, part) in enumerate(sizes))


def _apply(
    context: Context, frame: Frame, operator: str, inputs: Sequence[Value], attributes: dict[str, object], span: Span
) -> Value | Poison:
    return single(apply(context, frame, operator, inputs, attributes, span, [span] * len(inputs), symbol="[] ="))
