"""Strings as bytes in a graph: widths, lengths, comparisons, and the index of a string in a list."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Size, maximum
from .....dialect.types import I64, U8
from .....runtime.strings import encode_strings
from ...writing.graph_writer import GraphWriter
from ...writing.tensors import Strings, Tensor, known

ZERO = known(np.int64(0))
ONE = known(np.int64(1))


def widened(g: GraphWriter, data: Tensor, width: Size) -> Tensor:
    """Returns bytes [..., w] as bytes [..., width], with zeros after them."""
    missing = width - data.shape[-1]
    if missing == 0:
        return data
    zeros = g.broadcast_to(known(0, U8), shape=(*data.shape[:-1], missing))
    return g.concat(data, zeros, axis=data.rank - 1)


def equally_wide(g: GraphWriter, *tensors: Tensor) -> list[Tensor]:
    """Returns tensors of bytes with the width of the widest one."""
    width = tensors[0].shape[-1]
    for tensor in tensors[1:]:
        width = maximum(width, tensor.shape[-1])
    return [widened(g, tensor, width) for tensor in tensors]


def equal_strings(g: GraphWriter, x: Tensor, y: Tensor) -> Tensor:
    """Compares bytes [..., w] and [..., v], whose other axes broadcast."""
    a, b = equally_wide(g, x, y)
    return g.all(g.equal(a, b), axis=-1)


def positions(g: GraphWriter, data: Tensor) -> Tensor:
    """Returns the position of each byte in its string: i64 [width]."""
    return g.iota(shape=(data.shape[-1],))


def lengths_of(g: GraphWriter, data: Tensor) -> Tensor:
    """Returns the number of bytes of each string: i64 [..., 1]."""
    ends = g.where(g.equal(data, known(0, U8)), ZERO, g.add(positions(g, data), ONE))
    return g.max(ends, axis=-1, keepdims=True)


def index_in(g: GraphWriter, strings: Strings, listed: Sequence[str]) -> Tensor:
    """Returns the index of the first equal string of a list, or the length of the list: i64 [...]."""
    count = known(np.int64(len(listed)))
    if not listed:
        return g.broadcast_to(count, shape=strings.shape)
    same = equal_strings(g, g.unsqueeze(strings.data, axes=(len(strings.shape),)), known(encode_strings(list(listed))))
    return g.min(g.where(same, g.iota(shape=(len(listed),)), count), axis=-1)


def rows_of(g: GraphWriter, table: Strings, indices: Tensor) -> Strings:
    """Returns the strings of a vector that indices select."""
    return Strings(g.gather(table.data, g.cast(indices, dtype=I64), axis=0, mode="clamp"))
