"""Max pooling over windows of x [N, C, *spatial], and the attributes and geometry that all poolings share.

    x of one channel    1 5 2    windows of 2 x 2:    max_pool2d 5 5    max_pool_indices 1 1
                        4 0 3                         the index counts the elements of the image, row by row

With the layout `channels_last`, x and the result are [N, *spatial, C]. A maximum never includes padding; a window of
padding alone gives the lowest number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product as combinations
from typing import Any

import numpy as np

from ..dims import Size, product
from ..emitter import BodyEmitter, Emitter, Loop, Result, Scalar, ScalarEmitter, Tensor, identity, loops
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import BOOL, FLOATS, I64, NUMBERS, TensorType
from .convolution import check_ranks
from .support.accumulate import Numbers
from .support.common import compute_dtype, integer_range, lower_cast, lowest
from .support.layouts import (
    LAST,
    LAYOUT,
    gradient_in_layout,
    infer_in_layout,
    reference_in_layout,
    spatial_axis,
)
from .support.windows import (
    Windows,
    check_reach,
    integers,
    pad_array,
    pad_tensor,
    per_axis,
    window_map,
    window_slices,
    windows,
)

KERNEL_ATTRIBUTES = (
    AttributeSpec("kernel", "ints"),
    AttributeSpec("stride", "any", None),
    AttributeSpec("padding", "any", 0),
)
CEIL_MODE = AttributeSpec("ceil_mode", "bool", False)
_MAX_ATTRIBUTES = (*KERNEL_ATTRIBUTES, AttributeSpec("dilation", "ints", 1), CEIL_MODE)
POOLED = 'x [N, C, *spatial], or [N, *spatial, C] with layout="channels_last"'


def pool_geometry(name: str, sizes: Sequence[Size], attributes: Attributes) -> Windows:
    kernel = per_axis(attributes["kernel"], len(sizes), "kernel", name)
    stride = kernel if attributes["stride"] is None else attributes["stride"]
    return windows(
        name,
        sizes,
        kernel,
        stride=stride,
        padding=attributes["padding"],
        dilation=attributes.get("dilation", 1),
        ceil=attributes["ceil_mode"],
    )


def infer_pool(name: str, rank: int, types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    check_ranks(name, types, rank + 2)
    w = pool_geometry(name, x.shape[2:], attributes)
    check_reach(name, w)
    return (TensorType(x.dtype, (*x.shape[:2], *w.counts)),)


def pool_windows(
    e: Emitter,
    inputs: Sequence[Tensor],
    w: Windows,
    results: Sequence[Result],
    body: Callable[..., Sequence[Scalar]],
    axis: int = 2,
) -> tuple[Tensor, ...]:
    """Reduces over the windows of the first input, a padded tensor; the others have one element for each window. The
    loops are those of the result, then offsets."""
    rank = len(w.kernel)
    shape = results[0].type.shape
    inner = range(axis + rank, len(shape))
    return e.structured(
        [*(Loop(size) for size in shape), *(Loop(size, parallel=False) for size in w.kernel)],
        [
            (inputs[0], (*loops(*range(axis)), *window_map(w, axis, len(shape)), *loops(*inner))),
            *((x, identity(len(shape))) for x in inputs[1:]),
        ],
        results,
        body,
    )


def _reference_max(name: str, x: Numbers, **attributes: Any) -> Numbers:
    w = pool_geometry(name, x.shape[2:], attributes)
    least = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
    padded = pad_array(x, w, least)
    result = np.full((*x.shape[:2], *integers(w.counts)), least, x.dtype)
    for offset in np.ndindex(*integers(w.kernel)):
        result = np.maximum(result, padded[window_slices(w, offset)])
    return result


def _lower_max(
    name: str, rank: int, e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands
    axis = spatial_axis(attributes["layout"])
    w = pool_geometry(name, x.type.shape[axis : axis + rank], attributes)
    best = _write_largest(e, pad_tensor(e, x, w, lowest(x.type.dtype), axis), w, types[0], axis)
    return [lower_cast(e, best, x.type.dtype)]


def _write_largest(e: Emitter, padded: Tensor, w: Windows, type: TensorType, axis: int = 2) -> Tensor:
    """Returns the largest element of each window, in the dtype that elements are computed in."""
    wide = compute_dtype(padded.type.dtype)

    def larger(s: ScalarEmitter, element: Scalar, best: Scalar) -> Sequence[Scalar]:
        return [s.binary("max", best, s.cast(element, wide))]

    result = Result(type.with_dtype(wide), identity(type.rank), initial=lowest(wide))
    return pool_windows(e, [padded], w, [result], larger, axis)[0]


def _differentiate_max(b: Builder, use: Use) -> Sequence[Value]:
    """Returns gradients: each result passes its gradient to the element that it was copied from, the first of equal
    ones."""
    (x,) = use.inputs
    g = use.gradient
    w = pool_geometry("max_pool", x.type.shape[2:], use.attributes)
    if tiles(w):
        return [_spread_max(b, x, g, b.max_pool_indices(x, **use.attributes), w)]
    outer, elements = x.type.shape[:2], product(x.type.shape[2:])
    flat = (*outer, product(g.type.shape[2:]))
    numbers = b.reshape(b.max_pool_indices(x, **use.attributes), shape=flat)
    # The result of a window of padding alone has no source element.
    given = b.where(b.less(numbers, b.like(0, numbers)), b.like(0, g), b.reshape(g, shape=flat))
    zeros = b.full(shape=(*outer, elements), value=0.0, dtype=x.type.dtype)
    return [b.reshape(b.scatter_add(zeros, numbers, given, axis=2, mode="clamp"), shape=x.type.shape)]


def tiles(w: Windows) -> bool:
    """Returns whether every element is in one window."""
    unpadded = not any(w.low) and not any(w.high) and all(d == 1 for d in w.dilation)
    whole = all(count * k == size for count, k, size in zip(w.counts, w.kernel, w.sizes, strict=True))
    return unpadded and w.kernel == w.stride and whole and all(isinstance(k, int) for k in w.kernel)


def _spread_max(b: Builder, x: Value, g: Value, numbers: Value, w: Windows) -> Value:
    """Returns the gradient if every element is in one window: an element compares its number with that of the greatest
    one of its window. Nothing is written by index."""
    spatial = x.type.shape[2:]
    own = b.reshape(b.iota(shape=(product(spatial),), axis=0, dtype=I64), shape=spatial)
    for axis, count in enumerate(w.kernel):
        g = b.repeat_interleave(g, repeats=count, axis=axis + 2)
        numbers = b.repeat_interleave(numbers, repeats=count, axis=axis + 2)
    return b.where(b.equal(numbers, own), b.reshape(g, shape=x.type.shape), b.like(0, g))


def _infer_indices(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    if x.rank < 3:
        raise InferenceError("rank-mismatch", f"`max_pool_indices` takes a tensor [N, C, *spatial], not {x}", operand=0)
    return (infer_pool("max_pool_indices", x.rank - 2, types, attributes)[0].with_dtype(I64),)


def _reference_indices(x: Numbers, **attributes: Any) -> Numbers:
    w = pool_geometry("max_pool_indices", x.shape[2:], attributes)
    counts, low = integers(w.counts), integers(w.low)
    padded = pad_array(x, w, 0)
    best = np.zeros((*x.shape[:2], *counts), x.dtype)
    numbers = np.full(best.shape, -1, np.int64)
    for offset in np.ndindex(*integers(w.kernel)):
        position = [
            (np.arange(n) * s + o * d - p)
            for n, s, o, d, p in zip(counts, w.stride, offset, w.dilation, low, strict=True)
        ]
        grid = np.meshgrid(*position, indexing="ij")
        valid = np.ones(counts, np.bool_)
        number = np.zeros(counts, np.int64)
        for p, size in zip(grid, x.shape[2:], strict=True):
            valid &= (p >= 0) & (p < size)
            number = number * size + p
        element = padded[window_slices(w, offset)]
        better = (numbers < 0) | (element > best) | ((element != element) & (best == best))
        take = better & valid
        best = np.where(take, element, best)
        numbers = np.where(take, number, numbers)
    return numbers


_MOST_UNROLLED = 16
"""The most offsets of a window that are compared one after another in one parallel loop."""


def _lower_indices(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands
    axis = spatial_axis(attributes["layout"])
    w = pool_geometry("max_pool_indices", x.type.shape[axis : axis + x.type.rank - 2], attributes)
    padded = pad_tensor(e, x, w, lowest(x.type.dtype), axis)
    offsets = product(w.kernel)
    if isinstance(offsets, int) and offsets <= _MOST_UNROLLED:
        return [_compare_offsets(e, padded, w, types[0], axis)]
    return [_search_largest(e, padded, w, types[0], axis)]


def _compare_offsets(e: Emitter, padded: Tensor, w: Windows, type: TensorType, axis: int) -> Tensor:
    """Compares the elements at all offsets of a window in order, in one parallel loop over the windows."""
    rank = len(w.kernel)
    all_offsets = list(combinations(*map(range, integers(w.kernel))))

    def read(offset: Sequence[int]) -> Tensor:
        starts = [distance * step for distance, step in zip(offset, w.dilation, strict=True)]
        before, after = [0] * axis, [0] * (2 - axis)
        steps = (*(1 for _ in before), *w.stride, *(1 for _ in after))
        return e.slice(padded, (*before, *starts, *after), type.shape, steps)

    def number(s: BodyEmitter, *elements: Scalar) -> Scalar:
        best, found = elements[0], s.constant(-1, I64)
        for offset, element in zip(all_offsets, elements, strict=True):
            position = [_position(s, w, i, axis, s.constant(offset[i], I64)) for i in range(rank)]
            valid, here = _inside(s, w, position)
            better = s.binary("or", s.compare("lt", found, s.constant(0, I64)), s.compare("gt", element, best))
            if element.dtype.is_float:
                # The first NaN is greater than any number.
                both = s.binary("and", s.unary("isnan", element), s.unary("not", s.unary("isnan", best)))
                better = s.binary("or", better, both)
            better = s.binary("and", better, valid)
            best, found = s.select(better, element, best), s.select(better, here, found)
        return found

    return e.map(type, [(read(offset), identity(type.rank)) for offset in all_offsets], number)


def _position(s: BodyEmitter, w: Windows, number: int, first: int, offset: Scalar) -> Scalar:
    """Returns the index along the spatial axis with this number, before padding, of the element at an offset of a
    window; `first` is the loop of the first spatial axis."""
    step = s.binary("mul", s.index(first + number), s.constant(w.stride[number], I64))
    distance = s.binary("mul", offset, s.constant(w.dilation[number], I64))
    return s.binary("sub", s.binary("add", step, distance), s.size(w.low[number]))


def _inside(s: BodyEmitter, w: Windows, position: Sequence[Scalar]) -> tuple[Scalar, Scalar]:
    """Returns whether a position is inside the tensor, and its number in the flattened spatial axes."""
    zero = s.constant(0, I64)
    valid, here = s.constant(True, BOOL), zero
    for axis, index in enumerate(position):
        if w.low[axis] != 0:
            valid = s.binary("and", valid, s.compare("ge", index, zero))
        if w.high[axis] != 0 or w.ceil:
            valid = s.binary("and", valid, s.compare("lt", index, s.size(w.sizes[axis])))
        here = s.binary("add", s.binary("mul", here, s.size(w.sizes[axis])), index)
    return valid, here


def _search_largest(e: Emitter, padded: Tensor, w: Windows, type: TensorType, axis: int) -> Tensor:
    """Writes two reductions of one result each: the best element, then the least number of an element equal to it."""
    rank = len(w.kernel)
    largest = _write_largest(e, padded, w, type, axis)
    nowhere = integer_range(I64)[1]

    def first(s: BodyEmitter, element: Scalar, best: Scalar, found: Scalar) -> Sequence[Scalar]:
        valid, here = _inside(s, w, [_position(s, w, i, axis, s.index(2 + rank + i)) for i in range(rank)])
        element = s.cast(element, best.dtype)
        equal = s.compare("eq", element, best)
        if element.dtype.is_float:
            # The best is NaN only if an element is NaN.
            equal = s.binary("or", equal, s.unary("isnan", element))
        return [s.binary("min", found, s.select(s.binary("and", equal, valid), here, s.constant(nowhere, I64)))]

    result = Result(type, identity(type.rank), initial=nowhere)
    (found,) = pool_windows(e, [padded, largest], w, [result], first, axis)

    def number(s: ScalarEmitter, found: Scalar) -> Scalar:
        return s.select(s.compare("eq", found, s.constant(nowhere, I64)), s.constant(-1, I64), found)

    return e.map(type, [(found, identity(type.rank))], number)


max_pool_indices = Operator(
    name="max_pool_indices",
    summary=f"the index, in the flattened spatial axes, of the largest element of each window of {POOLED}; the first "
    "of equal elements, -1 if the window contains only padding",
    operands=(Operand("x", NUMBERS),),
    attributes=(*_MAX_ATTRIBUTES, LAYOUT),
    infer=infer_in_layout(_infer_indices),
    reference=reference_in_layout(_reference_indices),
    gradient=None,
    lower=_lower_indices,
    cases=LateCases(
        lambda: (
            Case(((2, 3, 7),), {"kernel": 3, "stride": 2, "padding": 1}),
            Case(((1, 2, 5, 6),), {"kernel": (2, 3), "padding": (1, 0, 1, 1), "dilation": (1, 2), "stride": 1}),
            Case(((1, 1, 5, 4),), {"kernel": 3, "stride": 2, "ceil_mode": True}),
            Case(((1, 1, 1),), {"kernel": 2, "dilation": 2, "padding": 1}),
            Case(((1, 2, 0),), {"kernel": 3, "padding": 1}),
            Case(((1, 1, 3, 4, 3),), {"kernel": 2}),
            Case(((2, 7, 6, 5),), {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0, 1, 1), "layout": LAST}),
            Case(((1, 5, 7, 3),), {"kernel": 5, "stride": 1, "padding": 2, "dilation": (1, 2), "layout": LAST}),
            Case(((0, 3, 3, 2),), {"kernel": 2, "layout": LAST}),
            Case(
                ((1, 1, 6),), {"kernel": 3, "stride": 1}, arrays={0: np.asarray([[[2, 3, 3, 1, 1, 1]]])}, dtypes=(I64,)
            ),
            Case(
                ((1, 1, 4),),
                {"kernel": 3, "stride": 1},
                arrays={0: np.asarray([[[1, np.nan, 2, np.nan]]])},
                dtypes=FLOATS,
            ),
        )
    ),
    properties=frozenset({"reduction"}),
)


_MAX_CASES: dict[int, tuple[Case, ...]] = {
    1: (
        Case(((2, 3, 9),), {"kernel": 3}),
        Case(((1, 1, 1),), {"kernel": 1}),
        Case(((2, 2, 10),), {"kernel": 3, "stride": 2, "padding": ((1, 0),), "dilation": 2}),
        Case(((1, 2, 8),), {"kernel": 3, "stride": 2, "ceil_mode": True}),
        Case(((1, 8, 2),), {"kernel": 3, "stride": 2, "ceil_mode": True, "layout": LAST}),
        Case(((0, 2, 5),), {"kernel": 2}),
        Case(((1, 2, 0),), {"kernel": 3, "padding": 1}),
    ),
    2: (
        Case(((2, 3, 7, 5),), {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0)}),
        Case(((1, 2, 5, 5),), {"kernel": 2, "stride": 3, "ceil_mode": True, "padding": 1}),
        Case(((1, 2, 7, 6),), {"kernel": 3, "stride": 2, "padding": "same"}),
        Case(((2, 7, 6, 5),), {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0, 1, 1), "layout": LAST}),
        Case(((0, 3, 3, 2),), {"kernel": 2, "layout": LAST}),
        Case(((0, 1, 3, 3),), {"kernel": 2}),
    ),
    3: (Case(((1, 3, 3, 5, 3),), {"kernel": (2, 2, 3), "stride": 1}), Case(((0, 1, 2, 2, 2),), {"kernel": 2})),
}


def _max_pool(rank: int) -> Operator:
    name = f"max_pool{rank}d"
    return Operator(
        name=name,
        summary=f"the largest element of each window of {POOLED}; NaN if the window contains NaN; `stride` is "
        "`kernel` by default",
        operands=(Operand("x", NUMBERS),),
        attributes=(*_MAX_ATTRIBUTES, LAYOUT),
        infer=infer_in_layout(lambda types, attributes: infer_pool(name, rank, types, attributes)),
        reference=reference_in_layout(lambda x, **attributes: _reference_max(name, x, **attributes)),
        gradient=gradient_in_layout(_differentiate_max),
        lower=lambda e, operands, attributes, types: _lower_max(name, rank, e, operands, attributes, types),
        cases=LateCases(lambda: _MAX_CASES[rank]),
        properties=frozenset({"reduction", "exact", "extreme"}),
    )


OPERATORS = (*(_max_pool(rank) for rank in (1, 2, 3)), max_pool_indices)
