"""Transposed convolutions, x [N, C, *spatial] and weight [C, out / groups, *kernel].

The elements of `x` are spread `stride` apart between zeros, and windows of the reversed kernel with stride 1 are summed
over the spread tensor: one structured op whose maps have no negative coefficient.

    x = [a, b], stride 2, kernel [p, q, r]:    [0, 0, a, 0, b, 0, 0] against [r, q, p] gives [ap, aq, ar + bp, bq, br]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dims import Shape, Size, at_least
from ..emitter import BodyEmitter, Emitter, Loop, Result, Scalar, Tensor, loop, loops
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Channels, InferenceError, LateCases, Operator, Use
from ..types import STORAGE, TensorType
from .convolution import (
    CONVOLUTION_OPERANDS,
    all_axes_but,
    bias_gradient,
    case,
    check_bias,
    check_ranks,
    infer_convolution,
    per_group,
    weight_gradient,
)
from .support.accumulate import (
    INTO,
    Numbers,
    finish,
    gradient_into,
    mixtures,
    multiply_add,
    widen,
)
from .support.arguments import is_size
from .support.common import compute_dtype, lower_cast
from .support.convolution_lowering import grouped, start_of_sum
from .support.windows import (
    WINDOW_ATTRIBUTES,
    Windows,
    inside_padding,
    integers,
    multiply_channels,
    spread_tensor,
    window_slices,
    windows,
)

_ATTRIBUTES = (*WINDOW_ATTRIBUTES, AttributeSpec("output_padding", "any", 0), AttributeSpec("groups", "int", 1), INTO)
_GEOMETRY = ("stride", "padding", "dilation")


def transposed_geometry(name: str, sizes: Sequence[Size], kernel: Sequence[Size], attributes: Attributes) -> Windows:
    """Returns the windows, over the result, of the convolution that this operator transposes."""
    rank = len(sizes)
    given = attributes["output_padding"]
    extra: tuple[Size, ...] = given if isinstance(given, tuple) else (given,) * rank
    if len(extra) != rank or not all(map(is_size, extra)):
        raise InferenceError(
            "bad-attribute", f"`output_padding` of `{name}` is {given!r}, expected a size or {rank} of them"
        )
    if attributes["padding"] == "same":
        raise InferenceError(
            "bad-attribute", f'`{name}` does not support padding "same"', help="give sizes of the padding"
        )
    # The result's sizes are not known yet, but numeric strides, dilations and paddings do not depend on them.
    w = windows(name, [0] * rank, kernel, **{key: attributes[key] for key in _GEOMETRY})
    results = tuple((sizes[i] - 1) * w.stride[i] + w.extent[i] - w.low[i] - w.high[i] + extra[i] for i in range(rank))
    for axis, size in enumerate(results):
        if not at_least(size, 0):
            raise InferenceError(
                "shape-mismatch",
                f"axis {axis + 2} of the result of `{name}` would have size {size}, which may be negative",
                help="" if isinstance(size, int) else "give the dims ranges that rule it out",
            )
    return Windows(results, w.kernel, w.stride, w.dilation, w.low, w.high)


def _infer(name: str, rank: int, types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, weight = types[:2]
    check_ranks(name, types[:2], rank + 2)
    groups = attributes["groups"]
    per_group(name, x.shape[1], groups, "channels")
    if x.shape[1] != weight.shape[0]:
        raise InferenceError(
            "shape-mismatch",
            f"the weight of `{name}` reads {weight.shape[0]} channels, {x} has {x.shape[1]}",
            label=f"this is {weight}",
            operand=1,
        )
    channels = weight.shape[1] * groups
    check_bias(name, types, channels)
    dtype = infer_convolution(name, types, attributes)
    w = transposed_geometry(name, x.shape[2:], weight.shape[2:], attributes)
    return (TensorType(dtype, (x.shape[0], channels, *w.sizes)),)


def _reversed_kernel(e: Emitter, weight: Tensor, rank: int) -> Tensor:
    shape = weight.type.shape
    if all(size == 1 for size in shape[-rank:]):
        return weight

    def element(s: BodyEmitter) -> Scalar:
        outer = [s.index(i) for i in range(len(shape) - rank)]
        inner = [s.binary("sub", s.size(shape[i] - 1), s.index(i)) for i in range(len(shape) - rank, len(shape))]
        return s.load(weight, [*outer, *inner])

    return e.map(weight.type, [], element)


def _lower(
    name: str, e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, weight, *bias = operands
    groups: int = attributes["groups"]
    w = transposed_geometry(name, x.type.shape[2:], weight.type.shape[2:], attributes)
    rank = len(w.kernel)
    type = types[0].with_dtype(compute_dtype(types[0].dtype))
    start = start_of_sum(e, bias, type)
    spread = spread_tensor(e, x, w)
    kernel = _reversed_kernel(e, weight, rank)
    split = groups > 1
    if split:
        spread, kernel = grouped(e, spread, 1, groups), grouped(e, kernel, 0, groups)
        if not isinstance(start, int):
            start = grouped(e, start, 1, groups)
    outer: Shape = (type.shape[0], *((groups, weight.type.shape[1]) if split else type.shape[1:2]))
    position = len(outer)
    channel = position + rank
    offset = channel + 1
    group = loops(1) if split else ()
    result = TensorType(type.dtype, (*outer, *type.shape[2:]))
    (total,) = e.structured(
        [
            *(Loop(size) for size in result.shape),
            Loop(kernel.type.shape[-rank - 2], parallel=False),
            *(Loop(size, parallel=False) for size in w.kernel),
        ],
        [
            (spread, (loop(0), *group, loop(channel), *(
                loop(position + i) + loop(offset + i) * w.dilation[i] for i in range(rank)))),
            (kernel, (*group, loop(channel), loop(position - 1), *(loop(offset + i) for i in range(rank)))),
        ],
        [Result(result, tuple(loop(i) for i in range(position + rank)), initial=start)],
        multiply_add,
    )  # fmt: skip
    return [lower_cast(e, e.reshape(total, type.shape) if split else total, types[0].dtype)]


def _reference(name: str, x: Numbers, weight: Numbers, bias: Numbers | None, attributes: Attributes) -> Numbers:
    w = transposed_geometry(name, x.shape[2:], weight.shape[2:], attributes)
    groups: int = attributes["groups"]
    into = attributes["into"]
    wide = widen(x, into).reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    kernel = widen(weight, into).reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    channels = groups * weight.shape[1]
    sizes, low, extent = integers(w.sizes), integers(w.low), integers(w.extent)
    # Every element of x adds the kernel to a window of the padded result, which may be longer than the result.
    reach = [max((n - 1) * s + k, p + size) for n, s, k, p, size in zip(x.shape[2:], w.stride, extent, low, sizes,
             strict=True)]  # fmt: skip
    total = np.zeros((x.shape[0], groups, weight.shape[1], *reach), wide.dtype)
    if x.size:
        padded = Windows(tuple(reach), w.kernel, w.stride, w.dilation, (0,) * len(low), (0,) * len(low))
        for offset in np.ndindex(*weight.shape[2:]):
            part = multiply_channels(np.swapaxes(kernel[(..., *offset)], 1, 2), wide)
            inside = total[window_slices(padded, offset)]
            inside[(..., *(slice(n) for n in x.shape[2:]))] += part
    total = total.reshape(x.shape[0], channels, *reach)
    total = total[inside_padding(w)]
    if bias is not None:
        total = total + widen(bias, into).reshape(-1, *(1,) * len(sizes))
    return finish(total, x, into)


def _differentiate(name: str, rank: int, b: Builder, use: Use) -> Sequence[Value]:
    x, weight = use.inputs[:2]
    g = use.gradient
    attributes = {key: value for key, value in use.attributes.items() if key != "output_padding"}
    counts = x.type.shape[2:]
    seen = windows(name, g.type.shape[2:], weight.type.shape[2:], **{key: attributes[key] for key in _GEOMETRY})
    if seen.counts != counts:
        # An output padding of a stride or more leaves room for windows that no element of x maps to.
        ends = [(counts[i] - 1) * seen.stride[i] + seen.extent[i] - seen.low[i] - seen.high[i] for i in range(rank)]
        g = b.slice(g, starts=(0,) * (rank + 2), stops=(*g.type.shape[:2], *ends))
    return [
        b.apply(f"conv{rank}d", [g, weight], attributes)[0],
        weight_gradient(b, g, x, weight, attributes),
        *bias_gradient(b, use),
    ]


def _transpose(rank: int) -> Operator:
    name = f"conv_transpose{rank}d"
    return Operator(
        name=name,
        summary="transposed convolution: x [N, C, *spatial], weight [C, out / groups, *kernel], bias [out]; "
        "`output_padding` extends the result at the end; `into` as for `matmul`, and the bias has this dtype",
        operands=CONVOLUTION_OPERANDS,
        attributes=_ATTRIBUTES,
        infer=lambda types, attributes: _infer(name, rank, types, attributes),
        reference=lambda x, weight, bias=None, **attributes: _reference(name, x, weight, bias, attributes),
        gradient=gradient_into(lambda b, use: _differentiate(name, rank, b, use)),
        lower=lambda e, operands, attributes, types: _lower(name, e, operands, attributes, types),
        summed_axes=lambda types, attributes: (all_axes_but(types[0], 0), all_axes_but(types[1], 1)),
        # With groups, two axes of the weight number the channels of the result.
        channels=lambda attributes: Channels(1, 1) if attributes["groups"] == 1 else None,
        cases=LateCases(lambda: _CASES[rank]),
        properties=frozenset({"contraction", "convolution", "transposed"}),
    )


_CASES = {
    1: (
        case((2, 3, 5), (3, 4, 3), (4,)),
        case((1, 1, 1), (1, 1, 1)),
        case((2, 4, 5), (4, 3, 3), (6,), stride=2, padding=((1, 2),), output_padding=1, groups=2),
        case((1, 2, 4), (2, 3, 3), dilation=2, padding=1),
        case((1, 2, 4), (2, 1, 2), stride=3, padding=3, output_padding=2),
        case((1, 2, 3), (2, 1, 1), output_padding=2),
        case((0, 2, 5), (2, 3, 3)),
        case((1, 0, 5), (0, 3, 2), (3,)),
        *mixtures(((2, 3, 5), (3, 3, 3), (3,)), {"stride": 2}, terms=6, of=STORAGE),
    ),
    2: (
        case((2, 3, 4, 3), (3, 2, 3, 3), (2,), stride=2, padding=1, output_padding=1),
        case((1, 4, 3, 5), (4, 2, 2, 3), stride=(3, 1), padding=(0, 1, 1, 2), dilation=(1, 2), groups=2),
        case((2, 3, 3, 3), (3, 1, 2, 2), groups=3),
        case((1, 0, 2, 2), (0, 1, 2, 1)),
        *mixtures(((2, 3, 4, 3), (3, 2, 3, 3), (2,)), {"stride": 2, "padding": 1}, terms=27),
    ),
    3: (
        case((1, 2, 3, 2, 2), (2, 2, 2, 1, 2), (2,), stride=(1, 2, 1), output_padding=(0, 1, 0)),
        case((0, 1, 1, 2, 2), (1, 1, 1, 1, 1)),
        *mixtures(((1, 2, 3, 2, 3), (2, 3, 2, 1, 2), (3,)), {"stride": (1, 2, 1)}, terms=8, of=STORAGE),
    ),
}

OPERATORS = tuple(_transpose(rank) for rank in (1, 2, 3))
