"""Trees whose leaves are linear models of features: the sum of the leaves that rows reach, in the order of the trees.

A leaf is `constants[leaf] + sum over k of coefficients[leaf, k] * x[features[leaf, k]]`, added from the left; its terms
end at the first feature below 0. A leaf that reads a NaN is `fallbacks[leaf]` instead:

    features [1, 3, -1]   coefficients [0.5, 2, 0]     constants[leaf] + 0.5 x[1] + 2 x[3]

`leaves` [rows, groups, trees] are results of `tree_leaves`; indices of leaves and features are clamped to the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import product
from ..emitter import BodyEmitter, Emitter, Scalar, ScalarEmitter, Tensor
from ..graph import Value
from ..operator import Attributes, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import BOOL, F32, F64, I32, I64, TensorType
from .indexing import zeros_like
from .support.accumulate import Numbers
from .support.index_modes import clamped, load_if_any

_FLOATS = (F32, F64)


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, leaves, constants, fallbacks, features, coefficients, initial = types
    ranks = [type.rank for type in types]
    if ranks != [2, 3, 1, 1, 2, 2, 1] or not (
        leaves.shape[0] == x.shape[0]
        and initial.shape == leaves.shape[1:2]
        and constants.shape == fallbacks.shape == features.shape[:1]
        and coefficients.shape == features.shape
    ):
        message = "`linear_tree_sum` needs x [rows, features], leaves [rows, groups, trees], constants and fallbacks "
        message += f"[leaves], features and coefficients [leaves, terms], and initial [groups], not {x}, {leaves}, "
        raise InferenceError("shape-mismatch", f"{message}{constants}, {fallbacks}, {features}, {coefficients}")
    return (TensorType(x.dtype, leaves.shape[:2]),)


def _reference(
    x: Numbers,
    leaves: Numbers,
    constants: Numbers,
    fallbacks: Numbers,
    features: Numbers,
    coefficients: Numbers,
    initial: Numbers,
) -> Numbers:
    rows, groups, trees = leaves.shape
    count, terms = features.shape
    total = np.broadcast_to(initial, (rows, groups)).copy()
    if not count:
        return total
    for tree in range(trees):
        index = leaves[:, :, tree].astype(np.int64)
        leaf = np.clip(np.where(index < 0, index + count, index), 0, count - 1)
        value, is_open, is_nan = constants[leaf], np.ones(leaf.shape, bool), np.zeros(leaf.shape, bool)
        for k in range(terms):
            feature = features[leaf, k]
            is_open = is_open & (feature >= 0)
            at = np.clip(feature, 0, max(x.shape[1] - 1, 0))
            known = np.take_along_axis(x, at, 1) if x.shape[1] else np.zeros(leaf.shape, x.dtype)
            value = np.where(is_open, value + coefficients[leaf, k] * known, value)
            is_nan |= is_open & np.isnan(known)
        total = (total + np.where(is_nan, fallbacks[leaf], value)).astype(x.dtype)
    return total


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, leaves, constants, fallbacks, features, coefficients, initial = operands
    (result,) = types
    trees, (count, terms) = leaves.type.shape[2], features.type.shape

    def element(s: BodyEmitter) -> Scalar:
        row, group = s.index(0), s.index(1)

        def add_tree(s: ScalarEmitter, tree: Scalar, carried: Sequence[Scalar]) -> Sequence[Scalar]:
            leaf = clamped(s, s.load(leaves, [row, group, tree]), count)
            has_leaf = s.compare("gt", s.size(count), s.constant(0, I64))

            def add_term(s: ScalarEmitter, term: Scalar, carried: Sequence[Scalar]) -> Sequence[Scalar]:
                value, is_open, is_nan = carried
                feature = s.load_if(has_leaf, features, [leaf, term])
                is_open = s.binary("and", is_open, s.compare("ge", feature, s.constant(0, I32)))
                index = clamped(s, s.binary("max", feature, s.constant(0, I32)), x.type.shape[1])
                known = load_if_any(s, x, [row, index], [1])
                added = s.binary("add", value, s.binary("mul", s.load_if(has_leaf, coefficients, [leaf, term]), known))
                found = s.binary("or", is_nan, s.binary("and", is_open, s.unary("isnan", known)))
                return [s.select(is_open, added, value), is_open, found]

            start = [s.load_if(has_leaf, constants, [leaf]), s.constant(True, BOOL), s.constant(False, BOOL)]
            value, _, is_nan = s.iterate(s.size(terms), start, add_term)
            chosen = s.select(is_nan, s.load_if(has_leaf, fallbacks, [leaf]), value)
            # A table without leaves adds nothing.
            return [s.select(has_leaf, s.binary("add", carried[0], chosen), carried[0])]

        return s.iterate(s.size(trees), [s.load(initial, [group])], add_tree)[0]

    return [e.map(result, [], element)]


def _differentiate(b: Builder, use: Use) -> Sequence[Value | None]:
    """The rule of a leaf, with `g` the gradient of its sum:

        x[features[leaf, k]] += g coefficients[leaf, k]        constants[leaf] += g
        coefficients[leaf, k] += g x[features[leaf, k]]        initial += g

    A leaf that reads NaN gives `g` to its fallback alone. Leaves do not change with x, except at thresholds.
    """
    x, leaves, constants, fallbacks, features, coefficients, _ = use.inputs
    rows, groups, trees = leaves.type.shape
    reached, terms, width = product((rows, groups, trees)), features.type.shape[1], x.type.shape[1]

    each = b.broadcast_to(b.reshape(use.gradient, shape=(rows, groups, 1)), shape=leaves.type.shape)
    leaf, given = b.reshape(leaves, shape=(reached,)), b.reshape(each, shape=(reached, 1))
    below = b.cast(b.less(features, b.like(0, features)), dtype=I32)
    own, closed, weights = (
        b.gather(table, leaf, axis=0, mode="clamp") for table in (features, b.cumsum(below, axis=1), coefficients)
    )
    is_open = b.equal(closed, b.like(0, closed))
    row = b.reshape(b.iota(shape=leaves.type.shape), shape=(reached, 1))
    (size,) = b.apply("size_value", (), {"size": width})
    one, zero = b.scalar(1, I64), b.scalar(0, I64)
    column = b.maximum(b.minimum(b.cast(own, dtype=I64), b.subtract(size, one)), zero)
    element = b.reshape(b.add(b.multiply(row, size), column), shape=(product((reached, terms)),))
    flat = b.reshape(x, shape=(product(x.type.shape),))
    known = b.reshape(b.gather(flat, element, axis=0, mode="clamp"), shape=own.type.shape)
    is_nan = b.any(b.logical_and(is_open, b.isnan(known)), axis=(1,), keepdims=True)
    counts = b.logical_and(is_open, b.logical_not(is_nan))
    none, kept = b.like(0.0, given), b.reshape(given, shape=(reached,))
    reads_nan = b.reshape(is_nan, shape=(reached,))
    to_x = b.reshape(b.where(counts, b.multiply(given, weights), none), shape=element.type.shape)
    to_weights = b.where(counts, b.multiply(given, known), none)
    index = b.reshape(leaf, shape=(reached, 1))
    added = b.scatter_add(zeros_like(b, flat), element, to_x, axis=0, mode="clamp")
    return [
        b.reshape(added, shape=x.type.shape),
        None,
        b.scatter_add(zeros_like(b, constants), leaf, b.where(reads_nan, none, kept), axis=0, mode="clamp"),
        b.scatter_add(zeros_like(b, fallbacks), leaf, b.where(reads_nan, kept, none), axis=0, mode="clamp"),
        None,
        b.scatter_add(zeros_like(b, coefficients), index, to_weights, axis=0, mode="clamp"),
        b.sum(use.gradient, axis=(0,)),
    ]


def _cases() -> tuple[Case, ...]:
    rng = np.random.default_rng(4)
    made = []
    for rows, features, groups, trees, count, terms in (
        (5, 3, 2, 4, 6, 2), (9, 1, 1, 1, 1, 3), (0, 2, 1, 2, 3, 1), (1, 2, 3, 0, 3, 1), (3, 4, 1, 5, 4, 0),
        (2, 0, 1, 2, 3, 2), (2, 2, 1, 2, 0, 2),
    ):  # fmt: skip
        arrays: dict[int, Any] = {
            0: rng.choice([0.5, -1.25, 3.0, np.nan, 1e30], (rows, features), p=[0.3, 0.3, 0.2, 0.1, 0.1]),
            1: rng.integers(-2, count + 2, (rows, groups, trees)).astype(np.int32),
            2: rng.normal(size=count),
            3: rng.normal(size=count),
            4: rng.integers(-1, features + 1, (count, terms)).astype(np.int32),
            5: rng.normal(size=(count, terms)),
            6: rng.normal(size=groups),
        }
        shapes = tuple(np.shape(a) for a in arrays.values())
        smooth = {**arrays, 0: rng.integers(-4, 5, (rows, features)) / 4}
        # Differences of NaN are NaN.
        for own, has_gradient in ((arrays, False), (smooth, True)):
            made.append(Case(shapes, arrays=own, gradient=has_gradient, terms=max(trees * (terms + 1), 1)))
    return tuple(made)


linear_tree_sum = Operator(
    name="linear_tree_sum",
    summary="initial + the linear models of the leaves [rows, groups, trees], in the order of the trees; a model that "
    "reads NaN is its fallback",
    operands=(
        Operand("x", _FLOATS),
        Operand("leaves", (I32,), "I"),
        Operand("constants", _FLOATS),
        Operand("fallbacks", _FLOATS),
        Operand("features", (I32,), "I"),
        Operand("coefficients", _FLOATS),
        Operand("initial", _FLOATS),
    ),
    infer=_infer,
    reference=_reference,
    gradient=_differentiate,
    lower=_lower,
    cases=LateCases(lambda: _cases()),
    properties=frozenset({"costly", "sequential", "summing"}),
)

OPERATORS = (linear_tree_sum,)
