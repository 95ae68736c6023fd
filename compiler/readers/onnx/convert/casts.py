"""Conversions between dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .....dialect.types import BOOL, F32, DType
from ...writing.graph_writer import GraphWriter
from ...writing.tensors import Tensor, known
from ..writing.narrow import ELEMENTS, NARROW, element_of
from ..writing.use import Converters, Use
from .narrowing import narrowed

_BY_NAME = (
    "FLOAT", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "STRING", "BOOL", "FLOAT16", "DOUBLE", "UINT32",
    "UINT64",
)  # fmt: skip


def _cast(use: Use) -> Sequence[Tensor]:
    return [converted(use, use.element_name(use.integer("to")))]


def _cast_by_name(use: Use) -> Sequence[Tensor]:
    name = use.string("to")
    if name not in _BY_NAME:
        use.fail(f"has the attribute `to` = {name!r}", code="bad-attribute")
    return [converted(use, use.element_name(_BY_NAME.index(name) + 1))]


def _cast_like(use: Use) -> Sequence[Tensor]:
    return [converted(use, element_of(use.input(1)))]


def _bit_cast(use: Use) -> Sequence[Tensor]:
    x, dtype = use.input(), use.element_type("to")
    if x.dtype == BOOL and dtype.bits == 8 and dtype.is_integer:
        # A bool is a byte that is 0 or 1.
        return [use.g.cast(x, dtype=dtype)]
    return [x if x.dtype == dtype else use.g.bitcast(x, dtype=dtype)]


def converted(use: Use, element: str) -> Tensor:
    """Returns the operand with another type of elements. 8-bit floats saturate, unless an attribute of the node
    disables it."""
    x, g = use.input(), use.g
    if element in NARROW:
        return narrowed(use, x, NARROW[element])
    dtype = ELEMENTS[element]
    if x.dtype == dtype:
        return replace(x, element="")
    result = g.cast(x, dtype=dtype)
    if dtype.is_storage and not use.integer("saturate", 1):
        return _overflowing(g, x, result, dtype)
    return result


def _overflowing(g: GraphWriter, x: Tensor, result: Tensor, dtype: DType) -> Tensor:
    """Replaces the greatest finite numbers, which represent overflow, by infinities, or by NaN if the type has no
    infinities."""
    format = dtype.float_format
    wide = g.cast(x, dtype=F32)
    # Numbers up to half a step above the largest round to it.
    step = format.largest * format.epsilon / (2 - format.epsilon * (2 if format.finite else 1))
    limit = g.like(format.largest + step / 2, wide)
    special = float("nan") if format.finite else float("inf")
    above, below = known(special, dtype), known(-special, dtype)
    bounded = g.where(g.greater_equal(wide, limit), above, result)
    return g.where(g.less_equal(wide, g.negate(limit)), below, bounded)


CONVERTERS: Converters = {"Cast": {1: _cast_by_name, 6: _cast}, "CastLike": _cast_like, "BitCast": _bit_cast}
