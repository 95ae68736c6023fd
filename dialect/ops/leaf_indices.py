"""Oblivious trees on ranks, for calls of few rows: the index of the leaf in each tree, and the sum of these leaves.

The leaf index of a row in a tree has a bit for each level, 1 if the rank of a column is not below a border.
`leaf_indices_by_masks` reads the bits of all trees from a table for each column and rank, so that the leaf indices of a
row are a sum of vectors:

    leaves[row, tree] = sum over columns c of masks[c, ranks[row, c], tree]

`leaf_indices_by_borders` compares the ranks level by level instead, where this table would be too large.

`add_leaf_values` adds the values of the leaves in the order of the trees. It is a separate operator because the values
of large trees lie far apart in memory: loads without other work between them overlap. The indices of a row may be
padded to whole vectors; the padding is not read.

A rank beyond a column's table counts as the last rank of the table. Leaf indices are taken modulo the number of leaves
of a tree, a power of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import product, static_size
from ..emitter import Emitter, Scalar, SequenceEmitter, Tensor
from ..graph import Value
from ..operator import Attributes, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import F32, F64, I32, I64, U8, U16, TensorType
from .indexing import zeros_like
from .support.accumulate import Numbers

_FLOATS = (F32, F64)
Turn = tuple[Sequence[Tensor], Sequence[Scalar]]


def _infer_masks(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    ranks, masks = types
    sizes = (*ranks.shape[1:], *masks.shape[:2])
    if ranks.rank != 2 or masks.rank != 3 or not all(isinstance(size, int) for size in sizes):
        message = "`leaf_indices_by_masks` needs ranks [rows, width] and masks [columns, ranks, trees] of known sizes"
        raise InferenceError("shape-mismatch", f"{message}, not {ranks}, {masks}")
    width, columns, count = (static_size(size) for size in sizes)
    if columns > width or not count:
        message = f"`masks` of `leaf_indices_by_masks` has at most {width} columns, and at least one rank, not {masks}"
        raise InferenceError("shape-mismatch", message, operand=1)
    return (TensorType(masks.dtype, (ranks.shape[0], masks.shape[2])),)


def _reference_masks(ranks: Numbers, masks: Numbers) -> Numbers:
    total = np.zeros((len(ranks), masks.shape[2]), masks.dtype)
    for column, table in enumerate(masks):
        total += table[np.minimum(ranks[:, column], len(table) - 1)]
    return total


def _lower_masks(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    ranks, masks = operands
    (result,) = types
    columns, count, trees = masks.type.shape

    def write(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        row, column = indices
        last = s.binary("sub", s.size(count), s.constant(1, I64))
        rank = s.binary("min", s.cast(s.load(ranks, [row, column]), I64), last)

        def add(tree: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turn:
            total = s.binary("add", s.load(t[0], [row, tree]), s.load(masks, [column, rank, tree]))
            return [s.store(t[0], [row, tree], total)], []

        done, _ = s.repeat(s.size(trees), tensors, [], add)
        return done

    return e.scan((result.shape[0], columns), [e.full(result, 0)], write)


def _infer_borders(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    ranks, column, border = types
    if ranks.rank != 2 or column.rank != 2 or border.shape != column.shape:
        message = "`leaf_indices_by_borders` needs ranks [rows, width], and columns and borders [trees, levels]"
        raise InferenceError("shape-mismatch", f"{message}, not {ranks}, {column}, {border}")
    width, levels = ranks.shape[1], column.shape[1]
    is_power = isinstance(width, int) and width > 0 and not width & (width - 1)
    if not is_power or not isinstance(levels, int) or levels > U16.bits:
        message = f"`leaf_indices_by_borders` needs a power of two of ranks, and up to {U16.bits} levels"
        raise InferenceError("shape-mismatch", f"{message}, not {ranks}, {column}")
    return (TensorType(U16, (ranks.shape[0], column.shape[0])),)


def _reference_borders(ranks: Numbers, column: Numbers, border: Numbers) -> Numbers:
    right = ranks[:, column.astype(np.int64) & ranks.shape[1] - 1] >= border
    return np.asarray((right.astype(np.int64) << np.arange(column.shape[1])).sum(2), np.uint16)


def _lower_borders(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    ranks, column, border = operands
    width, levels = static_size(ranks.type.shape[1]), static_size(column.type.shape[1])
    is_inside = column.type.dtype == U8 and width >= 1 << U8.bits

    def write(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        row, tree = indices
        leaf: Scalar = s.constant(0, I64)
        for level in reversed(range(levels)):
            at = [tree, s.constant(level, I64)]
            number = s.cast(s.load(column, at), I64)
            number = number if is_inside else s.binary("and", number, s.constant(width - 1, I64))
            right = s.compare("ge", s.load(ranks, [row, number]), s.load(border, at))
            leaf = s.binary("add", s.binary("add", leaf, leaf), s.cast(right, I64))
        return [s.store(tensors[0], [row, tree], s.cast(leaf, U16))]

    return e.scan(types[0].shape, [e.full(types[0], 0)], write)


def _infer_sum(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    leaves, values, initial = types
    sizes = (*leaves.shape[1:], *values.shape[:1])
    is_known = leaves.rank == values.rank == 2 and all(isinstance(size, int) for size in sizes)
    if not is_known or static_size(sizes[0]) < static_size(sizes[1]) or initial.shape != ():
        message = "`add_leaf_values` needs leaves [rows, trees], values [trees, leaves] of known sizes, and initial []"
        raise InferenceError("shape-mismatch", f"{message}, not {leaves}, {values}, {initial}")
    count = values.shape[1]
    if not isinstance(count, int) or not 1 <= count <= 1 << leaves.dtype.bits or count & (count - 1):
        message = f"`values` of `add_leaf_values` has a power of two of leaves that {leaves.dtype} holds, not {count}"
        raise InferenceError("shape-mismatch", message, operand=1)
    return (TensorType(values.dtype, leaves.shape[:1]),)


def _reference_sum(leaves: Numbers, values: Numbers, initial: Numbers) -> Numbers:
    total = np.full(len(leaves), initial, values.dtype)
    for tree, table in enumerate(values):
        total = (total + table[leaves[:, tree] & (len(table) - 1)]).astype(values.dtype)
    return total


def _lower_sum(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    leaves, values, initial = operands
    trees, count = values.type.shape

    def write(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        (row,) = indices
        mask = s.constant(static_size(count) - 1, I64)

        def add(tree: Scalar, t: Sequence[Tensor], totals: Sequence[Scalar]) -> Turn:
            leaf = s.binary("and", s.cast(s.load(leaves, [row, tree]), I64), mask)
            return t, [s.binary("add", totals[0], s.load(values, [tree, leaf]))]

        (target,), (total,) = s.repeat(s.size(trees), tensors, [s.load(initial, [])], add)
        return [s.store(target, [row], total)]

    return e.scan((types[0].shape[0],), [e.full(types[0], 0)], write)


def _differentiate_sum(b: Builder, use: Use) -> Sequence[Value | None]:
    leaves, values, _ = use.inputs
    rows, (trees, count) = leaves.type.shape[0], values.type.shape
    assert isinstance(count, int), values
    read = b.slice(leaves, starts=(None, 0), stops=(None, trees))
    index = b.bitwise_and(b.cast(read, dtype=I64), b.scalar(count - 1, I64))
    index = b.add(index, b.multiply(b.iota(shape=(trees,)), b.scalar(count, I64)))
    number = product((rows, trees))
    each = b.broadcast_to(b.reshape(use.gradient, shape=(rows, 1)), shape=(rows, trees))
    flat = zeros_like(b, values, (product((trees, count)),))
    added = b.scatter_add(flat, b.reshape(index, shape=(number,)), b.reshape(each, shape=(number,)), axis=0)
    return [None, b.reshape(added, shape=values.type.shape), b.sum(use.gradient, axis=(0,))]


def _mask_cases() -> tuple[Case, ...]:
    rng, made = np.random.default_rng(6), []
    for rows, width, columns, count, trees in ((3, 4, 3, 5, 7), (1, 8, 8, 1, 65), (0, 2, 2, 3, 3), (2, 4, 0, 2, 0)):
        for kind in (np.uint8, np.uint16):
            arrays: dict[int, Any] = {
                0: rng.integers(0, count + 2, (rows, width)).astype(np.uint8),
                1: rng.integers(0, 32, (columns, count, trees)).astype(kind),
            }
            made.append(Case(tuple(a.shape for a in arrays.values()), arrays=arrays, gradient=False))
    return tuple(made)


def _border_cases() -> tuple[Case, ...]:
    rng, made = np.random.default_rng(8), []
    for rows, width, trees, levels in ((3, 4, 7, 3), (1, 256, 5, 10), (0, 1, 3, 1), (2, 2, 0, 2), (2, 8, 3, 0)):
        narrow = width == 256
        arrays: dict[int, Any] = {
            0: rng.integers(0, 9, (rows, width)).astype(np.uint8 if narrow else np.uint16),
            1: rng.integers(-9 * (not narrow), 256, (trees, levels)).astype(np.uint8 if narrow else np.int32),
            2: rng.integers(0, 9, (trees, levels)).astype(np.uint8 if narrow else np.uint16),
        }
        made.append(Case(tuple(a.shape for a in arrays.values()), arrays=arrays, gradient=False))
    return tuple(made)


def _sum_cases() -> tuple[Case, ...]:
    rng, made = np.random.default_rng(7), []
    for rows, trees, leaves in ((3, 7, 8), (1, 1, 1), (0, 3, 4), (5, 0, 2), (2, 65, 64)):
        indices = rng.integers(0, 256, (rows, trees + rows % 2)).astype(np.uint16 if rows == 3 else np.uint8)
        made.append(Case((indices.shape, (trees, leaves), ()), arrays={0: indices}, terms=max(trees, 1)))
    return tuple(made)


leaf_indices_by_masks = Operator(
    name="leaf_indices_by_masks",
    summary="the leaf indices [rows, trees] of rows of ranks in oblivious trees: the sum over columns of "
    "masks[column, rank, tree]",
    operands=(Operand("ranks", (U8,), "R"), Operand("masks", (U8, U16), "M")),
    infer=_infer_masks,
    reference=_reference_masks,
    gradient=None,
    lower=_lower_masks,
    cases=LateCases(lambda: _mask_cases()),
    properties=frozenset({"costly", "sequential", "exact"}),
)

leaf_indices_by_borders = Operator(
    name="leaf_indices_by_borders",
    summary="the leaf indices [rows, trees] of rows of ranks in oblivious trees with a column and a border for each "
    "level",
    operands=(Operand("ranks", (U8, U16), "R"), Operand("column", (U8, I32), "C"), Operand("border", (U8, U16), "R")),
    infer=_infer_borders,
    reference=_reference_borders,
    gradient=None,
    lower=_lower_borders,
    cases=LateCases(lambda: _border_cases()),
    properties=frozenset({"costly", "sequential", "exact"}),
)

add_leaf_values = Operator(
    name="add_leaf_values",
    summary="initial + the values of the leaves [rows, trees], in the order of the trees",
    operands=(Operand("leaves", (U8, U16), "L"), Operand("values", _FLOATS), Operand("initial", _FLOATS)),
    infer=_infer_sum,
    reference=_reference_sum,
    gradient=_differentiate_sum,
    lower=_lower_sum,
    cases=LateCases(lambda: _sum_cases()),
    properties=frozenset({"sequential", "summing"}),
)

OPERATORS = (leaf_indices_by_masks, leaf_indices_by_borders, add_leaf_values)
