"""The gradient of a convolution's weight: sums of products over every window, as one structured op.

Channels first, neighbours in the result belong to neighbouring offsets of the kernel, which are few. Channels
last, they belong to neighbouring channels of the gradient:

    r[offset, i, o] == sum over n and positions p of x[n, p * stride + offset, i] * g[n, p, o]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Shape, Size
from ..emitter import Emitter, IndexMap, Loop, Result, Tensor, loop, loops
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import NUMBERS, TensorType
from .convolution import CONVOLUTION_ATTRIBUTES, check_ranks, per_group, transposed
from .support.accumulate import Numbers, multiply_add, widen
from .support.arguments import read_sizes
from .support.common import compute_dtype, lower_cast
from .support.convolution_lowering import grouped
from .support.layouts import (
    FIRST,
    LAST,
    LAYOUT,
    first_order,
    kernel_first_order,
    kernel_last_order,
    last_order,
    pick,
    without_layout,
)
from .support.windows import (
    Windows,
    conv_geometry,
    in_columns,
    integers,
    pad_array,
    pad_tensor,
    window_map,
    window_slices,
)


def _infer_weight(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    name = "conv_weight_gradient"
    check_ranks(name, types, max(types[0].rank, 3))
    last = attributes["layout"] == LAST
    x, g = (t.with_shape(pick(t.shape, first_order(t.rank))) if last else t for t in types)
    w = _weight_geometry(x.shape, attributes)
    each = per_group(name, x.shape[1], attributes["groups"], "channels")
    per_group(name, g.shape[1], attributes["groups"], "results")
    if g.shape[0] != x.shape[0] or g.shape[2:] != w.counts:
        positions = (*w.counts, g.shape[1]) if last else (g.shape[1], *w.counts)
        expected = ", ".join(map(str, (x.shape[0], *positions)))
        raise InferenceError("shape-mismatch", f"`{name}` expects a gradient [{expected}], not {types[1]}", operand=1)
    shape: Shape = (g.shape[1], each, *w.kernel)
    return (TensorType(x.dtype, pick(shape, kernel_last_order(x.rank)) if last else shape),)


def _weight_geometry(shape: Sequence[Size], attributes: Attributes) -> Windows:
    kernel = read_sizes("conv_weight_gradient", "kernel", attributes["kernel"])
    if len(kernel) != len(shape) - 2:
        raise InferenceError(
            "bad-attribute", f"`kernel` of `conv_weight_gradient` is {kernel!r}, expected {len(shape) - 2} sizes"
        )
    return conv_geometry("conv_weight_gradient", shape[2:], kernel, attributes)


def _reference_weight(x: Numbers, g: Numbers, *, layout: str, **attributes: Any) -> Numbers:
    if layout == LAST:
        first = (np.transpose(a, first_order(a.ndim)) for a in (x, g))
        return np.transpose(_reference_weight(*first, layout=FIRST, **attributes), kernel_last_order(x.ndim))
    w = _weight_geometry(x.shape, attributes)
    groups: int = attributes["groups"]
    padded = pad_array(widen(x), w, 0)
    padded = padded.reshape(x.shape[0], groups, x.shape[1] // groups, *padded.shape[2:])
    wide = widen(g).reshape(g.shape[0], groups, g.shape[1] // groups, *g.shape[2:])
    kernel = integers(w.kernel)
    total = np.zeros((groups, wide.shape[2], padded.shape[2], *kernel), padded.dtype)
    columns = in_columns(wide)
    for offset in np.ndindex(*kernel):
        read = padded[window_slices(w, offset)]
        total[(..., *offset)] = np.matmul(columns, np.swapaxes(in_columns(read), 2, 3)).sum(axis=0)
    return total.reshape(g.shape[1], padded.shape[2], *kernel).astype(x.dtype)


def _lower_weight(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, g = operands
    last = attributes["layout"] == LAST
    rank, groups = x.type.rank - 2, attributes["groups"]
    spatial, channels = (1, rank + 1) if last else (2, 1)
    shape = pick(x.type.shape, first_order(rank + 2)) if last else x.type.shape
    w = _weight_geometry(shape, attributes)
    padded = grouped(e, pad_tensor(e, x, w, 0, spatial), channels, groups)
    g = grouped(e, g, channels, groups)
    # The loops are those of the result, then batch and positions. The innermost one of the result has unit stride.
    each: Shape = (groups, g.type.shape[channels + 1], padded.type.shape[channels + 1])
    if last:
        offset, group, into, out = 0, rank, rank + 1, rank + 2
        sizes: Shape = (*w.kernel, each[0], each[2], each[1])
        order = (*range(rank), into, group, out)
    else:
        group, out, into, offset = 0, 1, 2, 3
        sizes, order = (*each, *w.kernel), tuple(range(rank + 3))
    batch, position = rank + 3, rank + 4
    positions: IndexMap = tuple(loop(position + i) for i in range(rank))
    window = window_map(w, position, offset)
    (total,) = e.structured(
        [
            *(Loop(size) for size in sizes),
            Loop(shape[0], parallel=False),
            *(Loop(size, parallel=False) for size in w.counts),
        ],
        [
            (padded, (*loops(batch), *window, *loops(group, into)) if last else (*loops(batch, group, into), *window)),
            (g, (*loops(batch), *positions, *loops(group, out)) if last else (*loops(batch, group, out), *positions)),
        ],
        [Result(TensorType(compute_dtype(x.type.dtype), pick(sizes, order)), loops(*order), initial=0)],
        multiply_add,
    )
    return [lower_cast(e, e.reshape(total, types[0].shape), types[0].dtype)]


def _differentiate_weight(b: Builder, use: Use) -> Sequence[Value]:
    x, g = use.inputs
    gradient, rank = use.gradient, x.type.rank - 2
    last = use.attributes["layout"] == LAST
    if last:
        x, g = (b.transpose(v, axes=first_order(rank + 2)) for v in (x, g))
        gradient = b.transpose(gradient, axes=kernel_first_order(rank + 2))
    attributes = {name: value for name, value in without_layout(use.attributes).items() if name != "kernel"}
    slopes = [
        transposed(b, f"conv{rank}d", rank, g, gradient, x.type.shape[2:], attributes),
        b.apply(f"conv{rank}d", [x, gradient], attributes)[0],
    ]
    return [b.transpose(v, axes=last_order(rank + 2)) for v in slopes] if last else slopes


conv_weight_gradient = Operator(
    name="conv_weight_gradient",
    summary="the gradient of a convolution with respect to its weight, from x [N, C, *spatial] and the gradient of"
    ' the result [N, out, *spatial]; with layout="channels_last", they are [N, *spatial, C] and [N, *spatial, out], and'
    " the result is [*kernel, C / groups, out]",
    operands=(Operand("x", NUMBERS), Operand("gradient", NUMBERS)),
    attributes=(AttributeSpec("kernel", "sizes"), *CONVOLUTION_ATTRIBUTES, LAYOUT),
    infer=_infer_weight,
    reference=_reference_weight,
    gradient=_differentiate_weight,
    lower=_lower_weight,
    cases=LateCases(
        lambda: tuple(
            Case((x, g), attributes, terms=max(1, math.prod(g) // max(1, g[-1 if "layout" in attributes else 1])))
            for x, g, attributes in (
                ((2, 3, 9), (2, 4, 7), {"kernel": (3,)}),
                ((1, 4, 10), (1, 6, 4), {"kernel": (3,), "stride": 3, "padding": ((1, 2),), "groups": 2}),
                ((2, 2, 6, 5), (2, 3, 4, 2), {"kernel": (2, 2), "stride": (1, 2), "dilation": (2, 1)}),
                ((1, 2, 3, 3), (1, 2, 4, 4), {"kernel": (2, 2), "padding": 1, "groups": 2}),
                ((0, 2, 3), (0, 1, 2), {"kernel": (2,)}),
                ((1, 1, 3, 3, 3), (1, 2, 2, 2, 2), {"kernel": (2, 2, 2)}),
                ((2, 9, 3), (2, 7, 4), {"kernel": (3,), "layout": LAST}),
                (
                    (1, 10, 4),
                    (1, 4, 6),
                    {"kernel": (3,), "stride": 3, "padding": ((1, 2),), "groups": 2, "layout": LAST},
                ),
                ((2, 6, 5, 7), (2, 4, 2, 19), {"kernel": (2, 2), "stride": (1, 2), "dilation": (2, 1), "layout": LAST}),
                ((1, 3, 3, 2), (1, 4, 4, 2), {"kernel": (2, 2), "padding": 1, "groups": 2, "layout": LAST}),
                ((0, 3, 2), (0, 2, 1), {"kernel": (2,), "layout": LAST}),
                ((2, 3, 0), (2, 2, 3), {"kernel": (2,), "layout": LAST}),
                ((1, 3, 3, 3, 1), (1, 2, 2, 2, 2), {"kernel": (2, 2, 2), "layout": LAST}),
            )
        )
    ),
    properties=frozenset({"contraction"}),
)

OPERATORS = (conv_weight_gradient,)
