"""Indices that are known at run time only: negative indices, and the modes for indices out of range.

A negative index counts from the end. With mode `error`, the default, an index beyond either end fails the call: the
pass `check-indices` inserts the check, and the interpreter checks by itself. With `nonnegative`, a negative index fails
it too. `clamp` takes the nearest element. `drop` reads 0 and writes nothing. `watch`, which only passes write, takes
element 0 and raises an alarm, so that the call checks the indices. No mode reads or writes outside of a tensor. A read
of an empty axis gives 0.

    axis of 5, index 7:     error fails the call     clamp reads element 4     drop reads 0
    axis of 5, index -1:    error reads element 4    nonnegative fails the call
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dims import Size, at_least, bounds
from ...emitter import Scalar, ScalarEmitter, Tensor
from ...operator import AttributeSpec, Operand
from ...types import BOOL, I32, I64, U32, U64
from .accumulate import Numbers

INDICES = (I32, I64)
"""The dtypes of indices."""
OTHER_MODES = ("clamp", "drop")
"""The modes in which no index fails the call."""
NONNEGATIVE = "nonnegative"
FAILING_MODES = ("error", NONNEGATIVE)
"""The modes in which an index out of range fails the call."""
WATCH = "watch"
"""The mode of an operator whose kernel reports that an index is out of range, for a deferred check."""
MODE = AttributeSpec("mode", "str", "error", choices=("error", *OTHER_MODES), internal=(WATCH,))
"""The attribute of an operator that reads or writes single elements by index."""
SIGNED_MODE = AttributeSpec("mode", "str", "error", choices=(*FAILING_MODES, *OTHER_MODES), internal=(WATCH,))
"""The same for an operator that may reject negative indices."""
WINDOW_MODE = AttributeSpec("mode", "str", "error", choices=("error", "clamp"))
"""The same for windows, which are moved as a whole."""
PAGE_MODE = AttributeSpec("mode", "str", "error", choices=(*FAILING_MODES, "clamp"))
"""The same for pages."""


def index_operand(name: str = "indices") -> Operand:
    return Operand(name, INDICES, group="I")


def from_start(s: ScalarEmitter, index: Scalar, size: Scalar) -> Scalar:
    """Returns the index as i64, counted from the start if it is in range."""
    index = s.cast(index, I64)
    return s.select(s.compare("lt", index, s.constant(0, I64)), s.binary("add", index, size), index)


def clamped(s: ScalarEmitter, index: Scalar, size: Size, mode: str = "clamp", *, window: Size = 1) -> Scalar:
    """Returns the first position, as i64, of a window that starts at `index` of an axis: from the end if negative, and
    moved inside the axis."""
    if mode == WATCH:
        return _watched(s, index, size, window)
    index = from_start(s, index, s.size(size))
    return s.binary("max", s.binary("min", index, s.size(size - window)), s.constant(0, I64))


def _watched(s: ScalarEmitter, index: Scalar, size: Size, window: Size) -> Scalar:
    """Returns the position of a window in an axis that is not empty, or 0 with an alarm. A negative position is a large
    unsigned number, so that one comparison suffices; indices in i32 stay in 32 bits where the size permits."""
    narrow = index.dtype is I32 and bounds(size)[1] < 1 << 31
    signed, unsigned = (I32, U32) if narrow else (I64, U64)
    index, zero = s.cast(index, signed), s.constant(0, signed)
    end = s.select(s.compare("lt", index, zero), s.cast(s.size(size), signed), zero)
    position, last = s.binary("add", index, end), s.cast(s.size(size - window), signed)
    outside = s.compare("gt", s.cast(position, unsigned), s.cast(last, unsigned))
    return s.cast(s.watch(s.select(outside, zero, position), outside), I64)


def are_inside(s: ScalarEmitter, indices: Sequence[Scalar], sizes: Sequence[Size]) -> Scalar:
    """Returns whether every index is inside its axis."""
    inside = s.constant(True, BOOL)
    for index, size in zip(indices, sizes, strict=True):
        position = from_start(s, index, s.size(size))
        above, below = s.compare("ge", position, s.constant(0, I64)), s.compare("lt", position, s.size(size))
        inside = s.binary("and", inside, s.binary("and", above, below))
    return inside


def clamped_array(index: Any, size: int, mode: str = "clamp", *, window: int = 1) -> Numbers:
    """Computes `clamped` for the references."""
    position = _from_start(index, size)
    if mode == WATCH:
        return np.where((position < 0) | (position > size - window), 0, position)
    return np.asarray(np.maximum(np.minimum(position, size - window), 0))


def are_inside_array(index: Any, size: int) -> Numbers:
    """Computes `are_inside` for the references and one axis."""
    wide = _from_start(index, size)
    return np.asarray((wide >= 0) & (wide < size))


def _from_start(index: Any, size: int) -> Numbers:
    wide = np.asarray(index).astype(np.int64)
    return np.where(wide < 0, wide + size, wide)


def find_outside(indices: Numbers, sizes: Sequence[int], window: int, *, from_end: bool = True) -> int | None:
    """Returns the number, in row-major order, of the first index out of range. Indices address axes of `sizes` in
    turn. Negative ones count from the end, or are out of range if `from_end` is False."""
    flat = indices.astype(np.int64).reshape(-1)
    size = np.resize(np.asarray(sizes, np.int64), flat.shape)
    position = np.where(flat < 0, flat + size, flat) if from_end else flat
    outside = np.flatnonzero((position < 0) | (position > size - window))
    return int(outside[0]) if outside.size else None


def taken_along(x: Numbers, index: Numbers) -> Numbers:
    """Returns the elements at indices of the last axis that are in range, or zeros if the axis is empty."""
    return np.take_along_axis(x, index, -1) if x.shape[-1] else np.zeros(index.shape, x.dtype)


def load_if_any(s: ScalarEmitter, x: Tensor, indices: Sequence[Scalar], axes: Sequence[int]) -> Scalar:
    """Returns the element, or 0 if one of the axes is empty. The other axes are known to hold the element."""
    doubtful = [axis for axis in axes if not at_least(x.type.shape[axis], 1)]
    if not doubtful:
        return s.load(x, indices)
    some = s.constant(True, BOOL)
    for axis in doubtful:
        some = s.binary("and", some, s.compare("gt", s.size(x.type.shape[axis]), s.constant(0, I64)))
    return s.load_if(some, x, indices)


def load_by_mode(
    s: ScalarEmitter, x: Tensor, positions: Sequence[Scalar], given: Sequence[Scalar], axes: Sequence[int], mode: str
) -> Scalar:
    """Returns the element at `positions`, the `given` indices of `axes` moved inside; or 0 if the mode drops it."""
    value = load_if_any(s, x, positions, axes)
    if mode != "drop":
        return value
    inside = are_inside(s, given, [x.type.shape[axis] for axis in axes])
    return s.select(inside, value, s.constant(0, x.type.dtype))
