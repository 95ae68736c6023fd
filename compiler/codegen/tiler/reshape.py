"""Reshapes of tensors: the same memory, and the same op's result where only axes of size 1 are added or removed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ....dialect.dims import Size, multiply
from .structure import Tensor, Unsupported, View


def expand(source: Tensor, shape: tuple[Size, ...], groups: Sequence[Sequence[int]]) -> Tensor:
    """Expands each axis of the source into a group of axes."""
    view = source.view
    if view is not None:
        strides: list[Size] = [0] * len(shape)
        for stride, group in zip(view.strides, groups, strict=True):
            for axis in reversed(group):
                strides[axis] = stride
                stride = multiply(stride, shape[axis])
        if not groups:
            strides = [1] * len(shape)
        view = View(view.buffer, view.offset, tuple(strides))
    axes: list[int | None] | None = None
    if source.axes is not None:
        moved: dict[int, int | None] = {}
        for axis, group in enumerate(groups):
            large = [a for a in group if shape[a] != 1]
            if len(large) > 1:
                break
            moved[axis] = large[0] if large else group[-1]
        else:
            axes = [None if a is None else moved[a] for a in source.axes]
    fixed = None if axes is None else tuple(axes)
    return Tensor(shape, source.element, view, source.splat, source.op if fixed is not None else None, fixed)


def collapse(source: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
    """Collapses each group of axes of the source into one axis."""
    shape: list[Size] = []
    strides: list[Size] = []
    moved: dict[int, int | None] = {}
    simple = source.axes is not None
    for number, group in enumerate(groups):
        size: Size = 1
        for axis in group:
            size = multiply(size, source.shape[axis])
        shape.append(size)
        large = [axis for axis in group if source.shape[axis] != 1]
        simple = simple and len(large) <= 1
        moved |= {axis: number if axis in large or (not large and axis == group[-1]) else None for axis in group}
        if source.view is not None:
            stride = source.view.strides[large[-1] if large else group[-1]]
            for left, right in pairwise(large):
                whole = multiply(source.view.strides[right], source.shape[right])
                if source.view.strides[left] != whole:
                    raise Unsupported("axes that do not lie together become one")
            strides.append(stride)
    if not groups:
        moved = dict.fromkeys(range(len(source.shape)))
    view = None if source.view is None else View(source.view.buffer, source.view.offset, tuple(strides))
    axes = tuple(None if a is None else moved[a] for a in source.axes) if simple and source.axes is not None else None
    op = source.op if axes is not None else None
    return Tensor(tuple(shape), source.element, view, source.splat, op, axes)
