"""Ensembles as the tables of `feature_ranks` and `ranked_trees`: thresholds become their ranks among all thresholds of
a feature.

The first levels of a tree are complete: below a leaf, all nodes lead to it. The nodes behind them are words, children
side by side, level after level; a leaf is a word that leads to itself. The start of a sum is the value of a first tree.
Categorical splits, several values of a leaf, and ensembles of very deep trees are left to `tree_ensemble`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....dialect.dtype import DType
from ....dialect.ops.ranked_trees import NAN_IS_ZERO, ROWS, least_rank
from ....dialect.ops.support.trees import DEFAULT_LEFT, NAN_IS_MISSING
from ....dialect.types import I8, I16, U8, U16
from .ensemble import Ensemble
from .levels import Levels
from .tree import Numbers

COMPLETE = 6
"""The levels whose nodes are all compared: another level costs as much as following a node."""
MOST_STEPS = 10
OBLIVIOUS, OBLIVIOUS_OF_FEW_ROWS = 8, 14
"""The most levels of oblivious trees, in blocks and row by row. In blocks, the values of larger trees fill the first
cache, so it is better to take trees one after another for all rows, as `tree_sum` does."""
MOST_THRESHOLDS, MOST_COLUMNS = 4095, 2048
MOST_MASKS = 1 << 22
"""The most bytes of the masks of oblivious trees."""
_LINE = 64
_UNREACHED = (1 << 15) - 1
"""The border of a leaf: ranks are less by far, since they count from the least number of their dtype."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The operands of `feature_ranks`: `thresholds` [columns, 2^n - 1], and the feature and flags of each column."""

    thresholds: Numbers
    feature: Numbers
    flags: Numbers
    dtype: DType


@dataclass(frozen=True, slots=True)
class Ranked:
    """The operands of `ranked_trees` and `ranked_rows` after the ranks, and their attributes.

    initial: the start of the sums of `ranked_rows`. in_blocks: whether the tables serve `ranked_trees` too; then the
    start of a sum is the value of a first tree.
    """

    columns: Columns
    compare: str
    column: Numbers
    border: Numbers
    first: Numbers
    nodes: Numbers
    values: Numbers
    shape: str
    steps: int
    initial: Numbers
    in_blocks: bool = True

    def in_rows(self) -> tuple[DType, Numbers, Numbers]:
        """Returns the dtype of ranks, the columns and the borders of `ranked_rows`."""
        column, signed = self.column // ROWS, self.columns.dtype
        unsigned = U8 if signed == I8 else U16
        border = (self.border.astype(np.int64) - least_rank(signed)).astype(unsigned.numpy)
        return unsigned, column.astype(np.uint8 if column.max(initial=0) < 1 << 8 else np.int32), border

    def masks(self) -> Numbers | None:
        """Returns the masks [columns, ranks, trees] of `level_places`, filled up to whole cache lines; None if they are
        large."""
        used, count = int(self.column.max(initial=0)) // ROWS + 1, self.columns.thresholds.shape[1] + 1
        trees, levels = self.column.shape[1:]
        width = -(-trees // _LINE) * _LINE
        kind = np.dtype(np.uint8 if levels <= U8.bits else np.uint16)
        is_small = self.columns.dtype == I8 and used * count * width * kind.itemsize <= MOST_MASKS
        if self.shape != "levels" or not is_small:
            return None
        made = np.zeros((used, count, width), kind)
        _, column, border = self.in_rows()
        for tree in range(trees):
            for level in range(levels):
                made[column[0, tree, level], border[0, tree, level] :, tree] |= 1 << level
        return made


def rank_ensemble(ensemble: Ensemble) -> Ranked | None:
    """Returns the tables of an ensemble; None where it has splits or shapes that they do not hold."""
    tables, routing = ensemble.tables, ensemble.attributes["routing"]
    depth = int(tables["depths"].max(initial=0))
    if routing == "categories" or tables["values"].shape[1] != 1 or depth > COMPLETE + MOST_STEPS:
        return None
    flags = np.zeros_like(tables["flags"]) if routing == "compare" else tables["flags"] | NAN_IS_ZERO
    ranked = _rank(tables["feature"], flags, tables["threshold"])
    if ranked is None:
        return None
    columns, own_column, own_border = ranked
    levels = min(depth, COMPLETE)
    nodes = _Nodes(tables["children"], own_column, own_border, tables["values"][:, 0], levels)
    for roots, (start,) in zip(tables["roots"], tables["initial"], strict=True):
        nodes.add_leaf(start)
        for root in roots:
            nodes.add(int(root))
    groups, steps = len(tables["roots"]), depth - levels
    shape = (groups, tables["roots"].shape[1] + 1)
    return Ranked(
        columns,
        str(ensemble.attributes["compare"]),
        np.asarray(nodes.column, np.int32).reshape(*shape, (1 << levels) - 1),
        np.asarray(nodes.border).astype(columns.dtype.numpy).reshape(*shape, (1 << levels) - 1),
        np.asarray(nodes.first, np.int32).reshape(shape),
        np.concatenate(nodes.words) if steps else np.zeros(0, np.int64),
        np.concatenate(nodes.values),
        "nodes",
        steps,
        _no_start(groups, tables["values"].dtype),
    )


def _no_start(groups: int, dtype: Any) -> Numbers:
    return np.full(groups, -0.0, dtype)


def rank_levels(levels: Levels, initial: Numbers) -> Ranked | None:
    """Returns the tables of oblivious trees with one value for each leaf."""
    trees, count = levels.feature.shape
    if levels.values.shape[2] != 1 or count > OBLIVIOUS_OF_FEW_ROWS:
        return None
    flags = NAN_IS_MISSING | np.where(levels.nan_right[levels.feature], 0, DEFAULT_LEFT)
    # Nothing is above the border of a missing level.
    flags = np.where(np.isposinf(levels.border), NAN_IS_MISSING | DEFAULT_LEFT, flags)
    ranked = _rank(levels.feature.reshape(-1), flags.reshape(-1), levels.border.reshape(-1))
    if ranked is None:
        return None
    columns, column, border = ranked
    places, in_blocks = 1 << count, count <= OBLIVIOUS
    column, border, values = column.reshape(trees, count), border.reshape(trees, count), levels.values[:, :, 0]
    if in_blocks:
        none = np.zeros((1, count), np.int64)
        column, border = np.concatenate([none, column]), np.concatenate([none, border])
        values = np.concatenate([np.full((1, places), initial[0], values.dtype), values])
    return Ranked(
        columns,
        "le",
        column.astype(np.int32)[None],
        border.astype(columns.dtype.numpy)[None],
        (np.arange(len(column), dtype=np.int32) * places)[None],
        np.zeros(0, np.int64),
        values.reshape(-1),
        "levels",
        0,
        _no_start(1, values.dtype) if in_blocks else initial,
        in_blocks,
    )


def _rank(feature: Numbers, flags: Numbers, threshold: Numbers) -> tuple[Columns, Numbers, Numbers] | None:
    """Returns the columns, and the column and border of each node."""
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


class _Nodes:
    """The tables, while trees are added."""

    def __init__(self, children: Numbers, column: Numbers, border: Numbers, leaves: Numbers, levels: int) -> None:
        self.children, self.own_column, self.own_border, self.leaves = children, column, border, leaves
        self.levels, self.size = levels, 0
        self.column: list[Numbers] = []
        self.border: list[Numbers] = []
        self.first: list[int] = []
        self.words: list[Numbers] = []
        self.values: list[Numbers] = []

    def add_leaf(self, value: float) -> None:
        none = np.zeros((1 << self.levels) - 1, np.int64)
        self._add(none, none, [self._leaf_words(1 << self.levels)], [np.full(1 << self.levels, value)])

    def add(self, root: int) -> None:
        level, column, border = np.asarray([root], np.int64), list[Numbers](), list[Numbers]()
        for _ in range(self.levels):
            inner = level >= 0
            at = np.maximum(level, 0)
            column.append(np.where(inner, self._of(self.own_column, at), 0))
            border.append(np.where(inner, self._of(self.own_border, at), 0))
            sides = self.children[at] if len(self.children) else np.zeros((len(at), 2), np.int64)
            level = np.where(inner[:, None], sides, level[:, None]).reshape(-1)
        none = np.zeros(0, np.int64)
        words, values = self._below(level)
        self._add(np.concatenate([none, *column]), np.concatenate([none, *border]), words, values)

    def _of(self, table: Numbers, at: Numbers) -> Numbers:
        return table[at] if len(table) else np.zeros(len(at), np.int64)

    def _below(self, level: Numbers) -> tuple[list[Numbers], list[Numbers]]:
        """Returns the words and values of a level and of those below it."""
        words, values, start = [], [], self.size
        while len(level):
            inner = level >= 0
            values.append(np.where(inner, self.leaves.dtype.type(0), self.leaves[np.maximum(-1 - level, 0)]))
            own, following = start + np.arange(len(level)), start + len(level)
            left = np.where(inner, following + 2 * (np.cumsum(inner) - 1), own)
            at = np.maximum(level, 0)
            column = np.where(inner, self._of(self.own_column, at), 0)
            border = np.where(inner, self._of(self.own_border, at), _UNREACHED)
            words.append(left << 32 | column << 16 | border & 0xFFFF)
            level, start = self.children[level[inner]].reshape(-1).astype(np.int64), following
        return words, values

    def _leaf_words(self, count: int) -> Numbers:
        return (self.size + np.arange(count, dtype=np.int64)) << 32 | _UNREACHED

    def _add(self, column: Numbers, border: Numbers, words: Sequence[Numbers], values: Sequence[Numbers]) -> None:
        self.column.append(column)
        self.border.append(border)
        self.first.append(self.size)
        self.words += words
        self.values += [part.astype(self.leaves.dtype) for part in values]
        self.size += sum(map(len, values))
