"""Patches of channels-last tensors as rows of a matrix, im2col, and the sum of such rows, col2im.

    convolution(x, w)                      ==  im2col(x) @ w.T
    its gradient with respect to the weight  ==  g.T @ im2col(x)
    its gradient with respect to x           ==  col2im(g @ w)

with w [out, C, *kernel] as a matrix [out, C * kernel] and g as rows of channels. The elements of a patch are in the
order of a weight in memory: channels, then offsets. Passes create these operators after differentiation, so they have
no gradient. `unfold` gives the same elements as columns of channels-first tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product as combinations
from typing import Any

import numpy as np

from ..dims import Size, at_least, divide_exactly
from ..emitter import BodyEmitter, Emitter, Scalar, Tensor, clamp, loop
from ..operator import Attributes, AttributeSpec, Case, InferenceError, LateCases, Operand, Operator
from ..types import BOOL, FLOATS, I64, TensorType
from .support.accumulate import Numbers, widen
from .support.arguments import read_sizes
from .support.common import compute_dtype, lower_cast
from .support.layouts import first_order, last_order
from .support.windows import (
    WINDOW_ATTRIBUTES,
    Windows,
    check_reach,
    conv_geometry,
    inside_padding,
    integers,
    pad_array,
    pad_tensor,
    window_map,
    window_slices,
)


def _windows(name: str, spatial: Sequence[Size], attributes: Attributes) -> Windows:
    kernel = read_sizes(name, "kernel", attributes["kernel"])
    if len(kernel) != len(spatial) or not all(isinstance(size, int) for size in kernel):
        raise InferenceError(
            "bad-attribute", f"`kernel` of `{name}` is {kernel!r}, expected {len(spatial)} known sizes"
        )
    w = conv_geometry(name, spatial, kernel, attributes)
    check_reach(name, w)
    return w


def _expect_rank(name: str, x: TensorType) -> None:
    if x.rank < 3:
        raise InferenceError("rank-mismatch", f"`{name}` takes a tensor [N, *spatial, C], not {x}", operand=0)


# x [N, *spatial, C] to [N, *windows, C * kernel]


def _infer_im2col(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    _expect_rank("im2col", x)
    w = _windows("im2col", x.shape[1:-1], attributes)
    return (x.with_shape((x.shape[0], *w.counts, x.shape[-1] * math.prod(integers(w.kernel)))),)


def _lower_im2col(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands
    w = _windows("im2col", x.type.shape[1:-1], attributes)
    padded = pad_tensor(e, x, w, 0, axis=1)
    channel = 1 + len(w.kernel)
    shape = (x.type.shape[0], *w.counts, x.type.shape[-1], *w.kernel)
    read = (loop(0), *window_map(w, 1, channel + 1), loop(channel))
    patches = e.map(x.type.with_shape(shape), [(padded, read)], lambda s, element: element)
    return [e.reshape(patches, types[0].shape)]


def _reference_im2col(x: Numbers, **attributes: Any) -> Numbers:
    w = _windows("im2col", x.shape[1:-1], attributes)
    padded = pad_array(np.transpose(x, first_order(x.ndim)), w, 0)
    parts = [padded[window_slices(w, offset)] for offset in combinations(*map(range, integers(w.kernel)))]
    columns = np.stack(parts, 2)  # [N, C, kernel, *windows]
    rows = np.moveaxis(columns, (1, 2), (-2, -1))
    return rows.reshape(*rows.shape[:-2], x.shape[-1] * len(parts))


im2col = Operator(
    name="im2col",
    summary="the windows of x [N, *spatial, C] as rows [N, *windows, C * kernel]; the elements of a row are in the "
    "order of the channels, then of the kernel",
    operands=(Operand("x", FLOATS),),
    attributes=(AttributeSpec("kernel", "sizes"), *WINDOW_ATTRIBUTES),
    infer=_infer_im2col,
    reference=_reference_im2col,
    gradient=None,
    lower=_lower_im2col,
    cases=LateCases(
        lambda: (
            Case(((2, 5, 6, 3),), {"kernel": (2, 3)}),
            Case(((1, 7, 5, 19),), {"kernel": (3, 3), "stride": 2, "padding": (1, 0, 0, 2), "dilation": (1, 2)}),
            Case(((2, 2, 2, 17),), {"kernel": (3, 3), "padding": 1}),
            Case(((2, 9, 1),), {"kernel": (3,), "stride": 3}),
            Case(((1, 1, 1),), {"kernel": (1,)}),
            Case(((0, 5, 2),), {"kernel": (2,)}),
            Case(((1, 3, 2, 4, 2),), {"kernel": (2, 1, 2), "padding": 1}),
        )
    ),
    properties=frozenset({"internal", "exact"}),
)


# rows [N, *windows, C * kernel] to x [N, *sizes, C]


def _infer_col2im(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (rows,) = types
    _expect_rank("col2im", rows)
    sizes = read_sizes("col2im", "sizes", attributes["sizes"])
    if len(sizes) != rows.rank - 2:
        raise InferenceError("bad-attribute", f"`sizes` of `col2im` is {sizes!r}, expected {rows.rank - 2} sizes")
    w = _windows("col2im", sizes, attributes)
    channels = divide_exactly(rows.shape[-1], math.prod(integers(w.kernel)))
    if channels is None or rows.shape[1:-1] != w.counts:
        counts = ", ".join(map(str, w.counts))
        raise InferenceError(
            "shape-mismatch",
            f"`col2im` takes windows [N, {counts}, C * {math.prod(integers(w.kernel))}], not {rows}",
            operand=0,
        )
    return (rows.with_shape((rows.shape[0], *sizes, channels)),)


def _lower_col2im(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (rows,) = operands
    sizes, channels = types[0].shape[1:-1], types[0].shape[-1]
    w = _windows("col2im", sizes, attributes)
    dtype, rank = compute_dtype(types[0].dtype), len(sizes)
    apart = e.reshape(rows, (*rows.type.shape[:-1], channels, *w.kernel))
    is_never_empty = all(at_least(count, 1) for count in w.counts)

    def element(s: BodyEmitter) -> Scalar:
        total = s.constant(0, dtype)
        for offset in combinations(*map(range, integers(w.kernel))):
            inside, window = window_of(s, offset)
            indices = (s.index(0), *window, s.index(1 + rank), *(s.constant(number, I64) for number in offset))
            read = s.load(apart, indices) if is_never_empty else s.load_if(inside, apart, indices)
            total = s.binary("add", total, s.cast(s.select(inside, read, s.constant(0, read.dtype)), dtype))
        return total

    def window_of(s: BodyEmitter, offset: Sequence[int]) -> tuple[Scalar, list[Scalar]]:
        """Returns the index of the window that has the element of the result at `offset`, and whether there is one."""
        inside = s.constant(True, BOOL)
        window = []
        for axis in range(rank):
            start = s.size(w.low[axis] - offset[axis] * w.dilation[axis])
            position = s.binary("add", s.index(1 + axis), start)
            inside = s.binary("and", inside, s.compare("ge", position, s.constant(0, I64)))
            if w.stride[axis] > 1:
                step = s.constant(w.stride[axis], I64)
                inside = s.binary("and", inside, s.compare("eq", s.binary("rem", position, step), s.constant(0, I64)))
                position = s.binary("div", position, step)
            inside = s.binary("and", inside, s.compare("lt", position, s.size(w.counts[axis])))
            # A load without a condition needs no branch.
            last = s.size(w.counts[axis] - 1)
            window.append(clamp(s, position, s.constant(0, I64), last) if is_never_empty else position)
        return inside, window

    total = e.map(types[0].with_dtype(dtype), [], element)
    return [lower_cast(e, total, types[0].dtype)]


def _reference_col2im(rows: Numbers, *, sizes: Sequence[int], **attributes: Any) -> Numbers:
    w = _windows("col2im", sizes, attributes)
    kernel = integers(w.kernel)
    channels = rows.shape[-1] // math.prod(kernel)
    apart = widen(rows).reshape(*rows.shape[:-1], channels, *kernel)
    windows = len(sizes) + 1
    columns = np.moveaxis(apart, windows, 1)  # [N, C, *windows, *kernel]
    total = np.zeros((rows.shape[0], channels, *integers(w.padded)), columns.dtype)
    for offset in np.ndindex(*kernel):
        total[window_slices(w, offset)] += columns[(..., *offset)]
    return np.transpose(total[inside_padding(w)], last_order(total.ndim)).astype(rows.dtype)


col2im = Operator(
    name="col2im",
    summary="the adjoint of `im2col`: adds rows [N, *windows, C * kernel] to their windows of zeros [N, *sizes, C]; "
    "the elements of a row are in the order of the channels, then of the kernel",
    operands=(Operand("rows", FLOATS),),
    attributes=(AttributeSpec("sizes", "sizes"), AttributeSpec("kernel", "sizes"), *WINDOW_ATTRIBUTES),
    infer=_infer_col2im,
    reference=_reference_col2im,
    gradient=None,
    lower=_lower_col2im,
    cases=LateCases(
        lambda: (
            Case(((2, 4, 4, 18),), {"sizes": (5, 6), "kernel": (2, 3)}, terms=6),
            Case(
                ((1, 3, 2, 171),),
                {
                    "sizes": (7, 5),
                    "kernel": (3, 3),
                    "stride": 2,
                    "padding": (1, 0, 0, 2),
                    "dilation": (1, 2),
                },
                terms=9,
            ),
            Case(((2, 2, 2, 153),), {"sizes": (2, 2), "kernel": (3, 3), "padding": 1}, terms=9),
            Case(((2, 3, 3),), {"sizes": (9,), "kernel": (3,), "stride": 3}),
            Case(((2, 3, 2),), {"sizes": (9,), "kernel": (2,), "stride": 3}),
            Case(((0, 4, 4),), {"sizes": (5,), "kernel": (2,)}),
            Case(((1, 4, 4, 5, 8),), {"sizes": (3, 2, 4), "kernel": (2, 1, 2), "padding": 1}, terms=4),
        )
    ),
    properties=frozenset({"internal", "summing"}),
)

OPERATORS = (im2col, col2im)
