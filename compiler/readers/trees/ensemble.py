"""Trees as the tables of `tree_ensemble`: all nodes in one table, where children follow their parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....dialect.lazy_dataclass import dataclass
from ....dialect.ops.support.trees import CATEGORICAL
from .tree import Numbers, Tree, order_nodes, tree_error

_MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The operands of `tree_ensemble` after `x`, by name, and its attributes.

    first_leaves: for each group and tree, the row of `values` that is leaf 0 of the tree. counts: the number of trees
    of each group in the file. Groups with fewer trees than others are padded with trees of value -0.0, which changes no
    sum.
    """

    tables: Mapping[str, Numbers]
    attributes: Mapping[str, str]
    first_leaves: Numbers
    counts: tuple[int, ...]


def assemble(
    trees: Sequence[Tree],
    groups: Sequence[int],
    initial: Numbers,
    *,
    features: int,
    compare: str,
    dtype: Any,
    numbers: Sequence[int] = (),
) -> Ensemble:
    """Returns the tables of trees. `groups` has the group of each tree. `initial` [groups, width] is the initial value
    of each sum, in the dtype of the sums; `dtype` is that of features and thresholds; `numbers` are the numbers of the
    trees in the file."""
    count, width = initial.shape
    by_group: list[list[int]] = [[] for _ in range(count)]
    for tree, group in enumerate(groups):
        if not 0 <= group < count:
            raise tree_error(f"it belongs to output {group} of {count}", tree)
        by_group[group].append(tree)
    longest = max(map(len, by_group), default=0)
    parts = _Parts(dtype, initial.dtype, width)
    roots, depths, firsts = (np.zeros((count, longest), np.int64) for _ in range(3))
    roots[:], padding = -1, None
    for group, members in enumerate(by_group):
        for position in range(longest):
            if position < len(members):
                number = members[position]
                shown = numbers[number] if numbers else number
                firsts[group, position] = parts.leaves
                roots[group, position], depths[group, position] = parts.add(trees[number], shown, features)
            else:
                padding = parts.add_padding() if padding is None else padding
                roots[group, position], firsts[group, position] = -1 - padding, padding
    tables = {**parts.tables(), "roots": roots, "depths": depths}
    if max(parts.nodes, parts.leaves) > _MOST:
        raise tree_error(f"the trees have {parts.nodes} nodes, and {_MOST} are supported", code="too-large")
    order = ("feature", "threshold", "children", "flags", "sets", "bounds", "roots", "depths", "values")
    arrays = {name: tables[name] if tables[name].dtype.kind == "f" else _as_i32(tables[name]) for name in order}
    attributes = {"compare": compare, "routing": parts.routing()}
    return Ensemble({**arrays, "initial": initial}, attributes, firsts, tuple(map(len, by_group)))


def _as_i32(table: Numbers) -> Numbers:
    return np.ascontiguousarray(table.astype(np.int32))


class _Parts:
    """The tables under construction; trees are appended."""

    def __init__(self, dtype: Any, sums: Any, width: int) -> None:
        self.dtype, self.sums, self.width = np.dtype(dtype), np.dtype(sums), width
        self.nodes = self.leaves = 0
        self.lists: dict[str, list[Numbers]] = {
            name: [] for name in ("feature", "threshold", "children", "flags", "values")
        }
        self.sets: list[Numbers] = []

    def add(self, tree: Tree, number: int, features: int) -> tuple[int, int]:
        """Adds a tree; returns its root and its depth."""
        order, depth = order_nodes(tree, number, features)
        if tree.values.shape[1] != self.width:
            raise tree_error(f"a leaf has {tree.values.shape[1]} values, expected {self.width}", number)
        position = np.zeros(len(tree.feature), np.int64)
        position[order] = self.nodes + np.arange(len(order))
        sides = [np.where(side >= 0, position[np.maximum(side, 0)], side - self.leaves) for side in _sides(tree, order)]
        threshold, flags = tree.threshold[order], tree.flags[order]
        # The indices of sets continue those of the earlier trees.
        threshold = np.where(flags & CATEGORICAL != 0, threshold + len(self.sets), threshold)
        self.sets += tree.sets
        added = {
            "feature": tree.feature[order],
            "threshold": threshold.astype(self.dtype),
            "children": np.stack(sides, 1).reshape(-1, 2),
            "flags": flags,
            "values": tree.values.astype(self.sums),
        }
        for name, table in added.items():
            self.lists[name].append(table)
        root = self.nodes if len(order) else -1 - self.leaves
        self.nodes += len(order)
        self.leaves += len(tree.values)
        return root, depth

    def add_padding(self) -> int:
        self.lists["values"].append(np.full((1, self.width), -0.0, self.sums))
        self.leaves += 1
        return self.leaves - 1

    def tables(self) -> dict[str, Numbers]:
        empty = {
            "feature": np.zeros(0, np.int64),
            "threshold": np.zeros(0, self.dtype),
            "children": np.zeros((0, 2), np.int64),
            "flags": np.zeros(0, np.int64),
            "values": np.zeros((0, self.width), self.sums),
        }
        joined = {name: np.concatenate([empty[name], *parts]) for name, parts in self.lists.items()}
        lengths = [len(words) for words in self.sets]
        words = np.concatenate([np.zeros(0, np.uint32), *self.sets]).astype(np.uint32).view(np.int32)
        return {**joined, "sets": words, "bounds": np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])}

    def routing(self) -> str:
        flags = np.bitwise_or.reduce(np.concatenate([np.zeros(1, np.int64), *self.lists["flags"]]).astype(np.int64))
        return "categories" if flags & CATEGORICAL else "missing" if flags else "compare"


def _sides(tree: Tree, order: Numbers) -> tuple[Numbers, Numbers]:
    return tree.left[order].astype(np.int64), tree.right[order].astype(np.int64)
