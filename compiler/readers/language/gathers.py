"""Tensors of integers as indices: one becomes `gather`, several on adjacent axes become `gather_nd`.

    x: f32[B, 4, 4], rows and columns: i64[6]          x[:, rows, columns]: f32[B, 6]

Several indices are broadcast together, and each element of the common shape addresses one slice, as in the array API.
Its axes replace those of the indices. Axes that are not adjacent are refused: other libraries move them to the front.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dialect.diagnostics import Span
from ....dialect.graph import Value
from ....dialect.operator import InferenceError
from ....dialect.ops.support.common import broadcast_shapes
from .context import Context
from .operators import apply, single
from .values import Frame, Poison

Gathers = Sequence[tuple[int, Value, Span]]
"""The axis, the index tensor and the source location of each index."""


def gather_slices(
    context: Context, frame: Frame, x: Value, gathers: Gathers, span: Span, *, has_new_axes: bool
) -> Value | Poison:
    """Returns the slices of `x` that the indices select."""
    report = context.reporter.error
    if has_new_axes:
        return report("bad-index", "an index cannot contain both a tensor and None", gathers[-1][2])
    for _, indices, where in gathers:
        if not indices.type.dtype.is_integer:
            is_mask = indices.type.dtype.name == "bool"
            chosen = "`where(mask, x, 0)` keeps the shape; `masked_select(x, mask, size=n)` takes up to n slices"
            message = f"an index must be a tensor of integers, not {indices.type}"
            return report("bad-index", message, where, help=chosen if is_mask else "")
    axis, first, where = gathers[0]
    if len(gathers) == 1:
        return single(apply(context, frame, "gather", [x, first], {"axis": axis}, span, [span, where]))
    apart = next((where for number, (at, _, where) in enumerate(gathers) if at != axis + number), None)
    if apart is not None:
        help_text = "`transpose` brings the axes beside each other"
        return report("bad-index", "tensors that are indices must be on adjacent axes", apart, help=help_text)
    try:
        shape = broadcast_shapes([indices.type.shape for _, indices, _ in gathers], "[]")
    except InferenceError as error:
        number = error.operand or 0
        return report(error.code, error.message, gathers[number][2], error.label)
    points = [
        _apply(context, frame, "broadcast_to", [indices], {"shape": shape}, where) for _, indices, where in gathers
    ]
    spans = [where for _, _, where in gathers]
    stacked = single(apply(context, frame, "stack", points, {"axis": -1}, span, spans, symbol="[]"))
    count, rank = len(gathers), x.type.rank
    gathered = range(axis, axis + count)
    lead = _transposed(context, frame, x, [*gathered, *(a for a in range(rank) if a not in gathered)], span)
    found = _apply(context, frame, "gather_nd", [lead, stacked], {}, span)
    if isinstance(found, Poison):
        return found
    points_rank = len(shape)
    before = range(points_rank, points_rank + axis)
    order = [*before, *range(points_rank), *range(points_rank + axis, found.type.rank)]
    return _transposed(context, frame, found, order, span)


def _apply(
    context: Context,
    frame: Frame,
    name: str,
    operands: Sequence[Value | Poison],
    attributes: dict[str, object],
    span: Span,
) -> Value | Poison:
    return single(apply(context, frame, name, operands, attributes, span, [span] * len(operands), symbol="[]"))


def _transposed(context: Context, frame: Frame, x: Value | Poison, axes: Sequence[int], span: Span) -> Value | Poison:
    if isinstance(x, Poison) or list(axes) == sorted(axes):
        return x
    return _apply(context, frame, "transpose", [x], {"axes": tuple(axes)}, span)
