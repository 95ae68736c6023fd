"""Average pooling over windows of x [N, C, *spatial], and its adjoint.

An average is divided by the number of elements of the window inside the tensor, or inside the padded tensor
(`count_include_pad`). Positions beyond the padded tensor, which a last window with `ceil_mode` may cover, are never
counted. A window without any counted element averages to 0.

    x = 2 4 6, windows of 2, padding 1         0 2    2 4    4 6    6 0
    count_include_pad=false                      2      3      5      6
    count_include_pad=true                       1      3      5      3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Shape
from ..emitter import BodyEmitter, Emitter, Loop, Result, Scalar, Tensor, identity, loop, loops
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import FLOATS, I64, TensorType
from .pooling import CEIL_MODE, KERNEL_ATTRIBUTES, POOLED, infer_pool, pool_geometry, pool_windows
from .support.accumulate import Numbers, add_up, widen
from .support.arguments import read_sizes
from .support.common import compute_dtype, lower_cast
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
    inside_padding,
    integers,
    pad_array,
    pad_tensor,
    spread_tensor,
    window_slices,
)

_AVERAGE_ATTRIBUTES = (*KERNEL_ATTRIBUTES, CEIL_MODE, AttributeSpec("count_include_pad", "bool", True))


def _counted(w: Windows, include: bool) -> tuple[Shape, Shape]:
    """Returns the first position of the padded tensor that an average counts, and one past the last."""
    first = (0,) * len(w.low) if include else w.low
    last = tuple(low + size + (high if include else 0) for low, size, high in zip(w.low, w.sizes, w.high, strict=True))
    return first, last


def _always_full(w: Windows, include: bool) -> bool:
    """Returns whether every window holds `kernel` counted elements."""
    return not w.ceil and (include or all(p == 0 for p in (*w.low, *w.high)))


def _count(s: BodyEmitter, w: Windows, include: bool, first_loop: int) -> Scalar:
    """Returns the number of elements in the average at these loops, at least 1."""
    count = s.constant(1, I64)
    for i, (first, last) in enumerate(zip(*_counted(w, include), strict=True)):
        start = s.binary("mul", s.index(first_loop + i), s.constant(w.stride[i], I64))
        end = s.binary("min", s.binary("add", start, s.size(w.kernel[i])), s.size(last))
        inside = s.binary("sub", end, s.binary("max", start, s.size(first)))
        count = s.binary("mul", count, s.binary("max", inside, s.constant(0, I64)))
    return s.binary("max", count, s.constant(1, I64))


def _divided(e: Emitter, x: Tensor, w: Windows, include: bool, type: TensorType, axis: int = 2) -> Tensor:
    """Divides the elements by the count of their window, in the dtype of `type`; spatial axes begin at `axis`."""
    wide = compute_dtype(x.type.dtype)
    full = float(np.prod(integers(w.kernel))) if _always_full(w, include) else None

    def divide(s: BodyEmitter, element: Scalar) -> Scalar:
        count = s.cast(_count(s, w, include, axis), wide) if full is None else s.constant(full, wide)
        return s.cast(s.binary("div", s.cast(element, wide), count), type.dtype)

    return e.map(type, [(x, identity(type.rank))], divide)


def _counts_array(w: Windows, include: bool, dtype: np.dtype[Any]) -> Numbers:
    total = np.ones((1,) * len(w.kernel), np.int64)
    for axis, (first, last) in enumerate(zip(*map(integers, _counted(w, include)), strict=True)):
        start = np.arange(integers(w.counts)[axis]) * w.stride[axis]
        inside = np.minimum(start + integers(w.kernel)[axis], last) - np.maximum(start, first)
        total = total * np.maximum(inside, 0).reshape(-1, *(1,) * (len(w.kernel) - axis - 1))
    return np.maximum(total, 1).astype(dtype)


def _reference_average(name: str, x: Numbers, count_include_pad: bool, **attributes: Any) -> Numbers:
    w = pool_geometry(name, x.shape[2:], attributes)
    padded = pad_array(widen(x), w, 0)
    total = np.zeros((*x.shape[:2], *integers(w.counts)), padded.dtype)
    for offset in np.ndindex(*integers(w.kernel)):
        total += padded[window_slices(w, offset)]
    return (total / _counts_array(w, count_include_pad, total.dtype)).astype(x.dtype)


def _lower_average(
    name: str, rank: int, e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands
    axis = spatial_axis(attributes["layout"])
    w = pool_geometry(name, x.type.shape[axis : axis + rank], attributes)
    result = Result(types[0].with_dtype(compute_dtype(x.type.dtype)), identity(types[0].rank), initial=0)
    (total,) = pool_windows(e, [pad_tensor(e, x, w, 0, axis)], w, [result], add_up, axis)
    return [_divided(e, total, w, attributes["count_include_pad"], types[0], axis)]


def _differentiate_average(b: Builder, use: Use) -> Sequence[Value]:
    sizes = use.inputs[0].type.shape[2:]
    return [b.avg_pool_gradient(use.gradient, sizes=sizes, **use.attributes)]


def _adjoint_geometry(types: Sequence[TensorType], attributes: Attributes) -> Windows:
    name, (g,) = "avg_pool_gradient", types
    sizes = read_sizes(name, "sizes", attributes["sizes"])
    if g.rank != len(sizes) + 2:
        raise InferenceError("bad-attribute", f"`sizes` of `{name}` is {sizes!r}, expected {g.rank - 2} sizes")
    return pool_geometry(name, sizes, attributes)


def _infer_adjoint(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    w = _adjoint_geometry(types, attributes)
    (g,) = types
    if g.shape[2:] != w.counts:
        expected = ", ".join(map(str, (*g.shape[:2], *w.counts)))
        raise InferenceError("shape-mismatch", f"`avg_pool_gradient` expects [{expected}], not {g}", operand=0)
    return (TensorType(g.dtype, (*g.shape[:2], *w.sizes)),)


def _reference_adjoint(g: Numbers, sizes: tuple[int, ...], count_include_pad: bool, **attributes: Any) -> Numbers:
    w = pool_geometry("avg_pool_gradient", sizes, attributes)
    shared = widen(g)
    shared = shared / _counts_array(w, count_include_pad, shared.dtype)
    total = np.zeros((*g.shape[:2], *integers(w.padded)), shared.dtype)
    for offset in np.ndindex(*integers(w.kernel)):
        total[window_slices(w, offset)] += shared
    return np.asarray(total[inside_padding(w)]).astype(g.dtype)


def _lower_adjoint(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (g,) = operands
    w = _adjoint_geometry([g.type], attributes)
    rank = len(w.kernel)
    wide = compute_dtype(g.type.dtype)
    shared = _divided(e, g, w, attributes["count_include_pad"], g.type.with_dtype(wide))
    spread = spread_tensor(e, shared, w)
    positions = tuple(loop(2 + i) + loop(2 + rank + i) for i in range(rank))
    (total,) = e.structured(
        [*(Loop(size) for size in types[0].shape), *(Loop(size, parallel=False) for size in w.kernel)],
        [(spread, (*loops(0, 1), *positions))],
        [Result(types[0].with_dtype(wide), identity(types[0].rank), initial=0)],
        add_up,
    )
    return [lower_cast(e, total, types[0].dtype)]


def _differentiate_adjoint(b: Builder, use: Use) -> Sequence[Value]:
    attributes = {key: value for key, value in use.attributes.items() if key != "sizes"}
    rank = len(use.attributes["sizes"])
    return [b.apply(f"avg_pool{rank}d", [use.gradient], attributes)[0]]


avg_pool_gradient = Operator(
    name="avg_pool_gradient",
    summary="the gradient of an average pooling with respect to its operand; `sizes` are the spatial sizes of the "
    "operand",
    operands=(Operand("gradient", FLOATS),),
    attributes=(AttributeSpec("sizes", "sizes"), *_AVERAGE_ATTRIBUTES),
    infer=_infer_adjoint,
    reference=_reference_adjoint,
    gradient=_differentiate_adjoint,
    lower=_lower_adjoint,
    cases=LateCases(
        lambda: (
            Case(((2, 3, 3),), {"sizes": (7,), "kernel": 3, "stride": 2}, terms=3),
            Case(
                ((1, 2, 4, 2),),
                {"sizes": (7, 3), "kernel": 2, "padding": (1, 0, 0, 1), "count_include_pad": False},
                terms=4,
            ),
            Case(((1, 1, 4, 3),), {"sizes": (8, 5), "kernel": 2, "stride": (2, 2), "ceil_mode": True}, terms=4),
            Case(((1, 2, 0),), {"sizes": (0,), "kernel": 3, "padding": 1}),
        )
    ),
    properties=frozenset({"reduction"}),
)


_AVERAGE_CASES: dict[int, tuple[Case, ...]] = {
    1: (
        Case(((2, 3, 9),), {"kernel": 3}, terms=3),
        Case(((1, 1, 1),), {"kernel": 1}),
        Case(((2, 2, 10),), {"kernel": 3, "stride": 2, "padding": ((1, 0),)}, terms=3),
        Case(((2, 2, 10),), {"kernel": 3, "stride": 2, "padding": 1, "count_include_pad": False}, terms=3),
        Case(((1, 2, 8),), {"kernel": 3, "stride": 2, "ceil_mode": True}, terms=3),
        Case(((1, 8, 2),), {"kernel": 3, "stride": 2, "ceil_mode": True, "layout": LAST}, terms=3),
        Case(((0, 2, 5),), {"kernel": 2}),
        Case(((1, 2, 0),), {"kernel": 3, "padding": 2, "count_include_pad": False}),
    ),
    2: (
        Case(((2, 3, 7, 5),), {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0)}, terms=6),
        Case(
            ((1, 2, 5, 5),),
            {"kernel": 2, "stride": 3, "ceil_mode": True, "padding": 1, "count_include_pad": False},
            terms=4,
        ),
        Case(((1, 2, 7, 6),), {"kernel": 3, "stride": 2, "padding": "same"}, terms=9),
        Case(
            ((2, 7, 6, 5),),
            {"kernel": (3, 2), "stride": 2, "padding": (1, 0, 1, 1), "count_include_pad": False, "layout": LAST},
            terms=6,
        ),
        Case(((0, 1, 3, 3),), {"kernel": 2}),
    ),
    3: (
        Case(((1, 3, 3, 5, 3),), {"kernel": (2, 2, 3), "stride": 1}, terms=12),
        Case(((0, 1, 2, 2, 2),), {"kernel": 2}),
    ),
}


def _average_pool(rank: int) -> Operator:
    name = f"avg_pool{rank}d"
    return Operator(
        name=name,
        summary=f"the average of each window of {POOLED}; `count_include_pad` counts padding as zeros",
        operands=(Operand("x", FLOATS),),
        attributes=(*_AVERAGE_ATTRIBUTES, LAYOUT),
        infer=infer_in_layout(lambda types, attributes: infer_pool(name, rank, types, attributes)),
        reference=reference_in_layout(lambda x, **attributes: _reference_average(name, x, **attributes)),
        gradient=gradient_in_layout(_differentiate_average),
        lower=lambda e, operands, attributes, types: _lower_average(name, rank, e, operands, attributes, types),
        cases=LateCases(lambda: _AVERAGE_CASES[rank]),
        properties=frozenset({"reduction", "summing"}),
    )


OPERATORS = (*(_average_pool(rank) for rank in (1, 2, 3)), avg_pool_gradient)
