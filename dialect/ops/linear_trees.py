"""Trees whose leaves are linear models of features: the sum of the leaves that rows reach, in the order of the trees.

A leaf is `constants[leaf] + sum over k of coefficients[leaf, k] * x[features[leaf, k]]`, added from the left; its terms
end at the first feature below 0. A leaf that reads a NaN is `fallbacks[leaf]` instead:

    features [1, 3, -1]   coefficients [0.5, 2, 0]     constants[leaf] + 0.5 x[1] + 2 x[3]

`leaves` [rows, groups, trees] are results of `tree_leaves`; indices of leaves and features are moved inside the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..emitter import BodyEmitter, Emitter, Scalar, ScalarEmitter, Tensor
from ..operator import Attributes, Case, InferenceError, Operand, Operator
from ..types import BOOL, F32, F64, I32, I64, TensorType
from .support.accumulate import Numbers
from .support.places import clamped, load_if_any

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
        place = leaves[:, :, tree].astype(np.int64)
        leaf = np.clip(np.where(place < 0, place + count, place), 0, count - 1)
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
                place = clamped(s, s.binary("max", feature, s.constant(0, I32)), x.type.shape[1])
                known = load_if_any(s, x, [row, place], [1])
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
        made.append(Case(tuple(np.shape(a) for a in arrays.values()), arrays=arrays, terms=max(trees * (terms + 1), 1)))
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
    gradient=None,
    lower=_lower,
    cases=_cases(),
    properties=frozenset({"costly", "sequential", "summing"}),
)

OPERATORS = (linear_tree_sum,)
