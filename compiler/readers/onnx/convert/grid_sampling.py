"""Elements at positions between others: `GridSample`, and `RoiAlign` over boxes."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import F32, F64, DType
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use
from .boxes import greatest_in_boxes

_MODES = {"bilinear": "linear", "linear": "linear", "bicubic": "cubic", "cubic": "cubic", "nearest": "nearest"}


def _computed_in(dtype: DType) -> DType:
    """Returns the float that holds the numbers of a dtype; integers above 2**53 are not exact."""
    return F64 if dtype == F64 or (dtype.is_integer and dtype.bits > 16) else F32


def _grid_sample(use: Use) -> Sequence[Tensor]:
    x, grid, g = use.input(0), use.input(1), use.g
    mode, padding = use.string("mode", "linear"), use.string("padding_mode", "zeros")
    if mode not in _MODES or padding not in ("zeros", "border", "reflection"):
        use.fail(f"has the mode {mode!r} and the padding {padding!r}", code="bad-attribute")
    wide = F64 if F64 in (x.dtype, grid.dtype) else _computed_in(x.dtype)
    made = g.grid_sample(
        g.cast(x, dtype=wide),
        g.cast(grid, dtype=wide),
        mode=_MODES[mode],
        padding=padding,
        align_corners=bool(use.integer("align_corners", 0)),
    )
    return [g.cast(made, dtype=x.dtype)]


def _roi_align(use: Use) -> Sequence[Tensor]:
    x, boxes, image = use.ranked(0, 4), use.ranked(1, 2), use.ranked(2, 1)
    if image.shape != boxes.shape[:1]:
        use.fail(f"has images of type {image.type} for boxes of {boxes.type}", code="shape-mismatch")
    mode, samples = use.string("mode", "avg"), use.integer("sampling_ratio", 0)
    if mode not in ("avg", "max"):
        use.fail(f"has the mode {mode!r}", code="bad-attribute")
    if samples <= 0:
        use.fail("takes a number of samples that depends on the size of each box", help="set `sampling_ratio`")
    moved = "half_pixel" if use.version >= 16 else "output_half_pixel"
    wide = _computed_in(x.dtype)
    bins = (use.integer("output_height", 1), use.integer("output_width", 1))
    aligned = use.string("coordinate_transformation_mode", moved) == "half_pixel"
    scale = use.number("spatial_scale", 1.0)
    operands = use.g.cast(x, dtype=wide), use.g.cast(boxes, dtype=wide), image
    if mode == "max":
        made = greatest_in_boxes(use, *operands, bins, scale, samples, aligned)
    else:
        made = use.g.roi_align(*operands, size=bins, scale=scale, samples=samples, aligned=aligned)
    return [use.g.cast(made, dtype=x.dtype)]


CONVERTERS: Converters = {"GridSample": _grid_sample, "RoiAlign": _roi_align}
