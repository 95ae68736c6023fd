"""`Resize` with scales, sizes or a region that the call gives: positions and weights are computed in the call, in f64.

The sizes of the result are those that the file declares, and the call checks that its scales lead to them. The formulas
are those of `resizing`, for vectors of positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .....dialect.types import F32, F64, I64, DType
from ...writing.tensors import Tensor, known
from ..writing.use import Use

Taps = list[tuple[Tensor, Tensor | None]]
"""Positions along an axis, and their weights, for all elements of the result."""


@dataclass(frozen=True, slots=True)
class CallAxis:
    """One axis: sizes before and after, the scale, and the region of interest, as f64 scalars."""

    axis: int
    old: int
    new: int
    scale: Tensor
    region: tuple[Tensor, Tensor] | None


def _f64(value: float) -> Tensor:
    return known(value, F64)


def resize_in_call(use: Use, x: Tensor, axes: Sequence[int], mode: str, coordinates: str) -> Tensor:
    """Returns the operand resampled along the axes."""
    g, declared = use.g, use.declared_shape("scales, sizes or a region", rank=x.rank)
    region, scales, sizes = use.optional(1), use.optional(2), use.optional(3)
    if scales is not None and scales.shape == (0,):
        scales = None
    chosen: list[CallAxis] = []
    found: list[tuple[int, int, Tensor]] = []
    for position, axis in enumerate(axes):
        old, new = x.shape[axis], declared[axis]
        if not isinstance(old, int) or not isinstance(new, int):
            use.fail("resamples a symbolic size by values of the call", code="data-dependent")
        given = scales if scales is not None else sizes
        if given is None:
            use.fail("has neither scales nor sizes", code="wrong-operands")
        value = g.cast(g.gather(given, known(np.int64(position)), axis=0), dtype=F64)
        found.append((old, new, value if scales is not None else g.divide(value, _f64(old))))
    common = _common(use, [scale for *_, scale in found]) if scales is None and found else None
    for position, (axis, (old, new, scale)) in enumerate(zip(axes, found, strict=True)):
        scale = scale if common is None else common
        window = None
        extent = _f64(old)
        if coordinates == "tf_crop_and_resize":
            if region is None:
                use.fail("has no region of interest", code="wrong-operands")
            start, end = (
                g.cast(g.gather(region, known(np.int64(position + k * len(axes))), axis=0), dtype=F64) for k in (0, 1)
            )
            window = start, end
            extent = g.multiply(extent, g.subtract(end, start)) if scales is not None else extent
        _require_size(use, g.multiply(scale, extent), new, exact=scales is None)
        chosen.append(CallAxis(axis, old, new, scale, window))
    return _resampled(use, x, chosen, mode, coordinates)


def _common(use: Use, scales: Sequence[Tensor]) -> Tensor | None:
    """Returns the scale of all axes, if the aspect ratio is kept."""
    policy = use.string("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return None
    total, *rest = scales
    for scale in rest:
        total = use.g.apply("minimum" if policy == "not_larger" else "maximum", [total, scale], {})[0]
    return total


def _require_size(use: Use, size: Tensor, new: int, *, exact: bool) -> None:
    """Adds a check that the computed size is the declared one. Sizes are rounded down; a scale that is rounded in f32
    may give slightly less than the size."""
    g = use.g
    low, high = (new - 0.51, new + 0.51) if exact else (new - 1e-3, new + 1)
    use.require(g.logical_and(g.greater(size, _f64(low)), g.less(size, _f64(high))))


def _coordinates(use: Use, mode: str, axis: CallAxis) -> Tensor:
    g = use.g
    at = g.cast(g.iota(shape=(axis.new,)), dtype=F64)
    half, old, new = _f64(0.5), axis.old, axis.new
    centre = g.subtract(g.divide(g.add(at, half), axis.scale), half)
    if mode == "half_pixel":
        return centre
    if mode == "half_pixel_symmetric":
        adjusted = g.divide(_f64(new), g.multiply(axis.scale, _f64(old)))
        return g.add(g.multiply(_f64(old / 2), g.subtract(_f64(1), adjusted)), centre)
    if mode == "pytorch_half_pixel":
        return centre if new > 1 else g.multiply(at, _f64(0))
    if mode == "align_corners":
        if new == 1:
            return g.multiply(at, _f64(0))
        # The last element of an exact size, which need not be an integer, is aligned with the last element of the
        # operand.
        return g.multiply(at, g.divide(_f64(old - 1), g.subtract(g.multiply(axis.scale, _f64(old)), _f64(1))))
    if mode == "asymmetric":
        return g.divide(at, axis.scale)
    if mode == "tf_half_pixel_for_nn":
        return g.divide(g.add(at, half), axis.scale)
    if mode == "tf_crop_and_resize" and axis.region is not None:
        start, end = axis.region
        if new == 1:
            return g.broadcast_to(g.multiply(g.multiply(half, g.add(start, end)), _f64(old - 1)), shape=(1,))
        step = g.multiply(g.subtract(end, start), _f64((old - 1) / (new - 1)))
        return g.add(g.multiply(start, _f64(old - 1)), g.multiply(at, step))
    use.fail(f"has the coordinate transformation {mode!r}", code="bad-attribute")


def _nearest(use: Use, position: Tensor) -> Tensor:
    g, half = use.g, _f64(0.5)
    rounding = use.string("nearest_mode", "round_prefer_floor")
    if rounding == "round_prefer_floor":
        return g.ceil(g.subtract(position, half))
    if rounding == "round_prefer_ceil":
        return g.floor(g.add(position, half))
    if rounding not in ("floor", "ceil"):
        use.fail(f"has the attribute `nearest_mode` = {rounding!r}", code="bad-attribute")
    return g.floor(position) if rounding == "floor" else g.ceil(position)


def _taps(use: Use, axis: CallAxis, position: Tensor, mode: str) -> Taps:
    g = use.g
    if mode == "nearest":
        return [(_nearest(use, position), None)]
    base = g.floor(position)
    part = g.subtract(position, base)
    widened = bool(use.integer("antialias", 0))
    stretch = g.minimum(axis.scale, _f64(1)) if widened else _f64(1)
    # Weights beyond the filter are 0, so an upper bound of its length suffices; declared sizes bound the scale.
    reach = -(-axis.old // max(axis.new, 1)) if widened else 1
    radius = reach if mode == "linear" else 2 * reach
    taps: list[tuple[Tensor, Tensor]] = []
    for offset in range(-radius + 1, radius + 1):
        distance = g.abs(g.multiply(g.subtract(_f64(offset), part), stretch))
        weight = _triangle(use, distance) if mode == "linear" else _cubic(use, distance)
        at = g.add(base, _f64(offset))
        if use.integer("exclude_outside", 0) and mode == "cubic":
            inside = g.logical_and(g.greater_equal(at, _f64(0)), g.less(at, _f64(axis.old)))
            weight = g.where(inside, weight, _f64(0))
        taps.append((at, weight))
    (_, total), *rest = taps
    for _, weight in rest:
        total = g.add(total, weight)
    return [(at, g.divide(weight, total)) for at, weight in taps]


def _triangle(use: Use, distance: Tensor) -> Tensor:
    g = use.g
    return g.maximum(g.subtract(_f64(1), distance), _f64(0))


def _cubic(use: Use, distance: Tensor) -> Tensor:
    g, a, d = use.g, use.number("cubic_coeff_a", -0.75), distance

    def polynomial(*factors: float) -> Tensor:
        total = g.broadcast_to(_f64(factors[0]), shape=d.shape)
        for factor in factors[1:]:
            total = g.add(g.multiply(total, d), _f64(factor))
        return total

    near, far = polynomial(a + 2, -(a + 3), 0, 1), polynomial(a, -5 * a, 8 * a, -4 * a)
    return g.where(g.less(d, _f64(1)), near, g.where(g.less(d, _f64(2)), far, _f64(0)))


def _resampled(use: Use, x: Tensor, axes: Sequence[CallAxis], mode: str, coordinates: str) -> Tensor:
    g, dtype = use.g, x.dtype
    wide = g.cast(x, dtype=F32) if mode != "nearest" and (dtype.is_half or not dtype.is_float) else x
    beyond: Tensor | None = None
    for axis in axes:
        position = _coordinates(use, coordinates, axis)
        rest = (1,) * (x.rank - axis.axis - 1)
        if coordinates == "tf_crop_and_resize":
            outside = g.logical_or(g.less(position, _f64(0)), g.greater(position, _f64(axis.old - 1)))
            outside = g.reshape(outside, shape=(axis.new, *rest))
            beyond = outside if beyond is None else g.logical_or(beyond, outside)
        total: Tensor | None = None
        for at, weight in _taps(use, axis, position, mode):
            index = g.cast(g.minimum(g.maximum(at, _f64(0)), _f64(axis.old - 1)), dtype=I64)
            part = g.gather(wide, index, axis=axis.axis, mode="clamp")
            if weight is not None:
                part = g.multiply(part, g.reshape(g.cast(weight, dtype=wide.dtype), shape=(axis.new, *rest)))
            total = part if total is None else g.add(total, part)
        assert total is not None
        wide = total
    return finish_resize(use, wide, beyond, dtype)


def finish_resize(use: Use, x: Tensor, outside: Tensor | None, dtype: DType) -> Tensor:
    """Returns the result in the dtype of the operand, rounded and saturated if it is an integer. Elements that are
    `outside` of the region are the extrapolation value."""
    g = use.g
    if outside is not None:
        x = g.where(outside, g.like(use.number("extrapolation_value", 0.0), x), x)
    if x.dtype == dtype:
        return x
    if dtype.is_integer:
        low, high = dtype.integer_range
        x = g.minimum(g.maximum(g.round(x), g.like(low, x)), g.like(high, x))
    return g.cast(x, dtype=dtype)
