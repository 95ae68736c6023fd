"""The nodes of ai.onnx.ml's tree ensembles as trees whose nodes all compare with `<=`, or all with `<`.

A number goes to the first child where its comparison holds. Other comparisons become these:

    x > v     the children of x <= v in exchange            x >= v    those of x < v in exchange
    x == v    x <= v, then x < v in exchange                x != v    the children of x == v in exchange
    x in S    x == v for each v in S, with copies of the first child

NaN goes to the second child, or to the first one of `!=` and if the node says so. Where an ensemble needs both `<` and
`<=`, x < v is x <= w for the float w before v.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from .....dialect.ops.support.trees import DEFAULT_LEFT, NAN_IS_MISSING
from ...trees.tree import Tree

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
_LESS, _EXCHANGED = ("BRANCH_LT", "BRANCH_GTE"), ("BRANCH_GTE", "BRANCH_GT")
MOST_NODES = 1 << 24


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of a file. A child below 0 is leaf `-1 - child`; `members` are the numbers of BRANCH_MEMBER."""

    mode: str
    feature: int
    value: float
    yes: int
    no: int
    nan_is_yes: bool
    members: tuple[float, ...] = ()


def find_comparison(nodes: Mapping[int, Branch]) -> str:
    """Returns the comparison of the ensemble: `lt` if all nodes can use it, else `le`."""
    return "lt" if nodes and all(node.mode in _LESS for node in nodes.values()) else "le"


@dataclass(frozen=True, slots=True)
class _Equal:
    """The rest of a node that asks whether the number is one of ascending `values`."""

    node: Branch
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _NotBelow:
    """The second part of such a node: the number is at most `value`."""

    node: Branch
    value: float


_Item = int | _Equal | _NotBelow
Fail = Callable[[str, int], NoReturn]
"""`fail(message, node)` raises the error about a node of the file."""


@dataclass(frozen=True, slots=True)
class _Built:
    """A node of the result: its comparison, the items below it, and whether NaN goes to the first one."""

    less: bool
    feature: int
    value: float
    first: _Item
    second: _Item
    nan_first: bool


def build_tree(
    root: int, nodes: Mapping[int, Branch], compare: str, dtype: type, *, flags: bool, fail: Fail
) -> tuple[Tree, list[int]]:
    """Returns the tree, and for each of its leaves the number of the leaf in the file. `flags` states whether nodes of
    the ensemble need flags for the direction of NaN."""
    rows: list[tuple[int, float, int]] = []
    children: list[list[int]] = []
    names: list[int] = []
    leaves: list[int] = []
    pending: list[tuple[_Item, int, int, int, int]] = [(root, root, 0, -1, 0)]
    deepest = sum(2 + len(node.members) for node in nodes.values())
    while pending:
        item, name, depth, parent, side = pending.pop()
        if isinstance(item, int) and item < 0:
            index = -1 - len(leaves)
            leaves.append(-1 - item)
        else:
            if isinstance(item, int):
                if item not in nodes:
                    fail(f"it refers to node {item}, which does not exist", name)
                name = item
            if depth > deepest or len(rows) >= MOST_NODES:
                fail("it is a part of a cycle, or of a tree that is too large", name)
            built = _build(item, nodes)
            if isinstance(built, int):
                pending.append((built, name, depth + 1, parent, side))
                continue
            index = len(rows)
            value = dtype(built.value)
            if built.less and compare == "le":
                if value == -np.inf:
                    fail("it compares with -inf by `<`, which is not supported", name)
                value = np.nextafter(value, dtype(-np.inf))
            rows.append((built.feature, float(value), (NAN_IS_MISSING | DEFAULT_LEFT * built.nan_first) * flags))
            children.append([0, 0])
            names.append(name)
            pending += [(built.second, name, depth + 1, index, 1), (built.first, name, depth + 1, index, 0)]
        if parent >= 0:
            children[parent][side] = index
    table, sides = np.asarray(rows, np.float64).reshape(-1, 3), np.asarray(children, np.int64).reshape(-1, 2)
    feature, given = table[:, 0].astype(np.int64), table[:, 2].astype(np.int64)
    tree = Tree(feature, table[:, 1], sides[:, 0], sides[:, 1], given, np.zeros((len(leaves), 1)), (), names)
    return tree, leaves


def _build(item: _Item, nodes: Mapping[int, Branch]) -> _Built | int:
    if isinstance(item, _NotBelow):
        node = item.node
        return _Built(True, node.feature, item.value, node.no, node.yes, False)
    if isinstance(item, _Equal):
        node, (value, *others) = item.node, item.values
        if not others:
            return _Built(False, node.feature, value, _NotBelow(node, value), node.no, node.nan_is_yes)
        return _Built(False, node.feature, value, _NotBelow(node, value), _Equal(node, tuple(others)), False)
    node = nodes[item]
    if node.mode == "BRANCH_NEQ":
        # NaN is not equal, so it passes the comparison itself.
        node = replace(node, mode="BRANCH_EQ", yes=node.no, no=node.yes, nan_is_yes=False)
    if node.mode in ("BRANCH_EQ", "BRANCH_MEMBER"):
        values = (node.value,) if node.mode == "BRANCH_EQ" else node.members
        return _equals(node, tuple(sorted(set(values))))
    less = node.mode in _LESS
    if node.mode in _EXCHANGED:
        return _Built(less, node.feature, node.value, node.no, node.yes, not node.nan_is_yes)
    return _Built(less, node.feature, node.value, node.yes, node.no, node.nan_is_yes)


def _equals(node: Branch, values: tuple[float, ...]) -> _Built | int:
    return _build(_Equal(node, values), {}) if values else node.no
