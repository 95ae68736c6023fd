"""Places along an axis that are known at run time only: how an index counts and what keeps it inside.

A negative index counts from the end, and one beyond either end is clamped to the nearest element, so that no index
reads or writes outside of a tensor. What is read from an axis that turns out to be empty is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Size, at_least
from ..emitter import Scalar, ScalarEmitter, Tensor
from ..operator import Operand
from ..types import I32, I64
from .accumulate import Numbers

INDICES = (I32, I64)
"""The dtypes of indices."""


def index_operand(name: str = "indices") -> Operand:
    return Operand(name, INDICES, group="I")


def clamped(s: ScalarEmitter, index: Scalar, size: Size, *, window: Size = 1) -> Scalar:
    """Where a window that starts at `index` of an axis starts, as i64: from the end if negative, inside the axis."""
    zero = s.constant(0, I64)
    index = s.cast(index, I64)
    index = s.select(s.compare("lt", index, zero), s.binary("add", index, s.size(size)), index)
    return s.binary("max", s.binary("min", index, s.size(size - window)), zero)


def clamped_array(index: Any, size: int, *, window: int = 1) -> Numbers:
    """As `clamped`, for the references."""
    wide = np.asarray(index).astype(np.int64)
    return np.asarray(np.maximum(np.minimum(np.where(wide < 0, wide + size, wide), size - window), 0))


def load_if_any(s: ScalarEmitter, x: Tensor, indices: Sequence[Scalar], axes: Sequence[int]) -> Scalar:
    """The element, or 0 where one of the axes is empty. The other axes are known to hold what is asked for."""
    doubtful = [axis for axis in axes if not at_least(x.type.shape[axis], 1)]
    if not doubtful:
        return s.load(x, indices)
    count = s.constant(1, I64)
    for axis in doubtful:
        count = s.binary("min", count, s.size(x.type.shape[axis]))
    # A loop of no or one turn: unlike a choice between values, it does not read what it does not take.
    return s.iterate(count, [s.constant(0, x.type.dtype)], lambda inner, turn, kept: [inner.load(x, indices)])[0]
