"""Reads a LightGBM model file (`.txt`): numerical and categorical splits, missing values, random forests, linear
leaves.

Features and sums are f64, as in LightGBM, and a sum adds the trees in the order of the file, so `raw` is bitwise equal
to `Booster.predict(raw_score=True)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from .linear import Models, join_models
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
    parts = [_Section(_fields(section), number) for number, section in enumerate(sections)]
    trees = [part.read_tree() for part in parts]
    if len(trees) % outputs:
        raise tree_error(f"`{file}` has {len(trees)} trees, not a multiple of {outputs} trees per iteration")
    groups = [number % outputs for number in range(len(trees))]
    initial = np.zeros((outputs, 1))
    ensemble = assemble(trees, groups, initial, features=features, compare="le", dtype=np.float64)
    models = [part.read_models() for part in parts]
    is_linear = any(model is not None for model in models)
    linear = join_models(ensemble, models, groups, features) if is_linear else None
    link = _find_link(fields.get("objective", ""))
    if "average_output" in head.split("\n") and trees:
        link = links.of_mean(len(trees) // outputs, link)
    return TreeModel(ensemble, features, F64, links.identity, link, linear=linear)


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


@dataclass(frozen=True, slots=True)
class _Section:
    """The fields of a tree."""

    fields: Fields
    number: int

    def read_tree(self) -> Tree:
        number, leaves = self.number, self._count_leaves()
        nodes = leaves - 1
        feature, threshold = self.numbers("split_feature", nodes, int), self.numbers("threshold", nodes, float)
        left, right = self.numbers("left_child", nodes, int), self.numbers("right_child", nodes, int)
        decisions, values = self.numbers("decision_type", nodes, int), self.numbers("leaf_value", leaves, float)
        missing = decisions >> 2 & 3
        if (missing > 2).any():
            node = int(np.flatnonzero(missing > 2)[0])
            raise tree_error(f"the decision type {decisions[node]} is unknown", number, node)
        flags = np.asarray([_MISSING[int(m)] for m in missing], np.int64)
        flags |= np.where(decisions & 2 != 0, DEFAULT_LEFT, 0)
        # A missing category is in no set.
        flags = np.where(decisions & 1 != 0, CATEGORICAL | NAN_IS_MISSING, flags)
        return Tree(feature, threshold, left, right, flags, values.reshape(-1, 1), self._read_sets())

    def read_models(self) -> Models | None:
        """Returns the linear models of the leaves; None for constant leaves."""
        if self.fields.get("is_linear", "0") == "0":
            return None
        leaves = self._count_leaves()
        constants, counts = self.numbers("leaf_const", leaves, float), self.numbers("num_features", leaves, int)
        if (counts < 0).any():
            raise tree_error("`num_features` holds a number below 0", self.number)
        total, ends = int(counts.sum()), np.cumsum(counts)[:-1]
        features, weights = self.numbers("leaf_features", total, int), self.numbers("leaf_coeff", total, float)
        return Models(constants, np.split(features, ends), np.split(weights, ends))

    def numbers(self, name: str, count: int, dtype: type) -> Numbers:
        """Returns the numbers of a field, which are parsed one by one, exactly."""
        if name not in self.fields and count:
            raise tree_error(f"`{name}` is missing", self.number)
        words = self.fields.get(name, "").split()
        if len(words) != count:
            raise tree_error(f"`{name}` has {len(words)} numbers, expected {count}", self.number)
        try:
            return np.asarray([dtype(word) for word in words], np.float64 if dtype is float else np.int64)
        except (ValueError, OverflowError):
            raise tree_error(f"`{name}` holds a word that is not a number", self.number) from None

    def _count_leaves(self) -> int:
        leaves = _integer(self.fields, "num_leaves", self.number)
        if leaves < 1:
            raise tree_error(f"the tree has {leaves} leaves", self.number)
        return leaves

    def _read_sets(self) -> list[Numbers]:
        count = _integer(self.fields, "num_cat", self.number) if "num_cat" in self.fields else 0
        if not count:
            return []
        bounds = self.numbers("cat_boundaries", count + 1, int)
        if bounds[0] != 0 or (np.diff(bounds) < 0).any():
            raise tree_error("`cat_boundaries` does not rise from 0", self.number)
        words = self.numbers("cat_threshold", int(bounds[-1]), int)
        if ((words < 0) | (words >> 32 > 0)).any():
            raise tree_error("`cat_threshold` holds a word of more than 32 bits", self.number)
        return [words[a:b].astype(np.uint32) for a, b in pairwise(bounds)]
