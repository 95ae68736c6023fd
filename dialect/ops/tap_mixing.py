"""Weighted sums of elements at computed positions: `mix_taps`, which `grid_sample` and `roi_align` become.

Every channel reads the same positions with the same weights, so these are computed once for all channels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..emitter import BodyEmitter, Emitter, Scalar, Tensor, loops
from ..operator import Addressing, Attributes, AttributeSpec, Case, InferenceError, LateCases, Operand, Operator
from ..types import F32, F64, I32, I64, TensorType
from .support.accumulate import Numbers
from .support.index_modes import load_if_any, taken_along

_DTYPES = (F32, F64)


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, *taps = types
    count, rest = divmod(len(taps), 2 if attributes["weighted"] else 1)
    if x.rank != 3 or rest or not count:
        raise InferenceError(
            "wrong-operands", f"`mix_taps` takes [N, C, S] and positions with weights, not {len(taps)} taps"
        )
    for number, tap in enumerate(taps):
        wrong = tap.dtype not in (I32, I64) if number < count else tap.dtype != x.dtype
        if wrong or tap.rank != 2 or tap.shape[0] != x.shape[0] or tap.shape != taps[0].shape:
            raise InferenceError(
                "shape-mismatch", f"`mix_taps` of {x} takes positions and weights [N, P], not {tap}", operand=number + 1
            )
    return (x.with_shape((*x.shape[:2], taps[0].shape[1])),)


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, *taps = operands
    weighted: bool = attributes["weighted"]
    count = len(taps) // 2 if weighted else len(taps)

    def element(s: BodyEmitter, *given: Scalar) -> Scalar:
        total: Scalar | None = None
        for number in range(count):
            position, zero = given[number], s.constant(0, given[number].dtype)
            at = [s.index(0), s.index(1), s.cast(s.binary("max", position, zero), I64)]
            value = load_if_any(s, x, at, (2,))
            value = s.select(s.compare("lt", position, zero), s.constant(0, x.type.dtype), value)
            if weighted:
                value = s.binary("mul", value, given[count + number])
            total = value if total is None else s.binary("add", total, value)
        assert total is not None
        return total

    return [e.map(types[0], [(tap, loops(0, 2)) for tap in taps], element)]


def _reference(x: Numbers, *taps: Numbers, weighted: bool) -> Numbers:
    count = len(taps) // 2 if weighted else len(taps)
    shape, total = (*x.shape[:2], taps[0].shape[1]), np.zeros(0)
    for number in range(count):
        position = np.broadcast_to(taps[number][:, None], shape)
        value = np.where(position < 0, 0, taken_along(x, np.maximum(position, 0)))
        value = value * taps[count + number][:, None] if weighted else value
        total = total + value if number else value
    return np.asarray(total, x.dtype)


def _addresses(types: Sequence[TensorType], attributes: Attributes) -> tuple[Addressing, ...]:
    x, *taps = types
    count = len(taps) // 2 if attributes["weighted"] else len(taps)
    return tuple(Addressing(1 + number, (x.shape[2],), ignored=-1, from_end=False) for number in range(count))


def _positions(rows: int, count: int, size: int) -> Numbers:
    return np.asarray(np.random.default_rng(size).integers(-1, size, (rows, count)))


mix_taps = Operator(
    name="mix_taps",
    summary="sums of elements of x [N, C, S] at positions [N, P], times their weights [N, P]: positions first, then "
    "weights; 0 at position -1",
    operands=(Operand("x", _DTYPES), Operand("taps", (*_DTYPES, I32, I64), group="taps", variadic=True, mixed=True)),
    attributes=(AttributeSpec("weighted", "bool", True),),
    infer=_infer,
    reference=_reference,
    gradient=None,
    lower=_lower,
    positions=_addresses,
    cases=LateCases(
        lambda: (
            Case(
                ((2, 3, 7), (), (), (2, 19), (2, 19)),
                arrays={1: _positions(2, 19, 7), 2: _positions(2, 19, 5)},
                dtypes=(F32,),
                terms=2,
            ),
            Case(((1, 2, 4), ()), {"weighted": False}, arrays={1: _positions(1, 3, 4).astype(np.int32)}),
            Case(((0, 2, 4), (0, 3)), {"weighted": False}, arrays={1: np.zeros((0, 3), np.int64)}),
        )
    ),
    properties=frozenset({"internal"}),
)

OPERATORS = (mix_taps,)
