"""Pooling over windows, and over all spatial axes. Averages do not count padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...writing.tensors import Tensor, known
from ...writing.weighted_sums import weighted_sums
from ..writing.use import Convert, Converters, Use
from .convolutions import padding, spatial
from .images import check_weights


def _pool(kind: str, rank: int) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x = use.x
        size = use.integers("pool_size", rank, 2)
        strides = use.integers("strides", rank, None) if use.value("strides", None) is not None else size
        pads = padding(use, spatial(use, x, rank), size, strides, (1,) * rank)
        layout = "channels_last" if use.channels_last else "channels_first"
        attributes: dict[str, object] = {"kernel": size, "stride": strides, "padding": pads, "layout": layout}
        if kind == "avg":
            attributes["count_include_pad"] = False
        return [use.g.apply(f"{kind}_pool{rank}d", [x], attributes)[0]]

    return convert


def _mean_of_steps(use: Use, mask: Tensor, axis: int, attributes: Mapping[str, Any]) -> Tensor:
    """Returns the mean over the steps at which the mask is true."""
    g = use.g
    if mask.rank != 2:
        use.fail(f"gets the mask {mask.type} of {use.x.type}", code="unsupported-rank")
    counts = g.unsqueeze(mask, axes=(3 - axis,))
    total = g.apply("sum", [g.where(counts, use.x, g.like(0, use.x))], attributes)[0]
    return g.divide(total, g.apply("sum", [g.cast(counts, dtype=use.x.dtype)], attributes)[0])


def _global(name: str, rank: int) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        spatial(use, use.x, rank)
        first = 1 if use.channels_last else 2
        attributes = {"axis": tuple(range(first, first + rank)), "keepdims": use.flag("keepdims")}
        if 0 in use.masks and (name, rank) == ("mean", 1):
            return [_mean_of_steps(use, use.masks[0], first, attributes)]
        return [use.g.apply(name, [use.x], attributes)[0]]

    return convert


def _adaptive(kind: str, rank: int) -> Convert:
    """Divides each axis into windows of almost equal sizes: window i of n of a size s from i * s / n, rounded down, to
    (i + 1) * s / n, rounded up."""

    def convert(use: Use) -> Sequence[Tensor]:
        g, x = use.g, use.x
        sizes = spatial(use, x, rank)
        wanted = use.integers("output_size", rank)
        for axis, (old, new) in enumerate(zip(sizes, wanted, strict=True), 1 if use.channels_last else 2):
            if not isinstance(old, int) or not old or new < 1:
                use.fail(f"gives {new} windows of an axis of size {old}", code="data-dependent")
            check_weights(use, old, new)
            starts = np.arange(new) * old // new
            stops = -(-(np.arange(1, new + 1) * old) // new)
            if kind == "avg":
                line = np.arange(old)
                inside = (line >= starts[:, None]) & (line < stops[:, None])
                x = weighted_sums(g, x, axis, inside / inside.sum(1, keepdims=True))
            else:
                # Windows are as long as the longest one; shorter ones repeat their last element.
                positions = np.minimum(starts[:, None] + np.arange((stops - starts).max()), stops[:, None] - 1)
                x = g.max(g.gather(x, known(positions.astype(np.int64)), axis=axis), axis=axis + 1)
        return [x]

    return convert


CONVERTERS: Converters = {
    **{f"AdaptiveMaxPooling{rank}D": _adaptive("max", rank) for rank in (1, 2, 3)},
    **{f"AdaptiveAveragePooling{rank}D": _adaptive("avg", rank) for rank in (1, 2, 3)},
    **{f"MaxPooling{rank}D": _pool("max", rank) for rank in (1, 2, 3)},
    **{f"AveragePooling{rank}D": _pool("avg", rank) for rank in (1, 2, 3)},
    **{f"GlobalMaxPooling{rank}D": _global("max", rank) for rank in (1, 2, 3)},
    **{f"GlobalAveragePooling{rank}D": _global("mean", rank) for rank in (1, 2, 3)},
}
