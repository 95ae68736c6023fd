"""Convolutions in one to three dimensions, x [N, C, *spatial] and weight [out, C / groups, *kernel], or channels last.

`convolution_lowering` lowers them to structured ops. The three kinds of operator here are closed under differentiation:
a convolution, its transpose (the gradient of `x`) and the gradient of its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Shape, Size, divide_exactly
from ..graph import Value
from ..operator import (
    Attributes,
    AttributeSpec,
    Axes,
    Builder,
    Case,
    Channels,
    InferenceError,
    LateCases,
    Operand,
    Operator,
    Use,
)
from ..types import NUMBERS, STORAGE, DType, TensorType
from .support.accumulate import (
    FACTOR_DTYPES,
    INTO,
    Numbers,
    finish,
    gradient_into,
    infer_sum,
    mixtures,
    widen,
)
from .support.convolution_lowering import lower_convolution
from .support.layouts import (
    CONVOLUTION_LAYOUT,
    FIRST,
    FIRST_TO_LAST,
    LAST,
    gradient_in_layout,
    infer_in_layout,
    reference_in_layout,
)
from .support.windows import (
    WINDOW_ATTRIBUTES,
    check_reach,
    conv_geometry,
    integers,
    multiply_channels,
    pad_array,
    window_slices,
)

CONVOLUTION_OPERANDS = (
    Operand("x", FACTOR_DTYPES, mixed=True),
    Operand("weight", FACTOR_DTYPES, mixed=True),
    Operand("bias", NUMBERS, optional=True, mixed=True),
)
CONVOLUTION_ATTRIBUTES = (*WINDOW_ATTRIBUTES, AttributeSpec("groups", "int", 1))


def check_ranks(operator: str, types: Sequence[TensorType], rank: int) -> None:
    """Raises InferenceError unless the tensors have `rank` axes."""
    for number, type in enumerate(types):
        if type.rank != rank:
            raise InferenceError(
                "rank-mismatch", f"`{operator}` takes tensors of rank {rank}, not {type}", operand=number
            )


def per_group(operator: str, channels: Size, groups: int, what: str) -> Size:
    """Returns the channels of one group. Raises InferenceError if they cannot be divided evenly."""
    if not isinstance(groups, int) or groups < 1:
        raise InferenceError("bad-attribute", f"`groups` of `{operator}` is {groups!r}, expected a positive integer")
    each = divide_exactly(channels, groups)
    if each is None:
        raise InferenceError("shape-mismatch", f"`{operator}` cannot share {channels} {what} among {groups} groups")
    return each


def check_bias(operator: str, types: Sequence[TensorType], channels: Size) -> None:
    if len(types) == 3 and types[2].shape != (channels,):
        raise InferenceError(
            "shape-mismatch", f"the bias of `{operator}` has shape [{channels}], not {types[2]}", operand=2
        )


def infer_convolution(name: str, types: Sequence[TensorType], attributes: Attributes) -> DType:
    """Returns the dtype of the result and of a bias. Raises InferenceError if there is none."""
    dtype = infer_sum(name, types[:2], attributes["into"])
    for number, bias in enumerate(types[2:], 2):
        if bias.dtype != dtype:
            raise InferenceError(
                "dtype-mismatch",
                f"the bias of `{name}` must be {dtype}, the dtype of the sums, not {bias.dtype}",
                label=f"this is {bias}",
                operand=number,
                help=f"convert it: cast(..., {dtype})",
            )
    return dtype


def _infer(name: str, rank: int, types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, weight = types[:2]
    check_ranks(name, types[:2], rank + 2)
    groups = attributes["groups"]
    each = per_group(name, x.shape[1], groups, "channels")
    per_group(name, weight.shape[0], groups, "results")
    if each != weight.shape[1]:
        raise InferenceError(
            "shape-mismatch",
            f"the weight of `{name}` reads {weight.shape[1]} channels per group, {x} has {each}",
            label=f"this is {weight}",
            operand=1,
        )
    check_bias(name, types, weight.shape[0])
    dtype = infer_convolution(name, types, attributes)
    w = conv_geometry(name, x.shape[2:], weight.shape[2:], attributes)
    check_reach(name, w)
    return (TensorType(dtype, (x.shape[0], weight.shape[0], *w.counts)),)


def _reference(name: str, x: Numbers, weight: Numbers, bias: Numbers | None, attributes: Attributes) -> Numbers:
    w = conv_geometry(name, x.shape[2:], weight.shape[2:], attributes)
    groups: int = attributes["groups"]
    into = attributes["into"]
    padded = pad_array(widen(x, into), w, 0)
    padded = padded.reshape(x.shape[0], groups, x.shape[1] // groups, *padded.shape[2:])
    kernel = widen(weight, into).reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    total = np.zeros((x.shape[0], *kernel.shape[:2], *integers(w.counts)), padded.dtype)
    for offset in np.ndindex(*weight.shape[2:]):
        total += multiply_channels(kernel[(..., *offset)], padded[window_slices(w, offset)])
    total = total.reshape(x.shape[0], weight.shape[0], *total.shape[3:])
    if bias is not None:
        total = total + widen(bias, into).reshape(-1, *(1,) * (x.ndim - 2))
    return finish(total, x, into)


def weight_gradient(b: Builder, x: Value, g: Value, weight: Value, attributes: Attributes) -> Value:
    given = {name: value for name, value in attributes.items() if name != "into"}
    return b.conv_weight_gradient(x, g, kernel=weight.type.shape[2:], **given)


def bias_gradient(b: Builder, use: Use) -> list[Value]:
    """Returns the gradient of the bias, if there is one: the sum over all axes except the channels."""
    if len(use.inputs) < 3:
        return []
    return [b.sum(use.gradient, axis=(0, *range(2, use.gradient.type.rank)))]


def _differentiate(name: str, rank: int, b: Builder, use: Use) -> Sequence[Value]:
    x, weight = use.inputs[:2]
    g = use.gradient
    return [
        transposed(b, name, rank, g, weight, x.type.shape[2:], use.attributes),
        weight_gradient(b, x, g, weight, use.attributes),
        *bias_gradient(b, use),
    ]


def transposed(
    b: Builder, name: str, rank: int, g: Value, weight: Value, sizes: Shape, attributes: Attributes
) -> Value:
    """Returns the transposed convolution of `g` whose result has the given sizes."""
    w = conv_geometry(name, sizes, weight.type.shape[2:], attributes)
    # The remainder after the last window is the output padding, so that the result has the sizes of `x` again.
    spare = tuple(
        sizes[i] - ((g.type.shape[2 + i] - 1) * w.stride[i] + w.extent[i] - w.low[i] - w.high[i]) for i in range(rank)
    )
    pairs = tuple(zip(w.low, w.high, strict=True))
    given = {**attributes, "padding": pairs, "output_padding": spare}
    return b.apply(f"conv_transpose{rank}d", [g, weight], given)[0]


def all_axes_but(type: TensorType, axis: int) -> Axes:
    return tuple(i for i in range(type.rank) if i != axis % type.rank)


def _channels(attributes: Attributes) -> Channels:
    return Channels(1, 0) if attributes["layout"] == FIRST else Channels(-1, -1)


def _summed_axes(types: Sequence[TensorType], attributes: Attributes) -> tuple[Axes, Axes]:
    x, weight, *_ = types
    return all_axes_but(x, 0), all_axes_but(weight, _channels(attributes).weight_axis)


_WORDS = {1: "one dimension", 2: "two dimensions", 3: "three dimensions"}


def _convolution(rank: int) -> Operator:
    name = f"conv{rank}d"
    return Operator(
        name=name,
        summary=f"convolution in {_WORDS[rank]}: x [N, C, *spatial], weight [out, C / groups, *kernel], bias [out]; "
        '`padding` is one number, one or two numbers per axis, "valid", or "same" (the larger half after); '
        'with layout="channels_last", x and the result are [N, *spatial, C] and weight is [*kernel, C / groups, out]; '
        "`channels_first_to_last` differs from it only in x, which is [N, C, *spatial]; "
        "`into` as for `matmul`, and the bias has this dtype",
        operands=CONVOLUTION_OPERANDS,
        attributes=(*CONVOLUTION_ATTRIBUTES, INTO, CONVOLUTION_LAYOUT),
        infer=infer_in_layout(lambda types, attributes: _infer(name, rank, types, attributes)),
        reference=reference_in_layout(
            lambda x, weight, bias=None, **attributes: _reference(name, x, weight, bias, attributes)
        ),
        gradient=gradient_into(gradient_in_layout(lambda b, use: _differentiate(name, rank, b, use))),
        lower=lambda e, operands, attributes, types: lower_convolution(name, e, operands, attributes, types),
        summed_axes=_summed_axes,
        channels=_channels,
        cases=LateCases(lambda: _CASES[rank]),
        properties=frozenset({"contraction", "convolution"}),
    )


def case(x: tuple[int, ...], weight: tuple[int, ...], *bias: tuple[int, ...], **attributes: Any) -> Case:
    terms = max(1, int(np.prod(weight[1:])))
    return Case((x, weight, *bias), attributes, terms=terms)


_CASES = {
    1: (
        case((2, 3, 9), (4, 3, 3), (4,)),
        case((1, 1, 1), (1, 1, 1)),
        case((2, 4, 10), (6, 2, 3), (6,), stride=2, padding=((2, 1),), groups=2),
        case((1, 2, 11), (3, 2, 3), padding="same", dilation=2),
        case((2, 2, 7), (2, 2, 4), stride=3, padding="same"),
        case((0, 2, 5), (3, 2, 3)),
        case((1, 2, 0), (3, 2, 3)),
        case((1, 0, 5), (3, 0, 2), (3,)),
        case((1, 1, 3), (1, 1, 2), padding=4, stride=5),
        case((2, 9, 3), (3, 3, 4), (4,), layout=LAST),
        case((1, 11, 2), (3, 2, 3), padding="same", dilation=2, layout=LAST),
        case((2, 4, 10), (3, 2, 6), (6,), stride=2, padding=((2, 1),), groups=2, layout=FIRST_TO_LAST),
        case((1, 5, 0), (2, 0, 3), (3,), layout=LAST),
        *mixtures(((2, 4, 10), (6, 2, 3), (6,)), {"stride": 2, "padding": ((2, 1),), "groups": 2}, terms=6),
    ),
    2: (
        case((2, 3, 7, 5), (4, 3, 3, 3), (4,), padding=1),
        case((1, 4, 8, 9), (6, 2, 3, 2), stride=(2, 3), padding=(1, 0, 2, 1), dilation=(1, 2), groups=2),
        case((2, 3, 5, 6), (3, 1, 3, 3), (3,), groups=3, padding="same", stride=2),
        case((2, 5, 3, 3), (7, 5, 1, 1), padding="valid"),
        case((1, 2, 9, 9), (2, 2, 2, 2), stride=4),
        case((1, 2, 0, 3), (2, 2, 1, 1), padding=1),
        case((1, 8, 9, 4), (3, 2, 2, 6), stride=(2, 3), padding=(1, 0, 2, 1), dilation=(1, 2), groups=2, layout=LAST),
        case((2, 5, 6, 3), (3, 3, 1, 3), (3,), groups=3, padding="same", stride=2, layout=LAST),
        case((1, 4, 4, 2), (3, 2, 1, 4), groups=2, layout=LAST),
        case((2, 4, 3, 4), (1, 1, 2, 2), groups=2, layout=LAST),
        case((2, 3, 7, 5), (3, 3, 3, 4), (4,), padding=1, layout=FIRST_TO_LAST),
        case((1, 3, 5, 5), (2, 2, 1, 3), groups=3, layout=FIRST_TO_LAST),
        case((0, 3, 3, 2), (2, 2, 2, 1), layout=LAST),
        *mixtures(((2, 3, 7, 5), (4, 3, 3, 3), (4,)), {"padding": 1}, terms=27),
        *mixtures(((2, 5, 6, 3), (3, 3, 1, 3)), {"groups": 3, "padding": "same", "layout": LAST}, terms=9),
    ),
    3: (
        case((1, 2, 4, 5, 3), (2, 2, 2, 3, 1), (2,)),
        case((1, 2, 4, 5, 3), (2, 1, 2, 2, 2), groups=2, stride=(1, 2, 1), padding=1),
        case((0, 1, 3, 1, 2), (1, 1, 2, 1, 1)),
        case((1, 4, 5, 3, 2), (2, 2, 2, 1, 2), groups=2, stride=(1, 2, 1), padding=1, layout=LAST),
        *mixtures(((1, 2, 3, 5, 3), (3, 2, 2, 3, 1), (3,)), {"padding": 1}, terms=12, of=STORAGE),
    ),
}

OPERATORS = tuple(_convolution(rank) for rank in (1, 2, 3))
