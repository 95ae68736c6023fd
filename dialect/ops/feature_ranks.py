"""Ranks of features in blocks of rows: a feature is replaced by its position among the thresholds of the ensemble.

`feature_ranks` counts the thresholds of a column that the number does not pass, so comparing a rank with the position
of a threshold has the result of comparing the numbers:

    thresholds of a feature    -1.0   0.5   2.0          x <= 0.5   if and only if   rank < 2
    ranks                    0      1     2     3        (the least number of the dtype is added to all ranks)

A column is a feature with one meaning of missing numbers: the flags of `support/trees.py`. Ranks are laid out
[blocks, columns, ROWS], so that one instruction compares a column of ROWS rows: see `ranked_trees`. `row_ranks` finds
the same ranks row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import ceil_divide, static_size
from ..emitter import BodyEmitter, Emitter, Scalar, ScalarEmitter, Tensor
from ..operator import Attributes, AttributeSpec, Case, InferenceError, LateCases, Operand, Operator
from ..types import F32, F64, I8, I16, I32, I64, DType, TensorType
from .support.accumulate import Numbers
from .support.index_modes import load_if_any, taken_along
from .support.trees import DEFAULT_LEFT, NAN_IS_MISSING, NEARLY_ZERO, ZERO_IS_MISSING

ROWS = 32
"""The rows of a block of ranks."""
CHOSEN_LEVELS = 5
"""The levels of a search whose thresholds are chosen in registers."""
NAN_IS_ZERO = 32
"""The flag of a column, besides those of nodes: NaN that is not missing is 0. Else it is above all thresholds."""
RANKS = (I8, I16)
_FLOATS = (F32, F64)


def least_rank(dtype: DType) -> int:
    return -(1 << (dtype.bits - 1))


def is_power(count: object) -> bool:
    return isinstance(count, int) and count > 0 and not count & (count - 1)


def _infer_ranks(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, thresholds, feature, flags = types
    if x.rank != 2 or thresholds.rank != 2 or {feature.shape, flags.shape} != {thresholds.shape[:1]}:
        message = (
            "`feature_ranks` needs x [rows, features], thresholds [columns, count], and a feature and flags for each"
        )
        message += f" column, not {x}, {thresholds}"
        raise InferenceError("shape-mismatch", message)
    dtype, count = attributes["dtype"], thresholds.shape[1]
    if dtype not in RANKS or not isinstance(count, int) or not is_power(count + 1) or count >= 1 << dtype.bits:
        message = (
            f"`thresholds` of `feature_ranks` has a power of two less 1 columns that {dtype} can count, not {count}"
        )
        raise InferenceError("shape-mismatch", message, operand=1)
    return (TensorType(dtype, (ceil_divide(x.shape[0], ROWS), thresholds.shape[0], ROWS)),)


def _reference_ranks(
    x: Numbers, thresholds: Numbers, feature: Numbers, flags: Numbers, *, compare: str, dtype: DType
) -> Numbers:
    rows = np.minimum(np.arange(-(-len(x) // ROWS) * ROWS), len(x) - 1)
    at = np.clip(feature, 0, max(0, x.shape[1] - 1))
    value = taken_along(x[rows], np.broadcast_to(at, (len(rows), len(feature))))
    is_nan = np.isnan(value)
    known = np.where(is_nan & (flags & NAN_IS_ZERO != 0), x.dtype.type(0), value)
    passed = np.less_equal if compare == "le" else np.less
    count = (~passed(known[:, :, None], thresholds)).sum(2)
    missing = (is_nan & (flags & NAN_IS_MISSING != 0)) | (
        (np.abs(known) <= x.dtype.type(NEARLY_ZERO)) & (flags & ZERO_IS_MISSING != 0)
    )
    ends = np.where(flags & DEFAULT_LEFT != 0, 0, thresholds.shape[1])
    ranks = (np.where(missing, ends, count) + least_rank(dtype)).astype(dtype.numpy)
    return np.ascontiguousarray(ranks.reshape(-(-len(x) // ROWS), ROWS, len(feature)).transpose(0, 2, 1))


def _lower_ranks(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, thresholds, feature, flags = operands
    count = thresholds.type.shape[1]
    assert isinstance(count, int), thresholds

    def element(s: BodyEmitter) -> Scalar:
        block, column, lane = (s.index(i) for i in range(3))
        zero, one = s.constant(0, I64), s.constant(1, I64)
        row = s.binary("add", s.binary("mul", block, s.constant(ROWS, I64)), lane)
        row = s.binary("min", row, s.binary("sub", s.size(x.type.shape[0]), one))
        last = s.binary("sub", s.size(x.type.shape[1]), one)
        position = s.binary("max", s.binary("min", s.cast(s.load(feature, [column]), I64), last), zero)
        value, given = load_if_any(s, x, [row, position], [1]), s.load(flags, [column])

        known, is_default, ends = read_missing(s, value, given, count)
        found = _search(s, thresholds, column, known, str(attributes["compare"]))
        rank = s.select(is_default, ends, found)
        return s.cast(s.binary("add", rank, s.constant(least_rank(types[0].dtype), I32)), types[0].dtype)

    return [e.map(types[0], [], element)]


def read_missing(s: ScalarEmitter, value: Scalar, flags: Scalar, count: int) -> tuple[Scalar, Scalar, Scalar]:
    """Returns the number to search for, whether it is missing, and the rank of a missing one."""
    kind = value.dtype

    def has(flag: int) -> Scalar:
        return s.compare("ne", s.binary("and", flags, s.constant(flag, I32)), s.constant(0, I32))

    is_nan = s.compare("ne", value, value)
    known = s.select(s.binary("and", is_nan, has(NAN_IS_ZERO)), s.constant(0, kind), value)
    least = s.constant(float(np.float32(NEARLY_ZERO)) if kind == F32 else NEARLY_ZERO, kind)
    near = s.compare("le", s.unary("abs", known), least)
    missing = s.binary("or", s.binary("and", is_nan, has(NAN_IS_MISSING)), s.binary("and", near, has(ZERO_IS_MISSING)))
    return known, missing, s.select(has(DEFAULT_LEFT), s.constant(0, I32), s.constant(count, I32))


def _search(s: BodyEmitter, thresholds: Tensor, column: Scalar, x: Scalar, compare: str) -> Scalar:
    """Returns the number of thresholds of a column that `x` does not pass, by bisection.

    The thresholds of the first levels are chosen from those that all rows read; later ones are loaded row by row.
    """
    count = static_size(thresholds.type.shape[1])
    found: Scalar = s.constant(0, I32)
    beyond: list[Scalar] = []
    step = (count + 1) // 2

    def choose(level: int, start: int) -> Scalar:
        if level == len(beyond):
            return s.load(thresholds, [column, s.constant(start + step - 1, I64)])
        half = (count + 1) >> (level + 1)
        return s.select(beyond[level], choose(level + 1, start + half), choose(level + 1, start))

    while step:
        if len(beyond) < CHOSEN_LEVELS:
            tried = choose(0, 0)
        else:
            position = s.cast(s.binary("add", found, s.constant(step - 1, I32)), I64)
            tried = s.load(thresholds, [column, position])
        beyond.append(s.unary("not", s.compare(compare, x, tried)))
        found = s.binary("add", found, s.select(beyond[-1], s.constant(step, I32), s.constant(0, I32)))
        step //= 2
    return found


def _rank_cases() -> tuple[Case, ...]:
    rng = np.random.default_rng(0)
    made = []
    odd = [0.0, -0.0, 0.5, -1.0, 2.0, np.nan, np.inf, -np.inf, 1e-36]
    for rows, count, compare, dtype in ((5, 3, "le", I8), (32, 1, "lt", I8), (33, 7, "le", I16), (0, 3, "lt", I8)):
        arrays: dict[int, Any] = {
            0: rng.choice(odd, (rows, 3)),
            1: np.sort(rng.choice([0.0, 0.5, -1.0, np.inf], (4, count)), axis=1),
            2: rng.integers(0, 3, 4).astype(np.int32),
            3: np.asarray([0, NAN_IS_MISSING, NAN_IS_ZERO, NAN_IS_ZERO | ZERO_IS_MISSING | DEFAULT_LEFT], np.int32),
        }
        attributes = {"compare": compare, "dtype": dtype}
        made.append(Case(tuple(a.shape for a in arrays.values()), attributes, arrays=arrays, gradient=False))
    return tuple(made)


feature_ranks = Operator(
    name="feature_ranks",
    summary="the ranks [blocks, columns, 32] of features among the sorted thresholds of columns",
    operands=(
        Operand("x", _FLOATS),
        Operand("thresholds", _FLOATS),
        Operand("feature", (I32,), "I"),
        Operand("flags", (I32,), "I"),
    ),
    attributes=(AttributeSpec("compare", "str", "le", ("le", "lt")), AttributeSpec("dtype", "dtype", I8)),
    infer=_infer_ranks,
    reference=_reference_ranks,
    gradient=None,
    lower=_lower_ranks,
    cases=LateCases(lambda: _rank_cases()),
    properties=frozenset({"costly", "stepped"}),
)

OPERATORS = (feature_ranks,)
