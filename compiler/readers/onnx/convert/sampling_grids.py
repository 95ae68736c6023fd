"""`AffineGrid` and `Col2Im`: positions of pixels, and pixels from columns of blocks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Size, product, static_size
from .....dialect.types import I64
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use


def _affine_grid(use: Use) -> Sequence[Tensor]:
    theta, given, g = use.input(0), use.input(1), use.g
    rank = theta.shape[1]
    if not isinstance(rank, int) or theta.rank != 3:
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
    if use.input(1).sizes is None or use.input(2).sizes is None:
        image: tuple[Size, ...] = use.declared_shape("sizes")[2:]
        block = _block_of(use, x, len(image))
    else:
        image, block = use.sizes(1, "sizes"), use.ints(2, "a block")
    rank = len(image)
    strides = use.ints_of("strides", (1,) * rank)
    dilations = use.ints_of("dilations", (1,) * rank)
    pads = use.ints_of("pads", (0,) * (2 * rank))
    if not all(isinstance(size, int) for size in image) or not isinstance(x.shape[1], int):
        use.fail("joins blocks to an image of symbolic size", code="data-dependent")
    padding = tuple(zip(pads[:rank], pads[rank:], strict=True))
    return [g.fold(x, sizes=tuple(image), kernel=tuple(block), stride=strides, padding=padding, dilation=dilations)]


def _block_of(use: Use, x: Tensor, rank: int) -> tuple[int, ...]:
    """Returns the shape of a block, deduced from the declared number of channels. Fails if several shapes fit."""
    channels, columns = use.declared_shape("sizes")[1], x.shape[1]
    image = use.declared_shape("sizes")[2:]
    if not isinstance(channels, int) or not isinstance(columns, int):
        use.fail_unknown("sizes")
    strides, dilations = use.ints_of("strides", (1,) * rank), use.ints_of("dilations", (1,) * rank)
    pads = use.ints_of("pads", (0,) * (2 * rank))
    area = columns // channels
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
