"""Reads a CatBoost model in its binary format (`.cbm`): a FlatBuffer after the bytes `CBM1` and a length; then tables
of target statistics.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...model.source import SourceModel, WeightSource
from ..flatbuffer import FormatError, Table, root
from .catboost import finish_model, flags_of, oblivious_tree
from .cbm_splits import CbmSplits
from .fields import parse_json, read_bytes
from .graph import TreeModel, write_model
from .levels import Split
from .tree import Numbers, Tree, tree_error

_MAGIC, _VERSION = b"CBM1", "FlabuffersModel_v1"
_OUTPUTS, _SPLITS, _SIZES, _STARTS, _VALUES = 0, 1, 2, 3, 8
_NESTED, _LEAVES, _TEXT, _ESTIMATED, _SCALE, _BIAS, _BIASES = 10, 11, 12, 13, 14, 15, 16


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
        return _read_core(root(data[8 : 8 + length]), data[8 + length :], file)
    except (FormatError, struct.error) as error:
        raise tree_error(f"`{file}` is damaged: {error}") from error


def _read_core(core: Table, parts: bytes, file: str) -> TreeModel:
    version = core.text(0)
    if version != _VERSION:
        raise tree_error(f"`{file}` has the version `{version}`; `{_VERSION}` is supported", code="unsupported-version")
    trees = core.table(1)
    if trees is None:
        raise tree_error(f"`{file}` has no trees")
    if trees.tables(_TEXT) or trees.tables(_ESTIMATED):
        raise tree_error(f"`{file}` has text or embedding features, which are not supported", code="unsupported-trees")
    width = trees.integer(_OUTPUTS, default=1)
    known = CbmSplits(trees, parts)
    splits = known.splits
    chosen, sizes, starts = (trees.numbers(n, "<i4") for n in (_SPLITS, _SIZES, _STARTS))
    values = trees.numbers(_VALUES, "<f8")
    biases = trees.numbers(_BIASES, "<f8")
    bias = biases if len(biases) else np.asarray([trees.number(_BIAS, "d", 0.0)] * max(width, 1))
    if width < 1 or len(starts) != len(sizes) or len(bias) != width:
        raise tree_error(f"`{file}` has {width} outputs, {len(bias)} biases, {len(sizes)} trees, {len(starts)} starts")
    scale = trees.number(_SCALE, "d", 1.0)
    found: list[Tree] = []
    levels: list[tuple[Sequence[Split], Numbers]] = []
    first, steps, offsets = 0, trees.numbers(_NESTED, "<u4"), trees.numbers(_LEAVES, "<u4")
    if len(steps):
        if not len(steps) == len(offsets) == len(chosen):
            raise tree_error(
                f"`{file}` has {len(steps)} steps, {len(offsets)} leaves and {len(chosen)} splits of nodes"
            )
        nodes = _Nodes(splits, chosen, steps, offsets, values, width)
        found = [nodes.read(tree, *each) for tree, each in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True))]
        return finish_model(found, [], known.count, scale, bias, _read_loss(core, file), known.columns)
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
    return finish_model(found, levels, known.count, scale, bias, _read_loss(core, file), known.columns)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The nodes of trees that are not oblivious, one after another. A step holds the distance to the left child in its
    lower 16 bits, and the distance to the right child in the upper ones; a distance of 0 leads to the leaf of the node
    itself. `offsets` are the indices of the first values of these leaves."""

    splits: Sequence[Split]
    chosen: Numbers
    steps: Numbers
    offsets: Numbers
    values: Numbers
    width: int

    def read(self, tree: int, start: int, size: int) -> Tree:
        if start < 0 or size < 1 or start + size > len(self.steps):
            raise tree_error(f"its nodes are {start} to {start + size} of {len(self.steps)}", tree)
        steps, chosen, offsets = (
            x[start : start + size].astype(np.int64) for x in (self.steps, self.chosen, self.offsets)
        )
        inner = np.flatnonzero(steps)
        wrong = inner[(chosen[inner] < 0) | (chosen[inner] >= len(self.splits))]
        if len(wrong):
            raise tree_error(f"it refers to split {chosen[wrong[0]]} of {len(self.splits)}", tree, int(wrong[0]))
        # Node n is a leaf, `-1 - n`, or a node with a split, which has a number of its own.
        number = -1 - np.arange(size)
        number[inner] = np.arange(len(inner))
        has_leaf = (steps & 0xFFFF == 0) | (steps >> 16 == 0)
        if (bad := np.flatnonzero(has_leaf & (offsets + self.width > len(self.values)))).size:
            message = f"it refers to the value {offsets[bad[0]]} of {len(self.values)}"
            raise tree_error(message, tree, int(bad[0]))
        sides = []
        for distance in (steps[inner] & 0xFFFF, steps[inner] >> 16):
            child = inner + distance
            if (bad := inner[child >= size]).size:
                raise tree_error(f"it refers to a node beyond the {size} of the tree", tree, int(bad[0]))
            sides.append(np.where(distance == 0, -1 - inner, number[child]))
        first = np.where(has_leaf, offsets, 0)
        own = [self.splits[split] for split in chosen[inner]]
        return Tree(
            np.asarray([s.feature for s in own], np.int64),
            np.asarray([s.border for s in own], np.float64),
            sides[0],
            sides[1],
            np.asarray([flags_of(s) for s in own], np.int64),
            self.values[first[:, None] + np.arange(self.width)],
            names=inner.tolist(),
        )


def _read_loss(core: Table, file: str) -> str:
    for pair in core.tables(2):
        if pair.text(0) == "params":
            loss = parse_json(pair.text(1), file).get("loss_function", {})
            return str(loss.get("type", "")) if isinstance(loss, dict) else str(loss)
    return ""
