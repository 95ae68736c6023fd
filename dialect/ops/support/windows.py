"""Windows that slide over spatial axes: the common geometry of convolutions and poolings.

This module defines the geometry (the number of windows, the padding), the padded tensor that windows read, and its
adjoint, the spread tensor, in which the elements of a strided result lie apart. Tensors are [N, C, *spatial] unless
stated otherwise.

For 6 elements, padding (1, 1), a kernel of 3 and a stride of 2, there are 3 windows:

    padded tensor    0 a b c d e f 0        its last element is in no window
    window 0         0 a b
    window 1             b c d
    window 2                 d e f
    spread tensor    r 0 s 0 t              of a result r s t
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...dims import (
    Shape,
    Size,
    at_least,
    bounds,
    ceil_divide,
    floor_divide,
    maximum,
    minimum,
)
from ...emitter import Emitter, IndexMap, Tensor, loop
from ...lazy_dataclass import dataclass
from ...operator import AttributeSpec, InferenceError
from .accumulate import Numbers
from .arguments import is_integer, is_size, refuse_negative


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of a kernel over spatial axes; `low` and `high` are the padding before and after.

    With `ceil`, the last window may extend beyond the padding, if it starts inside the tensor or the padding before it.
    """

    sizes: Shape
    kernel: Shape
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: Shape
    high: Shape
    ceil: bool = False

    @property
    def extent(self) -> Shape:
        """The extent of a window."""
        return tuple(1 + d * (k - 1) for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def counts(self) -> Shape:
        """The number of windows along each axis; 0 if none fits."""
        result = []
        for axis, extent in enumerate(self.extent):
            size, step, low = self.sizes[axis], self.stride[axis], self.low[axis]
            room = size + low + self.high[axis] - extent
            count = floor_divide(room, step) + 1
            if self.ceil:
                count = minimum(ceil_divide(room, step) + 1, ceil_divide(size + low, step))
            result.append(maximum(count, 0))
        return tuple(result)

    @property
    def never_empty(self) -> bool:
        """Returns whether every window surely holds an element that is not padding."""
        return not self.ceil and all(
            at_least(d * (k - 1), low) and at_least(d * (k - 1), high) and at_least(size, d)
            for d, k, low, high, size in zip(self.dilation, self.kernel, self.low, self.high, self.sizes, strict=True)
        )

    @property
    def padded(self) -> Shape:
        """The sizes of the padded tensor, including positions that windows reach beyond the padding."""
        result = []
        for axis, (extent, count) in enumerate(zip(self.extent, self.counts, strict=True)):
            size = self.low[axis] + self.sizes[axis] + self.high[axis]
            result.append(maximum(size, (count - 1) * self.stride[axis] + extent) if self.ceil else size)
        return tuple(result)


def integers(values: Shape) -> tuple[int, ...]:
    """Returns known sizes as integers, for a reference."""
    assert all(isinstance(v, int) for v in values), values
    return tuple(v for v in values if isinstance(v, int))


def check_reach(operator: str, w: Windows) -> None:
    """Raises InferenceError if a window is larger than the padded tensor for all values of the dims."""
    for axis, extent in enumerate(w.extent):
        room = w.low[axis] + w.sizes[axis] + w.high[axis]
        if isinstance(room, int) and isinstance(extent, int) and w.sizes[axis] != 0 and room < extent:
            raise InferenceError(
                "shape-mismatch",
                f"a window of `{operator}` reaches over {extent} elements, axis {axis + 2} with padding has {room}",
                operand=0,
            )


WINDOW_ATTRIBUTES = (
    AttributeSpec("stride", "ints", 1),
    AttributeSpec("padding", "any", 0),
    AttributeSpec("dilation", "ints", 1),
)


def per_axis(value: Any, rank: int, what: str, operator: str, *, least: int = 1) -> tuple[int, ...]:
    """Returns one number per spatial axis, from one for all of them or one for each."""
    values = (value,) * rank if isinstance(value, int) else tuple(value) if isinstance(value, tuple) else ()
    if len(values) != rank or not all(is_integer(v) and v >= least for v in values):
        raise InferenceError(
            "bad-attribute",
            f"`{what}` of `{operator}` is {value!r}, expected an integer of at least {least}, or {rank} of them",
        )
    return values


def _padding_pairs(padding: Any, rank: int, operator: str) -> tuple[tuple[Size, Size], ...]:
    """Returns padding before and after each axis: one number for all, one per axis, or two per axis (in pairs or
    flat)."""
    if not isinstance(padding, tuple) and not isinstance(padding, str):
        padding = (padding,) * rank
    pairs: tuple[Any, ...] = ()
    if isinstance(padding, tuple):
        if len(padding) == rank:
            pairs = tuple(p if isinstance(p, tuple) else (p, p) for p in padding)
        elif len(padding) == 2 * rank:
            pairs = tuple(zip(padding[::2], padding[1::2], strict=True))
    numbers = [v for pair in pairs for v in pair]
    refuse_negative(operator, "padding", numbers)
    if len(numbers) != 2 * rank or any(not is_size(v) or not at_least(v, 0) for v in numbers):
        raise InferenceError(
            "bad-attribute",
            f"`padding` of `{operator}` is {padding!r}",
            label=f'expected "same", "valid", a size, or a tuple of {rank} or {2 * rank} sizes, none negative',
        )
    return tuple((numbers[2 * i], numbers[2 * i + 1]) for i in range(rank))


def windows(
    operator: str,
    sizes: Sequence[Size],
    kernel: Sequence[Size],
    *,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    ceil: bool = False,
) -> Windows:
    """Derives the geometry from the attributes. Raises InferenceError if they are invalid for these sizes."""
    rank = len(sizes)
    steps, spread = per_axis(stride, rank, "stride", operator), per_axis(dilation, rank, "dilation", operator)
    for size in kernel:
        if bounds(size)[0] < 1:
            raise InferenceError("bad-attribute", f"`{operator}` needs a kernel of at least 1, not {size}")
    low: list[Size] = [0] * rank
    high: list[Size] = [0] * rank
    if padding == "same":
        # `same` padding: the number of windows is the size over the stride; of an odd padding the larger half comes
        # after.
        for axis in range(rank):
            extent = 1 + spread[axis] * (kernel[axis] - 1)
            count = ceil_divide(sizes[axis], steps[axis])
            total = maximum((count - 1) * steps[axis] + extent - sizes[axis], 0)
            low[axis] = floor_divide(total, 2)
            high[axis] = total - low[axis]
    elif padding != "valid":
        for axis, pair in enumerate(_padding_pairs(padding, rank, operator)):
            low[axis], high[axis] = pair
    return Windows(tuple(sizes), tuple(kernel), steps, spread, tuple(low), tuple(high), ceil)


def conv_geometry(
    operator: str, sizes: Sequence[Size], kernel: Sequence[Size], attributes: Mapping[str, Any]
) -> Windows:
    """Returns the windows of a convolution, from the attributes `stride`, `padding` and `dilation`."""
    return windows(operator, sizes, kernel, **{name: attributes[name] for name in ("stride", "padding", "dilation")})


def _all_zero(sizes: Sequence[Size]) -> bool:
    return all(s == 0 for s in sizes)


def pad_tensor(e: Emitter, x: Tensor, w: Windows, value: float | int, axis: int = 2) -> Tensor:
    """Returns the tensor that windows read; its spatial axes begin at `axis`."""
    if _all_zero((*w.low, *w.high)) and not w.ceil:
        return x
    shape = x.type.shape
    inner = shape[axis + len(w.low) :]
    target = e.full(x.type.with_shape((*shape[:axis], *w.padded, *inner)), value)
    return e.insert(x, target, (*(0,) * axis, *w.low, *(0,) * len(inner)), (1,) * x.type.rank)


def spread_tensor(e: Emitter, x: Tensor, w: Windows) -> Tensor:
    """Spreads the elements of `x`: each window with stride 1 of the result holds the elements of those windows of `w`
    that cover one position.

    `x` holds one element per window of `w`. Its element o lies at `o * stride + extent - 1 - low`, zeros between, and
    there are `size + extent - 1` positions along each axis of `w`.
    """
    outer, counts = x.type.shape[:2], x.type.shape[2:]
    axes = range(len(counts))
    extent = w.extent
    before = [extent[i] - 1 - w.low[i] for i in axes]
    lengths = [w.sizes[i] + extent[i] - 1 for i in axes]
    last = [before[i] + (counts[i] - 1) * w.stride[i] for i in axes]
    steps = (1, 1, *w.stride)
    if all(at_least(before[i], 0) and at_least(lengths[i] - 1, last[i]) for i in axes):
        if all(lengths[i] == counts[i] for i in axes) and _all_zero(before) and set(w.stride) == {1}:
            return x
        target = e.full(x.type.with_shape((*outer, *lengths)), 0)
        return e.insert(x, target, (0, 0, *before), steps)
    # Some elements may lie outside: they are written into a longer tensor, which is then sliced.
    longer = [maximum(w.low[i] + w.sizes[i], (counts[i] - 1) * w.stride[i] + 1) + 2 * (extent[i] - 1) for i in axes]
    target = e.full(x.type.with_shape((*outer, *longer)), 0)
    written = e.insert(x, target, (0, 0, *(extent[i] - 1 for i in axes)), steps)
    return e.slice(written, (0, 0, *w.low), (*outer, *lengths), (1,) * x.type.rank)


def window_map(w: Windows, first_position: int, first_offset: int) -> IndexMap:
    """Returns the index map of the padded tensor, from loops over windows and over offsets inside a window."""
    return tuple(
        loop(first_position + i) * w.stride[i] + loop(first_offset + i) * w.dilation[i] for i in range(len(w.stride))
    )


def pad_array(x: Numbers, w: Windows, value: float | int) -> Numbers:
    """Returns the padded tensor of a reference."""
    padded = np.full((*x.shape[:2], *integers(w.padded)), value, x.dtype)
    padded[inside_padding(w)] = x
    return padded


def inside_padding(w: Windows) -> tuple[Any, ...]:
    """Returns the index, in the padded array, of the elements that are not padding."""
    return (..., *(slice(low, low + n) for low, n in zip(integers(w.low), integers(w.sizes), strict=True)))


def window_slices(w: Windows, offset: Sequence[int]) -> tuple[Any, ...]:
    """Returns the index of the elements at one offset of every window, in the padded array."""
    return (
        ...,
        *(
            slice(o * d, o * d + (count - 1) * s + 1 if count else o * d, s)
            for o, d, s, count in zip(offset, w.dilation, w.stride, integers(w.counts), strict=True)
        ),
    )


def in_columns(x: Numbers) -> Numbers:
    """Returns an array [N, groups, channels, ...] as matrices [N, groups, channels, elements]."""
    return x.reshape(*x.shape[:3], math.prod(x.shape[3:]))


def multiply_channels(kernel: Numbers, x: Numbers) -> Numbers:
    """Multiplies matrices [groups, out, channels] by x [N, groups, channels, ...]; returns [N, groups, out, ...]."""
    if np.issubdtype(x.dtype, np.integer) or kernel.shape[2] == 1:
        # NumPy has no BLAS for integers, and a product of one channel is none of matrices.
        return np.asarray(np.einsum("ngi...,goi->ngo...", x, kernel))
    return np.asarray(np.matmul(kernel, in_columns(x))).reshape(*x.shape[:2], kernel.shape[1], *x.shape[3:])
