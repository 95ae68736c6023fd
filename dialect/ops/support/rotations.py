"""Rotations that make a bidiagonal matrix diagonal, by implicit QR steps (Golub and Reinsch, 1970): the second part of
`svd`.

A step takes a block from `low` to `high` without a small element beside the diagonal. Its first rotation of columns
makes an element below the diagonal; rotations of rows and of columns in turn move it down, and out of the block:

    d e        d e        d e x      d e        d e        d e
      d e   -> x d e   ->   d e   ->   d e   ->   d e x ->   d e
        d          d          d        x d          d          d

The shift is the smaller singular value of the last two columns, so that the last element beside the diagonal decreases
with its third power: about two steps for each column. An element beside the diagonal that is at most epsilon times the
largest one counts as 0, and divides the block. With such an element on the diagonal, the shift is 0: then the step
makes the last element beside the diagonal 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dims import Size
from ...emitter import Scalar, Tensor
from .matrix_loops import TOGETHER, MatrixLoops, padded


def rotated_rows(columns: Size) -> Size:
    """Returns the number of rows that groups of rotations read: those after the columns stay as they are."""
    return columns + TOGETHER


STEPS = 30
"""The greatest number of steps for a column. The steps after the last one do nothing."""


class Rotations:
    """Writes the loops. Rotations of rows also rotate the rows of `left`, those of columns the rows of `right`. Their
    cosines and sines are kept for a step, followed by rotations by 0, so that the last group of them is complete."""

    def __init__(self, loops: MatrixLoops, rows: Size, columns: Size) -> None:
        self.loops, self.s, self.rows, self.columns = loops, loops.s, rows, columns

    def diagonalized(self, given: Sequence[Tensor]) -> list[Tensor]:
        """Changes the tensors `left` [.., padded rows], `right` [.., padded columns], d and e, and writes the angles
        [2, ..] of columns and of rows, where .. is `rotated_rows(columns)`."""
        loops, s, count = self.loops, self.s, self.s.size(self.columns)
        d, e = given[2:4]

        def larger(_: Any, k: Scalar, found: Sequence[Scalar]) -> Sequence[Scalar]:
            return [loops.greater(found[0], loops.greater(*(loops.magnitude(loops.load(x, k)) for x in (d, e))))]

        (largest,) = s.iterate(count, [loops.zero], larger)
        least = loops.multiply(largest, loops.number(loops.dtype.epsilon))

        def column(
            _: Scalar, tensors: Sequence[Tensor], scalars: Sequence[Scalar]
        ) -> tuple[Sequence[Tensor], Sequence[Scalar]]:
            left = s.compare("gt", scalars[0], loops.first)
            steps = s.select(left, loops.index(STEPS), loops.first)
            return s.repeat(steps, tensors, scalars, lambda _, given, high: self.step(given, high[0], least))

        high = s.binary("max", loops.subtract(count, loops.step), loops.first)
        return list(s.repeat(count, given, [high], column)[0])

    def step(self, tensors: Sequence[Tensor], high: Scalar, least: Scalar) -> tuple[Sequence[Tensor], Sequence[Scalar]]:
        """Makes a step in the last block, if it has several columns, or leaves the last column alone."""
        loops, s = self.loops, self.s
        left, right, d, e, of_columns, of_rows = tensors
        given = d

        def start(_: Any, k: Scalar, found: Sequence[Scalar]) -> Sequence[Scalar]:
            """Returns the first column of the block, and the least number on its diagonal."""
            after = loops.add(k, loops.step)
            divides = s.compare("le", loops.magnitude(loops.load(e, k)), least)
            own = loops.magnitude(loops.load(given, after))
            restarts = s.binary("or", divides, s.compare("lt", own, found[1]))
            return [s.select(divides, after, found[0]), s.select(restarts, own, found[1])]

        head = loops.magnitude(loops.load(d, loops.first))
        low, small = s.iterate(high, [loops.first, head], start)
        count = loops.subtract(high, low)
        shift = s.select(s.compare("le", small, least), loops.zero, self.shift(d, e, high))
        d, e, of_columns, of_rows = self.chase([d, e, of_columns, of_rows], low, count, shift)
        right = self.rotated(right, of_columns, low, count, self.columns)
        left = self.rotated(left, of_rows, low, count, self.rows)
        done = s.compare("eq", count, loops.first)
        lower = s.binary("max", loops.subtract(high, loops.step), loops.first)
        return [left, right, d, e, of_columns, of_rows], [s.select(done, lower, high)]

    def shift(self, d: Tensor, e: Tensor, high: Scalar) -> Scalar:
        """Returns the smaller singular value of x e: their product is |x * y|, the sum of the smaller and the greater
                                                0 y
        one sqrt((|x| + |y|)^2 + e^2), and their difference sqrt((|x| - |y|)^2 + e^2)."""
        loops, s = self.loops, self.s
        before = s.binary("max", loops.subtract(high, loops.step), loops.first)
        x, y = (loops.magnitude(loops.load(d, k)) for k in (before, high))
        beside = loops.load(e, before)
        square = loops.multiply(beside, beside)

        def root(x: Scalar) -> Scalar:
            return s.unary("sqrt", loops.add(loops.multiply(x, x), square))

        twice = loops.add(root(loops.add(x, y)), root(loops.subtract(x, y)))
        product = loops.multiply(x, y)
        found = loops.divide(loops.add(product, product), twice)
        return s.select(s.compare("gt", twice, loops.zero), found, loops.zero)

    def rotation(self, f: Scalar, g: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """Returns the cosine, the sine and the length of (f, g), which a rotation turns into (length, 0)."""
        loops, s = self.loops, self.s
        square = loops.add(loops.multiply(f, f), loops.multiply(g, g))
        large = s.compare("gt", square, loops.number(loops.dtype.epsilon**5))
        length = s.unary("sqrt", square)
        cosine, sine = loops.divide(f, length), loops.divide(g, length)
        return s.select(large, cosine, loops.one), s.select(large, sine, loops.zero), s.select(large, length, f)

    def chase(self, given: Sequence[Tensor], low: Scalar, count: Scalar, shift: Scalar) -> Sequence[Tensor]:
        """Computes the rotations of a step, and changes the block by them."""
        loops, s = self.loops, self.s
        first = loops.load(given[0], low)
        # (d^2 - shift^2, d * e), divided by d.
        shifted = loops.divide(loops.multiply(loops.subtract(first, shift), loops.add(first, shift)), first)
        f = s.select(s.compare("gt", shift, loops.zero), shifted, first)
        beside = loops.load(given[1], low)

        def one(
            number: Scalar, tensors: Sequence[Tensor], scalars: Sequence[Scalar]
        ) -> tuple[Sequence[Tensor], Sequence[Scalar]]:
            (d, e, of_columns, of_rows), (f, g, x, y) = tensors, scalars
            k = loops.add(low, number)
            after = loops.add(k, loops.step)
            next_x, next_y = loops.load(d, after), loops.load(e, after)
            cosine, sine, length = self.rotation(f, g)
            # The first length is that of no element; the place is written again below.
            is_first = s.compare("eq", number, loops.first)
            e = loops.store(e, length, s.select(is_first, k, loops.subtract(k, loops.step)))
            of_columns = self.noted(of_columns, k, cosine, sine)
            f, y = self.turned(cosine, sine, x, y)
            g, x = loops.multiply(sine, next_x), loops.multiply(cosine, next_x)
            cosine, sine, length = self.rotation(f, g)
            d = loops.store(d, length, k)
            of_rows = self.noted(of_rows, k, cosine, sine)
            f, x = self.turned(cosine, sine, y, x)
            g, y = loops.multiply(sine, next_y), loops.multiply(cosine, next_y)
            return [loops.store(d, x, after), loops.store(e, f, k), of_columns, of_rows], [f, g, x, y]

        def rest(k: Scalar, *angles: Tensor) -> Sequence[Tensor]:
            return [self.noted(each, k, loops.one, loops.zero) for each in angles]

        (d, e, *angles), _ = s.repeat(count, list(given), [f, beside, first, beside], one)
        end = loops.add(low, count)
        return [d, e, *loops.each(end, loops.add(end, loops.index(TOGETHER - 1)), angles, rest)]

    def noted(self, angles: Tensor, k: Scalar, cosine: Scalar, sine: Scalar) -> Tensor:
        loops = self.loops
        return loops.store(loops.store(angles, cosine, loops.first, k), sine, loops.step, k)

    def turned(self, cosine: Scalar, sine: Scalar, x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
        loops = self.loops
        return (
            loops.add(loops.multiply(cosine, x), loops.multiply(sine, y)),
            loops.subtract(loops.multiply(cosine, y), loops.multiply(sine, x)),
        )

    def rotated(self, x: Tensor, angles: Tensor, low: Scalar, count: Scalar, width: Size) -> Tensor:
        """Rotates rows k and k + 1 for each k of the block: a row of several rotations is loaded and stored once."""
        loops = self.loops

        def several(numbers: Sequence[Scalar], x: Tensor) -> Tensor:
            places = [loops.add(low, number) for number in numbers]
            factors = [tuple(loops.load(angles, part, k) for part in (loops.first, loops.step)) for k in places]
            rows = [*places, loops.add(places[-1], loops.step)]

            def column(c: Scalar, x: Tensor) -> Tensor:
                elements = [loops.load(x, row, c) for row in rows]
                for n, (cosine, sine) in enumerate(factors):
                    elements[n], elements[n + 1] = self.turned(cosine, sine, elements[n], elements[n + 1])
                for row, element in zip(rows, elements, strict=True):
                    x = loops.store(x, element, row, c)
                return x

            made: Tensor = loops.lanes(loops.first, padded(width), x, column)
            return made

        made: Tensor = loops.rows(loops.first, count, x, several)
        return made
