"""Comparisons, logic and selection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...writing.tensors import Tensor, known
from ..writing.fixed_point import scaled, shifted
from ..writing.use import Convert, Converters, Use


def _compare(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, y, g = use.input(0), use.input(1), use.g
        if all(record is not None and record.quantization is not None for record in use.records[:2]):
            sides = []
            for index, each in enumerate((x, y)):
                from_ = use.quantized(index)
                step = g.shift_left(shifted(use, each, from_.zero), known(np.int32(8)))
                sides.append(scaled(use, step, float(from_.scale)))
            x, y = sides
        return [g.apply(name, [x, y], {})[0]]

    return convert


def _logic(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        return [use.g.apply(name, list(use.inputs), {})[0]]

    return convert


def _select(use: Use) -> Sequence[Tensor]:
    condition, x, y, g = use.input(0), use.input(1), use.input(2), use.g
    if condition.rank == 1 and x.rank > 1 and use.operator.name == "SELECT":
        condition = g.reshape(condition, shape=(*condition.shape, *(1,) * (x.rank - 1)))
    return [g.where(condition, x, y)]


CONVERTERS: Converters = {
    "EQUAL": _compare("equal"),
    "NOT_EQUAL": _compare("not_equal"),
    "LESS": _compare("less"),
    "LESS_EQUAL": _compare("less_equal"),
    "GREATER": _compare("greater"),
    "GREATER_EQUAL": _compare("greater_equal"),
    "LOGICAL_AND": _logic("logical_and"),
    "LOGICAL_OR": _logic("logical_or"),
    "LOGICAL_NOT": _logic("logical_not"),
    "SELECT": _select,
    "SELECT_V2": _select,
}
