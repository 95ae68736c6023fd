"""Padding with a constant, with the edge, by reflection, and circular padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....dialect.dims import Size
from .....dialect.types import I64
from ...writing.tensors import Tensor
from ..writing.use import Convert, Converters, Use


def _pairs(use: Use, rank: int, name: str = "padding") -> list[tuple[Size, Size]]:
    """Returns the widths before and after each axis; PyTorch lists those of the last axis first."""
    given = use.sizes(name)
    listed = [(given[2 * i], given[2 * i + 1]) for i in range(len(given) // 2)]
    return [(0, 0)] * (rank - len(listed)) + listed[::-1]


def padded(use: Use, x: Tensor, pairs: Sequence[tuple[Size, Size]], mode: str, value: float) -> Tensor:
    """Returns the operand padded; negative widths remove elements."""
    grown = [tuple(max(w, 0) if isinstance(w, int) else w for w in pair) for pair in pairs]
    if any(width != 0 for pair in grown for width in pair):
        if mode == "wrap":
            x = _wrapped(use, x, pairs)
        else:
            x = use.g.pad(x, widths=tuple(grown), mode=mode, value=_number(x, value))
    if not any(isinstance(width, int) and width < 0 for pair in pairs for width in pair):
        return x
    starts = tuple(-before if isinstance(before, int) and before < 0 else 0 for before, _ in pairs)
    stops = tuple(
        size + after if isinstance(after, int) and after < 0 else None
        for (_, after), size in zip(pairs, x.shape, strict=True)
    )
    return use.g.slice(x, starts=starts, stops=stops)


def _number(x: Tensor, value: float) -> Any:
    return bool(value) if x.dtype.name == "bool" else int(value) if not x.dtype.is_float else float(value)


def _wrapped(use: Use, x: Tensor, pairs: Sequence[tuple[Size, Size]]) -> Tensor:
    g = use.g
    for axis, (before, after) in enumerate(pairs):
        if before != 0 or after != 0:
            size = x.shape[axis]
            positions = g.subtract(g.iota(shape=(before + size + after,)), g.size(before, I64))
            x = g.gather(x, g.remainder(positions, g.size(size)), axis=axis)
    return x


def _constant(use: Use) -> Sequence[Tensor]:
    x = use.tensor()
    return [padded(use, x, _pairs(use, x.rank, "pad"), "constant", use.number("value", 0))]


def _in_mode(mode: str) -> Convert:
    return lambda use: [padded(use, use.tensor(), _pairs(use, use.tensor().rank), mode, 0.0)]


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _pad(use: Use) -> Sequence[Tensor]:
    x = use.tensor()
    value = use.number("value") if use.has("value") else 0.0
    return [padded(use, x, _pairs(use, x.rank, "pad"), _MODES[use.word("mode", "constant")], value)]


CONVERTERS: Converters = {
    "constant_pad_nd.default": _constant,
    "pad.default": _pad,
    **{f"reflection_pad{rank}d.default": _in_mode("reflect") for rank in (1, 2, 3)},
    **{f"replication_pad{rank}d.default": _in_mode("edge") for rank in (1, 2, 3)},
}
