"""The features and splits of a CatBoost model in JSON: numerical ones, one-hot splits and target statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .categories import PASSED, Columns, Projection, Statistic, Table
from .fields import field, integer, mapping, number, optional_mapping, optional_sequence, records, sequence
from .levels import Split
from .tree import tree_error

_TO_RIGHT, _TREATMENTS = "AsTrue", ("AsIs", "AsFalse", "AsTrue")
_NO_HASH = (1 << 64) - 1
"""Marks an unused row of a table."""


class Splits:
    """The splits of a model by their records. `columns` is None for a model with numerical features only; its columns
    are the features of the training pool. Otherwise, numerical and categorical features are numbered separately."""

    def __init__(self, record: Any, file: str) -> None:
        info = mapping(record, "features_info")
        for name in ("text_features", "embedding_features"):
            if info.get(name):
                raise tree_error(
                    f"`{file}` has {name.replace('_', ' ')}, which are not supported", code="unsupported-trees"
                )
        described, categories = records(info, "float_features"), records(info, "categorical_features")
        index_field = "feature_index" if categories else "flat_feature_index"
        self.column_of = {integer(f, "feature_index"): integer(f, index_field) for f in described}
        self.treatments = {integer(f, "feature_index"): str(f.get("nan_value_treatment", "AsIs")) for f in described}
        for treatment in self.treatments.values():
            if treatment not in _TREATMENTS:
                raise tree_error(f"`nan_value_treatment` is `{treatment}`, which is unknown")
        if min(self.column_of.values(), default=0) < 0:
            raise tree_error(f"the column of a feature is {min(self.column_of.values())}")
        self.numerical = max(self.column_of.values(), default=-1) + 1
        self.one_hot: dict[tuple[int, int], int] = {}
        for feature in categories:
            for value in optional_sequence(feature, "values"):
                key = integer(feature, "feature_index"), _as_hash(value)
                self.one_hot.setdefault(key, self.numerical + len(self.one_hot))
        self.statistics: list[Statistic] = []
        self.by_index: dict[int, int] = {}
        self._read_statistics(info, described, categories)
        self.columns = None
        if categories:
            named = optional_mapping(record, "ctr_data")
            tables = {name: _read_table(table, name) for name, table in named.items()}
            count = max(integer(f, "feature_index") for f in categories) + 1
            self.columns = Columns(self.numerical, count, tuple(self.one_hot), self.statistics, tables)

    def count(self) -> int:
        return self.numerical if self.columns is None else self.columns.count()

    def read(self, split: Any, tree: int | None = None) -> Split:
        """Returns a split of a tree, or of a combination."""
        kind = field(split, "split_type", tree=tree)
        if kind == "FloatFeature":
            return self._read_numerical(split, tree)
        if kind == "OneHotFeature":
            key = integer(split, "cat_feature_index", tree=tree), _as_hash(field(split, "value", tree=tree), tree)
            if key not in self.one_hot:
                raise tree_error(f"a split refers to category {key[1]} of feature {key[0]}, which is not known", tree)
            return Split(self.one_hot[key], PASSED, False)
        if kind == "OnlineCtr":
            # The record has the number of the split among those of all features.
            index = integer(split, "split_index", tree=tree)
            if index not in self.by_index:
                raise tree_error(f"a split refers to the statistic of split {index}, which is not described", tree)
            return Split(self.by_index[index], number(field(split, "border"), "border", tree), False)
        raise tree_error(f"it has a split of the type `{kind}`, which is not supported", tree, code="unsupported-trees")

    def _read_numerical(self, split: Any, tree: int | None) -> Split:
        index = integer(split, "float_feature_index", tree=tree)
        if index not in self.column_of:
            raise tree_error(f"a split refers to feature {index}, which is not described", tree)
        border = number(field(split, "border", tree=tree), "border", tree)
        return Split(self.column_of[index], border, self.treatments[index] == _TO_RIGHT)

    def _read_statistics(self, info: Any, described: Sequence[Any], categories: Sequence[Any]) -> None:
        index = sum(len(optional_sequence(f, "borders")) for f in described)
        index += sum(len(optional_sequence(f, "values")) for f in categories)
        for record in records(info, "ctrs"):
            column = self.numerical + len(self.one_hot) + len(self.statistics)
            self.statistics.append(self._read_statistic(record))
            for _ in sequence(record, "borders"):
                self.by_index[index] = column
                index += 1

    def _read_statistic(self, record: Any) -> Statistic:
        categories, splits, pairs = [], [], []
        for element in sequence(record, "elements"):
            kind = field(element, "combination_element")
            if kind == "cat_feature_value":
                categories.append(integer(element, "cat_feature_index"))
            elif kind == "cat_feature_exact_value":
                pairs.append((integer(element, "cat_feature_index"), _as_hash(field(element, "value"))))
            elif kind == "float_feature":
                splits.append(self._read_numerical(element, None))
            else:
                raise tree_error(f"a statistic of `{kind}` is not supported", code="unsupported-trees")
        projection = Projection(tuple(categories), tuple(splits), tuple(pairs))
        if not (categories or splits or pairs):
            raise tree_error("a statistic has no elements")
        # The name of the denominator is spelled so in the format.
        values = [
            number(field(record, name), name) for name in ("prior_numerator", "prior_denomerator", "shift", "scale")
        ]
        kind, key = str(field(record, "ctr_type")), str(field(record, "identifier"))
        return Statistic(
            projection, kind, key, integer({"target_border_idx": 0, **record}, "target_border_idx"), *values
        )


def _as_hash(value: Any, tree: int | None = None) -> int:
    """Returns a hash as a signed number of 32 bits."""
    unsigned = integer({"value": value}, "value", tree=tree) & 0xFFFFFFFF
    return unsigned - (1 << 32) if unsigned >> 31 else unsigned


def _read_table(record: Any, name: str) -> Table:
    if not isinstance(record, Mapping):
        raise tree_error(f"the table of the statistic {name} is not a record")
    stride, flat = integer(record, "hash_stride"), sequence(record, "hash_map")
    if stride < 2 or len(flat) % stride:
        raise tree_error(f"the table of the statistic {name} has {len(flat)} numbers in rows of {stride}")
    hashes = np.asarray([integer({"hash": value}, "hash") & _NO_HASH for value in flat[::stride]], np.uint64)
    try:
        counts = np.asarray([value for i, value in enumerate(flat) if i % stride], np.float64).reshape(-1, stride - 1)
    except (TypeError, ValueError):
        raise tree_error(f"the table of the statistic {name} has a count that is not a number") from None
    used = hashes != np.uint64(_NO_HASH)
    return Table(hashes[used].view(np.int64), counts[used], integer(record, "counter_denominator"))
