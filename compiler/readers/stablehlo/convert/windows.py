"""Reductions over windows, and the gradient of a maximum or a minimum over windows.

Axes with windows of size 1 become the batch of images with one channel, so that a reduction over the others is pooling:

    x [B, H, W, C], windows [1, 2, 2, 1]     ->     images [B*C, 1, H, W], pooled by 2 x 2, and transposed back
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from .....dialect.dims import Size, product, static_size
from .....dialect.types import BOOL
from ...writing.tensors import Tensor
from ..writing.records import BlockRecord
from ..writing.use import Converters, Use
from .addressing import outside_if_negative
from .reductions import REDUCERS, is_neutral, reducer


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


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows over all axes of a tensor, whose sizes and padding may depend on dims."""

    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    steps: tuple[Size, ...]
    padding: tuple[tuple[Size, Size], ...]
    spread: tuple[Size, ...]
    """The dilation of the tensor itself."""


def _running(use: Use, x: Tensor, name: str, windows: _Windows) -> Tensor | None:
    """Returns a running sum or product, if each window begins at the first element or ends at the last one."""
    sizes, padding = windows.sizes, windows.padding
    used = [axis for axis in range(x.rank) if sizes[axis] != 1 or padding[axis] != (0, 0)]
    operator = {"add": "cumsum", "multiply": "cumprod"}.get(name)
    if len(used) != 1 or operator is None or sizes[used[0]] != x.shape[used[0]]:
        return None
    size = sizes[used[0]]
    if padding[used[0]] not in ((size - 1, 0), (0, size - 1)):
        return None
    return use.g.apply(operator, [x], {"axis": used[0], "reverse": padding[used[0]][0] == 0})[0]


def _reduce_window(use: Use) -> Sequence[Tensor]:
    if len(use.operands) != 2:
        use.fail("reduces several tensors together")
    ones = (1,) * use.x.rank
    windows = _Windows(
        use.integers("window_dimensions"),
        use.integers("window_strides", ones),
        use.integers("window_dilations", ones),
        tuple(use.pairs("padding", use.x.rank)),
        use.integers("base_dilations", ones),
    )
    return [_reduced(use, windows, use.record.regions[0])]


def dynamic_reduce_window(use: Use) -> Sequence[Tensor]:
    """Converts the custom call by which JAX writes windows that depend on dims. Its operands after the tensor and the
    initial value are sizes, strides, dilations of the tensor, dilations of windows, and the padding."""
    if len(use.operands) != 7:
        use.fail("reduces several tensors together")
    names = ("sizes of windows", "strides", "dilations", "dilations", "padding")
    sizes, strides, spread, steps, widths = (use.sizes(number, name) for number, name in enumerate(names, 2))
    windows = _Windows(sizes, strides, steps, tuple(zip(widths[::2], widths[1::2], strict=True)), spread)
    called = str(use.record.attributes.get("called_computations", "")).strip("[]@")
    return [_reduced(use, windows, use.body_of(called))]


def _reduced(use: Use, windows: _Windows, body: BlockRecord) -> Tensor:
    """Returns a running sum, or the result of pooling. Axes with windows of size 1 become the batch."""
    g, (x, start) = use.g, use.operands[:2]
    ones = (1,) * x.rank
    name = reducer(use, body)
    is_plain = windows.strides == windows.steps == windows.spread == ones
    if is_plain and x.dtype != BOOL and is_neutral(name, x, start):
        running = _running(use, x, name, windows)
        if running is not None:
            return running
    numbers = (*windows.sizes, *windows.strides, *windows.steps, *windows.spread, *chain(*windows.padding))
    if not all(isinstance(number, int) for number in numbers):
        use.fail("has windows or padding that depend on dims", code="data-dependent")
    window, strides, dilation = (
        [static_size(size) for size in sizes] for sizes in (windows.sizes, windows.strides, windows.steps)
    )
    pairs = [(static_size(a), static_size(b)) for a, b in windows.padding]
    if windows.spread != ones or any(w < 0 for pair in pairs for w in pair):
        use.fail("has a dilated operand or negative padding")
    used = [a for a in range(x.rank) if window[a] != 1 or strides[a] != 1 or pairs[a] != (0, 0)] or [x.rank - 1]
    is_extreme = name in ("maximum", "minimum")
    is_taken = (is_extreme and x.dtype != BOOL) or (name == "add" and x.dtype.is_float)
    if len(used) > 3 or not is_taken:
        use.fail(f"combines windows of {x.dtype} over {len(used)} axes by `{name}`; {_SUPPORTED} are supported")
    images = _Images(use, _reversed(use, x) if name == "minimum" else x, used)
    attributes: dict[str, Any] = {
        "kernel": tuple(window[a] for a in used),
        "stride": tuple(strides[a] for a in used),
        "padding": tuple(pairs[a] for a in used),
    }
    steps = tuple(dilation[a] for a in used)
    if is_extreme:
        made = g.apply(f"max_pool{len(used)}d", [images.data], {**attributes, "dilation": steps})[0]
    elif any(step != 1 for step in steps):
        use.fail("adds up windows with gaps")
    else:
        mean = g.apply(f"avg_pool{len(used)}d", [images.data], attributes)[0]
        made = g.multiply(mean, g.like(float(np.prod(attributes["kernel"])), mean))
    made = images.back(_reversed(use, made) if name == "minimum" else made)
    return made if is_neutral(name, x, start) else g.apply(REDUCERS[name][1], [made, start], {})[0]


_SUPPORTED = "sums of floats, and maxima and minima of numbers, over up to 3 axes"


def _reversed(use: Use, x: Tensor) -> Tensor:
    """Returns numbers in the opposite order: the least element becomes the greatest one."""
    return use.g.negate(x) if x.dtype.is_float else use.g.bitwise_not(x)


def _select_and_scatter(use: Use) -> Sequence[Tensor]:
    """Adds each element of the source to the greatest or the least element of its window, the first of equal ones."""
    g = use.g
    x, source, start = use.operands
    ones = (1,) * x.rank
    window, strides = use.integers("window_dimensions", ones), use.integers("window_strides", ones)
    pairs = use.pairs("padding", x.rank)
    selection, addition = use.record.regions
    (a, _), (b, _) = selection.arguments
    first = selection.operations[0]
    is_plain = (first.name, tuple(first.operands), len(selection.operations)) == ("compare", (a, b), 2)
    direction = first.word("comparison_direction") if is_plain else ""
    if direction not in ("GE", "LE"):
        use.fail("selects elements by another comparison than `GE` or `LE`")
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
    compared = images.data if direction == "GE" else _reversed(use, images.data)
    chosen = g.max_pool_indices(compared, **attributes)  # -1 for a window of padding only
    flat = (count, product(chosen.shape[2:]))
    indices = outside_if_negative(use, g.reshape(chosen, shape=flat))
    updates = g.reshape(images.take(source), shape=flat)
    zeros = g.broadcast_to(g.like(0, x), shape=(count, product(spatial)))
    made = g.scatter_add(zeros, indices, updates, axis=1, mode="drop")
    return [images.back(g.reshape(made, shape=images.data.shape))]


CONVERTERS: Converters = {"reduce_window": _reduce_window, "select_and_scatter": _select_and_scatter}
