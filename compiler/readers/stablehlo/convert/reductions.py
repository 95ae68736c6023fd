"""Reductions over axes and over windows, whose bodies are single operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .....dialect.dims import product
from .....dialect.ops.support.common import integer_range
from .....dialect.types import BOOL
from ...writing.tensors import Tensor
from ..writing.records import BlockRecord, decode_array
from ..writing.use import Converters, Use

_REDUCERS: Mapping[str, tuple[str, str]] = {
    "add": ("sum", "add"), "multiply": ("prod", "multiply"), "maximum": ("max", "maximum"),
    "minimum": ("min", "minimum"), "and": ("all", "logical_and"), "or": ("any", "logical_or"),
}  # fmt: skip
"""The reduction, and the operator that combines it with the initial value."""


def reducer(use: Use, body: BlockRecord) -> str:
    """Returns the name of the only operation of a body, applied to its two arguments."""
    operations = body.operations
    names = {number for number, _ in body.arguments}
    if len(operations) != 2 or set(operations[0].operands) != names or operations[0].name not in _REDUCERS:
        listed = ", ".join(f"`{operation.name}`" for operation in operations[:-1])
        use.fail(f"combines elements by {listed}; single operations {', '.join(_REDUCERS)} are supported")
    return operations[0].name


def _is_neutral(name: str, x: Tensor, start: Tensor) -> bool:
    """Returns whether an initial value changes nothing."""
    if start.array is None:
        return False
    value = start.array.reshape(-1)[0]
    if name in ("add", "or"):
        return not value
    if name in ("multiply", "and"):
        return bool(value == 1)
    if x.dtype.is_float:
        return bool(value == (-np.inf if name == "maximum" else np.inf))
    if x.dtype == BOOL:
        return False
    lowest, highest = integer_range(x.dtype)
    return bool(value == (lowest if name == "maximum" else highest))


def _reduce(use: Use) -> Sequence[Tensor]:
    g, count = use.g, len(use.operands) // 2
    if count != 1:
        use.fail(f"reduces {count} tensors together")
    x, start = use.operands
    axes = use.integers("dimensions")
    name = reducer(use, use.record.regions[0])
    if not axes:
        return [x]
    is_truth = x.dtype == BOOL
    over = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}.get(name, name) if is_truth else name
    if over in ("and", "or") and not is_truth:
        use.fail("combines the bits of whole numbers")
    reduction, combine = _REDUCERS[over]
    total = g.apply(reduction, [x], {"axis": axes})[0]
    return [total if _is_neutral(name, x, start) else g.apply(combine, [total, start], {})[0]]


def _reduce_window(use: Use) -> Sequence[Tensor]:
    """Pooling: windows of size 1 along the first axes or the last one, as images have them."""
    g = use.g
    if len(use.operands) != 2:
        use.fail("reduces several tensors together")
    x, start = use.operands
    ones = (1,) * x.rank
    window, strides = use.integers("window_dimensions"), use.integers("window_strides", ones)
    given = use.record.attributes.get("padding")
    pairs = [(0, 0)] * x.rank if given is None else [(int(a), int(b)) for a, b in decode_array(given)]
    dilation = use.integers("window_dilations", ones)
    if use.integers("base_dilations", ones) != ones or any(w < 0 for pair in pairs for w in pair):
        use.fail("has a dilated operand or negative padding")
    name = reducer(use, use.record.regions[0])
    used = [a for a in range(x.rank) if window[a] != 1 or strides[a] != 1 or pairs[a] != (0, 0)] or [x.rank - 1]
    if len(used) > 3 or name not in ("add", "maximum") or not x.dtype.is_float or not _is_neutral(name, x, start):
        use.fail(f"combines windows over {len(used)} axes by `{name}`; sums and maxima over up to 3 are supported")
    rest = [axis for axis in range(x.rank) if axis not in used]
    order = (*rest, *used)
    turned = g.transpose(x, axes=order)
    outer = tuple(x.shape[axis] for axis in rest)
    spatial = turned.shape[len(rest) :]
    images = g.reshape(turned, shape=(product(outer), 1, *spatial))
    kernel = tuple(window[a] for a in used)
    attributes: dict[str, Any] = {
        "kernel": kernel,
        "stride": tuple(strides[a] for a in used),
        "padding": tuple(pairs[a] for a in used),
    }
    steps = tuple(dilation[a] for a in used)
    if name == "maximum":
        made = g.apply(f"max_pool{len(used)}d", [images], {**attributes, "dilation": steps})[0]
    elif any(step != 1 for step in steps):
        use.fail("adds up windows with gaps")
    else:
        mean = g.apply(f"avg_pool{len(used)}d", [images], attributes)[0]
        made = g.multiply(mean, g.like(float(np.prod(kernel)), mean))
    back = g.reshape(made, shape=(*outer, *made.shape[2:]))
    return [g.transpose(back, axes=tuple(order.index(axis) for axis in range(x.rank)))]


CONVERTERS: Converters = {"reduce": _reduce, "reduce_window": _reduce_window}
