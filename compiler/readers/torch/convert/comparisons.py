"""Comparisons, logic and bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .....dialect.types import BOOL
from ...writing.tensors import Tensor, known
from ..writing.use import Convert, Converters, Use

_COMPARISONS: Mapping[str, str] = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}  # fmt: skip
_BITS: Mapping[str, str] = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}
_LOGIC: Mapping[str, str] = {"and": "logical_and", "or": "logical_or", "xor": "logical_xor"}


def truth(use: Use, x: Tensor) -> Tensor:
    """Returns a mask that is true for elements other than zero."""
    return x if x.dtype == BOOL else use.g.not_equal(x, use.g.like(0, x))


def _compare(name: str) -> Convert:
    """Returns the converter of a comparison, in the dtype to which the operands promote."""

    def convert(use: Use) -> Sequence[Tensor]:
        g, dtype = use.g, use.result_dtype("self", "other")
        x, y = use.cast("self", dtype), use.cast("other", dtype)
        if dtype == BOOL and name not in ("equal", "not_equal"):
            return [_compare_truth(use, name, x, y)]
        return [g.apply(name, [x, y], {})[0]]

    return convert


def _compare_truth(use: Use, name: str, x: Tensor, y: Tensor) -> Tensor:
    """Compares two bool tensors; false is less than true."""
    g = use.g
    if name.startswith("greater"):
        x, y = y, x
    return g.logical_or(g.logical_not(x), y) if name.endswith("_equal") else g.logical_and(g.logical_not(x), y)


def _bits(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, y = use.cast("self", use.dtype), use.cast("other", use.dtype)
        table = _LOGIC if use.dtype == BOOL else _BITS
        return [use.g.apply(table[name], [x, y], {})[0]]

    return convert


def _logic(name: str) -> Convert:
    return lambda use: [use.g.apply(name, [truth(use, use.tensor()), truth(use, use.tensor("other"))], {})[0]]


def _where(use: Use) -> Sequence[Tensor]:
    condition = truth(use, use.tensor("condition"))
    return [use.g.where(condition, use.cast("self", use.dtype), use.cast("other", use.dtype))]


def _masked_fill(use: Use) -> Sequence[Tensor]:
    return [use.g.where(truth(use, use.tensor("mask")), use.cast("value", use.dtype), use.cast("self", use.dtype))]


def _of_float(name: str) -> Convert:
    """Returns the converter of `isnan` and similar tests; integers are finite."""

    def convert(use: Use) -> Sequence[Tensor]:
        x, g = use.tensor(), use.g
        if x.dtype.is_float:
            return [g.apply(name, [x], {})[0]]
        return [g.broadcast_to(known(name == "isfinite"), shape=x.shape)]

    return convert


def _bit_shift(name: str) -> Convert:
    return lambda use: [use.g.apply(name, [use.cast("self", use.dtype), use.cast("other", use.dtype)], {})[0]]


_OF_NUMBERS = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
_SHIFTS = (
    ("__lshift__", ("Tensor", "Scalar"), "shift_left"),
    ("__rshift__", ("Tensor", "Scalar"), "shift_right"),
    ("bitwise_left_shift", _OF_NUMBERS, "shift_left"),
    ("bitwise_right_shift", _OF_NUMBERS, "shift_right"),
)
"""Names of shifts in PyTorch, their overloads, and their names in the graph."""

CONVERTERS: Converters = {
    **{f"{short}.{form}": _compare(name) for short, name in _COMPARISONS.items() for form in ("Tensor", "Scalar")},
    **{f"bitwise_{name}.{form}": _bits(name) for name in _BITS for form in ("Tensor", "Scalar")},
    **{f"logical_{name}.default": _logic(f"logical_{name}") for name in _LOGIC},
    "logical_not.default": lambda use: [use.g.logical_not(truth(use, use.tensor()))],
    **{f"{name}.{form}": _bit_shift(shift) for name, forms, shift in _SHIFTS for form in forms},
    "isnan.default": _of_float("isnan"),
    "isinf.default": _of_float("isinf"),
    "isfinite.default": _of_float("isfinite"),
    "where.self": _where,
    "where.ScalarOther": _where,
    "where.ScalarSelf": _where,
    "where.Scalar": _where,
    "masked_fill.Scalar": _masked_fill,
    "masked_fill.Tensor": _masked_fill,
}
