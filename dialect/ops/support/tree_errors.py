"""Errors in the tables of tree ensembles, which would lead a path outside of memory or around in a circle.

A record has four integers, as that of `check_indices`; the last one, `-1 - reason`, tells both apart:

    [(tree + 1) << 32 | node + 1, or -1 without an error;  the wrong number;  its limit;  -1 - reason]

An unknown tree or node counts as -1. The reported error is that of the least node, or else of the first tree.
The tree of a node is the one with the greatest root up to the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .accumulate import Numbers
from .trees import CATEGORICAL

REASONS = (
    ("feature", "is out of range for", "features"),
    ("child", "is out of range for", "nodes"),
    ("child", "does not follow its parent, one of", "nodes"),
    ("leaf", "is out of range for", "leaves"),
    ("root", "is out of range for", "nodes"),
    ("depth", "does not suffice for paths of", "steps"),
    ("depth", "is out of range for", "nodes"),
    ("set", "is out of range for", "sets"),
    ("bound", "of its set is out of range for", "words"),
)
"""Parts of a message, which the runtime's api.c repeats: the kind of the wrong number, the reason, and the unit of the
limit."""
FEATURE, CHILD, ORDER, LEAF, ROOT, SHORT, DEPTH, SET, BOUND = range(len(REASONS))
PART = 32
"""The bits of the number of a node."""


def describe_fault(number: int, index: int, size: int, window: int) -> str:
    """Returns the message of a record with an error."""
    tree, node = (number >> PART) - 1, (number & (1 << PART) - 1) - 1
    where = [f"{kind} {n}" for kind, n in (("tree", tree), ("node", node)) if n >= 0]
    what, why, of = REASONS[-1 - window]
    return f"{', '.join(where)}: {what} {index} {why} {size} {of}"


def find_error(
    feature: Numbers,
    threshold: Numbers,
    children: Numbers,
    flags: Numbers,
    sets: Numbers,
    bounds: Numbers,
    roots: Numbers,
    depths: Numbers,
    *,
    features: int,
    leaves: int,
    routing: str,
) -> Numbers:
    """Returns the record of the tables."""
    nodes = len(feature)
    heights = [0] * nodes
    found: tuple[int, int, int, int] | None = None
    for node in reversed(range(nodes)):
        sides = [int(child) for child in children[node]]
        wrong = list(_node_faults(int(feature[node]), node, sides, nodes, features, leaves))
        if routing == "categories" and flags[node] & CATEGORICAL:
            wrong += _set_faults(threshold[node], sets, bounds)
        if wrong:
            found = (node + 1, *wrong[0])
        heights[node] = 1 + max(heights[side] if node < side < nodes else 0 for side in sides)
    if found is not None:
        before = [(int(root), -tree) for tree, root in enumerate(roots.reshape(-1)) if 0 <= root < found[0]]
        tree = -max(before)[1] if before else -1
        return np.asarray([(tree + 1) << PART | found[0], *found[1:]], np.int64)
    for tree, (root, depth) in enumerate(zip(roots.reshape(-1).tolist(), depths.reshape(-1).tolist(), strict=True)):
        height = heights[root] if 0 <= root < nodes else 0
        for is_wrong, index, size, reason in (
            (-1 - root >= leaves, -1 - root, leaves, LEAF),
            (root >= nodes, root, nodes, ROOT),
            (depth < height, depth, height, SHORT),
            (depth > nodes, depth, nodes, DEPTH),
        ):
            if is_wrong:
                return np.asarray([(tree + 1) << PART, index, size, -1 - reason], np.int64)
    return np.asarray([-1, 0, 0, 0], np.int64)


def _node_faults(
    feature: int, node: int, sides: Sequence[int], nodes: int, features: int, leaves: int
) -> Iterator[tuple[int, int, int]]:
    if not 0 <= feature < features:
        yield feature, features, -1 - FEATURE
    for side in sides:
        if side >= nodes:
            yield side, nodes, -1 - CHILD
        elif 0 <= side <= node:
            yield side, nodes, -1 - ORDER
        elif -1 - side >= leaves:
            yield -1 - side, leaves, -1 - LEAF


def _set_faults(threshold: float, sets: Numbers, bounds: Numbers) -> list[tuple[int, int, int]]:
    number, count = 0 if np.isnan(threshold) else int(np.clip(threshold, -1, 1 << 40)), max(len(bounds) - 1, 0)
    if not 0 <= number < count:
        return [(number, count, -1 - SET)]
    first, end = int(bounds[number]), int(bounds[number + 1])
    wrong = [(first, len(sets), -1 - BOUND)] if first < 0 else []
    return wrong + ([(end, len(sets), -1 - BOUND)] if end > len(sets) else [])
