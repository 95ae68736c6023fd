"""Trees of scikit-learn as `tree_ensemble`: single trees, forests, gradient boosting, histogram boosting, isolation
forests.

scikit-learn rounds features to f32 (except for histogram boosting) and compares them with thresholds in f64. A
threshold is rounded down to f32 here, which gives the same result for every number in f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....dialect.ops.support.trees import CATEGORICAL, DEFAULT_LEFT, NAN_IS_MISSING, TABLES
from ....dialect.types import F32
from ..trees.ensemble import Ensemble, assemble
from ..trees.tree import Tree, tree_error
from .linear import both, outlier_labels
from .writing import Methods, Numbers, Tensor, Writer, as_index, unsupported


def _round_down(thresholds: Numbers) -> Numbers:
    rounded = thresholds.astype(np.float32)
    above = rounded.astype(np.float64) > thresholds
    return np.where(above, np.nextafter(rounded, np.float32(-np.inf)), rounded).astype(np.float64)


def plain_tree(number: int, t: Any, values: Numbers, *, features: Any = None) -> Tree:
    """Returns a tree of scikit-learn with values [nodes, width] for its leaves. `number` is its position in the
    ensemble."""
    left, right = np.asarray(t.children_left), np.asarray(t.children_right)
    is_leaf = left == -1
    inner, leaves = np.flatnonzero(~is_leaf), np.flatnonzero(is_leaf)
    position = np.zeros(len(left), np.int64)
    position[inner], position[leaves] = np.arange(len(inner)), -1 - np.arange(len(leaves))
    for side in (left, right):
        _check_children(side, inner, number)
    to_left = np.asarray(t.missing_go_to_left)[inner] != 0
    feature = np.asarray(t.feature)[inner]
    return Tree(
        (np.asarray(features)[feature] if features is not None else feature).astype(np.int64),
        _round_down(np.asarray(t.threshold)[inner]),
        position[left[inner]],
        position[right[inner]],
        np.where(to_left, DEFAULT_LEFT, 0) | NAN_IS_MISSING,
        np.asarray(values, np.float64)[leaves],
        names=[int(n) for n in inner],
    )


def _check_children(side: Numbers, inner: Numbers, number: int) -> None:
    if (wrong := inner[(side[inner] < 0) | (side[inner] >= len(side))]).size:
        raise tree_error(f"it refers to node {side[wrong[0]]} of {len(side)}", number, int(wrong[0]))


def write_trees(w: Writer, x: Tensor, ensemble: Ensemble) -> Tensor:
    """Returns the sums [B, groups * width]."""
    tables = [w.const(table) for table in ensemble.tables.values()]
    total = w.apply("tree_ensemble", x, *tables, **ensemble.attributes)
    return total.reshape(shape=(x.shape[0], ensemble.tables["initial"].size))


def sum_trees(w: Writer, x: Tensor, trees: Sequence[Tree], groups: Sequence[int], initial: Numbers) -> Tensor:
    ensemble = assemble(trees, groups, initial, features=x.width(), compare="le", dtype=np.float32)
    return write_trees(w, x.cast(dtype=F32), ensemble)


_NEAR_ONE = 1e-9


def _estimators(e: Any) -> list[Any]:
    return list(np.asarray(e.estimators_, dtype=object).reshape(-1)) if hasattr(e, "estimators_") else [e]


def forest(w: Writer, e: Any, x: Tensor, *, classes: bool) -> Tensor:
    """Returns the mean of the values of the leaves over all trees, [B, width]."""
    parts, trees = _estimators(e), []
    for number, part in enumerate(parts):
        values = np.asarray(part.tree_.value)
        if values.shape[1] != 1 and classes:
            raise unsupported(e, "several outputs of classes are not supported")
        values = values.reshape(len(values), -1)
        trees.append(plain_tree(number, part.tree_, _fractions(values) if classes else values))
    total = sum_trees(w, x, trees, [0] * len(trees), np.zeros((1, trees[0].values.shape[1])))
    return total if len(parts) == 1 else total / float(len(parts))


def _fractions(values: Numbers) -> Numbers:
    """Returns the probabilities of classes [nodes, classes]. Trees hold them as they are since scikit-learn 1.3, and
    counts before."""
    sums = values.sum(1, keepdims=True)
    return values if (np.abs(sums - 1) < _NEAR_ONE).all() else values / sums


def forest_probabilities(w: Writer, e: Any, x: Tensor) -> Tensor:
    return forest(w, e, x, classes=True)


def forest_class(w: Writer, e: Any, x: Tensor) -> Tensor:
    return w.choose(e.classes_, forest(w, e, x, classes=True))


def forest_number(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = forest(w, e, x, classes=False)
    return found.reshape(shape=x.shape[:1]) if e.n_outputs_ == 1 else found


def leaf_indices(w: Writer, x: Tensor, trees: Sequence[Tree]) -> Tensor:
    """Returns the index of the leaf in each tree; indices count the leaves of all trees."""
    ensemble = assemble(trees, [0] * len(trees), np.zeros((1, 1)), features=x.width(), compare="le", dtype=np.float32)
    tables = [w.const(table) for table in list(ensemble.tables.values())[: len(TABLES)]]
    found = w.apply("tree_leaves", x.cast(dtype=F32), *tables, **ensemble.attributes)
    return found.reshape(shape=(x.shape[0], len(trees)))


def embed(w: Writer, e: Any, x: Tensor) -> Tensor:
    trees = [plain_tree(i, part.tree_, np.zeros((part.tree_.node_count, 1))) for i, part in enumerate(e.estimators_)]
    found = leaf_indices(w, x, trees)
    count = sum(len(tree.values) for tree in trees)
    every = w.const(np.arange(count, dtype=np.int32))
    return found.unsqueeze(axes=2).equal(every).any(axis=1).floats()


# Gradient boosting


_CONSTANT = {
    "DummyClassifier": ("prior", "most_frequent", "constant"),
    "DummyRegressor": ("mean", "median", "quantile", "constant"),
}
"""The strategies of first estimators that return the same for all rows; the others draw random numbers."""


def boosted(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Returns raw scores [B, outputs]."""
    outputs = e.estimators_.shape[1]
    parts = [t.tree_ for t in e.estimators_.reshape(-1)]
    trees = [plain_tree(i, t, t.value.reshape(-1, 1) * e.learning_rate) for i, t in enumerate(parts)]
    groups = [i % outputs for i in range(len(trees))]
    if isinstance(e.init_, str):
        start = np.zeros((outputs, 1))
    elif getattr(e.init_, "strategy", None) in _CONSTANT.get(type(e.init_).__name__, ()):
        start = np.asarray(e._raw_predict_init(np.zeros((1, x.width()), np.float32)), np.float64).reshape(outputs, 1)
    else:
        raise unsupported(e, "its first estimator is not a dummy that returns a constant")
    return sum_trees(w, x, trees, groups, start)


def boosted_decision(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = boosted(w, e, x)
    return found[0] if found.width() == 1 else found


def boosted_probabilities(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = boosted(w, e, x)
    if found.width() > 1:
        return found.softmax(axis=1)
    return both(w, (found[0] * 2.0 if getattr(e, "loss", "") == "exponential" else found[0]).sigmoid())


def boosted_class(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = boosted(w, e, x)
    return w.choose(e.classes_, found) if found.width() > 1 else w.labels(e.classes_, as_index(found[0] >= 0.0))


# Histogram boosting: features and thresholds in f64


def histogram_tree(number: int, predictor: Any) -> Tree:
    nodes = predictor.nodes
    is_leaf = nodes["is_leaf"].astype(bool)
    inner, leaves = np.flatnonzero(~is_leaf), np.flatnonzero(is_leaf)
    position = np.zeros(len(nodes), np.int64)
    position[inner], position[leaves] = np.arange(len(inner)), -1 - np.arange(len(leaves))
    sides = [nodes[name].astype(np.int64) for name in ("left", "right")]
    for side in sides:
        _check_children(side, inner, number)
    is_set = nodes["is_categorical"][inner].astype(bool)
    flags = np.where(nodes["missing_go_to_left"][inner] != 0, DEFAULT_LEFT, 0) | NAN_IS_MISSING
    threshold = np.where(is_set, 0.0, nodes["num_threshold"][inner].astype(np.float64))
    sets: list[Numbers] = []
    for i in np.flatnonzero(is_set):
        threshold[i] = len(sets)
        flags[i] |= CATEGORICAL
        sets.append(np.asarray(predictor.raw_left_cat_bitsets[nodes["bitset_idx"][inner[i]]], np.uint32))
    return Tree(
        nodes["feature_idx"][inner].astype(np.int64),
        threshold,
        position[sides[0][inner]],
        position[sides[1][inner]],
        flags.astype(np.int64),
        nodes["value"][leaves].reshape(-1, 1).astype(np.float64),
        sets,
        [int(n) for n in inner],
    )


def histogram(w: Writer, e: Any, x: Tensor) -> Tensor:
    if getattr(e, "_preprocessor", None) is not None and any(e.is_categorical_):
        raise unsupported(e, "its categories are encoded; give it numbers without `categorical_features`")
    predictors = [predictor for stage in e._predictors for predictor in stage]
    trees = [histogram_tree(i, predictor) for i, predictor in enumerate(predictors)]
    outputs = len(e._predictors[0]) if e._predictors else 1
    start = np.asarray(e._baseline_prediction, np.float64).reshape(-1, 1)
    groups = [i % outputs for i in range(len(trees))]
    ensemble = assemble(trees, groups, start, features=x.width(), compare="le", dtype=np.float64)
    return write_trees(w, x, ensemble)


def histogram_number(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = histogram(w, e, x)[0]
    return found.exp() if type(e._loss.link).__name__ == "LogLink" else found


def histogram_probabilities(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = histogram(w, e, x)
    return found.softmax(axis=1) if found.width() > 1 else both(w, found[0].sigmoid())


def histogram_class(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = histogram(w, e, x)
    return w.choose(e.classes_, found) if found.width() > 1 else w.labels(e.classes_, as_index(found[0] > 0.0))


def histogram_decision(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = histogram(w, e, x)
    return found if found.width() > 1 else found[0]


# Isolation


def path_length(samples: Numbers) -> Numbers:
    """Returns the mean path length of an unsuccessful search in a binary search tree of `samples` samples."""
    n = np.asarray(samples, np.float64)
    large = n > 2
    safe = np.where(large, n, 3.0)
    found = 2.0 * (np.log(safe - 1.0) + np.euler_gamma) - 2.0 * (safe - 1.0) / safe
    return np.where(large, found, np.where(n == 2, 1.0, 0.0))


def isolation(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Returns the negated anomaly score."""
    trees = []
    for number, (part, features) in enumerate(zip(e.estimators_, e.estimators_features_, strict=True)):
        t = part.tree_
        depth = np.zeros(t.node_count)
        for node in range(t.node_count):
            for child in (t.children_left[node], t.children_right[node]):
                if 0 <= child < t.node_count:  # a child outside of the tree is an error of `plain_tree`
                    depth[child] = depth[node] + 1
        values = depth + 1.0 + path_length(t.n_node_samples) - 1.0
        trees.append(plain_tree(number, t, values.reshape(-1, 1), features=features))
    total = sum_trees(w, x, trees, [0] * len(trees), np.zeros((1, 1)))[0]
    denominator = len(trees) * float(path_length(np.asarray([e._max_samples]))[0])
    if denominator == 0:
        return w.full(x, -0.5)
    return -((total * (-1.0 / denominator)).exp2())


_CLASSES: Methods = {"predict": forest_class, "predict_proba": forest_probabilities}
_NUMBERS: Methods = {"predict": forest_number}
TABLE: dict[str, Methods] = {
    **dict.fromkeys(
        ("DecisionTreeClassifier", "ExtraTreeClassifier", "RandomForestClassifier", "ExtraTreesClassifier"), _CLASSES
    ),
    **dict.fromkeys(
        ("DecisionTreeRegressor", "ExtraTreeRegressor", "RandomForestRegressor", "ExtraTreesRegressor"), _NUMBERS
    ),
    "RandomTreesEmbedding": {"transform": lambda w, e, x: embed(w, e, x)},
    "GradientBoostingRegressor": {"predict": boosted_decision},
    "GradientBoostingClassifier": {
        "predict": boosted_class,
        "predict_proba": boosted_probabilities,
        "decision_function": boosted_decision,
    },
    "HistGradientBoostingRegressor": {"predict": histogram_number},
    "HistGradientBoostingClassifier": {
        "predict": histogram_class,
        "predict_proba": histogram_probabilities,
        "decision_function": histogram_decision,
    },
    "IsolationForest": {
        "predict": lambda w, e, x: outlier_labels(w, isolation(w, e, x) - float(e.offset_)),
        "decision_function": lambda w, e, x: isolation(w, e, x) - float(e.offset_),
        "score_samples": isolation,
    },
}
