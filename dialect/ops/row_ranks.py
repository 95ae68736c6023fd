"""Ranks of features row by row, for calls of few rows.

`row_ranks` finds the ranks of `feature_ranks`, laid out [rows, width]: a row of ranks follows the nodes of trees, see
`ranked_rows` and `leaf_indices`. Ranks are unsigned, so they count from 0, and a row has a rank for every number that a
column in 8 bits can be. Ranks behind the last column are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..dims import static_size
from ..emitter import Emitter, Scalar, SequenceEmitter, Tensor
from ..operator import Attributes, AttributeSpec, Case, InferenceError, LateCases, Operator
from ..types import F32, I8, I16, I32, I64, U8, U16, TensorType
from .feature_ranks import ROWS, feature_ranks, least_rank, read_missing
from .support.accumulate import Numbers
from .support.index_modes import load_if_any

LEAST_WIDTH = 256
"""The least number of ranks of a row."""
SIGNED = {U8: I8, U16: I16}
"""The dtypes of ranks, and those of `feature_ranks` with the same number of bits."""


def _signed(attributes: Attributes) -> Attributes:
    return {**attributes, "dtype": SIGNED.get(attributes["dtype"], attributes["dtype"])}


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    dtype = attributes["dtype"]
    (blocks,) = feature_ranks.infer(types, _signed(attributes) if dtype in SIGNED else {**attributes, "dtype": F32})
    columns = blocks.shape[1]
    if not isinstance(columns, int):
        message = f"`thresholds` of `row_ranks` has a known number of columns, not {columns}"
        raise InferenceError("shape-mismatch", message, operand=1)
    return (TensorType(dtype, (types[0].shape[0], row_width(columns))),)


def row_width(columns: int) -> int:
    """Returns the number of ranks of a row."""
    return 1 << max(columns - 1, LEAST_WIDTH - 1).bit_length()


def in_rows(blocks: Numbers, rows: int) -> Numbers:
    """Returns the first rows [rows, columns] of blocks [blocks, columns, ROWS]."""
    flat = blocks.transpose(0, 2, 1).reshape(len(blocks) * ROWS, blocks.shape[1])
    return np.ascontiguousarray(flat[:rows])


def _reference(x: Numbers, thresholds: Numbers, feature: Numbers, flags: Numbers, **attributes: Any) -> Numbers:
    ranks = in_rows(feature_ranks.reference(x, thresholds, feature, flags, **_signed(attributes)), len(x))
    made = np.zeros((len(x), row_width(len(feature))), attributes["dtype"].numpy)
    made[:, : len(feature)] = ranks.astype(np.int64) - least_rank(SIGNED[attributes["dtype"]])
    return made


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, thresholds, feature, flags = operands
    (result,) = types
    count, compare, features = static_size(thresholds.type.shape[1]), str(attributes["compare"]), x.type.shape[1]

    def write(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        row, column = indices
        last = s.binary("sub", s.size(features), s.constant(1, I64))
        position = s.binary("max", s.binary("min", s.cast(s.load(feature, [column]), I64), last), s.constant(0, I64))
        value, given = load_if_any(s, x, [row, position], [1]), s.load(flags, [column])
        known, is_default, ends = read_missing(s, value, given, count)
        found: Scalar = s.constant(0, I64)
        step = (count + 1) // 2
        while step:
            tried = s.load(thresholds, [column, s.binary("add", found, s.constant(step - 1, I64))])
            beyond = s.unary("not", s.compare(compare, known, tried))
            found = s.binary("add", found, s.select(beyond, s.constant(step, I64), s.constant(0, I64)))
            step //= 2
        rank = s.select(is_default, ends, s.cast(found, I32))
        return [s.store(tensors[0], [row, column], s.cast(rank, result.dtype))]

    return e.scan((result.shape[0], feature.type.shape[0]), [e.full(result, 0)], write)


def _cases() -> tuple[Case, ...]:
    unsigned = {signed: own for own, signed in SIGNED.items()}
    return tuple(
        replace(case, attributes={**case.attributes, "dtype": unsigned[case.attributes["dtype"]]})
        for case in feature_ranks.cases
    )


row_ranks = Operator(
    name="row_ranks",
    summary="the ranks [rows, columns] of features among the sorted thresholds of columns",
    operands=feature_ranks.operands,
    attributes=(AttributeSpec("compare", "str", "le", ("le", "lt")), AttributeSpec("dtype", "dtype", U8)),
    infer=_infer,
    reference=_reference,
    gradient=None,
    lower=_lower,
    cases=LateCases(lambda: _cases()),
    properties=frozenset({"costly", "stepped", "sequential"}),
)

OPERATORS = (row_ranks,)
