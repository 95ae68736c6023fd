"""`x[...]` of a tensor: integers, ranges with steps, windows, None, `...`, and tensors of indices.

The rules are those of numpy and the array API: negative indices count from the end, ranges are cut to the axis. Bounds
may be symbolic. An integer index must lie inside for every value of the dims; it is never cut. An index that depends on
a loop variable is not cut either, and a range that does so must have the same length in all iterations.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dialect.diagnostics import Span
from ....dialect.dims import Poly, Size, add, at_least, bounds, format_size, multiply
from ....dialect.graph import Value
from ....dialect.lazy_dataclass import dataclass
from . import syntax
from .context import Context, check_number
from .gathers import gather_slices
from .operators import apply, single
from .provenance import size_notes, trace_axis
from .statics import demand_integer, demand_size
from .values import ERROR, AnyValue, Frame, Poison, describe
from .windows import Window, pick_window

STEP_LIMIT = 1 << 31


@dataclass(frozen=True, slots=True)
class Pick:
    """The selection of one axis, as for `slice`; `drop` removes the axis. `moves` is an offset that depends on a loop
    variable, `at` a start that is known at run time; `stop` is then a length."""

    start: Size | None = None
    stop: Size | None = None
    step: int = 1
    drop: bool = False
    moves: Poly | None = None
    at: Value | None = None

    def is_all_of(self, size: Size) -> bool:
        return self.step == 1 and self.start in (None, 0) and (self.stop is None or self.stop == size)


def index_tensor(context: Context, frame: Frame, x: Value, node: syntax.Index) -> AnyValue:
    """Returns the value of `x[items]`."""
    items = expand(context, x, node)
    if items is ERROR:
        return ERROR
    picks: list[Pick] = []
    new_axes: list[int] = []
    gathers: list[tuple[int, Value, Span]] = []
    failed, kept, axis = False, 0, 0
    for item in items:
        if isinstance(item, syntax.Nothing):
            new_axes.append(kept)
            kept += 1
            continue
        size = x.type.shape[axis]
        pick: Pick | Poison
        if item is None:
            pick = Pick()
        elif isinstance(item, syntax.Slice):
            window = pick_window(context, frame, item)
            pick = pick_range(context, frame, item, size, axis) if window is None else _pick_of(window)
        else:
            value = context.evaluate(item, frame)
            if isinstance(value, Value):
                gathers.append((kept, value, item.span))
                pick = Pick()
            else:
                pick = pick_single(context, frame, value, x, axis, item.span)
        axis += 1
        if pick is ERROR:
            failed = True
            continue
        picks.append(pick)
        kept += not pick.drop
    if failed:
        return ERROR
    return _Selection(context, frame, node.span).apply(x, picks, new_axes, gathers)


def _pick_of(window: Window | Poison) -> Pick | Poison:
    return ERROR if window is ERROR else Pick(0, window.size, at=window.start)


def expand(context: Context, x: Value, node: syntax.Index) -> list[syntax.Expression | syntax.Slice | None] | Poison:
    """Returns one item per axis: `...` and omitted axes become None."""
    dots = [item for item in node.items if isinstance(item, syntax.Dots)]
    if len(dots) > 1:
        return context.reporter.error("bad-index", "an index has at most one `...`", dots[1].span)
    named = sum(not isinstance(item, (syntax.Dots, syntax.Nothing)) for item in node.items)
    rest = x.type.rank - named
    if rest < 0:
        axes = f"{x.type.rank} ax{'is' if x.type.rank == 1 else 'es'}"
        message = f"{named} indices for a tensor with {axes}"
        return context.reporter.error("bad-index", message, node.span, f"the tensor is {x.type}")
    items: list[syntax.Expression | syntax.Slice | None] = []
    for item in node.items:
        if isinstance(item, syntax.Dots):
            items += [None] * rest
        else:
            items.append(item)
    return items if dots else items + [None] * rest


def pick_single(context: Context, frame: Frame, value: AnyValue, x: Value, axis: int, span: Span) -> Pick | Poison:
    """Returns the selection of one element of an axis, which removes the axis."""
    if isinstance(value, float) or not (value is ERROR or isinstance(value, (int, Poly))) or isinstance(value, bool):
        message = f"an index is an integer, a range, None or a tensor of integers, not {describe(value)}"
        return context.reporter.error("bad-index", message, span)
    index = demand_size(context, value, span, "an index")
    if index is ERROR:
        return ERROR
    size = x.type.shape[axis]
    start = add(index, size) if bounds(index)[1] < 0 else index
    moves = context.writer.depends_on_loop(index)
    least, greatest = context.writer.extremes(start)
    if not (at_least(least, 0) and at_least(size, add(greatest, 1))):
        shown = format_size(index)
        label = f"the size of axis {axis} is {format_size(size)}"
        if isinstance(size, Poly):
            label += f", which may be {bounds(size)[0]}"
        if moves:
            known = all(end != start for end in (least, greatest))
            ends = (least, greatest) if known else bounds(index)
            label += f", the index reaches from {format_size(ends[0])} to {format_size(ends[1])}"
        notes = size_notes(context, [trace_axis(context, frame, x, axis)], label)
        message = f"the index {shown} may be outside of axis {axis}"
        if isinstance(size, int) and isinstance(index, int):
            message = f"the index {shown} is outside of axis {axis}"
        return context.reporter.error("index-out-of-range", message, span, label, notes=notes)
    if moves:
        assert isinstance(start, Poly), start
        return Pick(0, 1, drop=True, moves=start)
    return Pick(start, add(start, 1), drop=True)


def pick_range(context: Context, frame: Frame, node: syntax.Slice, size: Size, axis: int) -> Pick | Poison:
    step: int | Poison = 1
    if node.step is not None:
        step = demand_integer(context, context.evaluate(node.step, frame), node.step.span, "the step of a range")
        if step == 0 or (step is not ERROR and abs(step) >= STEP_LIMIT):
            return context.reporter.error("bad-index", f"the step of a range cannot be {step}", node.step.span)
    start = _bound(context, frame, node.start)
    stop = _bound(context, frame, node.stop)
    if step is ERROR or start is ERROR or stop is ERROR:
        return ERROR
    if any(isinstance(bound, Poly) and context.writer.depends_on_loop(bound) for bound in (start, stop)):
        return _moving_range(context, node, start, stop, step, size, axis)
    return Pick(start, stop, step)


def _moving_range(
    context: Context, node: syntax.Slice, start: Size | None, stop: Size | None, step: int, size: Size, axis: int
) -> Pick | Poison:
    """Returns a range whose start depends on the iteration of a loop, with a fixed length."""
    report = context.reporter.error
    first, last = (
        default if bound is None else add(bound, size) if bounds(bound)[1] < 0 else bound
        for bound, default in ((start, 0), (stop, size))
    )
    length = add(last, multiply(-1, first))
    if step < 0 or not isinstance(first, Poly) or context.writer.depends_on_loop(length):
        message = "the length of a range cannot depend on a loop variable"
        if step < 0:
            message = "a range that depends on a loop variable must have a positive step"
        return report("not-constant", message, node.span, help="a range such as `i:i + 4` has a fixed length")
    least, greatest = context.writer.extremes(first)[0], context.writer.extremes(last)[1]
    if not (at_least(least, 0) and at_least(length, 0) and at_least(size, greatest)):
        label = (
            f"the size of axis {axis} is {format_size(size)}, the range is within {bounds(first)[0]}..{bounds(last)[1]}"
        )
        return report("index-out-of-range", f"the range may be outside of axis {axis}", node.span, label)
    return Pick(0, length, step, moves=first)


def _bound(context: Context, frame: Frame, node: syntax.Expression | None) -> Size | Poison | None:
    if node is None:
        return None
    value = context.evaluate(node, frame)
    if value is None:
        return None
    size = demand_size(context, value, node.span, "the bound of a range")
    if size is ERROR:
        return ERROR
    least, greatest = bounds(size)
    if least < 0 <= greatest:
        shown = format_size(size)
        message = f"the bound {shown} may be negative or not, and negative bounds count from the end"
        return context.reporter.error("bad-index", message, node.span, help=f"`max({shown}, 0)` starts at 0")
    checked = check_number(context, size, node.span)
    assert not isinstance(checked, float)
    return checked


@dataclass(frozen=True, slots=True)
class _Selection:
    """Writes the nodes of one index expression."""

    context: Context
    frame: Frame
    span: Span

    def apply(
        self,
        x: Value,
        picks: Sequence[Pick],
        new_axes: Sequence[int],
        gathers: Sequence[tuple[int, Value, Span]],
    ) -> AnyValue:
        result, picks = self._scan(x, picks)
        if result is not ERROR:
            result = self._move(result, picks)
        if result is not ERROR:
            result = self._slice(result, picks)
        dropped = tuple(axis for axis, pick in enumerate(picks) if pick.drop)
        result = self._step("squeeze", result, {"axes": dropped}, bool(dropped))
        result = self._step("unsqueeze", result, {"axes": tuple(new_axes)}, bool(new_axes) and not gathers)
        if gathers and result is not ERROR:
            result = gather_slices(self.context, self.frame, result, gathers, self.span, has_new_axes=bool(new_axes))
        return result

    def _scan(self, x: Value, picks: Sequence[Pick]) -> tuple[Value | Poison, Sequence[Pick]]:
        """Returns the slice that the variable of a `scan` selects, and the picks of its axes. The scanned axis may be
        empty, where the loop does not run."""
        writer, kept = self.context.writer, list(picks)
        result: Value | Poison = x
        for axis in reversed(range(len(picks))):
            moves = picks[axis].moves
            if moves is None or not picks[axis].drop or result is ERROR or not writer.depends_on_scan(moves):
                continue
            index = writer.size_value(moves, self.frame.scope, self.span)
            # The index is known to be inside in all iterations.
            attributes: dict[str, object] = {"axis": axis, "mode": "clamp"}
            spans = [self.span, self.span]
            result = single(
                apply(self.context, self.frame, "gather", [result, index], attributes, self.span, spans, symbol="[]")
            )
            del kept[axis]
        return result, kept

    def _move(self, x: Value, picks: Sequence[Pick]) -> Value | Poison:
        """Returns the window that moves with loops, or starts at run time; the other steps count from its start."""
        if not any(pick.moves or pick.at for pick in picks):
            return x
        writer, scope = self.context.writer, self.frame.scope
        starts = [p.at or writer.size_value(0 if p.moves is None else p.moves, scope, self.span) for p in picks]
        moving = (p.moves is not None or p.at is not None for p in picks)
        sizes = tuple(p.stop if m else n for p, n, m in zip(picks, x.type.shape, moving, strict=True))
        # A start that moves with loops is known to be inside in all iterations.
        attributes: dict[str, object] = {"sizes": sizes, "mode": "error" if any(p.at for p in picks) else "clamp"}
        spans = [self.span] * (1 + len(starts))
        return single(
            apply(self.context, self.frame, "dynamic_slice", [x, *starts], attributes, self.span, spans, symbol="[]")
        )

    def _slice(self, x: Value, picks: Sequence[Pick]) -> Value | Poison:
        attributes: dict[str, object] = {
            "starts": tuple(p.start for p in picks),
            "stops": tuple(p.stop for p in picks),
            "steps": tuple(p.step for p in picks),
        }
        whole = all(p.is_all_of(size) for p, size in zip(picks, x.type.shape, strict=True))
        return self._step("slice", x, attributes, not whole)

    def _step(self, name: str, x: Value | Poison, attributes: dict[str, object], needed: bool) -> Value | Poison:
        if not needed or x is ERROR:
            return x
        return single(apply(self.context, self.frame, name, [x], attributes, self.span, [self.span], symbol="[]"))
