"""Pooling in windows, and over all of the spatial axes. Padding takes no part in averages."""

from __future__ import annotations

from collections.abc import Sequence

from ...writing.tensors import Tensor
from ..writing.use import Convert, Converters, Use
from .convolutions import padding, spatial


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


def _global(name: str, rank: int) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        spatial(use, use.x, rank)
        first = 1 if use.channels_last else 2
        attributes = {"axis": tuple(range(first, first + rank)), "keepdims": use.flag("keepdims")}
        return [use.g.apply(name, [use.x], attributes)[0]]

    return convert


CONVERTERS: Converters = {
    **{f"MaxPooling{rank}D": _pool("max", rank) for rank in (1, 2, 3)},
    **{f"AveragePooling{rank}D": _pool("avg", rank) for rank in (1, 2, 3)},
    **{f"GlobalMaxPooling{rank}D": _global("max", rank) for rank in (1, 2, 3)},
    **{f"GlobalAveragePooling{rank}D": _global("mean", rank) for rank in (1, 2, 3)},
}
