"""Reads an XGBoost model: `.ubj`, or JSON. The supported boosters are `gbtree` and `dart`; linear boosters are refused.

Features and sums are f32. A sum begins with the base score and adds the trees in the order of the file, so `raw` is
bitwise equal to `Booster.predict(output_margin=True)`. NaN is a missing feature. A leaf may have a value for each
output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....dialect.ops.support.trees import CATEGORICAL, DEFAULT_LEFT, FLOOR, NAN_IS_MISSING, WORD
from ....dialect.types import F32
from ...model.source import SourceModel, WeightSource
from . import links
from .ensemble import assemble
from .fields import field, integer, mapping, number, numbers, read_bytes, sequence
from .graph import TreeModel, write_model
from .tree import Numbers, Tree, tree_error
from .ubjson import UbjsonError, parse_ubjson

_NEWEST = 3
_MOST_CATEGORIES = 1 << 24


def _same(x: float) -> float:
    return x


def _logit(x: float) -> float:
    if not 0 < x < 1:
        raise tree_error(f"the base score {x} is not between 0 and 1")
    # The quotient is rounded to f32, as in XGBoost.
    return -math.log(float(np.float32(1) / np.float32(x) - np.float32(1)))


def _log(x: float) -> float:
    if x <= 0:
        raise tree_error(f"the base score {x} is not positive")
    return math.log(x)


_Objective = tuple[links.Link, Callable[[float], float]]
"""The link function of an objective, and the function from the base score to the initial value of the sums."""
_IDENTITY = (
    "reg:squarederror", "reg:linear", "reg:absoluteerror", "reg:quantileerror", "reg:expectileerror",
    "reg:pseudohubererror", "reg:squaredlogerror", "rank:pairwise", "rank:ndcg", "rank:map",
)  # fmt: skip
_OBJECTIVES: Mapping[str, _Objective] = {
    **dict.fromkeys(_IDENTITY, (links.identity, _same)),
    **dict.fromkeys(("binary:logistic", "reg:logistic"), (links.sigmoid, _logit)),
    # The base score of this objective is a margin already.
    "binary:logitraw": (links.identity, _same),
    "binary:hinge": (links.is_positive, _same),
    **dict.fromkeys(
        ("count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft"), (links.exponential, _log)
    ),
    "multi:softprob": (links.softmax, _same),
    "multi:softmax": (links.argmax, _same),
}


def read_ubjson_file(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Reads a model of a UBJSON file. Raises DiagnosticError."""
    try:
        record = parse_ubjson(read_bytes(path))
    except UbjsonError as error:
        raise tree_error(f"`{path}` is not UBJSON: {error}") from error
    return write_model(read_record(record, str(path)), str(path), weights, {})


def read_record(record: Any, file: str) -> TreeModel:
    """Reads a parsed model. Raises DiagnosticError."""
    version = sequence(record, "version")
    if not len(version) or number(version[0], "version") > _NEWEST:
        shown = ".".join(str(int(v)) for v in version)
        message = f"`{file}` is written by XGBoost {shown}; versions up to {_NEWEST} are supported"
        raise tree_error(message, code="unsupported-version")
    learner = field(record, "learner")
    name = str(field(learner, "objective", "name"))
    if name not in _OBJECTIVES:
        raise tree_error(f"the objective `{name}` is not supported", code="unsupported-objective")
    link, to_start = _OBJECTIVES[name]
    booster = field(learner, "gradient_booster")
    kind = str(field(booster, "name"))
    if kind not in ("gbtree", "dart"):
        raise tree_error(f"the booster `{kind}` is not one of trees", code="unsupported-trees")
    model = field(booster, "gbtree", "model") if kind == "dart" else field(booster, "model")
    records = sequence(model, "trees")
    scales = numbers(booster, "weight_drop", np.float32, len(records)) if kind == "dart" else None
    parameters = mapping(learner, "learner_model_param")
    features = integer(parameters, "num_feature")
    outputs = max(1, integer(parameters, "num_class"), integer({"num_target": 1, **parameters}, "num_target"))
    groups = [int(group) for group in numbers(model, "tree_info", np.int64, len(records))]
    trees = [_read_tree(tree, i, None if scales is None else scales[i]) for i, tree in enumerate(records)]
    starts = [to_start(score) for score in _base_scores(parameters, outputs)]
    has_vectors = any(tree.values.shape[1] > 1 for tree in trees)
    initial = np.asarray(starts, np.float32).reshape((1, outputs) if has_vectors else (outputs, 1))
    ensemble = assemble(trees, groups, initial, features=features, compare="lt", dtype=np.float32)
    return TreeModel(ensemble, features, F32, links.identity, link)


def _base_scores(parameters: Any, outputs: int) -> list[float]:
    """Returns the base score of each output: a number, or a list in brackets, in text."""
    text = str(field(parameters, "base_score")).strip("[] ")
    scores = [float(np.float32(number(word, "base_score"))) for word in text.split(",")]
    if len(scores) not in (1, outputs):
        raise tree_error(f"`base_score` has {len(scores)} numbers, and the model has {outputs} outputs")
    return scores * outputs if len(scores) == 1 else scores


def _read_tree(record: Any, tree: int, scale: Any) -> Tree:
    width = integer({"size_leaf_vector": 1, **mapping(record, "tree_param", tree=tree)}, "size_leaf_vector", tree=tree)
    count = integer(record, "tree_param", "num_nodes", tree=tree)
    left = numbers(record, "left_children", np.int64, count, tree)
    right = numbers(record, "right_children", np.int64, count, tree)
    feature = numbers(record, "split_indices", np.int64, count, tree)
    condition = numbers(record, "split_conditions", np.float32, count, tree)
    to_left = numbers(record, "default_left", np.int64, count, tree) != 0
    is_leaf = left == -1
    inner, leaves = np.flatnonzero(~is_leaf), np.flatnonzero(is_leaf)
    index = np.zeros(count, np.int64)
    index[inner], index[leaves] = np.arange(len(inner)), -1 - np.arange(len(leaves))
    for side in (left, right):
        wrong = inner[(side[inner] < 0) | (side[inner] >= count)]
        if len(wrong):
            raise tree_error(f"it refers to node {side[wrong[0]]} of {count}", tree, int(wrong[0]))
    if not count or (is_leaf[0] and len(inner)):
        raise tree_error("its root has no children, and the tree has other nodes", tree)
    values = _read_vectors(record, width, leaves, right, tree) if width > 1 else condition[leaves].reshape(-1, 1)
    values = values if scale is None else (values * scale).astype(np.float32)
    flags = np.where(to_left, DEFAULT_LEFT, 0) | NAN_IS_MISSING
    threshold = condition.astype(np.float64)
    sets = _read_sets(record, count, tree)
    for set_number, node in enumerate(sets):
        # Categories of the set go to the right in the file, so the children are exchanged, and the default direction
        # with them.
        left[node], right[node] = right[node], left[node]
        flags[node] = (flags[node] ^ DEFAULT_LEFT) | CATEGORICAL | FLOOR
        threshold[node] = set_number
    return Tree(
        feature[inner],
        threshold[inner],
        index[left[inner]],
        index[right[inner]],
        flags[inner],
        values,
        list(sets.values()),
        [int(node) for node in inner],
    )


def _read_vectors(record: Any, width: int, leaves: Numbers, right: Numbers, tree: int) -> Numbers:
    """Returns the vectors of the leaves. In files of XGBoost 3.1 and newer, they are rows of a table, and the right
    child of a leaf is its row. Older files store a vector for each node."""
    name = "leaf_weights" if "leaf_weights" in record else "base_weights"
    stored = numbers(record, name, np.float32, tree=tree)
    rows = right[leaves] if name == "leaf_weights" else leaves
    if len(stored) % width:
        raise tree_error(f"`{name}` has {len(stored)} elements, not a multiple of {width}", tree)
    table = stored.reshape(-1, width)
    wrong = (rows < 0) | (rows >= len(table))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise tree_error(f"it refers to vector {rows[at]} of {len(table)}", tree, int(leaves[at]))
    return np.asarray(table[rows])


def _read_sets(record: Any, count: int, tree: int) -> dict[int, Numbers]:
    """Returns the sets of categories as bit sets in words, by node."""
    if "categories_nodes" not in record:
        return {}
    nodes = numbers(record, "categories_nodes", np.int64, tree=tree)
    starts = numbers(record, "categories_segments", np.int64, len(nodes), tree)
    sizes = numbers(record, "categories_sizes", np.int64, len(nodes), tree)
    categories = numbers(record, "categories", np.int64, tree=tree)
    found = {}
    for node, start, size in zip(nodes.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        if not 0 <= node < count:
            raise tree_error(f"`categories_nodes` refers to node {node} of {count}", tree)
        if start < 0 or size < 0 or start + size > len(categories):
            raise tree_error(f"its categories are {start} to {start + size} of {len(categories)}", tree, node)
        members = categories[start : start + size]
        if len(members) and not 0 <= members.min() <= members.max() < _MOST_CATEGORIES:
            raise tree_error(f"its categories are not between 0 and {_MOST_CATEGORIES}", tree, node)
        found[node] = _words(members.tolist())
    return found


def _words(members: Sequence[int]) -> Numbers:
    words = np.zeros(max(members, default=-1) // WORD + 1, np.uint32)
    for member in members:
        words[member // WORD] |= np.uint32(1 << member % WORD)
    return words
