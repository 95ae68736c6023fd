"""Samples of a tensor [N, C, *spatial] at positions between its elements, in any number of axes.

Each position is a float in units of elements, from 0 to size - 1. Taps are the elements that a sample mixes, with a
weight for each: one for the nearest element, two for each axis for linear interpolation, four for cubic.

    linear, position 1.25      taps (1, 0.75) (2, 0.25)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ...dims import Size, bounds, product
from ...graph import Value
from ...operator import Builder
from ...types import BOOL, I32, I64
from .accumulate import Numbers
from .algebra import Term
from .common import size_as
from .index_modes import taken_along

EXACT = 1 << 24
"""The longest axis on which every position is exact in f32."""
Taps = list[tuple[Term, Term | None]]
"""Whole positions, as floats, and their weights."""


def sample(
    b: Builder,
    x: Value,
    positions: Sequence[Term],
    mode: str,
    padding: str,
    *,
    corners: bool = True,
    mixed: bool = True,
) -> Value:
    """Returns the samples [N, C, *grid] at positions [N, *grid], one tensor for each spatial axis. `corners` says
    whether a reflection is at the centres of the outer elements, or at their outer edges. If they are `mixed` by an
    internal operator, they have no gradient."""
    taps = [
        _taps(b, position, mode, padding, corners, x.type.shape[2 + axis]) for axis, position in enumerate(positions)
    ]
    if mixed:
        return _mixed(b, x, taps, padding, corners)
    total: Term | None = None
    for choice in itertools.product(*taps):
        part = _sampled(b, x, [position for position, _ in choice], padding, corners)
        weight: Term | None = None
        for _, factor in choice:
            if factor is not None:
                weight = factor if weight is None else weight * factor
        if weight is not None:
            part = part * weight.unsqueeze(axes=1).cast(dtype=part.dtype)
        total = part if total is None else total + part
    assert total is not None
    return total.value


def _taps(b: Builder, position: Term, mode: str, padding: str, corners: bool, size: Size) -> Taps:
    if mode == "nearest":
        return [(position.round(), None)]
    if mode == "linear" and padding != "zeros":
        # Between two elements, the position itself is moved inside.
        position = _inside(b, position, padding, corners, size)
    base = position.floor()
    part = position - base
    if mode == "linear":
        return [(base, 1 - part), (base + 1, part)]
    return [(base + i, _cubic((part - i).abs())) for i in range(-1, 3)]


def _cubic(d: Term, a: float = -0.75) -> Term:
    near = ((d * (a + 2) - (a + 3)) * d) * d + 1
    far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a
    return d.less_equal(1).select(near, d.less(2).select(far, 0.0))


def _inside(b: Builder, position: Term, padding: str, corners: bool, size: Size) -> Term:
    """Returns the position moved into the tensor: to the border, or reflected there."""
    last = Term(b, size_as(b, size, position.dtype)) - 1
    if padding == "border":
        return position.maximum(0).minimum(last)
    low, high = (0.0, last) if corners else (-0.5, last + 0.5)
    span = high - low
    span = span.equal(0).select(1.0, span)
    # Reflection repeats with a period of two spans.
    offset = (position - low).remainder(span * 2)
    reflected = offset.greater(span).select(span * 2 - offset, offset) + low
    return reflected.maximum(0).minimum(last)


def _mixed(b: Builder, x: Value, taps: Sequence[Taps], padding: str, corners: bool) -> Value:
    outer, grid = x.type.shape[:2], taps[0][0][0].shape[1:]
    flat, positions, weights = (outer[0], product(grid)), list[Value](), list[Value]()
    for choice in itertools.product(*taps):
        position, outside = _address(b, x, [position for position, _ in choice], padding, corners)
        if outside is not None:
            position = b.where(outside, b.scalar(-1, I64), position)
        positions.append(b.reshape(position, shape=flat))
        weight: Term | None = None
        for _, factor in choice:
            if factor is not None:
                weight = factor if weight is None else weight * factor
        if weight is not None:
            weights.append(weight.cast(dtype=x.type.dtype).reshape(shape=flat).value)
    rows = b.reshape(x, shape=(*outer, product(x.type.shape[2:])))
    made = b.apply("mix_taps", [rows, *positions, *weights], {"weighted": bool(weights)})[0]
    return b.reshape(made, shape=(*outer, *grid))


def _address(
    b: Builder, x: Value, positions: Sequence[Term], padding: str, corners: bool
) -> tuple[Value, Value | None]:
    """Returns the indices of elements among those of a channel, and a mask of those that are outside of the tensor."""
    outside: Value | None = None
    flat: Value | None = None
    for axis, position in enumerate(positions):
        size = x.type.shape[2 + axis]
        if padding != "zeros":
            index = _index(_inside(b, position, padding, corners, size).round(), size)
        elif bounds(size)[1] <= EXACT:
            inside = position.maximum(0).minimum(Term(b, size_as(b, size, position.dtype)) - 1)
            index, beyond = _index(inside, size), b.not_equal(inside.value, position.value)
            outside = beyond if outside is None else b.logical_or(outside, beyond)
        else:
            raw = position.cast(dtype=I64).value
            index = b.minimum(b.maximum(raw, b.scalar(0, I64)), size_as(b, size - 1, I64))
            beyond = b.not_equal(index, raw)
            outside = beyond if outside is None else b.logical_or(outside, beyond)
        flat = index if flat is None else b.add(b.multiply(flat, size_as(b, size, I64)), index)
    assert flat is not None
    return flat, outside


def _index(position: Term, size: Size) -> Value:
    """Returns a whole position inside of an axis as i64, by way of i32 where it fits: that is one instruction."""
    if bounds(size)[1] <= EXACT:
        position = position.cast(dtype=I32)
    return position.cast(dtype=I64).value


def _sampled(b: Builder, x: Value, positions: Sequence[Term], padding: str, corners: bool) -> Term:
    """Returns the elements [N, C, *grid] at whole positions; zeros outside of the tensor if it is padded with zeros."""
    flat, outside = _address(b, x, positions, padding, corners)
    grid = positions[0].shape[1:]
    outer, count = x.type.shape[:2], product(grid)
    rows = b.reshape(x, shape=(*outer, product(x.type.shape[2:])))
    index = b.broadcast_to(b.reshape(flat, shape=(outer[0], 1, count)), shape=(*outer, count))
    found = b.reshape(b.take_along_axis(rows, index, axis=2, mode="clamp"), shape=(*outer, *grid))
    if outside is None:
        return Term(b, found)
    assert outside.type.dtype == BOOL
    return Term(b, b.unsqueeze(outside, axes=1)).select(0.0, Term(b, found))


def sample_array(x: Numbers, positions: Sequence[Numbers], mode: str, padding: str, *, corners: bool) -> Numbers:
    """Computes `sample` for the references."""
    sizes = x.shape[2:]
    taps: list[list[tuple[Numbers, Numbers | None]]] = []
    for position, size in zip(positions, sizes, strict=True):
        if mode == "linear" and padding != "zeros":
            position = _inside_array(position, size, padding, corners)
        base = np.floor(position)
        part = position - base
        if mode == "nearest":
            taps.append([(np.round(position), None)])
        elif mode == "linear":
            taps.append([(base, 1 - part), (base + 1, part)])
        else:
            taps.append([(base + i, _cubic_array(np.abs(part - i))) for i in range(-1, 3)])
    total = np.zeros((*x.shape[:2], *positions[0].shape[1:]), x.dtype)
    for choice in itertools.product(*taps):
        inside = np.ones(positions[0].shape, np.bool_)
        flat = np.zeros(positions[0].shape, np.int64)
        weight = np.ones(positions[0].shape, positions[0].dtype)
        for (at, factor), size in zip(choice, sizes, strict=True):
            raw = _whole(at if padding == "zeros" else np.round(_inside_array(at, size, padding, corners)))
            index = np.maximum(np.minimum(raw, size - 1), 0)
            inside &= (index == raw) | (padding != "zeros")
            flat = flat * size + index
            weight = weight if factor is None else weight * factor
        rows = x.reshape(*x.shape[:2], int(np.prod(sizes)))
        count = int(np.prod(flat.shape[1:]))
        index = np.broadcast_to(flat.reshape(x.shape[0], 1, count), (*x.shape[:2], count))
        found = taken_along(rows, index).reshape(total.shape)
        kept = np.where(inside[:, None], found, 0)
        total = total + (kept if mode == "nearest" else kept * weight[:, None].astype(x.dtype))
    return np.asarray(total, x.dtype)


def _whole(position: Numbers) -> Numbers:
    """Converts floats as compiled code does: NaN becomes 0, and a float out of range the nearest integer."""
    limit = 2.0**62
    return np.asarray(np.clip(np.nan_to_num(position, nan=0.0, posinf=limit, neginf=-limit), -limit, limit), np.int64)


def _inside_array(position: Numbers, size: int, padding: str, corners: bool) -> Numbers:
    last = size - 1
    if padding == "reflection":
        low, high = (0.0, float(last)) if corners else (-0.5, last + 0.5)
        span = high - low or 1.0
        offset = np.mod(position - low, 2 * span)
        position = np.where(offset > span, 2 * span - offset, offset) + low
    return np.asarray(np.minimum(np.maximum(position, 0), last), position.dtype)


def _cubic_array(d: Numbers, a: float = -0.75) -> Numbers:
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0)), d.dtype)
