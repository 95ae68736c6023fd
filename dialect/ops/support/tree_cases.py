"""Examples of the operators of tree ensembles: small random trees as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...operator import Case
from ...types import F32, F64


def example(
    rows: tuple[int, ...], features: int, routing: str, *, groups: int, trees: int, width: int
) -> dict[int, Any]:
    """Returns the tables of small random trees, by the number of the operand; the last two are values and initial."""
    rng = np.random.default_rng(features + trees)
    feature: list[int] = []
    threshold: list[float] = []
    children: list[list[int]] = []
    flags: list[int] = []
    roots: list[int] = []
    depths: list[int] = []
    leaves = 0
    for tree in range(groups * trees):
        depth = tree % 4
        if depth == 0:
            roots.append(-1 - leaves)
            leaves += 1
        else:
            # A chain: one child of each node is a leaf.
            roots.append(len(feature))
            for level in range(depth):
                last = level == depth - 1
                inner = [-1 - leaves, -2 - leaves] if last else [len(feature) + 1, -1 - leaves]
                leaves += 2 if last else 1
                children.append(inner if last or level % 2 else inner[::-1])
                feature.append(int(rng.integers(features)))
                flag = int(rng.integers(8)) if routing != "compare" else 0
                is_set = routing == "categories" and level % 2 == 0
                flags.append(flag | 8 | int(rng.integers(2)) * 16 if is_set else flag)
                threshold.append(float(rng.integers(2)) if is_set else float(rng.integers(-2, 3)) / 2)
        depths.append(depth)
    integers = {
        1: feature,
        3: np.reshape(children, (-1, 2)),
        4: flags,
        5: [5, 1 << 30, -7],
        6: [0, 1, 3],
        7: np.reshape(roots, (groups, trees)),
        8: np.reshape(depths, (groups, trees)),
    }
    arrays: dict[int, Any] = {number: np.asarray(table, np.int32) for number, table in integers.items()}
    arrays[2] = np.asarray(threshold)
    arrays[9] = rng.normal(size=(leaves, width))
    arrays[10] = rng.normal(size=(groups, width))
    values = rng.choice([0.0, -0.5, 0.5, 1.0, -1.0, 33.0, 1.5, np.nan, np.inf, -np.inf, 40.0], (*rows, features))
    arrays[0] = values
    return arrays


def tree_cases(*, leaves: bool) -> tuple[Case, ...]:
    made = []
    for number, (rows, features, routing, compare, groups, trees, width) in enumerate(
        (
            ((7,), 3, "compare", "le", 2, 5, 2),
            ((5,), 3, "compare", "le", 1, 4, 1),
            ((19,), 4, "missing", "lt", 2, 11, 1),
            ((3, 3), 5, "categories", "le", 1, 9, 3),
            ((), 2, "categories", "lt", 3, 3, 1),
            ((0,), 3, "compare", "lt", 1, 5, 1),
            ((8,), 1, "missing", "le", 1, 1, 2),
        )
    ):
        arrays = example(rows, features, routing, groups=groups, trees=trees, width=width)
        if number == 0:
            # Finite differences need features between the thresholds, which are multiples of a half.
            arrays[0] = np.random.default_rng(7).integers(-3, 3, (*rows, features)) + 0.25
        for dtype in (F32, F64):
            kept = {n: a if a.dtype == np.int32 else a.astype(dtype.numpy) for n, a in arrays.items()}
            shapes = tuple(kept[n].shape for n in range(9 if leaves else 11))
            mixed = {9: F64, 10: F64}
            kept |= {n: arrays[n] for n in mixed}
            made.append(
                Case(
                    shapes,
                    {"compare": compare, "routing": routing},
                    arrays={n: a for n, a in kept.items() if n < len(shapes)},
                    dtypes=(dtype,),
                    mixed={} if leaves else mixed,
                    gradient=not leaves and number == 0,
                    terms=trees,
                )
            )
    return tuple(made)


def broken_tables() -> Iterator[tuple[dict[int, Any], int, int]]:
    """Yields tables of two trees with one error each, by the number of the table, with the features and the leaves that
    they may name: a feature, a child, a cycle, a leaf, a root, depths and sets out of range."""
    whole: dict[int, Any] = {
        0: [0, 2, 1],
        1: [0.5, 0.0, 1.0],
        2: [[-1, 1], [-2, -3], [-4, -5]],
        3: [0, 8, 8],
        4: [5, -7],
        5: [0, 1, 2],
        6: [[0, 2, -1]],
        7: [[2, 1, 0]],
    }
    errors: tuple[tuple[int, tuple[int, ...], float], ...] = (
        *((0, (1,), 3), (0, (2,), -1), (0, (0,), -(1 << 31)), (0, (2,), (1 << 31) - 1)),
        *((2, (0, 1), 3), (2, (0, 0), (1 << 31) - 1), (2, (0, 1), 0), (2, (2, 0), 1), (2, (1, 1), -6)),
        *((2, (1, 0), -(1 << 31)), (6, (0, 2), -6), (6, (0, 0), 3), (6, (0, 1), (1 << 31) - 1)),
        *((7, (0, 0), 1), (7, (0, 1), 0), (7, (0, 2), 4), (7, (0, 0), (1 << 31) - 1), (7, (0, 0), -1)),
        *((1, (1,), -1.0), (1, (2,), 2.0), (1, (2,), float("inf")), (5, (0,), -1), (5, (2,), 3)),
    )
    for table, index, value in errors:
        arrays = {n: np.asarray(rows, np.float64 if n == 1 else np.int32) for n, rows in whole.items()}
        arrays[table][index] = value
        yield arrays, 3, 5
    yield {n: np.asarray(rows, np.float64 if n == 1 else np.int32) for n, rows in whole.items()}, 0, 5
    # Without nodes and bounds.
    yield (
        {n: np.zeros((0, 2) if n == 2 else (1, 0) if n > 5 else 0, np.float64 if n == 1 else np.int32) for n in whole},
        0,
        0,
    )
