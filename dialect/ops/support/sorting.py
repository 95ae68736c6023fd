"""Orders rows sequentially: short rows by counting, long ones by radix. `selecting` orders the first few elements.

Elements are compared by keys: integers in the order of the elements, equal for equal elements, the greatest for NaN. A
descending order complements them. Elements move as pairs of key and index, and all orders are stable.

- Counting: the position of an element is the number of elements that are smaller, or equal and before it.
- Radix: bytes of the keys from the lowest to the highest. Each pass moves every pair after those of smaller bytes.

An example of a radix pass over keys 31 12 11, by the last digit: two keys end in 1, so these begin at 0, and the key
that ends in 2 begins at 2; the result is 31 11 12.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dims import Size, bounds
from ...emitter import Emitter, Scalar, ScalarEmitter, SequenceEmitter, Tensor
from ...lazy_dataclass import dataclass
from ...types import I32, I64, SIGNED, DType, TensorType

COUNTED = 96
"""The largest number of collected pairs that are ordered by counting."""
RADIX = 256
_SIGNED = {dtype.bits: dtype for dtype in SIGNED}
_MOST_I32 = (1 << 31) - 1

Turned = tuple[Sequence[Tensor], Sequence[Scalar]]
"""The values that one iteration of a loop carries on."""


@dataclass(frozen=True, slots=True)
class Order:
    """The order of the elements of a row: their dtype, the length of a row, and the direction."""

    dtype: DType
    size: Size
    descending: bool

    @property
    def key(self) -> DType:
        return I64 if self.dtype.bits == 64 else I32

    @property
    def index(self) -> DType:
        return I32 if bounds(self.size)[1] <= _MOST_I32 else I64

    @property
    def passes(self) -> int:
        """The number of passes over the bytes of a key, which is even."""
        return max(2, self.dtype.bits // 8)

    def key_of(self, s: ScalarEmitter, x: Scalar) -> Scalar:
        if self.dtype.is_float:
            key = self._key_of_float(s, x)
        elif self.dtype.is_integer and not self.dtype.is_signed:
            # Shifted down by half of the range, since the highest byte has a sign. The addition wraps at the width of a
            # key.
            key = s.binary("add", s.cast(x, self.key), s.constant(-1 << self.dtype.bits - 1, self.key))
        else:
            key = s.cast(x, self.key)
        return s.unary("not", key) if self.descending else key

    def _key_of_float(self, s: ScalarEmitter, x: Scalar) -> Scalar:
        """Returns a key for a float. The bits of a float are ordered as the float, except for the sign: negative ones
        are inverted."""
        bits = s.bits(x, _SIGNED[self.dtype.bits])
        largest = s.constant((1 << self.dtype.bits - 1) - 1, bits.dtype)
        zero = s.constant(0, bits.dtype)
        turned = s.select(s.compare("lt", bits, zero), s.binary("xor", bits, largest), bits)
        turned = s.select(s.compare("eq", x, s.constant(0, self.dtype)), zero, turned)
        return s.cast(s.select(s.unary("isnan", x), largest, turned), self.key)

    def byte(self, s: SequenceEmitter, key: Scalar, number: Scalar) -> Scalar:
        """Returns byte `number` of a key, both as i64; the sign of the highest byte counts downward."""
        shift = s.cast(s.binary("mul", number, s.constant(8, I64)), key.dtype)
        byte = s.cast(s.binary("and", s.binary("shr", key, shift), s.constant(RADIX - 1, key.dtype)), I64)
        is_highest = s.compare("eq", number, s.constant(self.passes - 1, I64))
        sign = s.select(is_highest, s.constant(RADIX // 2, I64), s.constant(0, I64))
        return s.binary("xor", byte, sign)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a tensor: maps element `number` to its index among all elements."""

    x: Tensor
    at: Callable[[Scalar], Sequence[Scalar]]
    order: Order

    def key(self, s: SequenceEmitter, number: Scalar) -> Scalar:
        return self.order.key_of(s, s.load(self.x, self.at(number)))


class Method:
    """A method that orders a row. `write` returns the working tensors, and the index of the one with the ordered
    indices."""

    def __init__(self, order: Order, count: Size) -> None:
        self.order, self.count = order, count

    @property
    def length(self) -> int:
        """The greatest length of a row."""
        return bounds(self.order.size)[1]

    @property
    def kept(self) -> int:
        """The greatest number of ordered elements."""
        return bounds(self.count)[1]

    def cost(self) -> float:
        """Returns the time of a row in cycles, as measured on Zen 4 and fitted."""
        raise NotImplementedError

    def scratch(self, e: Emitter) -> list[Tensor]:
        raise NotImplementedError

    def write(self, s: SequenceEmitter, row: Row, work: Sequence[Tensor]) -> tuple[list[Tensor], int]:
        raise NotImplementedError


class Counting(Method):
    def cost(self) -> float:
        return self.length * (self.length / 4 + 16)

    def scratch(self, e: Emitter) -> list[Tensor]:
        size = (self.order.size,)
        return [e.full(TensorType(self.order.key, size), 0), e.full(TensorType(self.order.index, size), 0)]

    def write(self, s: SequenceEmitter, row: Row, work: Sequence[Tensor]) -> tuple[list[Tensor], int]:
        size = s.size(self.order.size)
        (keys,), _ = s.repeat(size, work[:1], [], lambda i, t, _: ([s.store(t[0], [i], row.key(s, i))], []))
        (positions,), _ = s.repeat(size, work[1:], [], lambda i, t, _: ([self._move(s, keys, size, i, t[0])], []))
        return [keys, positions], 1

    def _move(self, s: SequenceEmitter, keys: Tensor, size: Scalar, i: Scalar, positions: Tensor) -> Tensor:
        return s.store(positions, [rank_of(s, self.order, keys, size, i)], s.cast(i, self.order.index))


def rank_of(s: SequenceEmitter, order: Order, keys: Tensor, size: Scalar, i: Scalar) -> Scalar:
    """Returns the number of the first `size` keys that precede key `i`, as i64."""
    own, number = s.load(keys, [i]), s.cast(i, order.index)

    def count(_: object, j: Scalar, total: Sequence[Scalar]) -> Sequence[Scalar]:
        other = s.load(keys, [j])
        equal = s.binary("and", s.compare("eq", other, own), s.compare("lt", s.cast(j, order.index), number))
        before = s.binary("or", s.compare("lt", other, own), equal)
        return [s.binary("add", total[0], s.cast(before, order.index))]

    (rank,) = s.iterate(size, [s.constant(0, order.index)], count)
    return s.cast(rank, I64)


def pair_buffers(e: Emitter, order: Order, size: Size) -> list[Tensor]:
    """Returns two buffers of pairs, and a histogram for each byte of a key."""
    pair = (TensorType(order.key, (size,)), TensorType(order.index, (size,)))
    counts = TensorType(order.index, (order.passes, RADIX))
    return [e.full(type, 0) for type in (*pair, *pair, counts)]


class Radix(Method):
    def cost(self) -> float:
        return self.order.passes * (1700 + 7 * self.length)

    def scratch(self, e: Emitter) -> list[Tensor]:
        return pair_buffers(e, self.order, self.order.size)

    def write(self, s: SequenceEmitter, row: Row, work: Sequence[Tensor]) -> tuple[list[Tensor], int]:
        keys, positions, *rest = work
        size = s.size(self.order.size)

        def fill(i: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turned:
            return [s.store(t[0], [i], row.key(s, i)), s.store(t[1], [i], s.cast(i, self.order.index))], []

        filled, _ = s.repeat(size, [keys, positions], [], fill)
        return order_pairs(s, self.order, size, s.constant(RADIX, I64), [*filled, *rest]), 1


def order_pairs(s: SequenceEmitter, order: Order, size: Scalar, radix: Scalar, work: Sequence[Tensor]) -> list[Tensor]:
    """Orders the first `size` pairs of the first buffer. `radix` is 0 if there are no pairs, else `RADIX`."""
    *pairs, counts = work
    every = range(order.passes)
    numbers = [s.constant(n, I64) for n in every]
    zero, one = s.constant(0, order.index), s.constant(1, order.index)

    def clear(i: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turned:
        (table,) = t
        for n in numbers:
            table = s.store(table, [n, i], zero)
        return [table], []

    def count(i: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turned:
        (table,) = t
        key = s.load(pairs[0], [i])
        for n in numbers:
            at = [n, order.byte(s, key, n)]
            table = s.store(table, at, s.binary("add", s.load(table, at), one))
        return [table], []

    def add_up(i: Scalar, t: Sequence[Tensor], totals: Sequence[Scalar]) -> Turned:
        (table,) = t
        found = [s.load(table, [n, i]) for n in numbers]
        for n, total in zip(numbers, totals, strict=True):
            table = s.store(table, [n, i], total)
        return [table], [s.binary("add", total, n) for total, n in zip(totals, found, strict=True)]

    (counts,), _ = s.repeat(radix, [counts], [], clear)
    (counts,), _ = s.repeat(size, [counts], [], count)
    (counts,), _ = s.repeat(radix, [counts], [zero for _ in every], add_up)

    # One loop over pairs of passes, since bufferization takes very long for a row of loops inside a loop.
    def order_twice(turn: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turned:
        *pairs, table = t
        here, there = pairs[:2], pairs[2:]
        first = s.binary("mul", turn, s.constant(2, I64))
        for number in (first, s.binary("add", first, numbers[1])):
            *moved, table = _move_pairs(s, order, size, number, here, [*there, table])
            here, there = moved, here
        return [*here, *there, table], []

    (*ordered,), _ = s.repeat(s.constant(order.passes // 2, I64), [*pairs, counts], [], order_twice)
    return ordered


def _move_pairs(
    s: SequenceEmitter, order: Order, size: Scalar, number: Scalar, source: Sequence[Tensor], work: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Emits a radix pass: moves pairs to the positions that their byte `number` has in the table of `work`."""

    def move(i: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turned:
        keys, positions, table = t
        key, position = s.load(source[0], [i]), s.load(source[1], [i])
        at = [number, order.byte(s, key, number)]
        target = s.load(table, at)
        table = s.store(table, at, s.binary("add", target, s.constant(1, order.index)))
        to = [s.cast(target, I64)]
        return [s.store(keys, to, key), s.store(positions, to, position), table], []

    return s.repeat(size, work, [], move)[0]


def order_some(s: SequenceEmitter, order: Order, size: Scalar, work: Sequence[Tensor]) -> list[Tensor]:
    """Orders pairs like `order_pairs`, but a few pairs by counting."""
    zero = s.constant(0, I64)
    is_short = s.compare("le", size, s.constant(COUNTED, I64))
    counted = s.select(is_short, size, zero)
    radix = s.select(is_short, zero, s.constant(RADIX, I64))
    keys, positions, *other, counts = work

    def move(i: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turned:
        to = [rank_of(s, order, keys, counted, i)]
        return [s.store(t[0], to, s.load(keys, [i])), s.store(t[1], to, s.load(positions, [i]))], []

    (*moved,), _ = s.repeat(counted, other, [], move)

    def back(i: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turned:
        return [s.store(target, [i], s.load(source, [i])) for target, source in zip(t, moved, strict=True)], []

    (*here,), _ = s.repeat(counted, [keys, positions], [], back)
    return order_pairs(s, order, s.select(is_short, zero, size), radix, [*here, *moved, counts])
