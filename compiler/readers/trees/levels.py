"""Oblivious trees as the tables of `oblivious_leaves` and `tree_sum`.

All nodes on one level of an oblivious tree have the same split, so the results of the splits are the bits of the leaf's
index:

    level 0: x0 > 1.5    level 1: x3 > 0.2        leaf = (x0 > 1.5) + 2 * (x3 > 0.2)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....dialect.graph import Constant, Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.operator import Builder
from .tree import Numbers


@dataclass(frozen=True, slots=True)
class Split:
    """A split of a numerical feature. Numbers above the border go to the right; NaN goes to the right if `nan_right` is
    set."""

    feature: int
    border: float
    nan_right: bool


@dataclass(frozen=True, slots=True)
class Levels:
    """The tables of oblivious trees, [trees, levels]. `nan_right` marks the features whose NaN counts as above all
    borders."""

    feature: Numbers
    border: Numbers
    values: Numbers
    nan_right: Numbers

    def write_leaves(self, b: Builder, features: Value, feature: Value, border: Value) -> Value:
        """Writes the index of the leaf of each tree, [trees, rows]."""
        if self.nan_right.any():
            mask = b.apply("constant", (), {"value": Constant(self.nan_right)})[0]
            features = b.where(b.logical_and(b.isnan(features), mask), b.like(np.inf, features), features)
        return b.oblivious_leaves(b.transpose(features, axes=(1, 0)), feature, border)


def write_levels(trees: Sequence[tuple[Sequence[Split], Numbers]], features: int, width: int) -> Levels | None:
    """Returns the tables of trees, given by their splits and values. Returns None if padding all trees to the deepest
    would make the tables much larger, or if NaN of one feature goes to different sides."""
    depth = max((len(splits) for splits, _ in trees), default=0)
    if not depth or len(trees) << depth > 4 * sum(len(values) // width for _, values in trees):
        return None
    sides = {(split.feature, split.nan_right) for splits, _ in trees for split in splits}
    if len({feature for feature, _ in sides}) != len(sides):
        return None
    feature = np.zeros((len(trees), depth), np.int32)
    border = np.full((len(trees), depth), np.inf, np.float32)
    values = np.zeros((len(trees), 1 << depth, width))
    nan_right = np.zeros(features, bool)
    for number, (splits, own) in enumerate(trees):
        for level, split in enumerate(splits):
            feature[number, level], border[number, level] = split.feature, split.border
            nan_right[split.feature] = split.nan_right
        values[number, : 1 << len(splits)] = own.reshape(-1, width)
    return Levels(feature, border, values, nan_right)
