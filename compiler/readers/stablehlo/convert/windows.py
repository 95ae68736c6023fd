"""Reductions over windows, and the gradient of a maximum over windows.

Axes with windows of size 1 become the batch of images with one channel, so that a reduction over the others is pooling:

    x [B, H, W, C], windows [1, 2, 2, 1]     ->     images [B*C, 1, H, W], pooled by 2 x 2, and transposed back
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....dialect.dims import product
from .....dialect.types import BOOL
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use
from .addressing import outside_if_negative
from .reductions import is_neutral, reducer


class _Images:
    """A tensor as images [N, 1, *spatial] of the axes that windows use: `data`."""

    def __init__(self, use: Use, x: Tensor, used: Sequence[int]) -> None:
        self.g, self.used = use.g, tuple(used)
        rest = [axis for axis in range(x.rank) if axis not in used]
        self.order = (*rest, *used)
        self.outer = tuple(x.shape[axis] for axis in rest)
        self.data = self.take(x)

    def take(self, x: Tensor) -> Tensor:
        turned = self.g.transpose(x, axes=self.order)
        return self.g.reshape(turned, shape=(product(self.outer), 1, *turned.shape[len(self.outer) :]))

    def back(self, made: Tensor) -> Tensor:
        """Returns images with the axes of the tensor."""
        whole = self.g.reshape(made, shape=(*self.outer, *made.shape[2:]))
        return self.g.transpose(whole, axes=tuple(self.order.index(axis) for axis in range(len(self.order))))


def _running(use: Use, x: Tensor, name: str, window: Sequence[int], pairs: Sequence[tuple[int, int]]) -> Tensor | None:
    """Returns a running sum or product, if each window begins at the first element or ends at the last one."""
    used = [axis for axis in range(x.rank) if window[axis] != 1 or pairs[axis] != (0, 0)]
    operator = {"add": "cumsum", "multiply": "cumprod"}.get(name)
    if len(used) != 1 or operator is None or window[used[0]] != x.shape[used[0]]:
        return None
    size = window[used[0]]
    if pairs[used[0]] not in ((size - 1, 0), (0, size - 1)):
        return None
    return use.g.apply(operator, [x], {"axis": used[0], "reverse": pairs[used[0]][0] == 0})[0]


def _reduce_window(use: Use) -> Sequence[Tensor]:
    """Converts a reduction over windows to pooling. Axes with windows of size 1 become the batch."""
    g = use.g
    if len(use.operands) != 2:
        use.fail("reduces several tensors together")
    x, start = use.operands
    ones = (1,) * x.rank
    window, strides = use.integers("window_dimensions"), use.integers("window_strides", ones)
    pairs = use.pairs("padding", x.rank)
    dilation = use.integers("window_dilations", ones)
    if use.integers("base_dilations", ones) != ones or any(w < 0 for pair in pairs for w in pair):
        use.fail("has a dilated operand or negative padding")
    name = reducer(use, use.record.regions[0])
    if strides == ones and dilation == ones and x.dtype != BOOL and is_neutral(name, x, start):
        running = _running(use, x, name, window, pairs)
        if running is not None:
            return [running]
    used = [a for a in range(x.rank) if window[a] != 1 or strides[a] != 1 or pairs[a] != (0, 0)] or [x.rank - 1]
    if len(used) > 3 or name not in ("add", "maximum") or not x.dtype.is_float or not is_neutral(name, x, start):
        use.fail(f"combines windows over {len(used)} axes by `{name}`; sums and maxima over up to 3 are supported")
    images = _Images(use, x, used)
    attributes: dict[str, Any] = {
        "kernel": tuple(window[a] for a in used),
        "stride": tuple(strides[a] for a in used),
        "padding": tuple(pairs[a] for a in used),
    }
    steps = tuple(dilation[a] for a in used)
    if name == "maximum":
        made = g.apply(f"max_pool{len(used)}d", [images.data], {**attributes, "dilation": steps})[0]
    elif any(step != 1 for step in steps):
        use.fail("adds up windows with gaps")
    else:
        mean = g.apply(f"avg_pool{len(used)}d", [images.data], attributes)[0]
        made = g.multiply(mean, g.like(float(np.prod(attributes["kernel"])), mean))
    return [images.back(made)]


def _select_and_scatter(use: Use) -> Sequence[Tensor]:
    """Adds each element of the source to the greatest element of its window, the first of equal ones."""
    g = use.g
    x, source, start = use.operands
    ones = (1,) * x.rank
    window, strides = use.integers("window_dimensions", ones), use.integers("window_strides", ones)
    pairs = use.pairs("padding", x.rank)
    selection, addition = use.record.regions
    (a, _), (b, _) = selection.arguments
    first = selection.operations[0]
    if (first.name, tuple(first.operands), len(selection.operations)) != ("compare", (a, b), 2) or first.word(
        "comparison_direction"
    ) != "GE":
        use.fail("selects elements by another comparison than `GE`")
    if reducer(use, addition) != "add" or not is_neutral("add", x, start):
        use.fail("combines elements by an operation other than an addition to zero")
    used = [axis for axis in range(x.rank) if window[axis] != 1 or strides[axis] != 1] or [x.rank - 1]
    if len(used) > 3 or any(pairs[axis] != (0, 0) for axis in range(x.rank) if axis not in used):
        use.fail(f"has windows over {len(used)} axes; up to 3 are supported")
    images = _Images(use, x, used)
    attributes = {
        "kernel": tuple(window[axis] for axis in used),
        "stride": tuple(strides[axis] for axis in used),
        "padding": tuple(pairs[axis] for axis in used),
    }
    count, spatial = images.data.shape[0], images.data.shape[2:]
    chosen = g.max_pool_indices(images.data, **attributes)  # -1 for a window of padding only
    flat = (count, product(chosen.shape[2:]))
    indices = outside_if_negative(use, g.reshape(chosen, shape=flat))
    updates = g.reshape(images.take(source), shape=flat)
    zeros = g.broadcast_to(g.like(0, x), shape=(count, product(spatial)))
    made = g.scatter_add(zeros, indices, updates, axis=1, mode="drop")
    return [images.back(g.reshape(made, shape=images.data.shape))]


CONVERTERS: Converters = {"reduce_window": _reduce_window, "select_and_scatter": _select_and_scatter}
