"""Resampling: `Resize` and `Upsample`.

The axes are resampled one after another: a result element is a weighted sum of elements at positions that depend only
on the sizes. If the sizes are known, the positions and weights are computed in float64 while the file is read. For
symbolic sizes, the common modes become the graph's `resize`.

The weights [new, old] of an axis of size 2, resized to 4 in the mode `linear` with `half_pixel` coordinates:

    element      0       1      2      3
    position    -0.25    0.25   0.75   1.25        (element + 0.5) * 2 / 4 - 0.5
    weights     1 0     .75 .25   .25 .75   0 1    positions outside take the edge element
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .....dialect.dims import Size
from .....dialect.types import F32
from ...writing.tensors import Tensor, known
from ...writing.weighted_sums import weighted_sums
from ..writing.use import REQUIRED, Converters, Use
from .resizing_in_call import finish_resize, resize_in_call

_NEAREST: dict[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


_MOST_WEIGHTS = 1 << 26
"""The maximum number of weights that are computed for one axis while the file is read."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis: sizes before and after, the scale, and the region of interest."""

    axis: int
    old: int
    new: int
    scale: float
    region: tuple[float, float]


def _coordinate(use: Use, mode: str, at: int, axis: _Axis) -> float:
    """Returns the position in the operand of element `at` of the result."""
    old, new, scale = axis.old, axis.new, axis.scale
    if mode == "half_pixel":
        return (at + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        adjusted = new / (scale * old)
        return old / 2 * (1 - adjusted) + (at + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (at + 0.5) / scale - 0.5 if new > 1 else 0.0
    if mode == "align_corners":
        # The last element of an exact size, which need not be an integer, is aligned with the last element of the
        # operand.
        return at * (old - 1) / (scale * old - 1) if new > 1 else 0.0
    if mode == "asymmetric":
        return at / scale
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if mode == "tf_crop_and_resize":
        start, end = axis.region
        if new > 1:
            return start * (old - 1) + at * (end - start) * (old - 1) / (new - 1)
        return 0.5 * (start + end) * (old - 1)
    use.fail(f"has the coordinate transformation {mode!r}", code="bad-attribute")


def _linear_weights(fraction: float, stretch: float) -> tuple[int, list[float]]:
    """Returns the offset of the first element, and the weights from there on. `stretch` < 1 widens the filter."""
    if stretch >= 1:
        return 0, [1 - fraction, fraction]
    reach = math.ceil(1 / stretch)
    first = -reach + 1
    weights = [max(0.0, 1 - abs((i - fraction) * stretch)) for i in range(first, reach + 1)]
    return first, weights


def _cubic_weights(fraction: float, stretch: float, a: float) -> tuple[int, list[float]]:
    def curve(x: float) -> float:
        x = abs(x)
        if x < 1:
            return (a + 2) * x**3 - (a + 3) * x**2 + 1
        return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0

    stretch = min(stretch, 1.0)
    first = math.floor(-2 / stretch) + 1
    last = 2 - first if stretch < 1 else 2
    return first, [curve(stretch * (i - fraction)) for i in range(first, last + 1)]


def _matrix(use: Use, axis: _Axis, mode: str, coordinates: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Returns the weights [new, old] of an axis, and whether each result is outside of the operand."""
    if not 0 <= axis.new * axis.old <= _MOST_WEIGHTS or (axis.new and not axis.old):
        use.fail(f"resamples an axis of {axis.old} to {axis.new}", code="bad-size")
    made = np.zeros((axis.new, axis.old))
    outside = np.zeros(axis.new, bool)
    antialias = bool(use.integer("antialias", 0))
    stretch = min(axis.scale, 1.0) if antialias else 1.0
    for at in range(axis.new):
        x = _coordinate(use, coordinates, at, axis)
        if coordinates == "tf_crop_and_resize":
            outside[at] = not 0 <= x <= axis.old - 1
        if mode == "nearest":
            rounding = use.string("nearest_mode", "floor" if use.version < 11 else "round_prefer_floor")
            if rounding not in _NEAREST:
                use.fail(f"has the attribute `nearest_mode` = {rounding!r}", code="bad-attribute")
            made[at, min(max(_NEAREST[rounding](x), 0), axis.old - 1)] = 1
            continue
        base = math.floor(x)
        if mode == "linear":
            first, weights = _linear_weights(x - base, stretch)
        else:
            first, weights = _cubic_weights(x - base, stretch, use.number("cubic_coeff_a", -0.75))
        positions = [base + first + i for i in range(len(weights))]
        if use.integer("exclude_outside", 0) and mode == "cubic":
            weights = [w if 0 <= p < axis.old else 0.0 for p, w in zip(positions, weights, strict=True)]
        total = sum(weights) or 1.0
        for position, weight in zip(positions, weights, strict=True):
            made[at, min(max(position, 0), axis.old - 1)] += weight / total
    return made, outside


def _resampled(use: Use, x: Tensor, axes: Sequence[_Axis], mode: str, coordinates: str) -> Tensor:
    g = use.g
    dtype = x.dtype
    wide = g.cast(x, dtype=F32) if mode != "nearest" and (dtype.is_half or not dtype.is_float) else x
    beyond: Tensor | None = None
    for axis in axes:
        weights, outside = _matrix(use, axis, mode, coordinates)
        if mode == "nearest":
            positions = weights.argmax(1) if axis.old else np.zeros(0)
            wide = g.gather(wide, known(positions.astype(np.int64)), axis=axis.axis)
        else:
            wide = weighted_sums(g, wide, axis.axis, weights)
        if outside.any():
            mask = known(outside.reshape(axis.new, *(1,) * (x.rank - axis.axis - 1)))
            beyond = mask if beyond is None else g.logical_or(beyond, mask)
    return finish_resize(use, wide, beyond, dtype)


def _upsample(use: Use) -> Sequence[Tensor]:
    x = use.input()
    if use.version >= 9 and use.input(1).elements is None:
        new, old = use.declared_shape("scales", rank=x.rank), x.shape
        if not all(isinstance(size, int) and size for size in (*new, *old)):
            use.fail_unknown("scales")
        scales = [a / b for a, b in zip(new, old, strict=True) if isinstance(a, int) and isinstance(b, int)]
        use.require(use.g.all(use.g.equal(use.input(1), known(scales, F32))))
    elif use.version >= 9:
        scales = [float(s) for s in use.known_array(1, "scales").reshape(-1)]
    elif use.version >= 7:
        scales = list(use.floats_of("scales"))
    else:
        scales = [1.0, 1.0, use.number("height_scale", REQUIRED), use.number("width_scale", REQUIRED)]
    mode = use.string("mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    if mode not in ("nearest", "linear"):
        use.fail(f"has the attribute `mode` = {mode!r}", code="bad-attribute")
    return [_by_scales(use, x, tuple(range(x.rank)), scales, mode, "asymmetric", None)]


def _resize(use: Use) -> Sequence[Tensor]:
    x = use.input()
    mode = use.string("mode", "nearest")
    if mode not in ("nearest", "linear", "cubic"):
        use.fail(f"has the attribute `mode` = {mode!r}", code="bad-attribute")
    if use.version < 11:
        scales = [float(s) for s in use.known_array(1, "scales").reshape(-1)]
        return [_by_scales(use, x, tuple(range(x.rank)), scales, mode, "asymmetric", None)]
    coordinates = use.string("coordinate_transformation_mode", "half_pixel")
    axes = use.axes_in(x.rank, use.ints_of("axes", tuple(range(x.rank))))
    if any(held.elements is None for held in use.inputs_given()[1:]):
        return [resize_in_call(use, x, axes, mode, coordinates)]
    region = None
    if coordinates == "tf_crop_and_resize":
        region = [float(r) for r in use.known_array(1, "a region of interest").reshape(-1)]
        if len(region) != 2 * len(axes):
            use.fail(f"has a region of {len(region)} numbers for {len(axes)} axes", code="shape-mismatch")
    given_scales, given_sizes = use.optional(2), use.optional(3)
    if given_scales is not None and given_scales.shape != (0,):
        scales = [float(s) for s in use.known_array(2, "scales").reshape(-1)]
        return [_by_scales(use, x, axes, scales, mode, coordinates, region)]
    if given_sizes is None:
        use.fail("has neither scales nor sizes", code="wrong-operands")
    return [_by_sizes(use, x, axes, use.sizes(3, "sizes"), mode, coordinates, region)]


def _check_lengths(use: Use, given: Sequence[object], axes: Sequence[int]) -> None:
    if len(given) != len(axes):
        use.fail(f"has {len(given)} scales or sizes for {len(axes)} axes", code="shape-mismatch")


def _by_scales(
    use: Use,
    x: Tensor,
    axes: Sequence[int],
    scales: Sequence[float],
    mode: str,
    coordinates: str,
    region: Sequence[float] | None,
) -> Tensor:
    _check_lengths(use, scales, axes)
    if not all(0 < scale < math.inf for scale in scales):
        use.fail(f"has scales of {list(scales)}", code="bad-size")
    chosen = []
    for position, (axis, scale) in enumerate(zip(axes, scales, strict=True)):
        old = x.shape[axis]
        if scale == 1 and region is None:
            continue
        if not isinstance(old, int):
            return _symbolic(use, x, axes, scales, None, mode, coordinates)
        window = (0.0, 1.0) if region is None else (region[position], region[position + len(axes)])
        new = math.floor(old * scale * (window[1] - window[0])) if region is not None else math.floor(old * scale)
        chosen.append(_Axis(axis, old, new, scale, window))
    return _resampled(use, x, chosen, mode, coordinates)


def _by_sizes(
    use: Use,
    x: Tensor,
    axes: Sequence[int],
    sizes: Sequence[Size],
    mode: str,
    coordinates: str,
    region: Sequence[float] | None,
) -> Tensor:
    _check_lengths(use, sizes, axes)
    if any(not isinstance(size, int) for size in (*sizes, *(x.shape[axis] for axis in axes))):
        return _symbolic(use, x, axes, None, sizes, mode, coordinates)
    olds = [size for axis in axes if isinstance(size := x.shape[axis], int)]
    news = [size for size in sizes if isinstance(size, int)]
    scales = [new / max(old, 1) for new, old in zip(news, olds, strict=True)]
    policy = use.string("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        common = min(scales) if policy == "not_larger" else max(scales)
        scales = [common] * len(scales)
        news = [math.floor(common * old + 0.5) for old in olds]
    chosen = []
    for position, axis in enumerate(axes):
        window = (0.0, 1.0) if region is None else (region[position], region[position + len(axes)])
        if olds[position] != news[position] or region is not None:
            chosen.append(_Axis(axis, olds[position], news[position], scales[position], window))
    return _resampled(use, x, chosen, mode, coordinates)


def _symbolic(
    use: Use,
    x: Tensor,
    axes: Sequence[int],
    scales: Sequence[float] | None,
    sizes: Sequence[Size] | None,
    mode: str,
    coordinates: str,
) -> Tensor:
    """Resamples axes of symbolic sizes with the operator of the graph, which has the common modes."""
    nearest = use.string("nearest_mode", "floor" if use.version < 11 else "round_prefer_floor")
    fits = mode == "linear" and coordinates in ("half_pixel", "asymmetric", "align_corners")
    fits |= mode == "nearest" and coordinates == "asymmetric" and nearest == "floor"
    whole = scales is not None and all(float(scale).is_integer() for scale in scales)
    # At integer scales, this mode and `asymmetric` with `floor` select the same elements.
    fits |= mode == "nearest" and whole and (coordinates, nearest) == ("half_pixel", "round_prefer_floor")
    if not fits or use.integer("antialias", 0) or use.string("keep_aspect_ratio_policy", "stretch") != "stretch":
        use.fail(f"resamples a symbolic size in the mode {mode} of {coordinates}, {nearest}", code="data-dependent")
    if sizes is not None:
        full = list(x.shape)
        for axis, size in zip(axes, sizes, strict=True):
            full[axis] = size
        return use.g.resize(x, sizes=tuple(full), mode=mode, coordinates=coordinates)
    assert scales is not None
    factors = [1.0] * x.rank
    for axis, scale in zip(axes, scales, strict=True):
        factors[axis] = scale
    return use.g.resize(x, scales=tuple(factors), mode=mode, coordinates=coordinates)


CONVERTERS: Converters = {"Resize": _resize, "Upsample": _upsample}
