"""Joining tensors, and splitting one."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.dims import Size
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use


def _cat(use: Use) -> Sequence[Tensor]:
    parts = use.tensors()
    rank = len(use.shape)
    # PyTorch ignores an empty vector among tensors of another rank.
    kept = [use.to(part, use.dtype) for part in parts if part.rank == rank and (rank > 1 or part.shape != (0,))]
    if not kept:
        return [use.to(parts[0], use.dtype)]
    if len(kept) == 1:
        return kept
    return [use.g.concat(*kept, axis=int(use.number("dim")) % rank)]


def _stack(use: Use) -> Sequence[Tensor]:
    parts = [use.to(part, use.dtype) for part in use.tensors()]
    return [use.g.stack(*parts, axis=int(use.number("dim")) % len(use.shape))]


def _pieces(use: Use) -> Sequence[Tensor]:
    """Splits into parts of the sizes that PyTorch inferred."""
    x, axis = use.tensor(), use.axis()
    parts, start = [], 0
    for type in use.types:
        assert type is not None, use.operator
        stop: Size = start + type.shape[axis]
        whole = (None,) * axis
        is_all = start == 0 and stop == x.shape[axis]
        parts.append(x if is_all else use.g.slice(x, starts=(*whole, start), stops=(*whole, stop)))
        start = stop  # type: ignore[assignment]  # sizes add
    return parts


def _unbind(use: Use) -> Sequence[Tensor]:
    x, axis = use.tensor(), use.axis()
    return [use.g.gather(x, known(number), axis=axis) for number in range(len(use.types))]


CONVERTERS: Converters = {
    "cat.default": _cat,
    "stack.default": _stack,
    "unbind.int": _unbind,
    **dict.fromkeys(
        (
            "split.Tensor", "split_with_sizes.default", "split_with_sizes_copy.default", "chunk.default",
            "tensor_split.sections", "split_copy.Tensor",
        ),
        _pieces,
    ),
}  # fmt: skip
