"""Steps of Gaussian elimination in a sequential loop: the pivot of a column, an exchange, an elimination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dims import Size
from ...emitter import Scalar, SequenceEmitter, Tensor
from ...types import I64
from .accumulate import Numbers

IndexOf = Callable[[Scalar], Sequence[Scalar]]
"""Returns the indices of an element by the number of its pair."""


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


def exchange(s: SequenceEmitter, x: Tensor, first: IndexOf, second: IndexOf, count: Size) -> Tensor:
    """Exchanges `count` pairs of elements; `first` and `second` return the indices of a pair."""

    def element(number: Scalar, given: Tensor) -> Tensor:
        left, right = s.load(given, first(number)), s.load(given, second(number))
        given = s.store(given, first(number), right)
        stored: Tensor = s.store(given, second(number), left)
        return stored

    result: Tensor = for_each(s, s.size(count), x, element)
    return result


def swap_rows(s: SequenceEmitter, x: Tensor, at: Sequence[Scalar], k: Scalar, pivot: Scalar, size: Size) -> Tensor:
    """Returns the tensor with two rows exchanged."""
    return exchange(s, x, lambda column: (*at, k, column), lambda column: (*at, pivot, column), size)


def eliminate(s: SequenceEmitter, x: Tensor, at: Sequence[Scalar], k: Scalar, size: Size) -> Tensor:
    """Subtracts multiples of row k from the rows after it, so that column k of the tensor becomes 0 in them."""
    one = s.constant(1, I64)
    pivot = s.load(x, (*at, k, k))

    def row(number: Scalar, given: Tensor) -> Tensor:
        i = s.binary("add", s.binary("add", k, one), number)
        factor = s.load(given, (*at, i, k))
        is_zero = s.compare("eq", pivot, s.constant(0, pivot.dtype))
        factor = s.binary("div", factor, s.select(is_zero, s.constant(1, pivot.dtype), pivot))

        def column(j: Scalar, inner: Tensor) -> Tensor:
            product = s.binary("mul", factor, s.load(inner, (*at, k, j)))
            stored: Tensor = s.store(inner, (*at, i, j), s.binary("sub", s.load(inner, (*at, i, j)), product))
            return stored

        changed: Tensor = for_each(s, s.size(size), given, column)
        return changed

    result: Tensor = for_each(s, s.binary("sub", s.binary("sub", s.size(size), k), one), x, row)
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
