"""Steps of Gaussian elimination in a sequential loop: the pivot of a column, an exchange of rows, an elimination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dims import Size
from ...emitter import Scalar, SequenceEmitter, Tensor
from ...types import I64
from .accumulate import Numbers


def for_each(s: SequenceEmitter, count: Scalar, carried: Any, body: Callable[..., Any]) -> Any:
    """Runs `body(index, tensor) -> tensor` for each index; or with several tensors, which it returns as a sequence."""
    alone = not isinstance(carried, (list, tuple))

    def turn(
        index: Scalar, tensors: Sequence[Tensor], scalars: Sequence[Scalar]
    ) -> tuple[Sequence[Tensor], Sequence[Scalar]]:
        made = body(index, *tensors)
        return ([made] if alone else list(made)), []

    tensors, _ = s.repeat(count, [carried] if alone else list(carried), [], turn)
    return tensors[0] if alone else tensors


def find_pivot(s: SequenceEmitter, x: Tensor, at: Sequence[Scalar], k: Scalar, size: Size) -> Scalar:
    """Returns the row, from k on, with the greatest element of column k."""
    first = s.unary("abs", s.load(x, (*at, k, k)))

    def compare(inner: Any, number: Scalar, best: Sequence[Scalar]) -> Sequence[Scalar]:
        row = s.binary("add", k, number)
        value = s.unary("abs", s.load(x, (*at, row, k)))
        greater = s.compare("gt", value, best[1])
        return [s.select(greater, row, best[0]), s.select(greater, value, best[1])]

    return s.iterate(s.binary("sub", s.size(size), k), [k, first], compare)[0]


def swap_rows(s: SequenceEmitter, x: Tensor, at: Sequence[Scalar], k: Scalar, pivot: Scalar, size: Size) -> Tensor:
    """Returns the tensor with two rows exchanged."""

    def element(column: Scalar, given: Tensor) -> Tensor:
        upper, lower = s.load(given, (*at, k, column)), s.load(given, (*at, pivot, column))
        given = s.store(given, (*at, k, column), lower)
        stored: Tensor = s.store(given, (*at, pivot, column), upper)
        return stored

    result: Tensor = for_each(s, s.size(size), x, element)
    return result


def eliminate(
    s: SequenceEmitter, tensors: Sequence[Tensor], at: Sequence[Scalar], k: Scalar, size: Size, *, below: bool = False
) -> Sequence[Tensor]:
    """Subtracts multiples of row k from the other rows, so that column k of the first tensor becomes 0 in them.

    Without `below`, row k is divided by the pivot first, and all other rows change. With it, only the rows after k do.
    """
    one = s.constant(1, I64)
    pivot = s.load(tensors[0], (*at, k, k))
    if not below:

        def divided(column: Scalar, *given: Tensor) -> Sequence[Tensor]:
            return [s.store(x, (*at, k, column), s.binary("div", s.load(x, (*at, k, column)), pivot)) for x in given]

        tensors = for_each(s, s.size(size), list(tensors), divided)

    def row(number: Scalar, *given: Tensor) -> Sequence[Tensor]:
        if below:
            i = s.binary("add", s.binary("add", k, one), number)
            factor = s.load(given[0], (*at, i, k))
            is_zero = s.compare("eq", pivot, s.constant(0, pivot.dtype))
            factor = s.binary("div", factor, s.select(is_zero, s.constant(1, pivot.dtype), pivot))
        else:
            i = number
            own = s.compare("eq", i, k)
            factor = s.select(own, s.constant(0, pivot.dtype), s.load(given[0], (*at, i, k)))

        def column(j: Scalar, *inner: Tensor) -> Sequence[Tensor]:
            made = []
            for x in inner:
                product = s.binary("mul", factor, s.load(x, (*at, k, j)))
                made.append(s.store(x, (*at, i, j), s.binary("sub", s.load(x, (*at, i, j)), product)))
            return made

        changed: Sequence[Tensor] = for_each(s, s.size(size), list(given), column)
        return changed

    count = s.binary("sub", s.binary("sub", s.size(size), k), one) if below else s.size(size)
    result: Sequence[Tensor] = for_each(s, count, list(tensors), row)
    return result


def pivot_row(x: Numbers, k: int) -> int:
    """Exchanges row k of an array with that of the pivot, and returns the number of the latter: the first row with the
    greatest element, where NaN is greater than nothing."""
    pivot = k
    for row in range(k, len(x)):
        if np.abs(x[row, k]) > np.abs(x[pivot, k]):
            pivot = row
    x[[k, pivot]] = x[[pivot, k]]
    return pivot
