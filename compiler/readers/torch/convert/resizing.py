"""Resizing images, and reading them at the positions of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from .....dialect.dims import Size
from .....dialect.types import F32
from ...writing.tensors import Elements, Tensor, known
from ..writing.use import Convert, Converters, Use


def _wanted(use: Use, rank: int) -> dict[str, object]:
    """Returns the sizes, or the scales where the positions follow from them."""
    scales = use.arguments.get("scale_factors") or ()
    given: Sequence[Size] = use.shape[-rank:]
    if scales and not use.has("output_size"):
        return {"scales": tuple(float(scale) for scale in scales)}
    singles = [use.arguments.get(name) for name in ("scales", "scales_d", "scales_h", "scales_w")]
    found = [float(each) for each in singles if each is not None]
    if len(found) == rank:
        return {"scales": tuple(found)}
    return {"sizes": tuple(given)}


def _resize(rank: int, mode: str, coordinates: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, g = use.tensor("input") if use.has("input") else use.tensor("self"), use.g
        chosen = "align_corners" if use.flag("align_corners") else coordinates
        wide = use.to(x, F32) if x.dtype.is_half and mode == "linear" else x
        attributes = _wanted(use, rank)
        made = g.resize(wide, **attributes, mode=mode, coordinates=chosen)
        if made.shape != use.shape:
            made = g.resize(wide, sizes=tuple(use.shape[-rank:]), mode=mode, coordinates=chosen)
        return [use.to(made, x.dtype)]

    return convert


_SHARPNESS = -0.75
"""The coefficient of cubic interpolation."""


def _cubic_taps(use: Use, axis: int, old: Size, new: Size) -> tuple[Elements, Elements]:
    """Returns the positions [4, new] that each result reads along an axis, and their weights."""
    if not isinstance(old, int) or not isinstance(new, int):
        use.fail(f"resizes an axis of {old} to {new}", help="export the model with sizes that are numbers")
    given = use.arguments.get(("scales_h", "scales_w")[axis - 2])
    if use.arguments.get("scale_factors"):
        given = use.arguments["scale_factors"][axis - 2]
    if use.flag("align_corners"):
        centres = np.arange(new) * ((old - 1) / (new - 1) if new > 1 else 0.0)
    else:
        centres = (np.arange(new) + 0.5) * (1 / given if given else old / new) - 0.5
    base, a = np.floor(centres), _SHARPNESS
    positions = base + np.arange(-1, 3)[:, None]
    d = np.abs(positions - centres)
    near = ((a + 2) * d - (a + 3)) * d**2 + 1
    far = a * (((d - 5) * d + 8) * d - 4)
    return np.clip(positions, 0, old - 1).astype(np.int64), np.where(d <= 1, near, far)


def _resize_cubic(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor("input") if use.has("input") else use.tensor("self"), use.g
    wide = use.to(x, F32) if x.dtype.is_half else x
    for axis in (3, 2):
        positions, weights = _cubic_taps(use, axis, wide.shape[axis], use.shape[axis])
        parts = [
            g.multiply(g.gather(wide, known(at), axis=axis), known(weight.reshape(-1, *(1,) * (3 - axis)), wide.dtype))
            for at, weight in zip(positions, weights, strict=True)
        ]
        wide = reduce(g.add, parts)
    return [use.to(wide, x.dtype)]


CONVERTERS: Converters = {
    **dict.fromkeys(("upsample_bicubic2d.vec", "upsample_bicubic2d.default"), _resize_cubic),
    **{
        f"upsample_nearest{rank}d.{form}": _resize(rank, "nearest", "asymmetric")
        for rank in (1, 2, 3)
        for form in ("vec", "default")
    },
    **{
        f"_upsample_nearest_exact{rank}d.{form}": _resize(rank, "nearest", "half_pixel")
        for rank in (1, 2, 3)
        for form in ("vec", "default")
    },
    **{
        f"upsample_{name}{rank}d.{form}": _resize(rank, "linear", "half_pixel")
        for name, rank in (("linear", 1), ("bilinear", 2), ("trilinear", 3))
        for form in ("vec", "default")
    },
}
