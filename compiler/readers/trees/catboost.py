"""Reads a CatBoost model: JSON, or `.cbm`.

Features are f32 and sums are f64. A sum begins with 0, adds the trees in the order of the file, is multiplied by the
scale, and adds the bias. This is the order of CatBoost, so `raw` is bitwise equal to
`predict(prediction_type="RawFormulaVal")`. An oblivious tree becomes a complete tree whose nodes are equal on each
level. Categorical features become further columns of the trees, see `categories.py`. Text features are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....dialect.graph import Constant, Value
from ....dialect.operator import Builder
from ....dialect.ops.support.trees import DEFAULT_LEFT, NAN_IS_MISSING
from ....dialect.types import F32
from . import links
from .catboost_splits import Splits
from .categories import Columns
from .ensemble import assemble
from .fields import field, number, numbers, optional_mapping, sequence
from .graph import TreeModel
from .levels import Split, write_levels
from .tree import Numbers, Tree, tree_error

_LINKS: Mapping[str, links.Link] = {
    "Logloss": links.sigmoid,
    "CrossEntropy": links.sigmoid,
    "Focal": links.sigmoid,
    "MultiLogloss": links.sigmoid,
    "MultiCrossEntropy": links.sigmoid,
    "MultiClassOneVsAll": links.sigmoid,
    "MultiClass": links.softmax,
    "Poisson": links.exponential,
    "Tweedie": links.exponential,
}
_IDENTITY = (
    "RMSE", "MAE", "Quantile", "MultiQuantile", "LogLinQuantile", "MAPE", "Lq", "Huber", "Expectile", "LogCosh",
    "MultiRMSE", "MultiRMSEWithMissingValues", "RMSEWithUncertainty", "Cox", "SurvivalAft", "Combination",
    "YetiRank", "YetiRankPairwise", "PairLogit", "PairLogitPairwise", "QueryRMSE", "QuerySoftMax", "QueryCrossEntropy",
    "StochasticRank", "StochasticFilter", "LambdaMart", "GroupQuantile", "PythonUserDefinedPerObject",
    "",
)  # fmt: skip
_DEEPEST_OBLIVIOUS = 16


def flags_of(split: Split) -> int:
    return NAN_IS_MISSING | (0 if split.nan_right else DEFAULT_LEFT)


def is_catboost(record: Any) -> bool:
    return isinstance(record, Mapping) and "features_info" in record


def read_record(record: Any, file: str) -> TreeModel:
    """Reads a parsed JSON model. Raises DiagnosticError."""
    known = Splits(record, file)
    scale, bias = _scale_and_bias(sequence(record, "scale_and_bias"))
    trees, levels = [], []
    if "oblivious_trees" in record:
        for i, tree in enumerate(sequence(record, "oblivious_trees")):
            splits = [known.read(split, i) for split in _splits_of(tree, i)]
            values = numbers(tree, "leaf_values", np.float64, tree=i)
            trees.append(oblivious_tree(splits, values, len(bias), i))
            levels.append((splits, values))
    else:
        for i, tree in enumerate(sequence(record, "trees")):
            trees.append(_Nested(known.read, i, len(bias)).read(tree))
    loss = optional_mapping(record, "model_info", "params", "loss_function").get("type", "")
    return finish_model(trees, levels, known.count(), scale, bias, str(loss), known.columns)


def _splits_of(tree: Any, number: int) -> Sequence[Any]:
    """Returns the splits of an oblivious tree. A tree with a single leaf may lack the field."""
    found = tree.get("splits") if isinstance(tree, Mapping) else None
    return [] if found is None else sequence(tree, "splits", tree=number)


def finish_model(
    trees: Sequence[Tree],
    levels: Sequence[tuple[Sequence[Split], Numbers]],
    features: int,
    scale: float,
    bias: Numbers,
    loss: str,
    columns: Columns | None = None,
) -> TreeModel:
    """Returns the model of the trees. `levels` has the splits and values of each tree if all trees are oblivious, else
    it is empty."""
    if loss not in _LINKS and loss not in _IDENTITY:
        raise tree_error(f"the loss function `{loss}` is not supported", code="unsupported-objective")
    initial = np.zeros((1, len(bias)))
    ensemble = assemble(trees, [0] * len(trees), initial, features=features, compare="le", dtype=np.float32)

    def finish(b: Builder, total: Value) -> Value:
        scaled = total if scale == 1 else b.multiply(total, b.like(scale, total))
        if not bias.any():
            return scaled
        if len(bias) == 1:
            return b.add(scaled, b.like(float(bias[0]), total))
        return b.add(scaled, b.apply("constant", (), {"value": Constant(bias)})[0])

    tables = write_levels(levels, features, len(bias))
    given = features if columns is None else columns.numerical
    return TreeModel(ensemble, given, F32, finish, _LINKS.get(loss, links.identity), tables, columns=columns)


def oblivious_tree(splits: Sequence[Split], values: Numbers, width: int, tree: int) -> Tree:
    """Returns a tree with one split for each level; split `i` selects bit `i` of the leaf."""
    depth = len(splits)
    if depth > _DEEPEST_OBLIVIOUS:
        raise tree_error(f"it has {depth} levels, and {_DEEPEST_OBLIVIOUS} are supported", tree)
    if len(values) != width << depth:
        raise tree_error(f"it has {len(values)} values of leaves, expected {width << depth}", tree)
    # The root decides the highest bit. Nodes are numbered level by level: the children of `n` are 2 n + 1 and 2 n + 2.
    nodes = (1 << depth) - 1
    order = [splits[depth - 1 - level] for level in range(depth) for _ in range(1 << level)]
    children = 2 * np.arange(nodes)[:, None] + [1, 2]
    children = np.where(children < nodes, children, nodes - 1 - children)
    return Tree(
        np.asarray([s.feature for s in order], np.int64),
        np.asarray([s.border for s in order], np.float64),
        children[:, 0],
        children[:, 1],
        np.asarray([flags_of(s) for s in order], np.int64),
        values.reshape(-1, width),
    )


def _scale_and_bias(pair: Sequence[Any]) -> tuple[float, Numbers]:
    if len(pair) != 2:
        raise tree_error("`scale_and_bias` is not a pair")
    bias = pair[1] if isinstance(pair[1], list) else [pair[1]]
    return number(pair[0], "scale"), np.asarray([number(x, "bias") for x in bias or [0.0]])


class _Nested:
    """Reads a tree whose records contain the records of their children."""

    def __init__(self, split_of: Any, tree: int, width: int) -> None:
        self.split_of, self.tree, self.width = split_of, tree, width
        self.splits: list[Split] = []
        self.children: list[list[int]] = []
        self.values: list[list[float]] = []

    def read(self, record: Any) -> Tree:
        pending: list[tuple[Any, int, int]] = [(record, -1, 0)]
        while pending:
            node, parent, side = pending.pop()
            if isinstance(node, Mapping) and "split" in node:
                index = len(self.splits)
                self.splits.append(self.split_of(node["split"], self.tree))
                self.children.append([0, 0])
                pending += [(field(node, name, tree=self.tree), index, i) for i, name in enumerate(("left", "right"))]
            else:
                index = -1 - len(self.values)
                value = field(node, "value", tree=self.tree)
                listed = value if isinstance(value, list) else [value]
                if len(listed) != self.width:
                    raise tree_error(f"a leaf has {len(listed)} values, expected {self.width}", self.tree)
                self.values.append([number(x, "value", self.tree) for x in listed])
            if parent >= 0:
                self.children[parent][side] = index
        children = np.asarray(self.children, np.int64).reshape(-1, 2)
        return Tree(
            np.asarray([s.feature for s in self.splits], np.int64),
            np.asarray([s.border for s in self.splits], np.float64),
            children[:, 0],
            children[:, 1],
            np.asarray([flags_of(s) for s in self.splits], np.int64),
            np.asarray(self.values, np.float64).reshape(-1, self.width),
        )
