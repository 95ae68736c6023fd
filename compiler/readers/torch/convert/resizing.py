"""Resizing images, and reading them at the positions of a grid."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.dims import Size
from .....dialect.types import F32
from ...writing.tensors import Tensor
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


CONVERTERS: Converters = {
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
