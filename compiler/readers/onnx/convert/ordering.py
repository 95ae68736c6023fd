"""Sorting and cumulative operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.types import I64
from ...writing.tensors import Tensor, known
from ..writing.use import Convert, Converters, Use


def _top_k(use: Use) -> Sequence[Tensor]:
    x = use.input()
    axis = use.axis(x.rank, -1)
    if use.version < 10:
        count = use.integer("k")
    else:
        given = use.input(1)
        if given.type.elements != 1:
            use.fail(f"takes one count, not {given.type}", code="wrong-operands")
        if given.sizes is not None:
            count = given.sizes[0]
        else:
            count = use.declared_shape("a count")[axis]
            g = use.g
            use.require(g.equal(g.cast(g.reshape(given, shape=()), dtype=I64), g.size(count)))
    return use.g.apply("top_k", [x], {"k": count, "axis": axis, "largest": bool(use.integer("largest", 1))})


def _cumulative(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, given, g = use.input(), use.input(1), use.g
        attributes = {"exclusive": bool(use.integer("exclusive", 0)), "reverse": bool(use.integer("reverse", 0))}
        if given.type.elements != 1 or not x.rank:
            use.fail(f"takes one axis, not {given.type}, for {x.type}", code="wrong-operands")
        if given.sizes is not None:
            axis = use.ints(1, "an axis")[0]
            return g.apply(name, [x], {"axis": axis, **attributes})
        # The axis is an argument of the call: the results along all axes are computed, and one is selected.
        axis_given = g.remainder(g.cast(g.reshape(given, shape=()), dtype=I64), known(np.int64(max(x.rank, 1))))
        result = g.apply(name, [x], {"axis": 0, **attributes})[0]
        for axis in range(1, x.rank):
            other = g.apply(name, [x], {"axis": axis, **attributes})[0]
            result = g.where(g.equal(axis_given, known(np.int64(axis))), other, result)
        return [result]

    return convert


def _hardmax(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    if use.version < 13:
        axis = use.axis(x.rank, 1)
        shape = x.shape
        rows = 1
        for size in shape[:axis]:
            rows = rows * size  # type: ignore[assignment]  # a size
        x = g.reshape(x, shape=(rows, -1))
        return [g.reshape(_hot(use, x, 1), shape=shape)]
    return [_hot(use, x, use.axis(x.rank, -1))]


def _hot(use: Use, x: Tensor, axis: int) -> Tensor:
    g = use.g
    indices = g.argmax(x, axis=axis, keepdims=True)
    line = g.reshape(g.iota(shape=(x.shape[axis],)), shape=(x.shape[axis], *(1,) * (x.rank - axis - 1)))
    return g.cast(g.equal(indices, line), dtype=x.dtype)


CONVERTERS: Converters = {
    "TopK": _top_k,
    "CumSum": _cumulative("cumsum"),
    "CumProd": _cumulative("cumprod"),
    "Hardmax": _hardmax,
}
