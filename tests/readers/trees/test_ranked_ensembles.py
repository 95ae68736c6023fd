"""Random ensembles as trees on ranks, beside a walk from node to node in Python: references, and compiled code.

The ensembles are those of `test_random_ensembles`, with one value for each leaf and without categories.
"""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.trees.ensemble import Ensemble, assemble
from nacre.compiler.readers.trees.graph import TreeModel, identity, write_model
from nacre.compiler.readers.trees.levels import Split, write_levels
from nacre.compiler.readers.trees.ranked import MOST_THRESHOLDS, Ranked, rank_ensemble
from nacre.compiler.readers.trees.tree import Tree
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.feature_ranks import ROWS
from nacre.dialect.ops.support.trees import NAN_IS_MISSING
from nacre.dialect.types import Array, dtype_of
from readers.trees.test_random_ensembles import FEATURES, random_rows, random_tree, walk

ENSEMBLES = 200
LEAVES = 30
"""The trees of one leaf behind others."""
COMPILED = (("missing", "le", np.float64, np.uint32), ("compare", "lt", np.float32, np.int64))


def ensemble_of(
    rng: np.random.Generator, routing: str, compare: str, dtype: type, most: int, full: int = 0, leaves: int = 0
) -> tuple[Ensemble, list[Tree], list[int]]:
    outputs = int(rng.integers(1, 4))
    trees = [full_tree(rng, 8, routing, dtype) for _ in range(full)]
    while len(trees) < most:
        tree = random_tree(rng, routing, 1, dtype)
        if rng.random() < 0.8 or not len(tree.feature):
            trees.append(tree)
    none = np.zeros(0, np.int64)
    trees += [Tree(none, none.astype(np.float64), none, none, none, rng.normal(size=(1, 1))) for _ in range(leaves)]
    groups = [int(rng.integers(outputs)) for _ in trees]
    initial = rng.choice([0.0, -0.0, 0.25], (outputs, 1)).astype(dtype)
    return assemble(trees, groups, initial, features=FEATURES, compare=compare, dtype=dtype), trees, groups


def full_tree(rng: np.random.Generator, depth: int, routing: str, dtype: type) -> Tree:
    inner = (1 << depth) - 1
    left = 2 * np.arange(inner) + 1
    sides = (np.where(side < inner, side, inner - 1 - side) for side in (left, left + 1))
    threshold = rng.normal(size=inner).astype(dtype).astype(np.float64)
    values = rng.normal(size=(inner + 1, 1))
    flags = np.zeros(inner, np.int64) if routing == "compare" else NAN_IS_MISSING | rng.integers(0, 2, inner)
    return Tree(rng.integers(0, FEATURES, inner), threshold, *sides, flags, values)


def expected(
    ensemble: Ensemble, trees: list[Tree], groups: list[int], rows: Array, routing: str, compare: str, dtype: type
) -> Array:
    initial = ensemble.tables["initial"]
    total = np.broadcast_to(initial[:, 0], (len(rows), len(initial))).copy()
    for tree, group in zip(trees, groups, strict=True):
        for i, row in enumerate(rows):
            total[i, group] += walk(tree, row, routing, compare, dtype).astype(dtype)[0]
    return total


def computed(ranked: Ranked, rows: Array) -> Array:
    columns = ranked.columns
    described = (columns.thresholds, columns.feature, columns.flags)
    ranks = OPERATORS["feature_ranks"].reference(rows, *described, compare=ranked.compare, dtype=columns.dtype)
    total = np.broadcast_to(ranked.initial[:, None], (len(ranks), len(ranked.initial), ROWS))
    for part in ranked.parts:
        tables = (part.column, part.border, part.first, part.nodes, part.values, total)
        total = OPERATORS["ranked_trees"].reference(ranks, *tables, shape=ranked.shape, steps=part.steps)
    return np.asarray(total.transpose(0, 2, 1).reshape(-1, total.shape[1])[: len(rows)])


def equal_bits(actual: Array, wanted: Array, message: str) -> None:
    np.testing.assert_array_equal(actual, wanted, err_msg=message)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(wanted), err_msg=message)


def test_references() -> None:
    rng = np.random.default_rng(0)
    written, kinds = 0, set()
    for number in range(ENSEMBLES):
        routing, compare = ("compare", "missing")[number % 2], ("le", "lt")[number // 2 % 2]
        dtype = (np.float32, np.float64)[number // 4 % 2]
        full, leaves = (number % 7 == 0) * 2, (number % 3 == 0) * LEAVES
        ensemble, trees, groups = ensemble_of(rng, routing, compare, dtype, int(rng.integers(0, 9)), full, leaves)
        ranked = rank_ensemble(ensemble)
        # Chains of 20 nodes are too deep.
        assert (ranked is None) == (int(ensemble.tables["depths"].max(initial=0)) > 16), number
        if ranked is None:
            continue
        written += 1
        kinds |= {(part.nodes.dtype.name, part.steps > 0, len(ranked.parts) > 1) for part in ranked.parts}
        rows = random_rows(rng, int(rng.choice([0, 1, 31, 33])), dtype)
        wanted = expected(ensemble, trees, groups, rows, routing, compare, dtype)
        with np.errstate(all="ignore"):
            equal_bits(computed(ranked, rows), wanted, f"{number}: {routing}, {compare}")
    assert written > ENSEMBLES // 4, written
    forms = (("uint32", True), ("uint32", False), ("int64", True))
    assert kinds == {(*form, are_many) for form in forms for are_many in (False, True)}, kinds


@pytest.mark.usefixtures("unchecked")  # the walk is a stricter check
@pytest.mark.parametrize(("routing", "compare", "dtype", "words"), COMPILED)
def test_compiled(routing: str, compare: str, dtype: type, words: type, tmp_path: Path) -> None:
    """Trees of 8 or 9 levels, complete or not, and then trees of one leaf."""
    rng = np.random.default_rng(3)
    ensemble, full = None, 6 if words is np.uint32 else 0
    while ensemble is None or (ranked := rank_ensemble(ensemble)) is None or not 2 <= ranked.parts[0].steps <= 3:
        ensemble, trees, groups = ensemble_of(rng, routing, compare, dtype, 9, full, LEAVES)
    assert [(part.nodes.dtype, part.steps > 0) for part in ranked.parts] == [(words, True), (np.uint32, False)]
    model = TreeModel(ensemble, FEATURES, dtype_of(np.zeros(0, dtype)), identity, identity)
    compiled = nacre.compile(write_model(model, "random", None, {}), tmp_path / "random.so")
    for count in (0, 1, 2, 31, 32, 33, 1100):
        rows = random_rows(rng, count, dtype)
        wanted = expected(ensemble, trees, groups, rows, routing, compare, dtype)
        equal_bits(compiled.entries["raw"](rows).reshape(wanted.shape), wanted, f"{count} rows")


@pytest.mark.usefixtures("unchecked")  # the sums are a stricter check
@pytest.mark.parametrize("depth", [3, 8, 9, 11])
def test_oblivious_trees(depth: int, tmp_path: Path) -> None:
    """Few rows run on masks up to 8 levels, and from border to border above; many rows on ranks up to
    10 levels, and on leaves above."""
    rng, count = np.random.default_rng(depth), 70
    borders = np.asarray([0.0, -0.5, 0.1, 1.0, 2.5, -2.5, 1e-40], np.float32)
    trees: list[tuple[list[Split], Array]] = []
    for number in range(count):
        own = depth if number % 3 else int(rng.integers(0, depth + 1))
        features = rng.integers(0, FEATURES, own)
        splits = [Split(int(f), float(rng.choice(borders)), bool(f % 2)) for f in features]
        trees.append((splits, rng.normal(size=1 << own)))
    levels = write_levels(trees, FEATURES, 1)
    assert levels is not None
    initial = np.asarray([[0.25]])
    leaf = [Tree(*(np.zeros(0, np.int64),) * 5, values[:1, None]) for _, values in trees]
    ensemble = assemble(leaf, [0] * count, initial, features=FEATURES, compare="le", dtype=np.float32)
    model = TreeModel(ensemble, FEATURES, dtype_of(np.zeros(0, np.float32)), identity, identity, levels)
    compiled = nacre.compile(write_model(model, "random", None, {}), tmp_path / "random.so")
    rows = random_rows(rng, 40, np.float32)
    wanted = np.full(len(rows), 0.25)
    for splits, values in trees:
        known = [np.where(np.isnan(rows[:, s.feature]), np.inf if s.nan_right else -np.inf, rows[:, s.feature])
                 for s in splits]  # fmt: skip
        bits = [(x > np.float32(s.border)) << level for level, (x, s) in enumerate(zip(known, splits, strict=True))]
        wanted = wanted + values[sum(bits, start=np.zeros(len(rows), np.int64))]
    for number in (0, 1, 7, 8, 40):
        equal_bits(compiled.entries["raw"](rows[:number]), wanted[:number], f"{number} rows")


@pytest.mark.usefixtures("unchecked")  # the walk is a stricter check
def test_ten_thousand_trees(tmp_path: Path) -> None:
    """Many rows run on ranks in blocks, few row by row, and both give the sums of the walk from node to node."""
    rng, count = np.random.default_rng(5), 10_000
    stumps = [
        Tree(
            rng.integers(0, FEATURES, 3),
            rng.integers(-20, 20, 3) / 8,
            np.asarray([1, -1, -3]),
            np.asarray([2, -2, -4]),
            np.full(3, NAN_IS_MISSING | int(rng.integers(2)), np.int64),
            rng.normal(size=(4, 1)),
        )
        for _ in range(count)
    ]
    groups = [int(g) for g in rng.integers(0, 2, count)]
    ensemble = assemble(stumps, groups, np.zeros((2, 1)), features=FEATURES, compare="le", dtype=np.float64)
    model = TreeModel(ensemble, FEATURES, dtype_of(np.zeros(0)), identity, identity)
    compiled = nacre.compile(write_model(model, "random", None, {}), tmp_path / "random.so")
    rows = random_rows(rng, 40, np.float64)
    wanted = expected(ensemble, stumps, groups, rows[:3], "missing", "le", np.float64)
    few, many = compiled.entries["raw"](rows[:3]), compiled.entries["raw"](rows)
    equal_bits(few, wanted, "few rows")
    equal_bits(many[:3], wanted, "many rows")
    assert compiled.entries["leaves"](rows).shape == (40, count)


def test_many_thresholds_take_longer_ranks() -> None:
    rng = np.random.default_rng(0)
    for count, dtype in ((255, "i8"), (256, "i16"), (MOST_THRESHOLDS, "i16"), (MOST_THRESHOLDS + 1, "")):
        trees = [
            Tree(
                np.zeros(1, np.int64),
                np.asarray([t]),
                np.asarray([-1]),
                np.asarray([-2]),
                np.zeros(1, np.int64),
                rng.normal(size=(2, 1)),
            )
            for t in rng.permutation(count) / 8
        ]
        ensemble = assemble(trees, [0] * count, np.zeros((1, 1)), features=1, compare="le", dtype=np.float64)
        ranked = rank_ensemble(ensemble)
        assert ("" if ranked is None else ranked.columns.dtype.name) == dtype
        if ranked is not None:
            rows = np.concatenate([rng.integers(0, count, 4) / 8, [np.inf, -np.inf, np.nan]])[:, None]
            equal_bits(
                computed(ranked, rows), expected(ensemble, trees, [0] * count, rows, "compare", "le", np.float64), dtype
            )


def test_a_feature_whose_nan_goes_to_both_sides_has_no_levels() -> None:
    def tables(*splits: Split) -> object:
        return write_levels([([split], np.asarray([1.0, 2.0])) for split in splits], 2, 1)

    assert tables(Split(0, 0.5, True), Split(0, 0.75, True), Split(1, 0.5, False)) is not None
    assert tables(Split(0, 0.5, True), Split(0, 0.75, False)) is None
    assert tables(Split(0, 0.5, False), Split(1, 0.5, True), Split(0, 0.5, True)) is None
