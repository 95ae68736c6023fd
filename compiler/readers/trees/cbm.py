"""Reads a CatBoost model in its binary format (`.cbm`): a FlatBuffer after the bytes `CBM1` and a length.

A FlatBuffer holds tables; a table begins with the distance back to its list of fields, which holds the offset of each
field in the table, or 0 for a field that has its default. Every read is checked against the bounds of the buffer.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from ...model.source import SourceModel, WeightSource
from .catboost import finish_model, oblivious_tree
from .fields import parse_json, read_bytes
from .graph import TreeModel, write_model
from .levels import Split
from .tree import Numbers, tree_error

_MAGIC, _VERSION = b"CBM1", "FlabuffersModel_v1"
_OUTPUTS, _SPLITS, _SIZES, _STARTS, _CATEGORICAL, _FLOATS, _ONE_HOT, _CTR, _VALUES = range(9)
_NESTED, _SCALE, _BIAS, _BIASES = 10, 14, 15, 16
_INDEX, _PLACE, _BORDERS, _TREATMENT = 1, 2, 3, 5


def read_cbm_file(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Reads a model of a `.cbm` file. Raises DiagnosticError."""
    return write_model(read_cbm(read_bytes(path), str(path)), str(path), weights, {})


def read_cbm(data: bytes, file: str) -> TreeModel:
    """Reads the bytes of a model. Raises DiagnosticError."""
    if data[:4] != _MAGIC or len(data) < 8:
        raise tree_error(f"`{file}` is not a CatBoost model: it does not begin with `{_MAGIC.decode()}`")
    (length,) = struct.unpack_from("<I", data, 4)
    if length > len(data) - 8:
        raise tree_error(f"`{file}` ends after {len(data) - 8} of {length} bytes")
    try:
        return _read_core(_Buffer(data[8 : 8 + length]), file)
    except struct.error as error:
        raise tree_error(f"`{file}` holds an offset outside of the file: {error}") from error


def _read_core(buffer: _Buffer, file: str) -> TreeModel:
    core = buffer.table(buffer.pointer(0))
    version = core.text(0)
    if version != _VERSION:
        raise tree_error(f"`{file}` has the version `{version}`; `{_VERSION}` is supported", code="unsupported-version")
    trees = core.table(1)
    if trees is None:
        raise tree_error(f"`{file}` has no trees")
    if any(trees.tables(n) for n in (_CATEGORICAL, _ONE_HOT, _CTR)):
        raise tree_error(f"`{file}` has categorical features, which are not supported", code="unsupported-trees")
    if len(trees.numbers(_NESTED, "<u4")):
        message = f"`{file}` has trees that are not oblivious; they are read from JSON"
        raise tree_error(message, code="unsupported-trees")
    width = trees.number(_OUTPUTS, "<i4", 1)
    splits, features = _read_splits(trees)
    chosen, sizes, starts = (trees.numbers(n, "<i4") for n in (_SPLITS, _SIZES, _STARTS))
    values = trees.numbers(_VALUES, "<f8")
    biases = trees.numbers(_BIASES, "<f8")
    bias = biases if len(biases) else np.asarray([trees.number(_BIAS, "<f8", 0.0)] * max(width, 1))
    if width < 1 or len(starts) != len(sizes) or len(bias) != width:
        raise tree_error(f"`{file}` has {width} outputs, {len(bias)} biases, {len(sizes)} trees, {len(starts)} starts")
    found, levels, first = [], [], 0
    for tree, (size, start) in enumerate(zip(sizes.tolist(), starts.tolist(), strict=True)):
        own = chosen[start : start + size] if start >= 0 and 0 <= size <= 16 else chosen[:0]
        if len(own) != size:
            raise tree_error(f"its splits are {start} to {start + size} of {len(chosen)}", tree)
        wrong = own[(own < 0) | (own >= len(splits))]
        if len(wrong):
            raise tree_error(f"it refers to split {wrong[0]} of {len(splits)}", tree)
        count = width << size
        levels.append(([splits[i] for i in own], values[first : first + count]))
        found.append(oblivious_tree(*levels[-1], width, tree))
        first += count
    return finish_model(found, levels, features, trees.number(_SCALE, "<f8", 1.0), bias, _read_loss(core, file))


def _read_splits(trees: _Table) -> tuple[list[Split], int]:
    """Returns the splits of all features in the order in which trees number them, and the number of features."""
    splits, features = [], 0
    for feature in trees.tables(_FLOATS):
        place, treatment = feature.number(_PLACE, "<i4", -1), feature.number(_TREATMENT, "<i1", 0)
        borders = feature.numbers(_BORDERS, "<f4")
        if place < 0:
            raise tree_error(f"the place of a feature is {place}")
        features = max(features, place + 1)
        splits += [Split(place, float(border), treatment == 2) for border in borders]
    return splits, features


def _read_loss(core: _Table, file: str) -> str:
    for pair in core.tables(2):
        if pair.text(0) == "params":
            loss = parse_json(pair.text(1), file).get("loss_function", {})
            return str(loss.get("type", "")) if isinstance(loss, dict) else str(loss)
    return ""


class _Buffer:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def unpack(self, format: str, place: int) -> Any:
        if place < 0:
            raise struct.error(f"offset {place}")
        return struct.unpack_from(format, self.data, place)[0]

    def pointer(self, place: int) -> int:
        return place + int(self.unpack("<I", place))

    def table(self, place: int) -> _Table:
        return _Table(self, place, place - int(self.unpack("<i", place)))

    def vector(self, place: int, size: int) -> tuple[int, int]:
        """Returns the first byte and the number of elements of `size` bytes."""
        count = int(self.unpack("<I", place))
        if place + 4 + count * size > len(self.data):
            raise struct.error(f"a list of {count} elements at {place}")
        return place + 4, count


class _Table:
    def __init__(self, buffer: _Buffer, place: int, fields: int) -> None:
        self.buffer, self.place, self.fields = buffer, place, fields
        self.count = (int(buffer.unpack("<H", fields)) - 4) // 2

    def _at(self, number: int) -> int | None:
        offset = int(self.buffer.unpack("<H", self.fields + 4 + 2 * number)) if number < self.count else 0
        return self.place + offset if offset else None

    def number(self, number: int, dtype: str, default: Any) -> Any:
        place = self._at(number)
        if place is None:
            return default
        return self.buffer.unpack({"<i4": "<i", "<i1": "<b", "<f8": "<d"}[dtype], place)

    def numbers(self, number: int, dtype: str) -> Numbers:
        place = self._at(number)
        if place is None:
            return np.zeros(0, dtype)
        first, count = self.buffer.vector(self.buffer.pointer(place), np.dtype(dtype).itemsize)
        return np.frombuffer(self.buffer.data, dtype, count, first)

    def text(self, number: int) -> str:
        place = self._at(number)
        if place is None:
            return ""
        first, count = self.buffer.vector(self.buffer.pointer(place), 1)
        return self.buffer.data[first : first + count].decode("utf-8", "replace")

    def table(self, number: int) -> _Table | None:
        place = self._at(number)
        return None if place is None else self.buffer.table(self.buffer.pointer(place))

    def tables(self, number: int) -> list[_Table]:
        place = self._at(number)
        if place is None:
            return []
        first, count = self.buffer.vector(self.buffer.pointer(place), 4)
        return [self.buffer.table(self.buffer.pointer(first + 4 * i)) for i in range(count)]
