"""Sums of elements of an axis with constant weights: resizing, and averages of windows of different sizes.

weights     positions   factors
1 0 0       0 1         1   0       the second position of this row has the weight 0: it has no influence
0 ½ ½       1 2         ½   ½
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from .graph_writer import GraphWriter
from .tensors import Tensor, known

_UNROLLED = 8
"""The most terms of a sum that are gathered separately."""


def weighted_sums(g: GraphWriter, x: Tensor, axis: int, weights: np.ndarray[Any, Any]) -> Tensor:
    """Returns the sums of the elements of an axis of floats, with weights [new, old].

    An element whose weight is 0 is not part of a sum, so that an infinity or a NaN has no influence there.
    """
    used = weights != 0
    terms = int(used.sum(1).max(initial=1))
    positions = np.argsort(~used, axis=1, kind="stable")[:, :terms].astype(np.int64)
    factors = np.take_along_axis(weights, positions, 1)
    ones = (1,) * (x.rank - axis - 1)
    if terms > _UNROLLED:
        taken = g.gather(x, known(positions), axis=axis)
        return g.sum(_scaled(g, taken, factors.reshape(*factors.shape, *ones)), axis=(axis + 1,))
    parts = [
        _scaled(g, g.gather(x, known(at), axis=axis), factor.reshape(-1, *ones))
        for at, factor in zip(positions.T, factors.T, strict=True)
    ]
    return reduce(g.add, parts)


def _scaled(g: GraphWriter, x: Tensor, factors: np.ndarray[Any, Any]) -> Tensor:
    product = g.multiply(x, known(factors, x.dtype))
    return product if factors.all() else g.where(known(factors != 0), product, g.like(0, product))
