"""Slices and padding, with bounds that are known, symbolic, or computed in a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....dialect.dims import INFINITY, Poly, Size, at_least, bounds
from .....dialect.types import I64
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use

_FAR = (1 << 31) - 1
"""A bound of at least this value is the end of an axis: exporters write the largest integer for it."""


def _slice_by_attributes(use: Use) -> Sequence[Tensor]:
    starts, ends = use.ints_of("starts", ()), use.ints_of("ends", ())
    axes = use.ints_of("axes", tuple(range(len(starts))))
    return [sliced(use, use.input(), starts, ends, axes, (1,) * len(starts))]


def _slice(use: Use) -> Sequence[Tensor]:
    x = use.input()
    starts, ends = use.input(1), use.input(2)
    count = starts.shape[0] if starts.rank == 1 else None
    if not isinstance(count, int):
        use.fail_unknown("bounds")
    axes = tuple(range(count)) if use.optional(3) is None else None
    steps = (1,) * count if use.optional(4) is None else None
    is_known = all(operand.sizes is not None for operand in use.inputs_given()[1:])
    if not is_known:
        return [_slice_in_call(use, x, starts, ends, count)]
    axes = axes if axes is not None else use.ints(3, "axes")
    steps = steps if steps is not None else use.ints(4, "steps")
    return [sliced(use, x, use.sizes(1, "bounds"), use.sizes(2, "bounds"), axes, steps)]


def sliced(
    use: Use, x: Tensor, starts: Sequence[Size], ends: Sequence[Size], axes: Sequence[int], steps: Sequence[int]
) -> Tensor:
    if not len(starts) == len(ends) == len(axes) == len(steps):
        use.fail("has bounds, axes and steps of different lengths", code="shape-mismatch")
    bounds_of: dict[int, tuple[Any, Any, int]] = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not -x.rank <= axis < x.rank or step == 0:
            use.fail(f"has the axis {axis} and the step {step} for an operand of rank {x.rank}", code="bad-axis")
        size = x.shape[axis % x.rank]
        bounds_of[axis % x.rank] = (_start(start, size, step), _end(end, size, step), step)
    whole = (None, None, 1)
    parts = [bounds_of.get(axis, whole) for axis in range(max(bounds_of, default=-1) + 1)]
    if not parts:
        return x
    attributes = {"starts": tuple(p[0] for p in parts), "stops": tuple(p[1] for p in parts)}
    return use.g.slice(x, **attributes, steps=tuple(p[2] for p in parts))


def _start(start: Size, size: Size, step: int) -> Size | None:
    if isinstance(start, int):
        if step < 0 and start >= _FAR:
            return None
        if step > 0 and start <= -_FAR:
            return 0
        return max(min(start, INFINITY), -INFINITY)
    return start


def _end(end: Size, size: Size, step: int) -> Size | None:
    if end == size and step > 0:
        return None
    if isinstance(end, int):
        if (step > 0 and end >= _FAR) or (step < 0 and end <= -_FAR):
            return None
        if step < 0 and isinstance(size, int) and end < -size:
            return None
        return max(min(end, INFINITY), -INFINITY)
    return end


def _slice_in_call(use: Use, x: Tensor, starts: Tensor, ends: Tensor, count: int) -> Tensor:
    """Takes a slice with bounds of the call. The declared shape gives its sizes, which the call checks.

    Elements are gathered along each axis at start + i * step, with bounds clipped as the standard specifies.
    """
    g, declared = use.g, use.declared_shape("bounds", rank=x.rank)
    rank = x.rank
    axes_given, steps_given = use.optional(3), use.optional(4)
    if axes_given is None:
        axes: tuple[int, ...] = tuple(range(count))
    elif axes_given.sizes is not None:
        axes = use.axes_in(rank, use.ints(3, "axes"))
    else:
        axes = tuple(range(count))
        if count != rank:
            differing = [axis for axis in range(rank) if x.shape[axis] != declared[axis]]
            if len(differing) != count:
                use.fail_unknown("axes")
            axes = tuple(differing)
        normal = g.remainder(g.cast(axes_given, dtype=I64), known(np.int64(rank)))
        use.require(g.all(g.equal(normal, known(np.array(axes, np.int64)))))
    if len(axes) != count or count > rank:
        use.fail(f"has {count} bounds for {len(axes)} axes of {x.type}", code="shape-mismatch")
    for position, axis in enumerate(axes):
        at = known(np.int64(position))
        size = g.size(x.shape[axis])
        start, end = (g.cast(g.gather(each, at, axis=0), dtype=I64) for each in (starts, ends))
        step = known(np.int64(1)) if steps_given is None else g.cast(g.gather(steps_given, at, axis=0), dtype=I64)
        zero, one = known(np.int64(0)), known(np.int64(1))
        forward = g.greater(step, zero)
        start = g.where(g.less(start, zero), g.add(start, size), start)
        end = g.where(g.less(end, zero), g.add(end, size), end)
        low, high = g.where(forward, zero, g.negate(one)), g.where(forward, size, g.subtract(size, one))
        start = g.minimum(g.maximum(start, g.where(forward, zero, zero)), high)
        end = g.minimum(g.maximum(end, low), high)
        extent = g.where(forward, g.subtract(end, start), g.subtract(start, end))
        length = g.floor_divide(g.subtract(g.add(extent, g.abs(step)), one), g.maximum(g.abs(step), one))
        use.require(g.equal(g.maximum(length, zero), g.size(declared[axis])))
        positions = g.add(start, g.multiply(g.iota(shape=(declared[axis],)), step))
        x = g.gather(x, positions, axis=axis)
    return x


def _pad(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    if use.version < 11:
        name = "pads" if use.version >= 2 else "paddings"
        return [padded(use, x, use.ints_of(name), use.string("mode", "constant"), use.number("value", 0.0))]
    mode = use.string("mode", "constant")
    value = use.optional(2)
    axes = tuple(range(x.rank))
    if use.optional(3) is not None and use.input(3).sizes is None:
        return [_pad_in_call(use, x, pads=use.input(1), axes=None, mode=mode, value=value)]
    if use.optional(3) is not None:
        axes = use.axes_in(x.rank, use.ints(3, "axes"))
    pads = use.input(1)
    if pads.sizes is None:
        return [_pad_in_call(use, x, pads, axes, mode, value)]
    widths: list[Size] = [0] * (2 * x.rank)
    if len(pads.sizes) != 2 * len(axes):
        use.fail(f"has {len(pads.sizes)} widths for {len(axes)} axes", code="shape-mismatch")
    for position, axis in enumerate(axes):
        widths[axis], widths[axis + x.rank] = pads.sizes[position], pads.sizes[position + len(axes)]
    if value is not None and value.type.elements != 1:
        use.fail(f"takes one value, not {value.type}", code="wrong-operands")
    if mode != "constant" or value is None:
        return [padded(use, x, widths, mode, 0.0)]
    if value.array is not None:
        return [padded(use, x, widths, mode, value.array.item())]
    inside = padded(use, g.broadcast_to(known(True), shape=x.shape), widths, "constant", 0.0)
    return [g.where(inside, padded(use, x, widths, "constant", 0.0), g.reshape(value, shape=()))]


def _pad_in_call(
    use: Use, x: Tensor, pads: Tensor, axes: Sequence[int] | None, mode: str, value: Tensor | None
) -> Tensor:
    """Pads by widths of the call. The declared shape gives the sizes, which the call checks."""
    g, declared = use.g, use.declared_shape("widths", rank=x.rank)
    zero, one = known(np.int64(0)), known(np.int64(1))
    inside = g.broadcast_to(known(True), shape=(1,) * x.rank)
    count = pads.shape[0] if pads.rank == 1 else None
    if not isinstance(count, int) or mode not in ("constant", "edge", "reflect", "wrap"):
        use.fail_unknown("widths")
    widths = g.cast(pads, dtype=I64)
    result = x
    for axis in range(x.rank):
        size = g.size(x.shape[axis])
        if axes is not None:
            if axis not in axes:
                continue
            positions = [axes.index(axis), axes.index(axis) + len(axes)]
            before, after = (g.gather(widths, known(np.int64(at)), axis=0) for at in positions)
        else:
            # The axes are arguments of the call as well: a width applies to this axis if its entry in `axes` equals it.
            normal = g.remainder(g.cast(use.input(3), dtype=I64), known(np.int64(x.rank)))
            hits = g.cast(g.equal(normal, known(np.int64(axis))), dtype=I64)
            halves = g.reshape(widths, shape=(2, count // 2))
            sums = g.sum(g.multiply(halves, hits), axis=1)
            before, after = (g.gather(sums, known(np.int64(k)), axis=0) for k in (0, 1))
        use.require(g.equal(g.add(g.add(before, size), after), g.size(declared[axis])))
        at = g.subtract(g.iota(shape=(declared[axis],)), before)
        if mode == "wrap":
            at = g.remainder(at, size)
        elif mode == "reflect":
            period = g.maximum(g.multiply(g.subtract(size, one), known(np.int64(2))), one)
            at = g.remainder(at, period)
            at = g.minimum(at, g.subtract(period, at))
        index = g.minimum(g.maximum(at, zero), g.subtract(size, one))
        result = g.gather(result, index, axis=axis, mode="clamp")
        if mode == "constant":
            here = g.reshape(g.equal(index, at), shape=(declared[axis], *(1,) * (x.rank - axis - 1)))
            inside = g.logical_and(inside, here)
    if mode != "constant":
        return result
    filler = g.like(0, x) if value is None else g.reshape(value, shape=())
    return g.where(inside, result, filler)


def padded(use: Use, x: Tensor, widths: Sequence[Size], mode: str, value: float) -> Tensor:
    """Returns the operand padded; negative widths remove elements."""
    g, rank = use.g, x.rank
    if len(widths) != 2 * rank:
        use.fail(f"has {len(widths)} widths for {rank} axes", code="shape-mismatch")
    pairs = list(zip(widths[:rank], widths[rank:], strict=True))
    if any(bounds(width)[1] < 0 for pair in pairs for width in pair):
        whole: list[tuple[Size | None, Size | None]] = []
        for (before, after), size in zip(pairs, x.shape, strict=True):
            start = -before if bounds(before)[1] < 0 else 0
            whole.append((start, size + after if bounds(after)[1] < 0 else size))
        x = g.slice(x, starts=tuple(s for s, _ in whole), stops=tuple(e for _, e in whole))
        pairs = [tuple(0 if bounds(w)[1] < 0 else w for w in pair) for pair in pairs]  # type: ignore[misc]  # pairs
    if any(isinstance(w, Poly) and not at_least(w, 0) for pair in pairs for w in pair):
        use.fail("has widths that may be negative", code="bad-size")
    if all(width == 0 for pair in pairs for width in pair):
        return x
    if mode == "wrap":
        return _wrapped(use, x, pairs)
    number: Any = bool(value) if x.dtype.name == "bool" else int(value) if x.dtype.is_integer else float(value)
    return g.pad(x, widths=tuple(pairs), mode=mode, value=number)


def _wrapped(use: Use, x: Tensor, pairs: Sequence[tuple[Size, Size]]) -> Tensor:
    g = use.g
    for axis, (before, after) in enumerate(pairs):
        if before == 0 and after == 0:
            continue
        size = x.shape[axis]
        positions = g.subtract(g.iota(shape=(before + size + after,)), g.size(before))
        x = g.gather(x, g.remainder(positions, g.size(size)), axis=axis)
    return x


def _center_crop_pad(use: Use) -> Sequence[Tensor]:
    x = use.input()
    axes = use.axes_in(x.rank, use.ints_of("axes", tuple(range(x.rank))))
    given = use.input(1)
    if given.shape != (len(axes),):
        use.fail(f"has sizes of type {given.type} for {len(axes)} axes", code="shape-mismatch")
    if given.sizes is None:
        declared = use.declared_shape("a shape", rank=x.rank)
        sizes: tuple[Size, ...] = tuple(declared[axis] for axis in axes)
        g = use.g
        use.require(g.all(g.equal(g.cast(given, dtype=I64), known(np.array(sizes, np.int64)))))
    else:
        sizes = given.sizes
    widths: list[Size] = [0] * (2 * x.rank)
    for axis, size in zip(axes, sizes, strict=True):
        old = x.shape[axis]
        if not isinstance(old, int) or not isinstance(size, int):
            use.fail("crops an axis of symbolic size", code="data-dependent")
        if size >= old:
            widths[axis], widths[axis + x.rank] = (size - old) // 2, size - old - (size - old) // 2
        else:
            first = (old - size) // 2
            widths[axis], widths[axis + x.rank] = -first, -(old - size - first)
    return [padded(use, x, widths, "constant", 0.0)]


CONVERTERS: Converters = {
    "Slice": {1: _slice_by_attributes, 10: _slice},
    "Pad": _pad,
    "CenterCropPad": _center_crop_pad,
}
