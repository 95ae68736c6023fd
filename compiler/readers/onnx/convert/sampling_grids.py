"""`AffineGrid` and `Col2Im`: positions of pixels, and pixels from columns of blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Size, product, static_size
from .....dialect.types import I64
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use
from .convolutions import window_attributes

_MOST_POSITIONS = 1 << 22
"""The maximum number of elements in all blocks of an image."""
_MOST_OFFSETS = 1 << 12
"""The maximum number of elements of a block. A separate node adds each element."""


def _affine_grid(use: Use) -> Sequence[Tensor]:
    theta, given, g = use.input(0), use.input(1), use.g
    rank = theta.shape[1] if theta.rank == 3 else None
    if not isinstance(rank, int) or theta.shape[2] != rank + 1 or use.input(1).shape != (rank + 2,):
        use.fail(f"takes matrices [N, 2, 3] or [N, 3, 4], not {theta.type}", code="rank-mismatch")
    if given.sizes is not None:
        spatial: tuple[Size, ...] = given.sizes[2:]
    else:
        declared = use.declared_shape("a size")
        spatial = declared[1:-1]
        tail = g.slice(g.cast(given, dtype=I64), starts=(2,), stops=(2 + rank,))
        use.require(g.all(g.equal(tail, known(np.array(spatial, np.int64)))))
    corners = bool(use.integer("align_corners", 0))
    lines = []
    for axis, size in enumerate(spatial):
        at, count = g.cast(g.iota(shape=(size,)), dtype=theta.dtype), g.size(size, theta.dtype)
        two, one = g.like(2, theta), g.like(1, theta)
        if corners:
            gaps = g.maximum(g.subtract(count, one), one)
            line = g.subtract(g.divide(g.multiply(at, two), gaps), one)
        else:
            line = g.subtract(g.divide(g.add(g.multiply(at, two), one), count), one)
        shape = (*(1,) * axis, size, *(1,) * (rank - axis - 1))
        lines.append(g.broadcast_to(g.reshape(line, shape=shape), shape=tuple(spatial)))
    # The last coordinate belongs to the first spatial axis; a 1 follows for the translation.
    ones = g.broadcast_to(g.like(1, theta), shape=tuple(spatial))
    points = g.reshape(g.stack(*reversed(lines), ones, axis=-1), shape=(product(spatial), rank + 1))
    made = g.matmul(points, g.transpose(theta, axes=(0, 2, 1)))
    return [g.reshape(made, shape=(theta.shape[0], *spatial, rank))]


def _col2im(use: Use) -> Sequence[Tensor]:
    x, g = use.input(0), use.g
    if x.rank != 3:
        use.fail(f"takes columns [N, C * block, blocks], not {x.type}", code="rank-mismatch")
    if use.input(1).sizes is None or use.input(2).sizes is None:
        declared = use.declared_shape("sizes")
        if len(declared) < 3:
            use.fail(f"has a result of {len(declared)} axes", code="rank-mismatch")
        sizes: tuple[Size, ...] = declared[2:]
        strides, dilations, pads = _placement(use, len(sizes))
        block = _block_of(use, x, len(sizes))
    else:
        sizes, block = use.sizes(1, "sizes"), use.ints(2, "a block")
        strides, dilations, pads = _placement(use, len(sizes))
    rank = len(sizes)
    image = [size for size in sizes if isinstance(size, int)]
    if len(image) < rank or not isinstance(x.shape[1], int):
        use.fail("joins blocks to an image of symbolic size", code="data-dependent")
    if len(block) != rank or min(block, default=0) < 1 or min(image) < 0:
        use.fail(f"has blocks of {list(block)} for an image of {image}", code="bad-size")
    padding = tuple(zip(pads[:rank], pads[rank:], strict=True))
    if math.prod(block) > _MOST_OFFSETS:
        use.fail(f"has blocks of {list(block)}", code="bad-size")
    window = {"stride": tuple(strides), "padding": padding, "dilation": tuple(dilations)}
    return [g.fold(x, sizes=tuple(image), kernel=tuple(block), **window)]


def _placement(use: Use, rank: int) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Returns the strides and the dilations of blocks, and the padding of the image."""
    strides, dilations = window_attributes(use, rank)
    pads = use.ints_of("pads", (0,) * (2 * rank))
    if len(pads) != 2 * rank or min(pads, default=0) < 0:
        use.fail(f"has `pads` = {list(pads)} for {rank} axes", code="bad-attribute")
    return strides, dilations, pads


def _block_of(use: Use, x: Tensor, rank: int) -> tuple[int, ...]:
    """Returns the shape of a block, deduced from the declared number of channels. Fails if several shapes fit."""
    (_, channels, *image), columns = use.declared_shape("sizes"), x.shape[1]
    if not isinstance(channels, int) or not isinstance(columns, int) or not all(isinstance(s, int) for s in image):
        use.fail_unknown("sizes")
    strides, dilations, pads = _placement(use, rank)
    area = columns // max(channels, 1)
    if area**rank > _MOST_POSITIONS:
        use.fail_unknown("sizes")
    fitting = []
    for block in itertools.product(*(range(1, area + 1) for _ in range(rank))):
        if int(np.prod(block)) != area:
            continue
        counts = [
            (static_size(size) + pads[i] + pads[i + rank] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
            for i, size in enumerate(image)
        ]
        if all(count > 0 for count in counts) and int(np.prod(counts)) == x.shape[2]:
            fitting.append(block)
    if len(fitting) != 1:
        use.fail_unknown("sizes")
    g = use.g
    for index, sizes in ((1, image), (2, fitting[0])):
        use.require(g.all(g.equal(g.cast(use.input(index), dtype=I64), known(np.array(sizes, np.int64)))))
    return fitting[0]


CONVERTERS: Converters = {"AffineGrid": _affine_grid, "Col2Im": _col2im}
