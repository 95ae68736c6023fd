"""Oblivious trees: every level of a tree has one split, so that the leaf is a number made of the results of the splits.

A feature is a row of memory, so that one instruction compares a feature of several rows with a border:

    leaves[t, b] = sum over levels l of (x[feature[t, l], b] > border[t, l]) << l

A tree of fewer levels than the others ends with splits whose border is infinite. NaN is above no border. `tree_sum`
adds the values of leaves in the order of the trees. A tree has a power of two of leaves, and leaves count modulo it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import ceil_divide
from ..emitter import BodyEmitter, Emitter, Scalar, SequenceEmitter, Tensor
from ..graph import Value
from ..operator import Addressing, Attributes, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import F32, F64, I32, I64, TensorType
from .indexing import zeros_like
from .support.accumulate import Numbers
from .support.index_modes import WINDOW_MODE, clamped, clamped_array, load_if_any

ROWS = 256
"""The rows of a block: their sums and the values of a tree stay in the first cache."""
MOST_LEVELS = 16
_FLOATS = (F32, F64)


def _infer_leaves(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, feature, border = types
    if x.rank != 2 or feature.rank != 2 or border.shape != feature.shape:
        message = (
            f"`oblivious_leaves` needs x [features, rows] and tables [trees, levels], not {x}, {feature}, {border}"
        )
        raise InferenceError("shape-mismatch", message)
    levels = feature.shape[1]
    if not isinstance(levels, int) or levels > MOST_LEVELS:
        message = f"`oblivious_leaves` needs a known number of levels up to {MOST_LEVELS}, not {levels}"
        raise InferenceError("shape-mismatch", message, operand=1)
    return (TensorType(I32, (feature.shape[0], x.shape[1])),)


def _reference_leaves(x: Numbers, feature: Numbers, border: Numbers, mode: str = "error") -> Numbers:
    leaves = np.zeros((feature.shape[0], x.shape[1]), np.int32)
    if not len(x):
        x = np.zeros((1, x.shape[1]), x.dtype)
    index = clamped_array(feature, len(x), mode)
    for level in range(feature.shape[1]):
        leaves |= (x[index[:, level]] > border[:, level, None]).astype(np.int32) << level
    return leaves


def _lower_leaves(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, feature, border = operands
    levels = feature.type.shape[1]
    assert isinstance(levels, int), feature

    def element(s: BodyEmitter) -> Scalar:
        tree, row = s.index(0), s.index(1)
        leaf: Scalar = s.constant(0, I32)
        for level in range(levels):
            at = [tree, s.constant(level, I64)]
            index = clamped(s, s.load(feature, at), x.type.shape[0])
            above = s.compare("gt", load_if_any(s, x, [index, row], [0]), s.load(border, at))
            bit = s.select(above, s.constant(1 << level, I32), s.constant(0, I32))
            leaf = s.binary("or", leaf, bit)
        return leaf

    return [e.map(types[0], [], element)]


def _infer_sum(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    values, leaves, initial = types
    if values.rank != 3 or leaves.rank != 2 or leaves.shape[0] != values.shape[0] or initial.shape != values.shape[2:]:
        message = (
            f"`tree_sum` needs values [trees, leaves, width], leaves [trees, rows] and initial [width], not {values}"
        )
        raise InferenceError("shape-mismatch", f"{message}, {leaves}, {initial}")
    count = values.shape[1]
    if not isinstance(count, int) or count < 1 or count & (count - 1):
        message = f"`values` of `tree_sum` needs a power of two of leaves, not {count}"
        raise InferenceError("shape-mismatch", message, operand=0)
    return (TensorType(values.dtype, (leaves.shape[1], values.shape[2])),)


def _reference_sum(values: Numbers, leaves: Numbers, initial: Numbers) -> Numbers:
    total = np.broadcast_to(initial, (leaves.shape[1], len(initial))).copy()
    for table, chosen in zip(values, leaves, strict=True):
        total = (total + table[chosen & (len(table) - 1)]).astype(values.dtype)
    return total


Turn = tuple[Sequence[Tensor], Sequence[Scalar]]


def _lower_sum(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    values, leaves, initial = operands
    trees, rows = leaves.type.shape
    count_leaves = values.type.shape[1]
    assert isinstance(count_leaves, int), values
    (result,) = types

    def block(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        number, column = indices
        first = s.binary("mul", number, s.constant(ROWS, I64))
        left = s.binary("sub", s.size(rows), first)
        count = s.binary("min", left, s.constant(ROWS, I64))
        start = s.load(initial, [column])
        mask = s.constant(count_leaves - 1, I32)

        def begin(i: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turn:
            return [s.store(t[0], [s.binary("add", first, i), column], start)], []

        def add(tree: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turn:
            def one(i: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turn:
                row = s.binary("add", first, i)
                leaf = s.cast(s.binary("and", s.load(leaves, [tree, row]), mask), I64)
                value = s.load(values, [tree, leaf, column])
                return [s.store(t[0], [row, column], s.binary("add", s.load(t[0], [row, column]), value))], []

            return s.repeat(count, t, [], one)

        done, _ = s.repeat(count, tensors, [], begin)
        done, _ = s.repeat(s.size(trees), done, [], add)
        return done

    return e.scan((ceil_divide(rows, ROWS), result.shape[1]), [e.full(result, 0)], block)


def _differentiate_sum(b: Builder, use: Use) -> Sequence[Value | None]:
    values, leaves, _ = use.inputs
    trees, count, width = values.type.shape
    rows = leaves.type.shape[1]
    assert isinstance(count, int), values
    # The leaves count modulo their number, a power of two.
    index = b.bitwise_and(leaves, b.scalar(count - 1, I32))
    each = b.broadcast_to(b.reshape(use.gradient, shape=(1, rows, width)), shape=(trees, rows, width))
    added = b.scatter_add(zeros_like(b, values), b.reshape(index, shape=(trees, rows, 1)), each, axis=1)
    return [added, None, b.sum(use.gradient, axis=(0,))]


def _leaf_cases() -> tuple[Case, ...]:
    rng = np.random.default_rng(0)
    made = []
    for features, rows, trees, levels in ((3, 5, 4, 3), (4, 67, 2, 6), (2, 0, 3, 1), (1, 1, 1, 0), (2, 9, 0, 2)):
        arrays: dict[int, Any] = {
            0: rng.choice([0.0, -0.0, 0.5, -1.0, 2.0, np.nan, np.inf, -np.inf], (features, rows)),
            1: rng.integers(0, features, (trees, levels)).astype(np.int32),
            2: rng.choice([0.0, 0.5, -1.0, np.inf], (trees, levels)),
        }
        made.append(Case(tuple(a.shape for a in arrays.values()), arrays=arrays, gradient=False))
    return tuple(made)


def _sum_cases() -> tuple[Case, ...]:
    rng = np.random.default_rng(1)
    made = []
    for trees, count, width, rows in ((5, 8, 1, 9), (3, 4, 2, 16), (2, 1, 3, 1), (0, 2, 1, 3), (4, 2, 1, 0)):
        leaves = rng.integers(0, count, (trees, rows)).astype(np.int32)
        shapes = ((trees, count, width), (trees, rows), (width,))
        made.append(Case(shapes, arrays={1: leaves}, terms=max(trees, 1)))
    return tuple(made)


oblivious_leaves = Operator(
    name="oblivious_leaves",
    summary="the leaves [trees, rows] that columns of features reach in trees with one split for each level",
    operands=(Operand("x", _FLOATS), Operand("feature", (I32,), "I"), Operand("border", _FLOATS)),
    attributes=(WINDOW_MODE,),
    infer=_infer_leaves,
    reference=_reference_leaves,
    gradient=None,
    lower=_lower_leaves,
    cases=LateCases(lambda: _leaf_cases()),
    properties=frozenset({"costly"}),
    addresses=lambda types, attributes: (Addressing(1, types[0].shape[:1]),),
)

tree_sum = Operator(
    name="tree_sum",
    summary="initial + the values of leaves [trees, rows], in the order of the trees",
    operands=(Operand("values", _FLOATS), Operand("leaves", (I32,), "I"), Operand("initial", _FLOATS)),
    infer=_infer_sum,
    reference=_reference_sum,
    gradient=_differentiate_sum,
    lower=_lower_sum,
    cases=LateCases(lambda: _sum_cases()),
    properties=frozenset({"sequential", "summing"}),
)

OPERATORS = (oblivious_leaves, tree_sum)
