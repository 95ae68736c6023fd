"""Categorical features of CatBoost as further numerical columns: one for each one-hot split, and one for each target
statistic (CTR).

A category arrives as the hash of its text. A statistic belongs to a combination of categories and of splits, which is
hashed in turn; its table has the counts of the training rows for each hash:

    hash = 0;   hash = M (hash + M part)   for each category, then for each split, as 64-bit integers
    statistic = ((good + prior) / (total + weight) + shift) scale,   good = total = 0 if the hash is not in the table

All statistics of a table are computed when the model is read, so a call looks up a hash and gathers a row of f32.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from ....dialect.graph import Constant, Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.operator import Builder
from ....dialect.types import F32, I64
from .levels import Split
from .tree import Numbers, tree_error

MULTIPLIER = 0x4906BA494954CB65
KINDS = ("Borders", "Buckets", "BinarizedTargetMeanValue", "FloatTargetMeanValue", "Counter", "FeatureFreq")
_CLASSES, _MEANS = KINDS[:2], KINDS[2:4]
PASSED = 0.5
"""The border of a one-hot column, which is 0 or 1."""
WriteTable = Callable[[str, Numbers], Value]


@dataclass(frozen=True, slots=True)
class Projection:
    """A combination: categorical features, splits of numerical ones, and pairs of a categorical feature and a hash."""

    categories: tuple[int, ...]
    splits: tuple[Split, ...]
    one_hot: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """The counts [hashes, count] of each hash; a hash is an i64 with the bits of CatBoost's number."""

    hashes: Numbers
    counts: Numbers
    denominator: int


@dataclass(frozen=True, slots=True)
class Statistic:
    projection: Projection
    kind: str
    table: Hashable
    target: int
    prior: float
    weight: float
    shift: float
    scale: float


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a model: `numerical` features, then `one_hot` pairs, then `statistics`."""

    numerical: int
    categorical: int
    one_hot: Sequence[tuple[int, int]]
    statistics: Sequence[Statistic]
    tables: Mapping[Hashable, Table]

    def __post_init__(self) -> None:
        pairs = [*self.one_hot, *(pair for s in self.statistics for pair in s.projection.one_hot)]
        used = [feature for feature, _ in pairs] + [c for s in self.statistics for c in s.projection.categories]
        for category in used:
            if not 0 <= category < self.categorical:
                raise tree_error(f"a split refers to categorical feature {category} of {self.categorical}")
        for statistic in self.statistics:
            if statistic.table not in self.tables:
                raise tree_error(f"the table of the statistic {statistic.table} is missing")

    def count(self) -> int:
        return self.numerical + len(self.one_hot) + len(self.statistics)

    def write(self, b: Builder, features: Value, categories: Value, table: WriteTable) -> Value:
        """Writes all columns [B, count] of features [B, numerical] and hashes of categories i32[B, categorical]."""
        parts = [features]
        if self.one_hot:
            chosen = b.gather(categories, _constant(b, [f for f, _ in self.one_hot], np.int64), axis=1, mode="clamp")
            known = table("categories.one_hot", np.asarray([h for _, h in self.one_hot], np.int32))
            parts.append(b.cast(b.equal(chosen, known), dtype=F32))
        order: list[int] = []
        for number, key in enumerate(dict.fromkeys(s.table for s in self.statistics)):
            members = [i for i, s in enumerate(self.statistics) if s.table == key]
            order += members
            statistics = [self.statistics[i] for i in members]
            position = self._find(b, statistics[0].projection, self.tables[key], features, categories, table, number)
            values = np.stack([_values_of(s, self.tables[key]) for s in statistics], 1)
            parts.append(b.gather(table(f"categories.{number}.values", values), position, axis=0, mode="clamp"))
        whole = b.concat(*parts, axis=1)
        if order == sorted(order):
            return whole
        first = self.numerical + len(self.one_hot)
        index = [*range(first), *(first + i for i in np.argsort(order).tolist())]
        return b.gather(whole, _constant(b, index, np.int64), axis=1, mode="clamp")

    def _find(
        self,
        b: Builder,
        projection: Projection,
        stored: Table,
        features: Value,
        categories: Value,
        table: WriteTable,
        number: int,
    ) -> Value:
        """Returns the row of each hash in the table [B], or the row after the last."""
        parts = [b.cast(_column(b, categories, category), dtype=I64) for category in projection.categories]
        for split in projection.splits:
            x = _column(b, features, split.feature)
            above = b.greater(x, b.like(split.border, x))
            parts.append(b.cast(b.logical_or(above, b.isnan(x)) if split.nan_right else above, dtype=I64))
        for feature, value in projection.one_hot:
            x = _column(b, categories, feature)
            parts.append(b.cast(b.equal(x, b.like(value, x)), dtype=I64))
        factor = b.scalar(MULTIPLIER, I64)
        found: Value | None = None
        for part in parts:
            product = b.multiply(part, factor)
            found = b.multiply(product if found is None else b.add(found, product), factor)
        assert found is not None, projection
        count = len(stored.hashes)
        # One more element for a table without hashes; rows that are found are before it.
        hashes = table(f"categories.{number}.hashes", np.append(np.sort(stored.hashes), np.iinfo(np.int64).max))
        position = b.searchsorted(hashes, found)
        known = b.logical_and(
            b.equal(b.gather(hashes, position, axis=0, mode="clamp"), found), b.less(position, b.like(count, position))
        )
        return b.where(known, position, b.like(count, position))


def _constant(b: Builder, values: Sequence[int], dtype: type) -> Value:
    return b.apply("constant", (), {"value": Constant(np.asarray(values, dtype))})[0]


def _column(b: Builder, x: Value, column: int) -> Value:
    return b.reshape(b.slice(x, starts=(None, column), stops=(None, column + 1)), shape=x.type.shape[:1])


def _values_of(statistic: Statistic, table: Table) -> Numbers:
    """Returns the statistic f32 of each hash of a table in ascending order, and of other hashes. It is rounded after
    each step, as in CatBoost."""
    counts = table.counts[np.argsort(table.hashes, kind="stable")]
    target, classes, kind = statistic.target, counts.shape[1], statistic.kind
    least = 2 if kind in _CLASSES or kind in _MEANS else 1
    if classes < least or not 0 <= target < max(classes - (kind == "Borders"), 1):
        raise tree_error(f"a statistic of the type `{kind}` reads class {target} of {classes}")
    good, total = np.append(counts[:, 0], 0), np.full(len(counts) + 1, table.denominator, np.float64)
    if kind == "Borders":
        good = np.append(counts[:, target + 1 :].sum(1), 0)
    elif kind == "Buckets":
        good = np.append(counts[:, target], 0)
    if kind in _CLASSES:
        total = np.append(counts.sum(1), 0)
    elif kind in _MEANS:
        total = np.append(counts[:, 1], 0)
    f32 = np.float32
    with np.errstate(all="ignore"):
        ratio = (good.astype(f32) + f32(statistic.prior)) / (total.astype(f32) + f32(statistic.weight))
        return np.asarray((ratio + f32(statistic.shift)) * f32(statistic.scale), np.float32)
