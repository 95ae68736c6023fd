"""Replaces the thresholds of an ensemble by ranks: small integers that compare as the floats do.

    thresholds of a feature    -1.0   0.5   2.0          x <= 0.5   if and only if   rank(x) < 2
    rank(x)                  0      1     2     3

Every feature is replaced by its rank once in a call (`feature_ranks`, `row_ranks`), and the nodes compare ranks of 8 or
16 bits. The tables of the trees are those of `parts.py`. Ensembles with categorical splits, with several values per
leaf, or with very deep trees keep `tree_ensemble`.
"""

from __future__ import annotations

import numpy as np

from ....dialect.dtype import DType
from ....dialect.lazy_dataclass import dataclass
from ....dialect.ops.feature_ranks import NAN_IS_ZERO, ROWS, least_rank
from ....dialect.ops.support.trees import DEFAULT_LEFT, NAN_IS_MISSING
from ....dialect.types import I8, I16, U8
from .ensemble import Ensemble
from .levels import Levels
from .parts import COMPLETE, Part, PartWriter, split_trees
from .tree import Numbers

MOST_STEPS = 10
OBLIVIOUS, OBLIVIOUS_OF_FEW_ROWS = 10, 14
"""The maximum depth of oblivious trees that are computed in blocks of rows, and row by row. In blocks, the values of a
deeper tree would fill the first-level cache; `tree_sum`, which computes one tree for all rows, is then faster."""
MOST_THRESHOLDS, MOST_COLUMNS = 4095, 2048
MOST_MASKS = 1 << 22
"""The maximum size in bytes of the masks of oblivious trees."""
_LINE = 64


@dataclass(frozen=True, slots=True)
class Columns:
    """The operands of `feature_ranks`: the sorted `thresholds` [columns, 2^n - 1], and the feature and the flags of
    each column."""

    thresholds: Numbers
    feature: Numbers
    flags: Numbers
    dtype: DType


@dataclass(frozen=True, slots=True)
class Ranked:
    """The tables of an ensemble on ranks; `initial` [groups] is the initial value of each sum. Oblivious trees (`shape`
    is "levels") form one part. `in_blocks`: the tables also serve `ranked_trees`."""

    columns: Columns
    compare: str
    parts: tuple[Part, ...]
    shape: str
    initial: Numbers
    in_blocks: bool = True

    def masks(self) -> Numbers | None:
        """Returns the masks [columns, ranks, trees] of `leaf_indices_by_masks`, padded to whole cache lines; None if
        they would be too large."""
        (part,) = self.parts
        used, count = int(part.column.max(initial=0)) // ROWS + 1, self.columns.thresholds.shape[1] + 1
        trees, levels = part.column.shape[1:]
        width = -(-trees // _LINE) * _LINE
        kind = np.dtype(np.uint8 if levels <= U8.bits else np.uint16)
        is_small = self.columns.dtype == I8 and used * count * width * kind.itemsize <= MOST_MASKS
        if self.shape != "levels" or not is_small:
            return None
        made = np.zeros((used, count, width), kind)
        column, border = part.in_rows(self.columns.dtype)
        for tree in range(trees):
            for level in range(levels):
                made[column[0, tree, level], border[0, tree, level] :, tree] |= 1 << level
        return made


def rank_ensemble(ensemble: Ensemble) -> Ranked | None:
    """Returns the tables of an ensemble; None if it has splits or shapes that ranks do not support."""
    tables, routing = ensemble.tables, ensemble.attributes["routing"]
    depth = int(tables["depths"].max(initial=0))
    if routing == "categories" or tables["values"].shape[1] != 1 or depth > COMPLETE + MOST_STEPS:
        return None
    flags = np.zeros_like(tables["flags"]) if routing == "compare" else tables["flags"] | NAN_IS_ZERO
    ranked = _rank(tables["feature"], flags, tables["threshold"])
    if ranked is None:
        return None
    columns, own_column, own_border = ranked
    trees = PartWriter(tables["children"], own_column, own_border, tables["values"][:, 0], columns.dtype)
    most = tables["depths"].max(axis=0, initial=0)
    return Ranked(
        columns,
        str(ensemble.attributes["compare"]),
        tuple(trees.part(tables["roots"][:, own], int(most[own].max())) for own in split_trees(most.tolist())),
        "nodes",
        tables["initial"][:, 0],
    )


def rank_levels(levels: Levels, initial: Numbers) -> Ranked | None:
    """Returns the tables of oblivious trees with one value for each leaf."""
    trees, count = levels.feature.shape
    if levels.values.shape[2] != 1 or count > OBLIVIOUS_OF_FEW_ROWS:
        return None
    flags = NAN_IS_MISSING | np.where(levels.nan_right[levels.feature], 0, DEFAULT_LEFT)
    # The border of a missing level is above all ranks.
    flags = np.where(np.isposinf(levels.border), NAN_IS_MISSING | DEFAULT_LEFT, flags)
    ranked = _rank(levels.feature.reshape(-1), flags.reshape(-1), levels.border.reshape(-1))
    if ranked is None:
        return None
    columns, column, border = ranked
    part = Part(
        column.astype(np.int32).reshape(1, trees, count),
        border.astype(columns.dtype.numpy).reshape(1, trees, count),
        (np.arange(trees, dtype=np.int32) << count)[None],
        np.zeros(0, np.int64),
        levels.values.reshape(-1),
        0,
    )
    return Ranked(columns, "le", (part,), "levels", initial, count <= OBLIVIOUS)


def _rank(feature: Numbers, flags: Numbers, threshold: Numbers) -> tuple[Columns, Numbers, Numbers] | None:
    """Returns the columns, and for each node its column and its border, a rank."""
    keys, own = np.unique(np.stack([feature, flags], 1).reshape(-1, 2), axis=0, return_inverse=True)
    own = own.reshape(-1)
    if len(keys) > MOST_COLUMNS:
        return None
    lists = [np.unique(threshold[own == column]) for column in range(len(keys))]
    most = max(map(len, lists), default=0)
    if most > MOST_THRESHOLDS:
        return None
    dtype, width = I8 if most < 1 << I8.bits else I16, (1 << most.bit_length()) - 1
    count = 1 << max(len(keys) - 1, 0).bit_length()
    # More thresholds are passed by all numbers; those that pass none of the others are above all borders anyway.
    thresholds = np.full((count, width), np.inf, threshold.dtype)
    described = np.zeros((count, 2), np.int32)
    described[: len(keys)] = keys
    border = np.zeros(len(feature), np.int64)
    for column, sorted_thresholds in enumerate(lists):
        thresholds[column, : len(sorted_thresholds)] = sorted_thresholds
        members = own == column
        border[members] = np.searchsorted(sorted_thresholds, threshold[members]) + 1 + least_rank(dtype)
    return Columns(thresholds, described[:, 0].copy(), described[:, 1].copy(), dtype), own * ROWS, border
