r"""Lays an ensemble out as parts: runs of consecutive trees in tables with one number of levels.

The first `COMPLETE` levels of a tree are stored as a complete binary tree, since kernels compare all of their nodes
without branches. A leaf on an earlier level is padded: all nodes below it lead to its value. Further levels are padded
in the same way, unless this would make the tables much larger (`SPARSE`). Otherwise their nodes are words that name
their left child, level after level, with siblings side by side, and a leaf above the last level is a word that leads to
itself:

       a              levels   a | b p        p pads the leaf L0: both of its children are L0
      / \             nodes    the words of the levels below, if any
     b   L0           values   L1 L2 L0 L0
    / \
   L1  L2

All trees of a part are padded to its depth, so trees of very different depths are put into different parts. A part adds
to the sums of the part before it:

    depths of trees    10 10 9 10 10 0 0 0 0 0 0 0     parts    10 10 9 10 10 | 0 0 0 0 0 0 0
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....dialect.dtype import DType
from ....dialect.lazy_dataclass import dataclass
from ....dialect.ops.feature_ranks import ROWS, least_rank
from ....dialect.types import I8, I16, U8, U16
from .tree import Numbers

COMPLETE = 6
"""The number of levels whose nodes are all compared. One more such level costs as much as one step from node to
node."""
MOST_COMPLETE, SPARSE = 12, 4
"""The maximum depth of trees that are complete on all levels, and the maximum number of table entries per leaf in their
tables."""
MOST_PARTS, PART_COST = 4, 8.0
"""The maximum number of parts of an ensemble, and the cost of a part in units of a tree with `COMPLETE` levels."""
_LIMITS = (0.5, 1.0, 2.0, 4.0, PART_COST)
"""The thresholds of the rounds in which adjacent runs are merged, by the cost of a merge. Trees of similar depths are
therefore merged first."""
UNSIGNED = {I8: U8, I16: U16}
"""The dtypes of ranks that are processed row by row, by those of ranks in blocks."""
_UNREACHED = (1 << 15) - 1
"""The border of a leaf that leads to itself. No rank reaches it, because ranks count from the least number of their
dtype."""


@dataclass(frozen=True, slots=True)
class Part:
    """The tables of consecutive trees: the operands of `ranked_trees` and `ranked_rows` between the ranks and the
    initial sums."""

    column: Numbers
    border: Numbers
    first: Numbers
    nodes: Numbers
    values: Numbers
    steps: int

    def in_rows(self, dtype: DType) -> tuple[Numbers, Numbers]:
        """Returns the columns and borders in the form of `ranked_rows`; `dtype` is that of the ranks of
        `ranked_trees`."""
        column = self.column // ROWS
        border = (self.border.astype(np.int64) - least_rank(dtype)).astype(UNSIGNED[dtype].numpy)
        return column.astype(np.uint8 if column.max(initial=0) < 1 << 8 else np.int32), border


class PartWriter:
    """Writes the tables of parts. A level is an array of nodes; the number `-1 - i` stands for leaf `i`."""

    def __init__(self, children: Numbers, column: Numbers, border: Numbers, leaves: Numbers, dtype: DType) -> None:
        self.children, self.own_column, self.own_border, self.leaves = children, column, border, leaves
        self.dtype = dtype

    def part(self, roots: Numbers, depth: int) -> Part:
        """Returns the part of trees, whose roots are [groups, trees], with up to `depth` levels."""
        levels, flat = min(depth, COMPLETE), roots.reshape(-1)
        steps, nodes = depth - levels, (1 << levels) - 1
        column, border, level = self._complete(flat, levels)
        shape = (*roots.shape, nodes)
        tables = column.astype(np.int32).reshape(shape), border.astype(self.dtype.numpy).reshape(shape)
        if not steps or (depth <= MOST_COMPLETE and len(flat) << depth <= SPARSE * self._count_leaves(flat)):
            column, border, leaves = self._complete(level.reshape(-1), steps)
            packed = (column << 16 | border & 0xFFFF).astype(np.uint32)
            ordered = _by_levels(packed.reshape(len(flat), 1 << levels, (1 << steps) - 1))
            starts = (np.arange(len(flat), dtype=np.int32) << depth).reshape(roots.shape)
            inner = ((1 << steps) - 1) << levels
            reached = self.leaves[-1 - leaves.reshape(-1)]
            return Part(*tables, starts, ordered.reshape(*roots.shape, inner), reached, steps)
        size, first, words, values = 0, list[int](), list[Numbers](), list[Numbers]()
        for own in level:
            first.append(size)
            more_words, more_values = self._below(own, size)
            words, values = words + more_words, values + more_values
            size += sum(map(len, more_values))
        starts = np.asarray(first, np.int32).reshape(roots.shape)
        return Part(*tables, starts, np.concatenate(words), np.concatenate(values), steps)

    def _count_leaves(self, level: Numbers) -> int:
        count = 0
        while len(level):
            count += int((level < 0).sum())
            level = self.children[level[level >= 0]].reshape(-1).astype(np.int64)
        return count

    def _complete(self, roots: Numbers, levels: int) -> tuple[Numbers, Numbers, Numbers]:
        """Returns the columns and borders of padded levels [trees, nodes], level after level, and the nodes of the next
        level."""
        level = roots.astype(np.int64).reshape(-1, 1)
        none = np.zeros((len(level), 0), np.int64)
        column, border = [none], [none]
        for _ in range(levels):
            inner = level >= 0
            at = np.maximum(level, 0)
            column.append(np.where(inner, self._of(self.own_column, at), 0))
            border.append(np.where(inner, self._of(self.own_border, at), 0))
            sides = self.children[at] if len(self.children) else np.zeros((*at.shape, 2), np.int64)
            level = np.where(inner[..., None], sides, level[..., None]).reshape(len(level), 2 * level.shape[1])
        return np.concatenate(column, 1), np.concatenate(border, 1), level

    def _of(self, table: Numbers, at: Numbers) -> Numbers:
        return table[at] if len(table) else np.zeros(at.shape, np.int64)

    def _below(self, level: Numbers, start: int) -> tuple[list[Numbers], list[Numbers]]:
        """Returns the words and values of a level and of those below it."""
        words, values = [], []
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


def _by_levels(words: Numbers) -> Numbers:
    """Reorders the words [trees, subtrees, nodes] of complete subtrees to [trees, nodes], level after level."""
    trees, subtrees, nodes = words.shape
    steps = (nodes + 1).bit_length() - 1
    levels = [words[:, :, (1 << s) - 1 : (2 << s) - 1].reshape(trees, subtrees << s) for s in range(steps)]
    return np.concatenate([np.zeros((trees, 0), words.dtype), *levels], 1)


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive trees of up to `depth` levels."""

    start: int
    stop: int
    depth: int

    def join(self, following: _Run) -> _Run:
        return _Run(self.start, following.stop, max(self.depth, following.depth))

    def cost(self) -> float:
        return (self.stop - self.start) * _cost(self.depth)

    def price(self, following: _Run) -> float:
        """Returns the additional time of both runs as one, padded to a common depth."""
        return self.join(following).cost() - self.cost() - following.cost()


def split_trees(depths: Sequence[int]) -> list[slice]:
    """Returns the trees of each part, at most MOST_PARTS. Adjacent runs are merged, the cheapest merges first."""
    runs = [_Run(at, at + 1, depth) for at, depth in enumerate(depths)]
    for limit in _LIMITS:
        made: list[_Run] = []
        for run in runs:
            made.append(run)
            while len(made) > 1 and made[-2].price(made[-1]) <= limit:
                made[-2:] = [made[-2].join(made[-1])]
        runs = made
    while len(runs) > MOST_PARTS:
        best = min(range(len(runs) - 1), key=lambda at: runs[at].price(runs[at + 1]))
        runs[best : best + 2] = [runs[best].join(runs[best + 1])]
    return [slice(run.start, run.stop) for run in runs]


def _cost(depth: int) -> float:
    """Returns the estimated time of a tree, relative to a tree of `COMPLETE` levels."""
    if not depth:
        return 0.05
    levels = min(depth, COMPLETE)
    return 0.35 + 0.65 * ((1 << levels) - 1) / ((1 << COMPLETE) - 1) + 0.3 * (depth - levels)
