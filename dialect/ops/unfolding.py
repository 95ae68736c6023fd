"""Windows as columns: `unfold`, which is im2col."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product as combinations
from typing import Any

import numpy as np

from ..differentiate import by_decomposition
from ..dims import Size, multiply, product
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator
from ..types import ANY, I64, TensorType, dtype_of
from .support.accumulate import Numbers
from .support.windows import (
    WINDOW_ATTRIBUTES,
    Windows,
    check_reach,
    integers,
    pad_array,
    per_axis,
    window_slices,
    windows,
)


def _windows(x: TensorType, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Windows:
    if x.rank < 3:
        raise InferenceError("rank-mismatch", f"`unfold` takes a tensor [N, C, *spatial], not {x}", operand=0)
    sizes = per_axis(kernel, x.rank - 2, "kernel", "unfold")
    return windows("unfold", x.shape[2:], sizes, stride=stride, padding=padding, dilation=dilation)


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    w = _windows(x, **attributes)
    check_reach("unfold", w)
    return (x.with_shape((x.shape[0], multiply(x.shape[1], product(w.kernel)), product(w.counts))),)


def _decompose(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    (x,) = operands
    w = _windows(x.type, **attributes)
    outer = x.type.shape[:2]
    if any(size != 0 for size in (*w.low, *w.high)):
        x = b.pad(x, widths=((0, 0), (0, 0), *zip(w.low, w.high, strict=True)))
    parts = []
    for offset in combinations(*map(range, integers(w.kernel))):
        cut = x
        for axis, (start, count, step) in enumerate(zip(_starts(w, offset), w.counts, w.stride, strict=True), 2):
            cut = _every(b, cut, axis, start, count, step)
        parts.append(b.reshape(cut, shape=(*outer, product(w.counts))))
    return [b.reshape(b.stack(*parts, axis=2), shape=_infer([operands[0].type], attributes)[0].shape)]


def _starts(w: Windows, offset: Sequence[int]) -> list[int]:
    return [o * d for o, d in zip(offset, w.dilation, strict=True)]


def _every(b: Builder, x: Value, axis: int, start: int, count: Size, step: int) -> Value:
    """Returns `count` elements of an axis, from `start` on: a slice, or a gather if the number is not known."""
    if isinstance(count, int):
        before, rank = (None,) * axis, x.type.rank
        # No window, no elements: the stop is then the start.
        stop = start + (count - 1) * step + 1 if count else start
        after = (None,) * (rank - axis - 1)
        steps = tuple(step if i == axis else 1 for i in range(rank))
        return b.slice(x, starts=(*before, start, *after), stops=(*before, stop, *after), steps=steps)
    positions = b.add(b.multiply(b.iota(shape=(count,)), b.scalar(step, I64)), b.scalar(start, I64))
    return b.gather(x, positions, axis=axis, mode="clamp")


def _reference(x: Numbers, **attributes: Any) -> Numbers:
    w = _windows(TensorType(dtype_of(x), x.shape), **attributes)
    padded = pad_array(x, w, 0)
    parts = [padded[window_slices(w, offset)] for offset in combinations(*map(range, integers(w.kernel)))]
    return np.stack(parts, 2).reshape(x.shape[0], x.shape[1] * len(parts), math.prod(integers(w.counts)))


unfold = Operator(
    name="unfold",
    summary="the windows of x [N, C, *spatial] as columns [N, C * kernel, windows] (im2col); the elements of a window "
    "are in the order of the channels, then of the kernel",
    operands=(Operand("x", ANY),),
    attributes=(AttributeSpec("kernel", "ints"), *WINDOW_ATTRIBUTES),
    infer=_infer,
    reference=_reference,
    gradient=by_decomposition(_decompose),
    decompose=_decompose,
    cases=LateCases(
        lambda: (
            Case(((2, 3, 5, 6),), {"kernel": (2, 3)}),
            Case(((1, 2, 7, 5),), {"kernel": 3, "stride": 2, "padding": 1, "dilation": 2}),
            Case(((2, 1, 9),), {"kernel": 3, "stride": 3}),
            Case(((1, 1, 1),), {"kernel": 1}),
            Case(((0, 2, 5),), {"kernel": 2}),
        )
    ),
    properties=frozenset({"composite", "movement"}),
)

OPERATORS = (unfold,)
