"""The gradient of a convolution's weight: sums of products over every window, as one structured op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Shape, Size
from ..emitter import Emitter, IndexMap, Loop, Result, Tensor, loop, loops
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, Operand, Operator, Use
from ..types import NUMBERS, TensorType
from .convolution import CONVOLUTION_ATTRIBUTES, check_ranks, per_group, transposed
from .support.accumulate import Numbers, multiply_add, widen
from .support.arguments import read_sizes
from .support.common import compute_dtype, lower_cast
from .support.convolution_lowering import grouped
from .support.windows import (
    Windows,
    conv_geometry,
    integers,
    pad_array,
    pad_tensor,
    window_map,
    window_slices,
)


def _infer_weight(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, g = types
    name = "conv_weight_gradient"
    check_ranks(name, types, max(x.rank, 3))
    w = _weight_geometry(x.shape, attributes)
    each = per_group(name, x.shape[1], attributes["groups"], "channels")
    per_group(name, g.shape[1], attributes["groups"], "results")
    if g.shape[0] != x.shape[0] or g.shape[2:] != w.counts:
        expected = ", ".join(map(str, (x.shape[0], g.shape[1], *w.counts)))
        raise InferenceError("shape-mismatch", f"`{name}` expects a gradient [{expected}], not {g}", operand=1)
    return (TensorType(x.dtype, (g.shape[1], each, *w.kernel)),)


def _weight_geometry(shape: Sequence[Size], attributes: Attributes) -> Windows:
    kernel = read_sizes("conv_weight_gradient", "kernel", attributes["kernel"])
    if len(kernel) != len(shape) - 2:
        raise InferenceError(
            "bad-attribute", f"`kernel` of `conv_weight_gradient` is {kernel!r}, expected {len(shape) - 2} sizes"
        )
    return conv_geometry("conv_weight_gradient", shape[2:], kernel, attributes)


def _reference_weight(x: Numbers, g: Numbers, **attributes: Any) -> Numbers:
    w = _weight_geometry(x.shape, attributes)
    groups: int = attributes["groups"]
    padded = pad_array(widen(x), w, 0)
    padded = padded.reshape(x.shape[0], groups, x.shape[1] // groups, *padded.shape[2:])
    wide = widen(g).reshape(g.shape[0], groups, g.shape[1] // groups, *g.shape[2:])
    kernel = integers(w.kernel)
    total = np.zeros((groups, wide.shape[2], padded.shape[2], *kernel), padded.dtype)
    spatial = "xyz"[: len(kernel)]
    for offset in np.ndindex(*kernel):
        read = padded[window_slices(w, offset)]
        total[(..., *offset)] = np.einsum(f"ngi{spatial},ngo{spatial}->goi", read, wide)
    return total.reshape(g.shape[1], padded.shape[2], *kernel).astype(x.dtype)


def _lower_weight(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, g = operands
    w = _weight_geometry(x.type.shape, attributes)
    groups: int = attributes["groups"]
    rank = len(w.kernel)
    padded = grouped(e, pad_tensor(e, x, w, 0), 1, groups)
    g = grouped(e, g, 1, groups)
    shape: Shape = (groups, g.type.shape[2], padded.type.shape[2], *w.kernel)
    result = TensorType(compute_dtype(x.type.dtype), shape)
    batch, place = 3 + rank, 4 + rank
    places: IndexMap = tuple(loop(place + i) for i in range(rank))
    (total,) = e.structured(
        [
            *(Loop(size) for size in shape),
            Loop(x.type.shape[0], parallel=False),
            *(Loop(size, parallel=False) for size in g.type.shape[3:]),
        ],
        [
            (padded, (*loops(batch, 0, 2), *window_map(w, place, 3))),
            (g, (*loops(batch, 0, 1), *places)),
        ],
        [Result(result, tuple(loop(i) for i in range(3 + rank)), initial=0)],
        multiply_add,
    )
    return [lower_cast(e, e.reshape(total, types[0].shape), types[0].dtype)]


def _differentiate_weight(b: Builder, use: Use) -> Sequence[Value]:
    x, g = use.inputs
    attributes = {name: value for name, value in use.attributes.items() if name != "kernel"}
    rank = x.type.rank - 2
    return [
        transposed(b, f"conv{rank}d", rank, g, use.gradient, x.type.shape[2:], attributes),
        b.apply(f"conv{rank}d", [x, use.gradient], attributes)[0],
    ]


conv_weight_gradient = Operator(
    name="conv_weight_gradient",
    summary="the gradient of a convolution with respect to its weight, from x [N, C, *spatial] and the gradient of"
    " the result",
    operands=(Operand("x", NUMBERS), Operand("gradient", NUMBERS)),
    attributes=(AttributeSpec("kernel", "sizes"), *CONVOLUTION_ATTRIBUTES),
    infer=_infer_weight,
    reference=_reference_weight,
    gradient=_differentiate_weight,
    lower=_lower_weight,
    cases=tuple(
        Case((x, g), attributes, terms=max(1, g[0] * int(np.prod(g[2:]))))
        for x, g, attributes in (
            ((2, 3, 9), (2, 4, 7), {"kernel": (3,)}),
            ((1, 4, 10), (1, 6, 4), {"kernel": (3,), "stride": 3, "padding": ((1, 2),), "groups": 2}),
            ((2, 2, 6, 5), (2, 3, 4, 2), {"kernel": (2, 2), "stride": (1, 2), "dilation": (2, 1)}),
            ((1, 2, 3, 3), (1, 2, 4, 4), {"kernel": (2, 2), "padding": 1, "groups": 2}),
            ((0, 2, 3), (0, 1, 2), {"kernel": (2,)}),
            ((1, 1, 3, 3, 3), (1, 2, 2, 2, 2), {"kernel": (2, 2, 2)}),
        )
    ),
    properties=frozenset({"contraction"}),
)

OPERATORS = (conv_weight_gradient,)
