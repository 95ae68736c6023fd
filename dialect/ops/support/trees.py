"""The tables of tree ensembles: how a row finds the leaf of a tree.

Inner nodes are numbered over all trees. A child below 0 is a leaf: `-1 - child` is its row in the values of leaves. The
children of a node have greater numbers than the node, so every path ends; `depths` bounds its length.

Row `x` goes from node `n` to `children[n, 0]` if `x[feature[n]] <= threshold[n]`, or `<` by the attribute `compare`,
else to `children[n, 1]`. The attribute `routing` selects the meaning of the flags of a node:

    compare       flags are not read; NaN goes to the right
    missing       DEFAULT_LEFT, NAN_IS_MISSING, ZERO_IS_MISSING: a missing number goes in the default direction; a NaN
                  that is not missing counts as 0
    categories    also CATEGORICAL: the row goes to the left if the category is in the set that the threshold numbers.
                  A category is the number without its fraction; it is rounded down if FLOOR is set

A set is a range of words of 32 bits: set `c` has the words `sets[bounds[c]:bounds[c + 1]]`.

A tree of two nodes and three leaves:

    feature 0 <= 2.5                 feature  [0, 3]      threshold [2.5, 0.5]
      yes: leaf 0                    children [[-1, 1], [-2, -3]]
      no:  feature 3 <= 0.5          roots [[0]]   depths [[2]]
             yes: leaf 1
             no:  leaf 2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...emitter import Scalar, SequenceEmitter
from ...lazy_dataclass import dataclass
from ...types import BOOL, F32, I32, I64, DType
from .accumulate import Numbers

DEFAULT_LEFT, NAN_IS_MISSING, ZERO_IS_MISSING, CATEGORICAL, FLOOR = 1, 2, 4, 8, 16
NEARLY_ZERO = float(np.float32(1e-35))
"""The greatest magnitude of a number that counts as 0 where zeros are missing."""
WORD = 32
"""The categories in a word of a set."""
TABLES = ("feature", "threshold", "children", "flags", "sets", "bounds", "roots", "depths")
"""The tables, in the order of the operands."""
OPERANDS_BEFORE = {"tree_ensemble": 1, "tree_leaves": 1, "linear_tree_sum": 2}
"""The operators with these tables as operands, and the number of their operands before the tables."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The operands that describe the nodes, in their order: arrays or tensors."""

    x: Any
    feature: Any
    threshold: Any
    children: Any
    flags: Any
    sets: Any
    bounds: Any
    roots: Any
    depths: Any


def find_leaves_array(tables: Tables, compare: str, routing: str) -> Numbers:
    """Returns the leaf of each row of `x` [B, F] in each tree: i32[B, G, T]."""
    x, (groups, trees) = tables.x, tables.roots.shape
    leaves = np.zeros((x.shape[0], groups, trees), np.int32)
    rows = np.arange(x.shape[0])
    for group in range(groups):
        for tree in range(trees):
            node = np.full(x.shape[0], tables.roots[group, tree], np.int32)
            for _ in range(int(tables.depths[group, tree])):
                inside = node >= 0
                if not inside.any():
                    break
                at = node[inside]
                left = _goes_left_array(tables, x[rows[inside], tables.feature[at]], at, compare, routing)
                node[inside] = np.where(left, tables.children[at, 0], tables.children[at, 1])
            leaves[:, group, tree] = -1 - node
    return leaves


def _goes_left_array(tables: Tables, x: Numbers, at: Numbers, compare: str, routing: str) -> Numbers:
    threshold = tables.threshold[at]
    below = np.less_equal if compare == "le" else np.less
    if routing == "compare":
        return np.asarray(below(x, threshold))
    flags, is_nan = tables.flags[at], np.isnan(x)
    known = np.where(is_nan, x.dtype.type(0), x)
    is_missing = (is_nan & (flags & NAN_IS_MISSING != 0)) | (
        (np.abs(known) <= NEARLY_ZERO) & (flags & ZERO_IS_MISSING != 0)
    )
    left = np.asarray(below(known, threshold))
    if routing == "categories":
        for i in np.flatnonzero(flags & CATEGORICAL):
            left[i] = _is_in_set(
                tables, float(known[i]), int(np.nan_to_num(threshold[i])), floor=bool(flags[i] & FLOOR)
            )
    return np.where(is_missing, flags & DEFAULT_LEFT != 0, left)


def _is_in_set(tables: Tables, x: float, number: int, *, floor: bool) -> bool:
    if np.isinf(x):
        return False
    category = int(np.floor(x) if floor else np.trunc(x))
    first, end = (int(b) for b in tables.bounds[number : number + 2])
    if category < 0 or category // WORD >= end - first:
        return False
    return bool(int(tables.sets[first + category // WORD]) >> category % WORD & 1)


class Traversal:
    """Writes the steps of several paths in turn, so that the loads of one path overlap with those of the others."""

    def __init__(self, s: SequenceEmitter, tables: Tables, compare: str, routing: str) -> None:
        self.s, self.tables, self.compare, self.routing = s, tables, compare, routing

    def find(self, rows: Sequence[Scalar], roots: Sequence[Scalar], depth: Scalar) -> list[Scalar]:
        """Returns the leaves of paths, as i64: path `i` begins with row `rows[i]` at `roots[i]`, a node in i32."""
        s = self.s
        none = s.constant(0, I32)

        def step(_: object, __: Scalar, nodes: Sequence[Scalar]) -> Sequence[Scalar]:
            return [
                s.select(s.compare("lt", node, none), node, self._child(row, s.cast(s.binary("max", node, none), I64)))
                for row, node in zip(rows, nodes, strict=True)
            ]

        ends = s.iterate(depth, roots, step)
        return [s.cast(s.unary("not", end), I64) for end in ends]

    def _child(self, row: Scalar, node: Scalar) -> Scalar:
        s, t = self.s, self.tables
        x = s.load(t.x, [row, s.cast(s.load(t.feature, [node]), I64)])
        left = self._goes_left(x, node)
        children = [s.load(t.children, [node, s.constant(side, I64)]) for side in (0, 1)]
        return s.select(left, *children)

    def _goes_left(self, x: Scalar, node: Scalar) -> Scalar:
        s, t = self.s, self.tables
        threshold = s.load(t.threshold, [node])
        if self.routing == "compare":
            return s.compare(self.compare, x, threshold)
        flags, dtype = s.load(t.flags, [node]), x.dtype
        has = self._flag_reader(flags)
        is_nan = s.unary("isnan", x)
        known = s.select(is_nan, s.constant(0, dtype), x)
        near = s.compare("le", s.unary("abs", known), s.constant(_least_zero(dtype), dtype))
        is_missing = s.binary(
            "or",
            s.binary("and", is_nan, has(NAN_IS_MISSING)),
            s.binary("and", near, has(ZERO_IS_MISSING)),
        )
        left = s.compare(self.compare, known, threshold)
        if self.routing == "categories":
            left = s.select(has(CATEGORICAL), self._is_in_set(known, threshold, has), left)
        return s.select(is_missing, has(DEFAULT_LEFT), left)

    def _flag_reader(self, flags: Scalar) -> Callable[[int], Scalar]:
        s = self.s

        def has(flag: int) -> Scalar:
            return s.compare("ne", s.binary("and", flags, s.constant(flag, I32)), s.constant(0, I32))

        return has

    def _is_in_set(self, x: Scalar, threshold: Scalar, has: Callable[[int], Scalar]) -> Scalar:
        s, t = self.s, self.tables
        zero, bits = s.constant(0, I64), s.constant(WORD, I64)
        is_set = has(CATEGORICAL)
        below = s.binary("and", s.compare("lt", x, s.constant(0, x.dtype)), has(FLOOR))
        category = s.select(below, s.constant(-1, I64), s.cast(x, I64))
        number = s.select(is_set, s.cast(threshold, I64), zero)
        first, end = (
            s.cast(s.load_if(is_set, t.bounds, [s.binary("add", number, s.constant(i, I64))]), I64) for i in (0, 1)
        )
        word_index = s.binary("add", first, s.binary("div", category, bits))
        inside = s.binary("and", s.compare("ge", category, zero), s.compare("lt", word_index, end))
        word = s.load_if(s.binary("and", is_set, inside), t.sets, [word_index])
        shift = s.cast(s.binary("and", category, s.constant(WORD - 1, I64)), I32)
        bit = s.binary("and", s.binary("shr", word, shift), s.constant(1, I32))
        return s.cast(bit, BOOL)


def _least_zero(dtype: DType) -> float:
    return float(np.float32(NEARLY_ZERO)) if dtype == F32 else NEARLY_ZERO
