"""A decision tree as its file describes it, and the checks that every tree passes before it becomes tables.

A child below 0 is leaf `-1 - child`. Errors name the tree and the node by their numbers in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.lazy_dataclass import dataclass
from ....dialect.ops.support.trees import CATEGORICAL

Numbers = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Tree:
    """The nodes of a tree, as lists with one element per node. Node 0 is the root; a tree without nodes is a single
    leaf.

    values: [leaves, width]. sets: bit sets in words of 32 bits; the threshold of a categorical node is the index of its
    set. names: the numbers of the nodes in the file, if they differ from their indices.
    """

    feature: Numbers
    threshold: Numbers
    left: Numbers
    right: Numbers
    flags: Numbers
    values: Numbers
    sets: Sequence[Numbers] = ()
    names: Sequence[int] = field(default=())

    def name(self, node: int) -> int:
        return self.names[node] if self.names else node


def tree_error(
    message: str, tree: int | None = None, node: int | None = None, code: str = "bad-tree"
) -> DiagnosticError:
    """Returns an error in a file of trees, at a tree and a node if they are given."""
    where = "" if tree is None else f"tree {tree}" + ("" if node is None else f", node {node}") + ": "
    return DiagnosticError([Diagnostic(code, where + message)])


def order_nodes(tree: Tree, number: int, features: int) -> tuple[Numbers, int]:
    """Returns the nodes that the root reaches, level by level, and the number of levels. Raises DiagnosticError if a
    feature, a child, a set or a leaf does not exist, or if a node has two parents, as in a cycle."""
    nodes, leaves = len(tree.feature), len(tree.values)
    if not leaves:
        raise tree_error("the tree has no leaf", number)
    for name in ("threshold", "left", "right", "flags"):
        if len(getattr(tree, name)) != nodes:
            message = f"{nodes} nodes have features, and {len(getattr(tree, name))} have `{name}`"
            raise tree_error(message, number)
    _check(tree, number, tree.feature, (tree.feature < 0) | (tree.feature >= features), f"feature {{}} of {features}")
    for side in (tree.left, tree.right):
        _check(tree, number, side, side >= nodes, f"child {{}}, and the tree has {nodes} nodes")
        _check(tree, number, -1 - side, side < -leaves, f"leaf {{}}, and the tree has {leaves} leaves")
    is_set = (tree.flags & CATEGORICAL) != 0
    wrong = is_set & ~((tree.threshold >= 0) & (tree.threshold < len(tree.sets)))
    _check(tree, number, tree.threshold, wrong, f"set {{}} of categories, and the tree has {len(tree.sets)} sets")
    _check(tree, number, tree.threshold, np.isnan(tree.threshold) & ~is_set, "the threshold {}")
    return _levels(tree, number)


def _check(tree: Tree, number: int, values: Numbers, wrong: Numbers, message: str) -> None:
    if wrong.any():
        node = int(np.flatnonzero(wrong)[0])
        raise tree_error("it refers to " + message.format(values[node]), number, tree.name(node))


def _levels(tree: Tree, number: int) -> tuple[Numbers, int]:
    seen, positions = np.zeros(len(tree.feature), bool), np.zeros(len(tree.feature), np.int64)
    found: list[Numbers] = []
    level = np.zeros(min(1, len(tree.feature)), np.int64)
    while len(level):
        # Of nodes that occur twice, only the last occurrence keeps its position.
        order = np.arange(len(level))
        positions[level] = order
        again = level[seen[level]] if (positions[level] == order).all() else _repeated(level)
        if len(again):
            raise tree_error("it is the child of two nodes, or of itself", number, tree.name(int(again[0])))
        seen[level] = True
        found.append(level)
        children = np.stack([tree.left[level], tree.right[level]], 1).reshape(-1).astype(np.int64)
        level = children[children >= 0]
    return (np.concatenate(found) if found else level), len(found)


def _repeated(level: Numbers) -> Numbers:
    values, counts = np.unique(level, return_counts=True)
    return np.asarray(values[counts > 1])
