"""Loops over the rows of a matrix whose elements are the lanes of vectors, inside `scan`.

The sizes of a matrix are padded to multiples of `LANES`. A loop over the columns from `first` on starts at the multiple
before it, so that every instruction works on a full vector; a loop over rows takes `TOGETHER` of them at a time.

    columns from 18 on, of 40:    16 17 [18 19 ... 31]  [32 ... 39 . . .]      two vectors

The elements before `first` and after the last one are unused, or the factors of theirs are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...dims import Size, floor_divide
from ...emitter import Scalar, SequenceEmitter, Tensor
from ...types import I64, DType
from .elimination import for_each

LANES = 16
"""The number of elements of an f32 vector; a row of f64 is two vectors at a time."""
TOGETHER = 4
"""The number of rows of one step of a loop: sums and factors stay in registers for all of them. Divides `LANES`."""
_PARTS = 8
"""The number of sums that are added at the same time, as an addition takes several cycles."""


def padded(size: Size) -> Size:
    """Returns the number of elements of a row."""
    return LANES * floor_divide(size + LANES - 1, LANES)


class MatrixLoops:
    """Writes loops over one matrix of a batch, at the indices `at`."""

    def __init__(self, s: SequenceEmitter, at: tuple[Scalar, ...], dtype: DType) -> None:
        self.s, self.at, self.dtype = s, at, dtype
        self.zero, self.one = self.number(0), self.number(1)
        self.first, self.step = self.index(0), self.index(1)

    def number(self, value: float) -> Scalar:
        return self.s.constant(value, self.dtype)

    def index(self, value: int) -> Scalar:
        return self.s.constant(value, I64)

    def load(self, x: Tensor, *indices: Scalar) -> Scalar:
        return self.s.load(x, (*self.at, *indices))

    def store(self, x: Tensor, value: Scalar, *indices: Scalar) -> Tensor:
        return self.s.store(x, (*self.at, *indices), value)

    def add(self, x: Scalar, y: Scalar) -> Scalar:
        return self.s.binary("add", x, y)

    def subtract(self, x: Scalar, y: Scalar) -> Scalar:
        return self.s.binary("sub", x, y)

    def multiply(self, x: Scalar, y: Scalar) -> Scalar:
        return self.s.binary("mul", x, y)

    def divide(self, x: Scalar, y: Scalar) -> Scalar:
        return self.s.binary("div", x, y)

    def magnitude(self, x: Scalar) -> Scalar:
        return self.s.unary("abs", x)

    def greater(self, x: Scalar, y: Scalar) -> Scalar:
        return self.s.select(self.s.compare("gt", x, y), x, y)

    def each(self, first: Scalar, stop: Scalar, carried: Any, body: Callable[..., Any]) -> Any:
        """Runs `body(index, *tensors)` for the indices from `first` up to `stop`."""
        count = self.subtract(stop, first)
        return for_each(self.s, count, carried, lambda n, *given: body(self.add(first, n), *given))

    def rows(self, first: Scalar, stop: Scalar, carried: Any, body: Callable[..., Any]) -> Any:
        """Runs `body(rows, *tensors)` for all groups of rows from that of `first` up to `stop`."""
        together = self.index(TOGETHER)
        end = self.divide(self.add(stop, self.index(TOGETHER - 1)), together)

        def several(number: Scalar, *given: Tensor) -> Any:
            start = self.multiply(number, together)
            return body([self.add(start, self.index(i)) for i in range(TOGETHER)], *given)

        return self.each(self.divide(first, together), end, carried, several)

    def lanes(self, first: Scalar, width: Size, carried: Any, body: Callable[..., Any]) -> Any:
        """Runs `body(column, *tensors)` for the columns from `first` on, a vector at a time."""
        lanes = self.index(LANES)

        def vector(number: Scalar, *given: Tensor) -> Any:
            start, carried = self.multiply(number, lanes), given[0] if len(given) == 1 else list(given)
            return for_each(self.s, lanes, carried, lambda lane, *inner: body(self.add(start, lane), *inner))

        return self.each(self.divide(first, lanes), self.s.size(floor_divide(width, LANES)), carried, vector)

    def total(self, first: Scalar, width: Size, term: Callable[[Scalar], Scalar]) -> Scalar:
        """Returns the sum of `term(column)` for the columns from `first` on, and those before it in its vector."""
        parts = self.index(_PARTS)
        groups = self.index(LANES // _PARTS)
        begin = self.multiply(self.divide(first, self.index(LANES)), groups)
        count = self.subtract(self.s.size(floor_divide(width, _PARTS)), begin)

        def several(_: Any, number: Scalar, sums: Sequence[Scalar]) -> Sequence[Scalar]:
            start = self.multiply(self.add(begin, number), parts)
            return [self.add(sum, term(self.add(start, self.index(i)))) for i, sum in enumerate(sums)]

        sums = self.s.iterate(count, [self.zero] * _PARTS, several)
        while len(sums) > 1:
            half = len(sums) // 2
            sums = tuple(self.add(x, y) for x, y in zip(sums[:half], sums[half:], strict=True))
        return sums[0]
