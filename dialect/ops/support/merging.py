"""Orders rows by parallel maps: short runs by counting, then merges of neighbouring runs.

`sorting` orders a row step by step. Here every element of a level is computed alone, from the level before it:

    keys       3 1 2 1 | 0 2 1 3      runs of 4 elements
    ranks      3 0 2 1 | 0 2 1 3      how many keys of the run come before
    level 0    1 1 2 3 | 0 1 2 3      the element of each rank
    level 1    0 1 1 1 2 2 3 3        merged: element d is the next one of the two runs after the first d

Element d of two merged runs a and b begins with a binary search for i, the number of elements of a among the first d:
the least i with a[i] > b[d - 1 - i]. Elements of a precede equal elements of b, so that the order is stable.

If only the first k elements are wanted, runs no longer than k rounded up to a run keep their first elements alone, and
each level has half of the elements of the one before. Elements after the end of a row have the greatest key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dims import Size, bounds, ceil_divide, multiply
from ...emitter import BodyEmitter, Emitter, Loop, Result, Scalar, ScalarEmitter, Tensor, identity
from ...lazy_dataclass import dataclass
from ...types import I32, I64, TensorType
from .sorting import Order

RUN = 64
"""The elements of the longest run that is ordered by counting."""

Indices = Sequence[Scalar]


@dataclass(frozen=True, slots=True)
class _Level:
    """The pairs of key and index of all rows, in ordered runs of `width`; the last run of a row may be shorter."""

    keys: Tensor
    positions: Tensor
    width: int

    @property
    def length(self) -> Size:
        return self.keys.type.shape[-1]


def merge_rows(e: Emitter, x: Tensor, axis: int, descending: bool, count: Size) -> list[Tensor]:
    """Returns the first `count` elements of each row along the axis in order, and their indices, as i64."""
    shape = tuple(count if a == axis else n for a, n in enumerate(x.type.shape))
    types = [TensorType(x.type.dtype, shape), TensorType(I64, shape)]
    if types[0].elements == 0:
        return [e.full(type, 0) for type in types]
    merging = _Merging(e, x, axis, Order(x.type.dtype, x.type.shape[axis], descending), count)
    level = merging.first()
    while bounds(level.length)[1] > level.width:
        level = merging.merged(level)

    def position(s: BodyEmitter) -> tuple[Scalar, Indices]:
        at = [s.index(n) for n in range(len(shape))]
        outer = [i for a, i in enumerate(at) if a != axis]
        found = s.cast(s.load(level.positions, [*outer, at[axis]]), I64)
        return found, [found if a == axis else i for a, i in enumerate(at)]

    values = e.map(types[0], [], lambda s: s.load(x, position(s)[1]))
    return [values, e.map(types[1], [], lambda s: position(s)[0])]


class _Merging:
    """The levels of one order. `most` is the greatest width of a run whose later elements are not used."""

    def __init__(self, e: Emitter, x: Tensor, axis: int, order: Order, count: Size) -> None:
        self.e, self.x, self.axis, self.order = e, x, axis, order
        self.outer = tuple(n for a, n in enumerate(x.type.shape) if a != axis)
        length, wanted = bounds(order.size)[1], bounds(count)[1]
        self.run = _power(min(RUN, length))
        self.most: int | None = max(self.run, _power(wanted))
        if self.most >= length:
            self.most = None

    def first(self) -> _Level:
        """Returns the level of the shortest runs."""
        run, order = self.run, self.order
        unit = self.most or run
        length = multiply(ceil_divide(order.size, unit), unit)
        keys = self._map(TensorType(order.key, (*self.outer, length)), self._key)
        ranks = self._map(TensorType(I32, (*self.outer, length)), lambda s, *at: self._rank(s, keys, *at))

        def pair(s: BodyEmitter, outer: Indices, number: Scalar) -> Indices:
            begin, within = self._split(s, number)
            wanted = s.cast(within, I32)

            def search(s: ScalarEmitter, j: Scalar, found: Indices) -> Indices:
                position = s.binary("add", begin, j)
                is_found = s.compare("eq", s.load(ranks, [*outer, position]), wanted)
                return [s.select(is_found, position, found[0])]

            (position,) = s.iterate(s.constant(run, I64), [begin], search)
            return s.load(keys, [*outer, position]), s.cast(position, order.index)

        # Bodies are called later, so `keys` must stay those of the elements.
        ordered, positions = self._pairs(length, pair)
        return _Level(ordered, positions, run)

    def merged(self, level: _Level) -> _Level:
        """Returns the next level: runs of twice the width, or of the most that is wanted."""
        before = level.width
        width = 2 * before if self.most is None else min(2 * before, self.most)
        # Where elements are left out, all runs are of the same width.
        length = level.length if width > before else multiply(ceil_divide(level.length, 2 * before), before)

        def pair(s: BodyEmitter, outer: Indices, number: Scalar) -> Indices:
            run = s.binary("div", number, s.constant(width, I64))
            done = s.binary("rem", number, s.constant(width, I64))
            begin = s.binary("mul", run, s.constant(2 * before, I64))
            return self._element(s, level, outer, begin, done)

        keys, positions = self._pairs(length, pair)
        return _Level(keys, positions, width)

    def _element(self, s: BodyEmitter, level: _Level, outer: Indices, begin: Scalar, done: Scalar) -> Indices:
        """Returns element `done` of the merged runs from `begin` on."""
        zero, one, two, width = (s.constant(n, I64) for n in (0, 1, 2, level.width))
        end = s.size(level.length)
        middle = s.binary("min", s.binary("add", begin, width), end)
        limit = s.binary("min", s.binary("add", middle, width), end)
        left, right = s.binary("sub", middle, begin), s.binary("sub", limit, middle)

        def key(s: ScalarEmitter, first: Scalar, number: Scalar) -> Scalar:
            # A step after the end of the search, or an empty run, reads another key of the row.
            position = s.binary("add", first, s.binary("max", number, zero))
            return s.load(level.keys, [*outer, s.binary("min", position, s.binary("sub", end, one))])

        def search(s: ScalarEmitter, _: Scalar, found: Indices) -> Indices:
            low, high = found
            half = s.binary("div", s.binary("add", low, high), two)
            other = s.binary("sub", s.binary("sub", done, one), half)
            is_before = s.compare("le", key(s, begin, half), key(s, middle, other))
            after = s.binary("add", half, one)
            is_open = s.compare("lt", low, high)
            rises, falls = s.binary("and", is_open, is_before), s.binary("and", is_open, s.unary("not", is_before))
            return [s.select(rises, after, low), s.select(falls, half, high)]

        low, high = s.binary("max", zero, s.binary("sub", done, right)), s.binary("min", done, left)
        steps = s.constant(level.width.bit_length(), I64)
        taken, _ = s.iterate(steps, [low, high], search)
        rest = s.binary("sub", done, taken)
        is_smaller = s.compare("le", key(s, begin, taken), key(s, middle, rest))
        is_last = s.compare("ge", rest, right)
        from_left = s.binary("and", s.compare("lt", taken, left), s.binary("or", is_last, is_smaller))
        position = s.select(from_left, s.binary("add", begin, taken), s.binary("add", middle, rest))
        return s.load(level.keys, [*outer, position]), s.load(level.positions, [*outer, position])

    def _key(self, s: BodyEmitter, outer: Indices, number: Scalar) -> Scalar:
        order = self.order
        inside = s.compare("lt", number, s.size(order.size))
        at = [*outer[: self.axis], number, *outer[self.axis :]]
        greatest = s.constant((1 << order.key.bits - 1) - 1, order.key)
        return s.select(inside, order.key_of(s, s.load_if(inside, self.x, at)), greatest)

    def _rank(self, s: BodyEmitter, keys: Tensor, outer: Indices, number: Scalar) -> Scalar:
        begin, within = self._split(s, number)
        own = s.load(keys, [*outer, number])

        def count(s: ScalarEmitter, j: Scalar, total: Indices) -> Indices:
            other = s.load(keys, [*outer, s.binary("add", begin, j)])
            is_equal = s.binary("and", s.compare("eq", other, own), s.compare("lt", j, within))
            is_before = s.binary("or", s.compare("lt", other, own), is_equal)
            return [s.binary("add", total[0], s.cast(is_before, I32))]

        (rank,) = s.iterate(s.constant(self.run, I64), [s.constant(0, I32)], count)
        return rank

    def _split(self, s: ScalarEmitter, number: Scalar) -> tuple[Scalar, Scalar]:
        """Returns the first element of a run, and the position in it."""
        within = s.binary("rem", number, s.constant(self.run, I64))
        return s.binary("sub", number, within), within

    def _map(self, type: TensorType, body: Callable[[BodyEmitter, Indices, Scalar], Scalar]) -> Tensor:
        def at(s: BodyEmitter) -> Scalar:
            *outer, number = (s.index(n) for n in range(type.rank))
            return body(s, outer, number)

        return self.e.map(type, [], at)

    def _pairs(self, length: Size, body: Callable[[BodyEmitter, Indices, Scalar], Indices]) -> Sequence[Tensor]:
        """Returns keys and indices, each pair computed once."""
        shape = (*self.outer, length)

        def at(s: BodyEmitter, *_: Scalar) -> Indices:
            *outer, number = (s.index(n) for n in range(len(shape)))
            return body(s, outer, number)

        types = (TensorType(self.order.key, shape), TensorType(self.order.index, shape))
        results = [Result(type, identity(len(shape))) for type in types]
        return self.e.structured([Loop(n) for n in shape], [], results, at)


def _power(number: int) -> int:
    """Returns the least power of two that is not below a number."""
    return 1 << max(number - 1, 0).bit_length()
