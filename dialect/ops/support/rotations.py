"""Rotations of the columns of a matrix until all are orthogonal: the loops of `svd`.

The columns stand in a line. The first turn of a sweep rotates columns 0 and 1, 2 and 3, and so on; the second one
rotates columns 1 and 2, 3 and 4, and so on. Each rotation also exchanges its two columns. After as many turns as there
are columns, each pair has met once, and the order is reversed. For 5 columns:

    0 1 2 3 4    turn 0: 0 1, 2 3
    1 0 3 2 4    turn 1: 0 3, 2 4
    1 3 0 4 2    turn 2: 1 3, 0 4
    3 1 4 0 2    turn 3: 1 4, 0 2
    3 4 1 2 0    turn 4: 3 4, 1 2
    4 3 2 1 0

Of two columns the longer one becomes the one with the smaller number, which saves sweeps (de Rijk, 1989): of 64 columns
whose singular values are two numbers, 7 sweeps remain of 12.

A row has its even and its odd columns apart, so that each turn works on consecutive elements: pair k is even[k] and
odd[k] in turns 0, 2, ..., and even[k + 1] and odd[k] in turns 1, 3, ... The pairs of a turn are the lanes of vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...dims import Size, floor_divide
from ...emitter import Scalar, SequenceEmitter, Tensor
from ...types import BOOL, I64
from .elimination import for_each

SWEEPS = 40
TURNS = 8
"""The number of pairs of turns after which the rows of v follow."""
LANES = 16
"""The pairs of a turn are padded to a multiple of this number, so that all instructions work on full vectors."""
UNROLLED = 4
"""The number of rows of one step of a loop: their partial sums and the coefficients stay in registers."""


class Rotations:
    """Writes the loops over one matrix. The rows of v follow those of x.

    A row has the elements of the odd columns, zeros up to `pairs` of them, then those of the even columns, and zeros.
    """

    def __init__(
        self, s: SequenceEmitter, at: tuple[Scalar, ...], rows: Size, columns: Size, pairs: Size, *, tall: bool
    ) -> None:
        self.s, self.at, self.rows, self.columns, self.tall = s, at, rows, columns, tall
        self.pairs, self.width = pairs, 2 * pairs + LANES
        self.zero, self.one, self.two = (s.constant(n, I64) for n in range(3))

    def for_rows(self, count: Size, carried: Any, body: Callable[..., Any]) -> Any:
        """Runs `body(rows, *tensors)` for several rows at a time, then for each of the rest."""
        s, step = self.s, self.s.constant(UNROLLED, I64)
        steps = s.binary("div", s.size(count), step)
        done = s.binary("mul", steps, step)

        def block(number: Scalar, *given: Tensor) -> Any:
            first = s.binary("mul", number, step)
            return body([s.binary("add", first, s.constant(i, I64)) for i in range(UNROLLED)], *given)

        carried = for_each(s, steps, carried, block)
        rest = s.binary("sub", s.size(count), done)
        return for_each(s, rest, carried, lambda n, *given: body([s.binary("add", done, n)], *given))

    def place(self, j: Scalar) -> Scalar:
        """Returns the position of column j in a row."""
        s, half = self.s, self.s.binary("div", j, self.two)
        is_odd = s.compare("eq", s.binary("rem", j, self.two), self.one)
        return s.select(is_odd, half, s.binary("add", half, s.size(self.pairs)))

    def filled(self, x: Tensor, work: Tensor) -> Tensor:
        """Writes the matrix, and the unit matrix below it."""
        s, zero = self.s, self.s.constant(0, x.type.dtype)

        def row(i: Scalar, work: Tensor) -> Tensor:
            def element(j: Scalar, work: Tensor) -> Tensor:
                value = s.load(x, (*self.at, i, j) if self.tall else (*self.at, j, i))
                stored: Tensor = s.store(work, (*self.at, i, self.place(j)), value)
                return stored

            made: Tensor = for_each(s, s.size(self.columns), cleared(i, work), element)
            return made

        def unit(i: Scalar, work: Tensor) -> Tensor:
            below = s.binary("add", s.size(self.rows), i)
            made: Tensor = s.store(cleared(below, work), (*self.at, below, self.place(i)), s.constant(1, x.type.dtype))
            return made

        def cleared(i: Scalar, work: Tensor) -> Tensor:
            made: Tensor = for_each(s, s.size(self.width), work, lambda k, work: s.store(work, (*self.at, i, k), zero))
            return made

        made: Tensor = for_each(s, s.size(self.columns), for_each(s, s.size(self.rows), work, row), unit)
        return made

    def diagonalized(self, given: Sequence[Tensor]) -> list[Tensor]:
        """Runs the sweeps. The tensors are the matrix, the products of pairs, angles, and the largest ones."""
        s, dtype = self.s, given[0].type.dtype
        half = floor_divide(self.columns + 1, 2)
        groups = floor_divide(half + TURNS - 1, TURNS)
        zero, epsilon = s.constant(0, dtype), s.constant(dtype.epsilon, dtype)

        def clear(k: Scalar, sums: Tensor, largest: Tensor) -> Sequence[Tensor]:
            sums = self.put(sums, (), k, [zero] * 3)
            return [sums, self.put(largest, (), k, [zero] * 2)]

        def sweep(
            _: Scalar, tensors: Sequence[Tensor], left: Sequence[Scalar]
        ) -> tuple[Sequence[Tensor], Sequence[Scalar]]:
            # The loops of the sweeps after the last one are empty.
            count = s.select(s.compare("gt", left[0], epsilon), s.size(groups), self.zero)
            *tensors, largest = tensors
            largest = self.for_pairs(largest, lambda k, largest: self.put(largest, (), k, [zero] * 2))
            work, sums, angles, largest = for_each(
                s, count, [*tensors, largest], lambda number, *given: self.group(number, left[1], given)
            )
            start = s.binary("add", left[1], s.size(2 * half))

            def find(_: Any, k: Scalar, best: Sequence[Scalar]) -> Sequence[Scalar]:
                found = (s.load(largest, (*self.at, row, k)) for row in (self.zero, self.one))
                return [s.binary("max", a, b) for a, b in zip(best, found, strict=True)]

            cosine, sine = s.iterate(s.size(self.pairs), [zero, zero], find)
            return [work, sums, angles, largest], [s.binary("mul", cosine, sine), start]

        work, sums, angles, largest = given
        sums, largest = self.for_pairs([sums, largest], clear)
        sums = self.for_rows(self.rows, sums, lambda rows, sums: self.multiplied(work, rows, sums, 0))
        start = [s.constant(1, dtype), self.zero]
        done, _ = s.repeat(s.constant(SWEEPS, I64), [work, sums, angles, largest], start, sweep)
        return list(done)

    def group(self, number: Scalar, start: Scalar, given: Sequence[Tensor]) -> Sequence[Tensor]:
        """Runs some turns: those of the rows of x one by one, those of a few rows of v together.

        `start` turns were before this sweep.
        """
        s, most = self.s, self.s.constant(TURNS, I64)
        left = s.binary("sub", s.size(floor_divide(self.columns + 1, 2)), s.binary("mul", number, most))
        count = s.binary("min", left, most)
        before = s.binary("add", start, s.binary("mul", self.two, s.binary("mul", number, most)))

        def both(n: Scalar, *tensors: Tensor) -> Sequence[Tensor]:
            given: Sequence[Tensor] = tensors
            for shift in range(2):
                done = s.binary("add", before, s.binary("add", s.binary("mul", n, self.two), s.constant(shift, I64)))
                given = self.turn(given, n, shift, done)
            return given

        work, sums, angles, largest = for_each(s, count, given, both)

        def block(rows: Sequence[Scalar], work: Tensor) -> Tensor:
            below = [s.binary("add", s.size(self.rows), row) for row in rows]

            def two_turns(n: Scalar, work: Tensor) -> Tensor:
                for shift in range(2):
                    work = self.rotated(work, angles, below, n, shift)
                return work

            made: Tensor = for_each(s, count, work, two_turns)
            return made

        return [self.for_rows(self.columns, work, block), sums, angles, largest]

    def for_pairs(self, carried: Any, body: Callable[..., Any]) -> Any:
        return for_each(self.s, self.s.size(self.pairs), carried, body)

    def put(self, target: Tensor, at: Sequence[Scalar], k: Scalar, values: Sequence[Scalar]) -> Tensor:
        """Stores the numbers of pair k."""
        for row, value in zip((self.zero, self.one, self.two), values, strict=False):
            target = self.s.store(target, (*self.at, *at, row, k), value)
        return target

    def pair(self, work: Tensor, row: Scalar, k: Scalar, shift: int) -> tuple[Scalar, Scalar]:
        return self.s.load(work, (*self.at, row, self.even(k, shift))), self.s.load(work, (*self.at, row, k))

    def even(self, k: Scalar, shift: int) -> Scalar:
        return self.s.binary("add", self.s.size(self.pairs + shift), k)

    def turn(self, given: Sequence[Tensor], number: Scalar, shift: int, done: Scalar) -> Sequence[Tensor]:
        """Rotates the columns 2 * k + 2 * shift and 2 * k + 1 of x for each k, and multiplies the next pairs."""
        s, (work, sums, angles, largest) = self.s, given
        # The order is reversed after as many turns as there are columns.
        is_reversed = s.binary("rem", s.binary("div", done, s.size(self.columns)), self.two)
        up, down = (s.constant(sign if shift else -sign, work.type.dtype) for sign in (1, -1))
        wanted = s.select(s.compare("eq", is_reversed, self.zero), up, down)
        sums, angles, largest = self.for_pairs(
            [sums, angles, largest], lambda k, *tensors: self.angle(k, tensors, number, shift, wanted)
        )

        work = self.for_rows(self.rows, work, lambda rows, work: self.rotated(work, angles, rows, number, shift))
        sums = self.for_rows(self.rows, sums, lambda rows, sums: self.multiplied(work, rows, sums, 1 - shift))
        return [work, sums, angles, largest]

    def angle(self, k: Scalar, given: Sequence[Tensor], number: Scalar, shift: int, wanted: Scalar) -> Sequence[Tensor]:
        """Writes the cosine and the sine of the rotation of pair k, and clears its products.

        The even column becomes the longer one if `wanted` is 1, the odd one if it is -1.
        """
        s = self.s
        sums, angles, largest = given
        dtype = sums.type.dtype
        zero, one, epsilon = s.constant(0, dtype), s.constant(1, dtype), s.constant(dtype.epsilon, dtype)
        alpha, beta, gamma = (s.load(sums, (*self.at, row, k)) for row in (self.zero, self.one, self.two))
        between = s.binary("div", gamma, s.binary("mul", s.unary("sqrt", alpha), s.unary("sqrt", beta)))
        between = s.unary("abs", between)
        needed = s.compare("gt", between, epsilon)
        # tan(angle) = sign(z) / (|z| + sqrt(1 + z * z)), z = (beta - alpha) / (2 * gamma)
        z = s.binary("div", s.binary("sub", beta, alpha), s.binary("add", gamma, gamma))
        root = s.unary("sqrt", s.binary("add", one, s.binary("mul", z, z)))
        t = s.binary("div", one, s.binary("add", s.unary("abs", z), root))
        t = s.select(s.compare("lt", z, zero), s.unary("neg", t), t)
        cosine = s.binary("div", one, s.unary("sqrt", s.binary("add", one, s.binary("mul", t, t))))
        sine = s.select(needed, s.binary("mul", cosine, t), zero)
        cosine = s.select(needed, cosine, one)
        found = (s.select(needed, between, zero), s.unary("abs", sine))
        known = (s.load(largest, (*self.at, row, k)) for row in (self.zero, self.one))
        largest = self.put(largest, (), k, [s.binary("max", a, b) for a, b in zip(known, found, strict=True)])
        # A quarter of a turn more undoes the exchange.
        moved = s.select(needed, s.binary("mul", t, gamma), zero)
        longer = s.binary("sub", s.binary("add", beta, moved), s.binary("sub", alpha, moved))
        stays = s.compare("lt", s.binary("mul", longer, wanted), zero)
        cosine, sine = s.select(stays, s.unary("neg", sine), cosine), s.select(stays, cosine, sine)
        # A column without a partner stays as well.
        pairs = s.size(floor_divide(self.columns + 1, 2) - 1 if shift else floor_divide(self.columns, 2))
        paired = s.compare("lt", k, pairs)
        cosine = s.select(paired, cosine, zero)
        sine = s.select(paired, sine, s.constant(-1 if shift else 1, dtype))
        angles = self.put(angles, (number, s.constant(shift, I64)), k, [cosine, sine])
        return [self.put(sums, (), k, [zero] * 3), angles, largest]

    def multiplied(self, work: Tensor, rows: Sequence[Scalar], sums: Tensor, shift: int) -> Tensor:
        """Adds the squares and the products of the elements of some rows."""
        s = self.s

        def products(k: Scalar, sums: Tensor) -> Tensor:
            totals = [s.load(sums, (*self.at, row, k)) for row in (self.zero, self.one, self.two)]
            for row in rows:
                a, b = self.pair(work, row, k, shift)
                terms = [s.binary("mul", a, a), s.binary("mul", b, b), s.binary("mul", a, b)]
                totals = [s.binary("add", total, term) for total, term in zip(totals, terms, strict=True)]
            return self.put(sums, (), k, totals)

        made: Tensor = self.for_pairs(sums, products)
        return made

    def rotated(self, work: Tensor, angles: Tensor, rows: Sequence[Scalar], number: Scalar, shift: int) -> Tensor:
        """Rotates and exchanges the elements of each pair of some rows."""
        s, parity = self.s, self.s.constant(shift, I64)

        def element(k: Scalar, work: Tensor) -> Tensor:
            cosine, sine = (s.load(angles, (*self.at, number, parity, row, k)) for row in (self.zero, self.one))
            for row in rows:
                a, b = self.pair(work, row, k, shift)
                first = s.binary("sub", s.binary("mul", cosine, a), s.binary("mul", sine, b))
                second = s.binary("add", s.binary("mul", sine, a), s.binary("mul", cosine, b))
                work = s.store(s.store(work, (*self.at, row, self.even(k, shift)), second), (*self.at, row, k), first)
            return work

        made: Tensor = self.for_pairs(work, element)
        return made

    def ordered(self, given: Sequence[Tensor]) -> Sequence[Tensor]:
        """Writes the columns in the order of their norms; the greatest element of each column of u is positive."""
        s = self.s
        work, *_, norms, lengths, peaks = given[:7]
        outputs = given[7:]
        dtype = work.type.dtype
        one, zero = s.constant(1, dtype), s.constant(0, dtype)

        def clear(k: Scalar, *tensors: Tensor) -> Sequence[Tensor]:
            return [s.store(tensor, (*self.at, k), zero) for tensor in tensors]

        def squares(rows: Sequence[Scalar], total: Tensor) -> Tensor:
            def add(k: Scalar, total: Tensor) -> Tensor:
                value = s.load(total, (*self.at, k))
                for row in rows:
                    element = s.load(work, (*self.at, row, k))
                    value = s.binary("add", value, s.binary("mul", element, element))
                stored: Tensor = s.store(total, (*self.at, k), value)
                return stored

            made: Tensor = for_each(s, s.size(self.width), total, add)
            return made

        def find(rows: Sequence[Scalar], peaks: Tensor) -> Tensor:
            def choose(k: Scalar, peaks: Tensor) -> Tensor:
                best = s.load(peaks, (*self.at, k))
                for row in rows:
                    value = s.load(work, (*self.at, row, k))
                    best = s.select(s.compare("gt", s.unary("abs", value), s.unary("abs", best)), value, best)
                stored: Tensor = s.store(peaks, (*self.at, k), best)
                return stored

            made: Tensor = for_each(s, s.size(self.width), peaks, choose)
            return made

        def below(rows: Sequence[Scalar]) -> Sequence[Scalar]:
            return [s.binary("add", s.size(self.rows), row) for row in rows]

        def measure(k: Scalar, norms: Tensor, lengths: Tensor) -> Sequence[Tensor]:
            # Rounding makes the columns of x and of v longer or shorter by the same factor.
            length = s.unary("sqrt", s.load(lengths, (*self.at, k)))
            norm = s.binary("div", s.unary("sqrt", s.load(norms, (*self.at, k))), length)
            return [s.store(norms, (*self.at, k), norm), s.store(lengths, (*self.at, k), length)]

        norms, lengths, peaks = for_each(s, s.size(self.width), [norms, lengths, peaks], clear)
        norms, peaks = self.for_rows(self.rows, norms, squares), self.for_rows(self.rows, peaks, find)
        lengths = self.for_rows(self.columns, lengths, lambda rows, lengths: squares(below(rows), lengths))
        norms, lengths = for_each(s, s.size(self.width), [norms, lengths], measure)

        def spoil(_: Any, j: Scalar, total: Sequence[Scalar]) -> Sequence[Scalar]:
            norm = s.load(norms, (*self.at, self.place(j)))
            return [s.binary("add", total[0], s.binary("mul", norm, zero))]

        # 0, or NaN if a norm is an infinity or NaN: then all results are NaN.
        (wrong,) = s.iterate(s.size(self.columns), [zero], spoil)

        def column(j: Scalar, *tensors: Tensor) -> Sequence[Tensor]:
            place = self.place(j)
            norm = s.binary("add", s.load(norms, (*self.at, place)), wrong)

            def precede(_: Any, other: Scalar, count: Sequence[Scalar]) -> Sequence[Scalar]:
                found = s.load(norms, (*self.at, self.place(other)))
                before = s.binary("or", s.compare("gt", found, norm), s.compare("lt", other, j))
                before = s.select(s.compare("lt", found, norm), s.constant(False, BOOL), before)
                return [s.binary("add", count[0], s.cast(before, I64))]

            (position,) = s.iterate(s.size(self.columns), [self.zero], precede)
            sign = s.select(s.compare("lt", s.load(peaks, (*self.at, place)), zero), s.constant(-1, dtype), one)
            sign = s.binary("div", s.binary("add", sign, wrong), s.load(lengths, (*self.at, place)))
            scale = s.binary("div", sign, s.select(s.compare("gt", norm, zero), norm, one))

            def write(target: Tensor, factor: Scalar, first: Size, size: Size, *, upright: bool) -> Tensor:
                def element(row: Scalar, x: Tensor) -> Tensor:
                    value = s.load(work, (*self.at, s.binary("add", s.size(first), row), place))
                    at = (row, position) if upright else (position, row)
                    stored: Tensor = s.store(x, (*self.at, *at), s.binary("mul", factor, value))
                    return stored

                made: Tensor = for_each(s, s.size(size), target, element)
                return made

            left, singular, right = tensors
            singular = s.store(singular, (*self.at, position), norm)
            if self.tall:
                left = write(left, scale, 0, self.rows, upright=True)
                right = write(right, sign, self.rows, self.columns, upright=False)
            else:
                left = write(left, sign, self.rows, self.columns, upright=True)
                right = write(right, scale, 0, self.rows, upright=False)
            return [left, singular, right]

        outputs = for_each(s, s.size(self.columns), list(outputs), column)
        return [*given[:4], norms, lengths, peaks, *outputs]
