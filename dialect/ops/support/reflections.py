"""Reflections that make a matrix bidiagonal (Golub and Kahan, 1965): the first part of `svd`.

A reflection 1 - beta * v * v^T turns a vector x into a multiple of the first unit vector, with
v = x + sign(x[0]) * |x| * e[0] and beta = 1 / (|x|^2 + |x| * |x[0]|). Reflections of columns and of rows alternate:

    x x x      d e 0      d e 0      d e 0
    x x x  ->  0 x x  ->  0 d e  ->  0 d e
    x x x      0 x x      0 0 x      0 0 d
    x x x      0 x x      0 0 x      0 0 0

The matrix is kept twice, by rows and by columns, so that the products of both kinds of reflections add rows of
consecutive elements. The vectors v are the rows of two other matrices; their elements before the first one are 0.

The elements are at most 2. A vector with |x| <= epsilon^2 counts as 0: its square would be less than the least number.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dims import Size
from ...emitter import Scalar, Tensor
from .matrix_loops import MatrixLoops, padded


def bidiagonalized(loops: MatrixLoops, rows: Size, columns: Size, given: Sequence[Tensor]) -> list[Tensor]:
    """Changes the copies [padded rows, padded columns] and [padded columns, padded rows] of a matrix. Writes the
    vectors of the reflections of columns and of rows, d and e [columns], and beta [2, columns] of both. The last two
    tensors are memory for a row and a column."""
    s, width, height = loops.s, padded(columns), padded(rows)
    stop, bottom = s.size(columns), s.size(rows)
    last = loops.subtract(stop, loops.step)

    def step(k: Scalar, *tensors: Tensor) -> Sequence[Tensor]:
        a, turned, left, right, d, e, factors, along, down = tensors
        after = loops.add(k, loops.step)

        left, beta, value = _reflected(loops, turned, left, k, k, k, height)
        d = loops.store(d, value, k)
        factors = loops.store(factors, beta, loops.first, k)
        # The product v^T a, by which row k changes at once.
        along = _product(loops, a, left, along, k, k, bottom, k, width)
        along = loops.lanes(k, width, along, lambda c, x: loops.store(x, loops.multiply(beta, loops.load(x, c)), c))
        head = loops.load(left, k, k)
        a = loops.lanes(k, width, a, lambda c, a: _subtract(loops, a, (k, c), [(head, loops.load(along, c))]))

        # The last row has no elements after the diagonal; gamma is 0.
        right, gamma, value = _reflected(loops, a, right, k, after, s.binary("min", after, last), width)
        e = loops.store(e, value, k)
        factors = loops.store(factors, gamma, loops.step, k)
        # The product (a - v * along) u.
        down = _product(loops, turned, right, down, k, after, stop, k, height)
        change = loops.total(k, width, lambda c: loops.multiply(loops.load(along, c), loops.load(right, k, c)))

        def scale(r: Scalar, down: Tensor) -> Tensor:
            value = loops.subtract(loops.load(down, r), loops.multiply(change, loops.load(left, k, r)))
            return loops.store(down, loops.multiply(gamma, value), r)

        down = loops.lanes(k, height, down, scale)
        a = _update(loops, a, [((left, k), (along,)), ((down,), (right, k))], after, bottom, k, width)
        turned = _update(loops, turned, [((along,), (left, k)), ((right, k), (down,))], after, stop, k, height)
        return [a, turned, left, right, d, e, factors, along, down]

    made: list[Tensor] = loops.each(loops.first, stop, list(given), step)
    return made


def _reflected(
    loops: MatrixLoops, a: Tensor, vectors: Tensor, k: Scalar, first: Scalar, place: Scalar, width: Size
) -> tuple[Tensor, Scalar, Scalar]:
    """Writes v for the elements of row k from `first` on. Returns the vectors, beta, and the first element of the
    reflected row. `place` is `first`, or less where there is no such element."""

    def copy(c: Scalar, x: Tensor) -> Tensor:
        before = loops.s.compare("lt", c, first)
        return loops.store(x, loops.s.select(before, loops.zero, loops.load(a, k, c)), k, c)

    def square(c: Scalar) -> Scalar:
        element = loops.load(copied, k, c)
        return loops.multiply(element, element)

    copied = loops.lanes(k, width, vectors, copy)
    head, beta, value = _reflection(loops, loops.load(copied, k, place), loops.total(k, width, square))
    return loops.store(copied, head, k, place), beta, value


def _reflection(loops: MatrixLoops, x: Scalar, square: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Returns the first element of v, beta, and the first element of the reflected vector, whose first element is x."""
    s = loops.s
    large = s.compare("gt", square, loops.number(loops.dtype.epsilon**4))
    length = s.unary("sqrt", square)
    signed = s.select(s.compare("lt", x, loops.zero), s.unary("neg", length), length)
    beta = loops.divide(loops.one, loops.add(square, loops.multiply(length, loops.magnitude(x))))
    head, value = loops.add(x, signed), s.unary("neg", signed)
    return s.select(large, head, x), s.select(large, beta, loops.zero), s.select(large, value, x)


def _product(
    loops: MatrixLoops,
    a: Tensor,
    vectors: Tensor,
    target: Tensor,
    k: Scalar,
    first: Scalar,
    stop: Scalar,
    start: Scalar,
    width: Size,
) -> Tensor:
    """Writes the sums of `v[r] * a[r, c]` over the rows from `first` up to `stop`, for the columns from `start` on. v
    is row k of the vectors."""
    target = loops.lanes(start, width, target, lambda c, x: loops.store(x, loops.zero, c))

    def several(rows: Sequence[Scalar], target: Tensor) -> Tensor:
        factors = [loops.load(vectors, k, row) for row in rows]

        def column(c: Scalar, target: Tensor) -> Tensor:
            sum = loops.load(target, c)
            for row, factor in zip(rows, factors, strict=True):
                sum = loops.add(sum, loops.multiply(factor, loops.load(a, row, c)))
            return loops.store(target, sum, c)

        made: Tensor = loops.lanes(start, width, target, column)
        return made

    made: Tensor = loops.rows(first, stop, target, several)
    return made


Vector = tuple[Tensor] | tuple[Tensor, Scalar]
"""A vector, or a row of a matrix."""


def _update(
    loops: MatrixLoops,
    a: Tensor,
    pairs: Sequence[tuple[Vector, Vector]],
    first: Scalar,
    stop: Scalar,
    start: Scalar,
    width: Size,
) -> Tensor:
    """Subtracts the products `x[r] * y[c]` of pairs of vectors from the rows from `first` up to `stop`."""

    def several(rows: Sequence[Scalar], a: Tensor) -> Tensor:
        factors = [[loops.load(*x, row) for x, _ in pairs] for row in rows]

        def column(c: Scalar, a: Tensor) -> Tensor:
            elements = [loops.load(*y, c) for _, y in pairs]
            for row, own in zip(rows, factors, strict=True):
                a = _subtract(loops, a, (row, c), list(zip(own, elements, strict=True)))
            return a

        made: Tensor = loops.lanes(start, width, a, column)
        return made

    made: Tensor = loops.rows(first, stop, a, several)
    return made


def _subtract(
    loops: MatrixLoops, a: Tensor, at: tuple[Scalar, Scalar], products: Sequence[tuple[Scalar, Scalar]]
) -> Tensor:
    value = loops.load(a, *at)
    for x, y in products:
        value = loops.subtract(value, loops.multiply(x, y))
    return loops.store(a, value, *at)


def joined(
    loops: MatrixLoops, factors: Tensor, side: int, shape: tuple[Size, Size], given: Sequence[Tensor]
) -> list[Tensor]:
    """Replaces the vectors of the reflections of columns (`side` 0) or of rows (1) by their product: its first columns,
    as rows. The other tensors are memory for the product and for a row."""
    s, (rows, columns) = loops.s, shape
    width, bottom, stop = padded(columns), s.size(rows), s.size(columns)
    vectors, product, along = given

    def clear(r: Scalar, product: Tensor) -> Tensor:
        made: Tensor = loops.lanes(loops.first, width, product, lambda c, x: loops.store(x, loops.zero, r, c))
        return made

    product = loops.each(loops.first, s.size(padded(rows)), product, clear)
    product = loops.each(loops.first, stop, product, lambda k, x: loops.store(x, loops.one, k, k))

    def reflect(number: Scalar, product: Tensor, along: Tensor) -> Sequence[Tensor]:
        k = loops.subtract(loops.subtract(stop, loops.step), number)
        factor = loops.load(factors, loops.index(side), k)
        along = _product(loops, product, vectors, along, k, k, bottom, k, width)
        along = loops.lanes(k, width, along, lambda c, x: loops.store(x, loops.multiply(factor, loops.load(x, c)), c))
        return [_update(loops, product, [((vectors, k), (along,))], k, bottom, k, width), along]

    product, along = loops.each(loops.first, stop, [product, along], reflect)

    def turn(c: Scalar, result: Tensor) -> Tensor:
        made: Tensor = loops.each(
            loops.first, bottom, result, lambda r, x: loops.store(x, loops.load(product, r, c), c, r)
        )
        return made

    return [loops.each(loops.first, stop, vectors, turn), product, along]
