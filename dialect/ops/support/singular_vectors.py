"""The first and the last steps of `svd`: the matrix is scaled, and its singular values are put in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dims import Size
from ...emitter import Scalar, Tensor
from ...types import BOOL, F64, I32, I64
from .matrix_loops import MatrixLoops


class Scale:
    """The greatest power of two that is at most the greatest element: the scaled elements are at most 2, so that no
    square overflows. `wrong` is 0, or NaN for a matrix with an infinity or NaN, which is replaced by zeros."""

    def __init__(self, loops: MatrixLoops, x: Tensor, peaks: Tensor) -> None:
        """`peaks` is memory for a row of x, which is 0."""
        s, self.loops = loops.s, loops
        rows, columns = (s.size(size) for size in x.type.shape[-2:])

        def row(r: Scalar, peaks: Tensor) -> Tensor:
            def element(c: Scalar, found: Tensor) -> Tensor:
                value = loops.magnitude(loops.load(x, r, c))
                return loops.store(found, s.binary("max", loops.load(found, c), value), c)

            made: Tensor = loops.each(loops.first, columns, peaks, element)
            return made

        self.peaks: Tensor = loops.each(loops.first, rows, peaks, row)
        found = self.peaks
        (largest,) = s.iterate(
            columns, [loops.zero], lambda _, c, most: [s.binary("max", most[0], loops.load(found, c))]
        )
        self.is_finite = s.unary("isfinite", largest)
        self.wrong = loops.multiply(largest, loops.zero)
        integer, exponent, least = (I64, 0x7FF << 52, 1 << 52) if loops.dtype == F64 else (I32, 0xFF << 23, 1 << 23)
        bits = s.binary("and", s.bits(largest, integer), s.constant(exponent, integer))
        self.value = s.bits(s.binary("max", bits, s.constant(least, integer)), loops.dtype)

    def scaled(self, x: Scalar) -> Scalar:
        return self.loops.s.select(self.is_finite, self.loops.divide(x, self.value), self.loops.zero)


def filled(
    loops: MatrixLoops, x: Tensor, rows: Size, columns: Size, scale: Scale, given: Sequence[Tensor], *, tall: bool
) -> list[Tensor]:
    """Writes the scaled matrix by its rows, and by its columns. A wide matrix is transposed."""
    s, (a, turned) = loops.s, given
    bottom, stop = s.size(rows), s.size(columns)

    def element(r: Scalar, c: Scalar) -> Scalar:
        return scale.scaled(loops.load(x, r, c) if tall else loops.load(x, c, r))

    def row(r: Scalar, a: Tensor) -> Tensor:
        made: Tensor = loops.each(loops.first, stop, a, lambda c, a: loops.store(a, element(r, c), r, c))
        return made

    def column(c: Scalar, turned: Tensor) -> Tensor:
        made: Tensor = loops.each(loops.first, bottom, turned, lambda r, x: loops.store(x, element(r, c), c, r))
        return made

    return [loops.each(loops.first, bottom, a, row), loops.each(loops.first, stop, turned, column)]


def ordered(
    loops: MatrixLoops,
    rows: Size,
    columns: Size,
    scale: Scale,
    given: Sequence[Tensor],
    results: Sequence[Tensor],
    *,
    tall: bool,
) -> list[Tensor]:
    """Writes the results in the order of the singular values; the greatest element of each vector of the longer side is
    positive."""
    s, (left, right, d) = loops.s, given
    bottom, stop = s.size(rows), s.size(columns)
    minus = loops.number(-1)

    def column(j: Scalar, *tensors: Tensor) -> Sequence[Tensor]:
        signed = loops.load(d, j)
        own = loops.magnitude(signed)

        def precede(_: Any, other: Scalar, count: Sequence[Scalar]) -> Sequence[Scalar]:
            found = loops.magnitude(loops.load(d, other))
            before = s.binary("or", s.compare("gt", found, own), s.compare("lt", other, j))
            before = s.select(s.compare("lt", found, own), s.constant(False, BOOL), before)
            return [loops.add(count[0], s.cast(before, I64))]

        def greatest(_: Any, r: Scalar, best: Sequence[Scalar]) -> Sequence[Scalar]:
            value = loops.load(left, j, r)
            larger = s.compare("gt", loops.magnitude(value), loops.magnitude(best[0]))
            return [s.select(larger, value, best[0])]

        (place,) = s.iterate(stop, [loops.first], precede)
        (peak,) = s.iterate(bottom, [loops.zero], greatest)
        sign = s.select(s.compare("lt", peak, loops.zero), minus, loops.one)
        other = s.select(s.compare("lt", signed, loops.zero), s.unary("neg", sign), sign)
        sign = s.select(s.compare("gt", own, loops.zero), sign, loops.zero)
        first, values, second = tensors
        values = loops.store(values, loops.add(loops.multiply(own, scale.value), scale.wrong), place)
        long, short = loops.add(sign, scale.wrong), loops.add(other, scale.wrong)
        (x, factor), (y, second_factor) = ((left, long), (right, short)) if tall else ((right, short), (left, long))

        def down(r: Scalar, target: Tensor) -> Tensor:
            return loops.store(target, loops.multiply(factor, loops.load(x, j, r)), r, place)

        def along(c: Scalar, target: Tensor) -> Tensor:
            return loops.store(target, loops.multiply(second_factor, loops.load(y, j, c)), place, c)

        height, width = (bottom, stop) if tall else (stop, bottom)
        first = loops.each(loops.first, height, first, down)
        return [first, values, loops.each(loops.first, width, second, along)]

    made: list[Tensor] = loops.each(loops.first, stop, list(results), column)
    return made
