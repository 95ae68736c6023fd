"""Random ensembles of odd shapes as compiled code and in the interpreter, beside a walk from node to node in Python.

Shapes: one leaf, chains of depth 20, full trees, groups of unequal size. Features are thresholds themselves, their
neighbours, NaN, infinities, denormal numbers and zeros of both signs. Tables are arguments of the compiled functions,
so that six functions serve all ensembles.
"""

from __future__ import annotations

import math
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.trees.ensemble import Ensemble, assemble
from nacre.compiler.readers.trees.tree import Tree
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import Array

ENSEMBLES, FEATURES = 300, 5
ROUTINGS = ("compare", "missing", "categories")
COMPARES = ("le", "lt")
TABLES = "feature: i32[N], threshold: {t}[N], children: i32[N, 2], flags: i32[N], sets: i32[S], bounds: i32[C], "
TABLES += "roots: i32[G, T], depths: i32[G, T]"
ORDER = ("feature", "threshold", "children", "flags", "sets", "bounds", "roots", "depths", "values", "initial")


def text() -> str:
    parts = ["language 1", *(f"dim {name} in 0..1048576" for name in ("B", "N", "S", "C", "G", "T", "L", "W"))]
    names = [name.split(":")[0] for name in TABLES.split(", ") if ":" in name]
    for t, v in (("f32", "f32"), ("f64", "f64")):
        for routing in ROUTINGS:
            for compare in COMPARES:
                options = f'compare="{compare}", routing="{routing}"'
                parts.append(
                    f"model m_{t}_{routing}_{compare}(x: {t}[B, {FEATURES}], {TABLES.format(t=t)}, values: {v}[L, W], "
                    f"initial: {v}[G, W]) -> total: {v}[B, G, W] {{\n"
                    f"  return tree_ensemble(x, {', '.join(names)}, values, initial, {options})\n}}"
                )
    return "\n".join(parts)


def random_tree(rng: np.random.Generator, routing: str, width: int, dtype: type) -> Tree:
    shape = rng.choice(["leaf", "chain", "full", "any"])
    inner = 0 if shape == "leaf" else 20 if shape == "chain" else 31 if shape == "full" else int(rng.integers(1, 40))
    left, right = np.full(inner, 0), np.full(inner, 0)
    # Each node but the root takes an open place of an earlier node; a chain always the newest.
    open_places, leaves = [(0, 0), (0, 1)] if inner else [], 0
    for node in range(1, inner):
        at = -1 if shape == "chain" else 0 if shape == "full" else int(rng.integers(len(open_places)))
        parent, side = open_places.pop(at)
        (right if side else left)[parent] = node
        open_places += [(node, 0), (node, 1)] if rng.random() < 0.5 else [(node, 1), (node, 0)]
    for parent, side in open_places:
        (right if side else left)[parent] = -1 - leaves
        leaves += 1
    flags = np.zeros(inner, np.int64)
    threshold = rng.choice([0.0, -0.0, 1.0, -2.5, 1e-40, 1e-35, 3e38, np.inf, -np.inf, 0.1], inner).astype(dtype)
    sets = []
    if routing != "compare":
        flags = rng.integers(0, 8, inner)
    if routing == "categories":
        for node in np.flatnonzero(rng.random(inner) < 0.4):
            flags[node] |= 8 | int(rng.integers(2)) * 16
            threshold[node] = len(sets)
            sets.append(rng.integers(0, 1 << 32, int(rng.integers(0, 4)), np.uint32))
    values = rng.normal(size=(max(leaves, 1), width))
    feature = rng.integers(0, FEATURES, inner)
    return Tree(feature, threshold.astype(np.float64), left, right, flags.astype(np.int64), values, sets)


def goes_left(tree: Tree, node: int, x: float, routing: str, compare: str, dtype: type) -> bool:
    flags, threshold = int(tree.flags[node]), float(dtype(tree.threshold[node]))
    if routing == "compare":
        return x <= threshold if compare == "le" else x < threshold
    if math.isnan(x):
        if flags & 6:
            return bool(flags & 1)
        x = 0.0
    if flags & 4 and abs(x) <= float(np.float32(1e-35)):
        return bool(flags & 1)
    if flags & 8:
        if math.isinf(x):
            return False
        category = math.floor(x) if flags & 16 else int(x)
        words = tree.sets[int(tree.threshold[node])]
        return 0 <= category < 32 * len(words) and bool(int(words[category // 32]) >> category % 32 & 1)
    return x <= threshold if compare == "le" else x < threshold


def walk(tree: Tree, row: Array, routing: str, compare: str, dtype: type) -> Array:
    node = 0 if len(tree.feature) else -1
    while node >= 0:
        left = goes_left(tree, node, float(row[tree.feature[node]]), routing, compare, dtype)
        node = int((tree.left if left else tree.right)[node])
    return np.asarray(tree.values[-1 - node])


def random_rows(rng: np.random.Generator, count: int, dtype: type) -> Array:
    odd = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 1e-35, 3e38, 0.1, 1.0, -2.5, 40.0, -0.5, 2.7, 1e9, -1e19]
    values = np.asarray(odd, dtype)
    near = np.concatenate([values, np.nextafter(values, dtype(np.inf)), np.nextafter(values, dtype(-np.inf))])
    return np.where(rng.random((count, FEATURES)) < 0.7, rng.choice(near, (count, FEATURES)), dtype(1) * 3)


def ensemble_of(
    rng: np.random.Generator, routing: str, compare: str, dtype: type
) -> tuple[Ensemble, list[Tree], list[int]]:
    outputs, width = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3]))
    trees = [random_tree(rng, routing, width, dtype) for _ in range(int(rng.integers(0, 20)))]
    groups = [int(rng.integers(outputs)) for _ in trees]
    initial = rng.normal(size=(outputs, width)).astype(dtype)
    return assemble(trees, groups, initial, features=FEATURES, compare=compare, dtype=dtype), trees, groups


@pytest.mark.usefixtures("unchecked")  # random tables lead outside of one another
@pytest.mark.parametrize("level", [0, 2])
def test_random_ensembles(level: int, tmp_path: Path) -> None:
    model = nacre.compile(text(), tmp_path / "trees.so", opt_level=level)
    rng = np.random.default_rng(level)
    for number in range(ENSEMBLES):
        routing, compare = ROUTINGS[number % 3], COMPARES[number // 3 % 2]
        dtype = (np.float32, np.float64)[number // 6 % 2]
        ensemble, trees, groups = ensemble_of(rng, routing, compare, dtype)
        rows = random_rows(rng, int(rng.choice([0, 1, 7, 8, 9, 17])), dtype)
        operands = [ensemble.tables[name] for name in ORDER]
        total = np.broadcast_to(operands[-1], (len(rows), *operands[-1].shape)).copy()
        for tree, group in zip(trees, groups, strict=True):
            for i, row in enumerate(rows):
                total[i, group] += walk(tree, row, routing, compare, dtype).astype(dtype)
        with np.errstate(all="ignore"):
            reference = OPERATORS["tree_ensemble"].reference(rows, *operands, compare=compare, routing=routing)
        # Random flags of an ensemble without trees are those of `compare`.
        name = f"m_f{8 * np.dtype(dtype).itemsize}_{routing}_{compare}"
        np.testing.assert_array_equal(reference, total, err_msg=f"{number}: reference")
        np.testing.assert_array_equal(model.entries[name](rows, *operands), total, err_msg=f"{number}: {name}")
