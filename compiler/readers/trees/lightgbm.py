"""Reads a LightGBM model file (`.txt`): numerical and categorical splits, missing values, random forests.

Features and sums are f64, as in LightGBM, and a sum adds trees in the order of the file, so `raw` has the same bits as
`Booster.predict(raw_score=True)`. Leaves that are linear models are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.ops.support.trees import CATEGORICAL, DEFAULT_LEFT, NAN_IS_MISSING, ZERO_IS_MISSING
from ....dialect.types import F64
from ...model.source import SourceModel, WeightSource
from . import links
from .ensemble import assemble
from .graph import TreeModel, write_model
from .tree import Numbers, Tree, tree_error

_VERSIONS = ("v2", "v3", "v4")
_IDENTITY = (
    "regression", "regression_l2", "l2", "mean_squared_error", "mse", "rmse", "regression_l1", "l1", "mae", "huber",
    "fair", "quantile", "mape", "lambdarank", "rank_xendcg", "custom", "none",
)  # fmt: skip
_LINKS: Mapping[str, links.Link] = {
    **dict.fromkeys(_IDENTITY, links.identity),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), links.exponential),
    "multiclass": links.softmax,
    "cross_entropy": links.sigmoid,
    "cross_entropy_lambda": links.softplus,
}
_MISSING = {0: 0, 1: ZERO_IS_MISSING, 2: NAN_IS_MISSING}
Fields = Mapping[str, str]


def read_text_file(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Reads a model of a LightGBM text file. Raises DiagnosticError."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        message = f"`{path}` cannot be read: {error.strerror or error}"
        raise DiagnosticError([Diagnostic("missing-file", message)]) from error
    except UnicodeDecodeError as error:
        raise tree_error(f"`{path}` is not the text of a LightGBM model") from error
    return write_model(read_text(text, str(path)), str(path), weights, {})


def read_text(text: str, file: str) -> TreeModel:
    """Reads the text of a model. Raises DiagnosticError."""
    text = text.replace("\r\n", "\n")
    head, *sections = text.partition("\nend of trees")[0].split("\nTree=")
    if head.split("\n", 1)[0].strip() != "tree":
        raise tree_error(f"`{file}` is not a LightGBM model: its first line is not `tree`")
    if "\nend of trees" not in text:
        raise tree_error(f"`{file}` ends before its line `end of trees`")
    fields = _fields(head)
    version = fields.get("version", "")
    if version not in _VERSIONS:
        message = f"`{file}` has the version `{version}`; {', '.join(_VERSIONS)} are supported"
        raise tree_error(message, code="unsupported-version")
    features = _integer(fields, "max_feature_idx") + 1
    outputs = _integer(fields, "num_tree_per_iteration")
    if features < 1 or outputs < 1:
        raise tree_error(f"`{file}` has {features} features and {outputs} trees per iteration")
    _check_count(fields, len(sections), file)
    trees = [_read_tree(section, number) for number, section in enumerate(sections)]
    if len(trees) % outputs:
        raise tree_error(f"`{file}` has {len(trees)} trees, not a multiple of {outputs} trees per iteration")
    groups = [number % outputs for number in range(len(trees))]
    initial = np.zeros((outputs, 1))
    ensemble = assemble(trees, groups, initial, features=features, compare="le", dtype=np.float64)
    link = _find_link(fields.get("objective", ""))
    if "average_output" in head.split("\n") and trees:
        link = links.of_mean(len(trees) // outputs, link)
    return TreeModel(ensemble, features, F64, links.identity, link)


def _check_count(fields: Fields, found: int, file: str) -> None:
    if "tree_sizes" in fields and len(fields["tree_sizes"].split()) != found:
        message = f"`{file}` declares {len(fields['tree_sizes'].split())} trees and has {found}"
        raise tree_error(message)


def _find_link(objective: str) -> links.Link:
    name, *words = objective.split() or ["none"]
    options = dict(word.partition(":")[::2] for word in words)
    if name in ("binary", "multiclassova"):
        try:
            return links.scaled_sigmoid(float(options.get("sigmoid", "1")))
        except ValueError:
            raise tree_error(f"the objective `{objective}` has a sigmoid that is not a number") from None
    if name not in _LINKS:
        raise tree_error(f"the objective `{name}` is not supported", code="unsupported-objective")
    return links.signed_square if "sqrt" in options else _LINKS[name]


def _fields(text: str) -> Fields:
    pairs = (line.partition("=") for line in text.split("\n"))
    return {name.strip(): value.strip() for name, sign, value in pairs if sign}


def _integer(fields: Fields, name: str, tree: int | None = None) -> int:
    try:
        return int(fields[name])
    except KeyError:
        raise tree_error(f"`{name}` is missing", tree) from None
    except ValueError:
        raise tree_error(f"`{name}` is `{fields[name][:40]}`, not an integer", tree) from None


def _read_tree(section: str, number: int) -> Tree:
    fields = _fields(section)
    leaves = _integer(fields, "num_leaves", number)
    if leaves < 1:
        raise tree_error(f"the tree has {leaves} leaves", number)
    if fields.get("is_linear", "0") != "0":
        raise tree_error("its leaves are linear models, which are not supported", number, code="unsupported-trees")
    nodes = leaves - 1

    def numbers(name: str, count: int, dtype: type) -> Numbers:
        if name not in fields and count:
            raise tree_error(f"`{name}` is missing", number)
        words = fields.get(name, "").split()
        if len(words) != count:
            raise tree_error(f"`{name}` has {len(words)} numbers, expected {count}", number)
        try:
            # The numbers are parsed one by one, exactly.
            return np.asarray([dtype(word) for word in words], np.float64 if dtype is float else np.int64)
        except (ValueError, OverflowError):
            raise tree_error(f"`{name}` holds a word that is not a number", number) from None

    feature, threshold = numbers("split_feature", nodes, int), numbers("threshold", nodes, float)
    left, right = numbers("left_child", nodes, int), numbers("right_child", nodes, int)
    decisions, values = numbers("decision_type", nodes, int), numbers("leaf_value", leaves, float)
    count = _integer(fields, "num_cat", number) if "num_cat" in fields else 0
    sets: list[Numbers] = []
    if count:
        bounds = numbers("cat_boundaries", count + 1, int)
        if bounds[0] != 0 or (np.diff(bounds) < 0).any():
            raise tree_error("`cat_boundaries` does not rise from 0", number)
        words = numbers("cat_threshold", int(bounds[-1]), int)
        if ((words < 0) | (words >> 32 > 0)).any():
            raise tree_error("`cat_threshold` holds a word of more than 32 bits", number)
        sets = [words[a:b].astype(np.uint32) for a, b in pairwise(bounds)]
    missing = decisions >> 2 & 3
    if (missing > 2).any():
        node = int(np.flatnonzero(missing > 2)[0])
        raise tree_error(f"the decision type {decisions[node]} is unknown", number, node)
    is_set = decisions & 1 != 0
    flags = np.asarray([_MISSING[int(m)] for m in missing], np.int64) | np.where(decisions & 2 != 0, DEFAULT_LEFT, 0)
    # A missing category is in no set.
    flags = np.where(is_set, CATEGORICAL | NAN_IS_MISSING, flags)
    return Tree(feature, threshold, left, right, flags, values.reshape(-1, 1), sets)
