"""Constants, and tensors whose elements depend only on sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Size, bounds, ceil_divide, maximum
from .....dialect.types import F32, I64
from ...writing.tensors import Held, Tensor, known
from ..writing.use import Converters, Use, held_of, strings_of
from .shapes import require_equal


def _constant(use: Use) -> Sequence[Held]:
    if use.has("value"):
        return [held_of(use.stored("value"), use.span)]
    for name, text in (("value_string", use.string), ("value_strings", use.strings_of)):
        if use.has(name):
            return [strings_of(text(name))]
    for name, kind in (("value_float", use.number), ("value_floats", use.floats_of)):
        if use.has(name):
            return [known(kind(name), F32)]
    for name, kind in (("value_int", use.integer), ("value_ints", use.ints_of)):
        if use.has(name):
            return [known(kind(name), I64)]
    use.fail("is a sparse tensor, which is not supported", code="unsupported-dtype")


def _constant_of_shape(use: Use) -> Sequence[Tensor]:
    value = use.tensor_of(use.stored("value")) if use.has("value") else known(np.float32(0))
    given, g = use.input(), use.g
    if given.sizes is None:
        shape = use.declared_shape("a shape")
        require_equal(use, given, shape)
    else:
        shape = given.sizes
    if any(bounds(size)[1] < 0 for size in shape):
        use.fail(f"has a negative size: {', '.join(map(str, shape))}", code="bad-size")
    return [g.broadcast_to(g.reshape(value, shape=()), shape=shape)]


def _range(use: Use) -> Sequence[Tensor]:
    g, bounds_given = use.g, [use.input(i) for i in range(3)]
    if any(bound.type.elements != 1 for bound in bounds_given):
        use.fail("takes scalars as its bounds and its step", code="wrong-operands")
    start, limit, delta = (g.reshape(bound, shape=()) if bound.rank else bound for bound in bounds_given)
    if delta.array is not None and not delta.array:
        use.fail("has the step 0", code="bad-size")
    if start.array is not None and limit.array is not None and delta.array is not None:
        number = np.ceil((limit.array.item() - start.array.item()) / delta.array.item())
        if not np.isfinite(number):
            use.fail(f"has {number} elements", code="bad-size")
        count: Size = max(int(number), 0)
    elif start.sizes is not None and limit.sizes is not None and delta.array is not None:
        step = int(delta.array.item())
        extent = limit.sizes[0] - start.sizes[0]
        count = maximum(ceil_divide(extent, step) if step > 0 else ceil_divide(-1 * extent, -step), 0)
    else:
        count = use.declared_shape("bounds")[0]
        wide = g.divide(*(g.cast(x, dtype=use.dtype(11)) for x in (g.subtract(limit, start), delta)))
        length = g.maximum(g.cast(g.ceil(wide), dtype=I64), known(np.int64(0)))
        use.require(g.equal(length, g.size(count)))
    return [g.add(start, g.multiply(g.cast(g.iota(shape=(count,)), dtype=start.dtype), delta))]


def _eye_like(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    dtype = use.element_type("dtype", x.dtype)
    if x.rank != 2:
        use.fail(f"takes a matrix, not {x.type}", code="rank-mismatch")
    rows, columns = x.shape
    line = g.reshape(g.iota(shape=(rows,)), shape=(rows, 1))
    hit = g.equal(g.subtract(g.iota(shape=(columns,)), line), known(np.int64(use.integer("k", 0))))
    return [g.cast(hit, dtype=dtype)]


CONVERTERS: Converters = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "EyeLike": _eye_like,
}
