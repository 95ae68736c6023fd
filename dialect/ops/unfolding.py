"""Windows as columns, and their sum: `unfold` (im2col) and `fold` (col2im)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product as combinations
from typing import Any

import numpy as np

from ..differentiate import by_decomposition
from ..dims import Size, add, bounds, divide_exactly, multiply, product
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator
from ..types import ANY, F32, I64, NUMBERS, TensorType, dtype_of
from .support.accumulate import Numbers, widen
from .support.arguments import read_sizes
from .support.common import is_half
from .support.windows import (
    WINDOW_ATTRIBUTES,
    Windows,
    check_reach,
    conv_geometry,
    inside_padding,
    integers,
    pad_array,
    per_axis,
    window_slices,
    windows,
)


def _windows(x: TensorType, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Windows:
    if x.rank < 3:
        raise InferenceError("rank-mismatch", f"`unfold` takes a tensor [N, C, *spatial], not {x}", operand=0)
    sizes = per_axis(kernel, x.rank - 2, "kernel", "unfold")
    return windows("unfold", x.shape[2:], sizes, stride=stride, padding=padding, dilation=dilation)


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    w = _windows(x, **attributes)
    check_reach("unfold", w)
    return (x.with_shape((x.shape[0], multiply(x.shape[1], product(w.kernel)), product(w.counts))),)


def _decompose(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    (x,) = operands
    w = _windows(x.type, **attributes)
    outer = x.type.shape[:2]
    if any(size != 0 for size in (*w.low, *w.high)):
        x = b.pad(x, widths=((0, 0), (0, 0), *zip(w.low, w.high, strict=True)))
    parts = []
    for offset in combinations(*map(range, integers(w.kernel))):
        cut = x
        for axis, (start, count, step) in enumerate(zip(_starts(w, offset), w.counts, w.stride, strict=True), 2):
            cut = _every(b, cut, axis, start, count, step)
        parts.append(b.reshape(cut, shape=(*outer, product(w.counts))))
    return [b.reshape(b.stack(*parts, axis=2), shape=_infer([operands[0].type], attributes)[0].shape)]


def _starts(w: Windows, offset: Sequence[int]) -> list[int]:
    return [o * d for o, d in zip(offset, w.dilation, strict=True)]


def _every(b: Builder, x: Value, axis: int, start: int, count: Size, step: int) -> Value:
    """Returns `count` elements of an axis, from `start` on: a slice, or a gather if the number is not known."""
    if isinstance(count, int):
        before, rank = (None,) * axis, x.type.rank
        # No window, no elements: the stop is then the start.
        stop = start + (count - 1) * step + 1 if count else start
        after = (None,) * (rank - axis - 1)
        steps = tuple(step if i == axis else 1 for i in range(rank))
        return b.slice(x, starts=(*before, start, *after), stops=(*before, stop, *after), steps=steps)
    positions = b.add(b.multiply(b.iota(shape=(count,)), b.scalar(step, I64)), b.scalar(start, I64))
    return b.gather(x, positions, axis=axis, mode="clamp")


def _reference(x: Numbers, **attributes: Any) -> Numbers:
    w = _windows(TensorType(dtype_of(x), x.shape), **attributes)
    padded = pad_array(x, w, 0)
    parts = [padded[window_slices(w, offset)] for offset in combinations(*map(range, integers(w.kernel)))]
    return np.stack(parts, 2).reshape(x.shape[0], x.shape[1] * len(parts), math.prod(integers(w.counts)))


unfold = Operator(
    name="unfold",
    summary="the windows of x [N, C, *spatial] as columns [N, C * kernel, windows] (im2col); the elements of a window "
    "are in the order of the channels, then of the kernel",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("kernel", "ints"), *WINDOW_ATTRIBUTES),
    infer=_infer,
    reference=_reference,
    gradient=by_decomposition(_decompose),
    decompose=_decompose,
    cases=LateCases(
        lambda: (
            Case(((2, 3, 5, 6),), {"kernel": (2, 3)}),
            Case(((1, 2, 7, 5),), {"kernel": 3, "stride": 2, "padding": 1, "dilation": 2}),
            Case(((2, 1, 9),), {"kernel": 3, "stride": 3}),
            Case(((1, 1, 1),), {"kernel": 1}),
            Case(((0, 2, 5),), {"kernel": 2}),
        )
    ),
    properties=frozenset({"composite", "movement"}),
)


# Columns [N, C * kernel, windows] to an image [N, C, *sizes]


def _fold_windows(sizes: Any, kernel: Any, **attributes: Any) -> Windows:
    spatial = read_sizes("fold", "sizes", sizes)
    w = conv_geometry("fold", spatial, per_axis(kernel, len(spatial), "kernel", "fold"), attributes)
    if not all(isinstance(width, int) for width in w.low):
        raise InferenceError("bad-attribute", "`fold` needs a padding that does not depend on dims")
    check_reach("fold", w)
    return w


def _infer_fold(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (columns,) = types
    w = _fold_windows(**attributes)
    area = math.prod(integers(w.kernel))
    channels = divide_exactly(columns.shape[1], area) if columns.rank == 3 else None
    if channels is None or columns.shape[2] != product(w.counts):
        message = f"`fold` takes columns [N, C * {area}, {product(w.counts)}], not {columns}"
        raise InferenceError("shape-mismatch", message, operand=0)
    return (columns.with_shape((columns.shape[0], channels, *w.sizes)),)


def _decompose_fold(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    """Adds shifted blocks of `stride` elements. Along one axis, window `o` begins at `o * stride`, and `a * stride + r`
    is an offset in it:

        image[(o + a) * stride + r] += column[a * stride + r, o]
        blocks[b, r] = sum of column[a * stride + r, b - a] over a

    One axis after the other, the last one first: sums along it leave a fraction of the columns for the next one.
    """
    (columns,) = operands
    w = _fold_windows(**attributes)
    (result,) = _infer_fold([columns.type], attributes)
    rank, dtype = len(w.sizes), columns.type.dtype
    x = b.reshape(columns, shape=(*result.shape[:2], *w.kernel, *w.counts))
    x = b.cast(x, dtype=F32) if is_half(dtype) else x
    shifts: list[list[int]] = []
    for axis, (size, step, spread) in enumerate(zip(integers(w.kernel), w.stride, w.dilation, strict=True), 2):
        x, offsets = _phased(b, x, axis, size, step, spread)
        shifts.append(offsets)
    outer = result.shape[:2]
    split = tuple(n for offsets, step in zip(shifts, w.stride, strict=True) for n in (len(offsets), step))
    x = b.reshape(x, shape=(*outer, *split, *w.counts))
    most = [max(offsets) for offsets in shifts]
    for i in reversed(range(rank)):
        x = _add_shifted(b, x, 2 + 2 * i, 2 + 2 * rank + i, shifts[i])
    blocks = [count + m for count, m in zip(w.counts, most, strict=True)]
    image = b.reshape(x, shape=(*outer, *w.stride, *blocks))
    order = (0, 1, *(axis for i in range(rank) for axis in (2 + rank + i, 2 + i)))
    whole = [multiply(block, step) for block, step in zip(blocks, w.stride, strict=True)]
    image = b.reshape(b.transpose(image, axes=order), shape=(*outer, *whole))
    for axis, (length, low, kept) in enumerate(zip(whole, integers(w.low), w.sizes, strict=True), 2):
        image = _cut(b, image, axis, length, low, kept)
    return [b.cast(image, dtype=dtype) if is_half(dtype) else image]


def _add_shifted(b: Builder, x: Value, taps: int, axis: int, offsets: Sequence[int]) -> Value:
    """Returns the sum of the elements of axis `taps`, where that of each tap is moved along another axis by its offset
    of blocks. The axis of taps has one element then."""
    rank, most = x.type.rank, max(offsets)
    if len(offsets) == 1:
        return x
    x = b.pad(x, widths=tuple((most, most) if a == axis else (0, 0) for a in range(rank)))
    total: Value | None = None
    for tap, offset in enumerate(offsets):
        first, last = {taps: tap, axis: most - offset}, {taps: tap + 1, axis: -offset or None}
        part = b.slice(x, starts=tuple(map(first.get, range(rank))), stops=tuple(map(last.get, range(rank))))
        total = part if total is None else b.add(total, part)
    assert total is not None
    return total


def _phased(b: Builder, x: Value, axis: int, size: int, step: int, spread: int) -> tuple[Value, list[int]]:
    """Returns the tensor whose axis of the kernel is [taps * step], and the shift of each tap in blocks of `step`."""
    if step == 1:
        return x, [tap * spread for tap in range(size)]
    shape = x.type.shape
    if spread > 1:
        apart = b.unsqueeze(x, axes=(axis + 1,))
        apart = b.pad(apart, widths=tuple((0, spread - 1 if a == axis + 1 else 0) for a in range(apart.type.rank)))
        size *= spread
        x = b.reshape(apart, shape=(*shape[:axis], size, *shape[axis + 1 :]))
    taps = -(-size // step)
    more = taps * step - size
    if more:
        x = b.pad(x, widths=tuple((0, more if a == axis else 0) for a in range(x.type.rank)))
    return x, list(range(taps))


def _cut(b: Builder, x: Value, axis: int, length: Size, low: int, size: Size) -> Value:
    """Returns `size` elements of an axis of `length`, from `low` on; those that no block reaches are 0."""
    missing = add(add(size, low), multiply(-1, length))
    if length == size and low == 0:
        return x
    more = max(0, bounds(missing)[1])
    if more:
        x = b.pad(x, widths=tuple((0, more if a == axis else 0) for a in range(x.type.rank)))
    return _every(b, x, axis, low, size, 1)


def _reference_fold(columns: Numbers, **attributes: Any) -> Numbers:
    w = _fold_windows(**attributes)
    kernel, counts = integers(w.kernel), integers(w.counts)
    channels = columns.shape[1] // math.prod(kernel)
    given = widen(columns).reshape(columns.shape[0], channels, *kernel, *counts)
    total = np.zeros((*given.shape[:2], *integers(w.padded)), given.dtype)
    for offset in np.ndindex(*kernel):
        total[window_slices(w, offset)] += given[(slice(None), slice(None), *offset)]
    return np.asarray(total[inside_padding(w)].astype(columns.dtype))


fold = Operator(
    name="fold",
    summary="the image [N, C, *sizes] to which columns [N, C * kernel, windows] add up (col2im), where windows "
    "overlap; the adjoint of `unfold`",
    operands=(Operand("columns", NUMBERS),),
    attributes=(AttributeSpec("sizes", "sizes"), AttributeSpec("kernel", "ints"), *WINDOW_ATTRIBUTES),
    infer=_infer_fold,
    reference=_reference_fold,
    gradient=by_decomposition(_decompose_fold),
    decompose=_decompose_fold,
    cases=LateCases(
        lambda: (
            Case(((2, 18, 16),), {"sizes": (5, 6), "kernel": (2, 3), "padding": ((0, 0), (0, 0))}, terms=6),
            Case(((1, 18, 6),), {"sizes": (7, 5), "kernel": 3, "stride": 2, "padding": 1, "dilation": 2}, terms=9),
            Case(((2, 3, 3),), {"sizes": (9,), "kernel": 3, "stride": 3}),
            Case(((1, 10, 2),), {"sizes": (11,), "kernel": 5, "stride": 4, "padding": ((1, 0),)}, terms=2),
            Case(((1, 2, 2),), {"sizes": (8,), "kernel": 2, "stride": 5}),
            Case(((1, 1, 1),), {"sizes": (1,), "kernel": 1}),
            Case(((0, 4, 4),), {"sizes": (5,), "kernel": 2}),
        )
    ),
    properties=frozenset({"composite"}),
)

OPERATORS = (unfold, fold)
