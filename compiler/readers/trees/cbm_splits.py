"""The features and splits of a `.cbm` file, in the order in which trees number splits: numerical features, one-hot
splits, target statistics. The tables of statistics follow the model: their number, and for each its bytes and a
FlatBuffer.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable

import numpy as np

from ..flatbuffer import Table, root
from .categories import KINDS, PASSED, Columns, Projection, Statistic
from .categories import Table as Statistics
from .levels import Split
from .tree import tree_error

_CATEGORICAL, _FLOATS, _ONE_HOT, _CTRS = 4, 5, 6, 7
_INDEX, _COLUMN, _BORDERS, _TREATMENT = 1, 2, 3, 5
_BUCKET = np.dtype([("hash", "<u8"), ("row", "<u4")])
_NO_HASH = np.uint64((1 << 64) - 1)
_MEANS = np.dtype([("sum", "<f4"), ("count", "<i4")])


class CbmSplits:
    """The splits, the number of columns that they read, and the columns if some are categorical."""

    def __init__(self, trees: Table, parts: bytes) -> None:
        categories = [feature.integer(0, default=-1) for feature in trees.tables(_CATEGORICAL)]
        self.columns: Columns | None = None
        self.splits: list[Split] = []
        self.numerical: dict[int, tuple[int, bool]] = {}
        for feature in trees.tables(_FLOATS):
            column = feature.integer(_INDEX if categories else _COLUMN, default=-1)
            if column < 0:
                raise tree_error(f"the column of a feature is {column}")
            to_right = feature.integer(_TREATMENT, "b") == 2
            self.numerical[feature.integer(_INDEX, default=-1)] = (column, to_right)
            self.splits += [Split(column, float(border), to_right) for border in feature.numbers(_BORDERS, "<f4")]
        self.count = max((column for column, _ in self.numerical.values()), default=-1) + 1
        if categories:
            self._read_categories(trees, max(categories) + 1, parts)

    def _read_categories(self, trees: Table, categorical: int, parts: bytes) -> None:
        first, one_hot, statistics = self.count, list[tuple[int, int]](), list[Statistic]()
        for feature in trees.tables(_ONE_HOT):
            for value in feature.numbers(1, "<i4").tolist():
                self.splits.append(Split(first + len(one_hot), PASSED, False))
                one_hot.append((feature.integer(0, default=-1), value))
        for feature in trees.tables(_CTRS):
            column = first + len(one_hot) + len(statistics)
            statistics.append(self._read_statistic(feature.table(0)))
            self.splits += [Split(column, float(border), False) for border in feature.numbers(1, "<f4")]
        tables = self._read_tables(parts) if statistics else {}
        self.columns = Columns(first, categorical, one_hot, statistics, tables)
        self.count = self.columns.count()

    def _read_statistic(self, ctr: Table | None) -> Statistic:
        if ctr is None:
            raise tree_error("a target statistic has no description")
        key = self._read_base(ctr.table(0))
        target, prior = ctr.integer(1), ctr.number(2, "f", 0.0)
        weight, shift, scale = (ctr.number(i, "f", default) for i, default in ((3, 1.0), (4, 0.0), (5, 1.0)))
        return Statistic(key[0], key[1], key, target, prior, weight, shift, scale)

    def _read_base(self, base: Table | None) -> tuple[Projection, str, int]:
        combination = None if base is None else base.table(0)
        if base is None or combination is None:
            raise tree_error("a target statistic has no combination of features")
        kind = base.integer(1, "b")
        if not 0 <= kind < len(KINDS):
            raise tree_error(f"a target statistic has the type {kind}, which is unknown")
        splits = []
        for feature, border in combination.numbers(1, "<i4,<f4").tolist():
            if feature not in self.numerical:
                raise tree_error(f"a statistic refers to feature {feature}, which is not described")
            column, to_right = self.numerical[feature]
            splits.append(Split(column, border, to_right))
        pairs = tuple((int(f), int(v)) for f, v in combination.numbers(2, "<i4,<i4").tolist())
        projection = Projection(tuple(combination.numbers(0, "<i4").tolist()), tuple(splits), pairs)
        if not (projection.categories or splits or pairs):
            raise tree_error("a target statistic has no features")
        return projection, KINDS[kind], base.integer(2)

    def _read_tables(self, parts: bytes) -> dict[Hashable, Statistics]:
        (count,) = struct.unpack_from("<I", parts, 0)
        found: dict[Hashable, Statistics] = {}
        column = 4
        for _ in range(count):
            (size,) = struct.unpack_from("<I", parts, column)
            if column + 4 + size > len(parts):
                raise struct.error(f"a table of {size} bytes at {column}")
            table = root(parts[column + 4 : column + 4 + size])
            key = self._read_base(table.table(0))
            found[key] = _read_table(table, key[1])
            column += 4 + size
        return found


def _read_table(table: Table, kind: str) -> Statistics:
    raw, blob = table.numbers(1, "<u1").tobytes(), table.numbers(2, "<u1").tobytes()
    means, counter = kind in KINDS[2:4], kind in KINDS[4:]
    width = 1 if counter else 2 if means else table.integer(4)
    if width < 1 or len(raw) % _BUCKET.itemsize or len(blob) % (4 * width):
        message = f"a table of statistics has {len(raw)} bytes of hashes and {len(blob)} of {width} counts"
        raise tree_error(message)
    buckets = np.frombuffer(raw, _BUCKET)
    buckets = buckets[buckets["hash"] != _NO_HASH]
    if means:
        pairs = np.frombuffer(blob, _MEANS)
        counts = np.stack([pairs["sum"].astype(np.float64), pairs["count"].astype(np.float64)], 1)
    else:
        counts = np.frombuffer(blob, "<i4").reshape(-1, width).astype(np.float64)
    wrong = buckets["row"][buckets["row"] >= len(counts)]
    if len(wrong):
        raise tree_error(f"a table of statistics refers to row {wrong[0]} of {len(counts)}")
    return Statistics(buckets["hash"].astype(np.uint64).view(np.int64), counts[buckets["row"]], table.integer(3))
