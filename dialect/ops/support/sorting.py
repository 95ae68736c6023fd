"""Orders rows sequentially: short rows by counting, long ones by radix, and the first few of a long row by selection.

Elements are compared by keys: integers in the order of the elements, equal for equal elements, the greatest for NaN. A
descending order complements them. Elements move as pairs of key and index, and all orders are stable.

- Counting: the position of an element is the number of elements that are smaller, or equal and before it.
- Radix: bytes of the keys from the lowest to the highest. Each pass moves every pair after those of smaller bytes.
- Selection: a row has at least k elements up to the k-th of the least elements of its blocks. This bound skips most
  blocks. From the other blocks, a buffer collects the pairs within the bound; when it is full, it is ordered and cut to
  k, and the last of these is the new bound.

An example of a radix pass over keys 31 12 11, by the last digit: two keys end in 1, so these begin at 0, and the key
that ends in 2 begins at 2; the result is 31 11 12.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dims import Size, bounds, ceil_divide
from ...emitter import Emitter, Scalar, ScalarEmitter, SequenceEmitter, Tensor
from ...lazy_dataclass import dataclass
from ...types import I32, I64, SIGNED, DType, TensorType

COUNTED = 96
"""The longest row that is ordered by counting."""
RADIX = 256
_SIGNED = {dtype.bits: dtype for dtype in SIGNED}
BLOCK = 64
"""The number of elements in a block; the least element is compared with the bound."""
SLACK = 448
"""The pairs that a selection collects beyond k before it orders them."""
SELECTED = 8
"""The least ratio of a row's length to the number of selected elements."""
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


def order_rows(
    e: Emitter, x: Tensor, axis: int, descending: bool, count: Size, *, with_values: bool, with_indices: bool
) -> list[Tensor]:
    """Returns the first `count` elements of each row along the axis in order, and their indices, as i64."""
    order = Order(x.type.dtype, x.type.shape[axis], descending)
    shape = tuple(count if a == axis else n for a, n in enumerate(x.type.shape))
    types = [TensorType(x.type.dtype, shape)] * with_values + [TensorType(I64, shape)] * with_indices
    method = _choose(order, count)
    scratch = method.scratch(e)
    outer = tuple(n for a, n in enumerate(x.type.shape) if a != axis)

    def body(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        before, after = tuple(indices)[:axis], tuple(indices)[axis : len(outer)]

        def at(number: Scalar) -> Sequence[Scalar]:
            return (*before, number, *after)

        results, work = list(tensors[: len(types)]), list(tensors[len(types) :])
        work, positions = method.write(s, Row(x, at, order), work)

        def copy(number: Scalar, done: Sequence[Tensor], _: Sequence[Scalar]) -> Turned:
            position = s.cast(s.load(work[positions], [number]), I64)
            found = ([s.load(x, at(position))] if with_values else []) + ([position] if with_indices else [])
            return [s.store(t, at(number), v) for t, v in zip(done, found, strict=True)], []

        results = list(s.repeat(s.size(count), results, [], copy)[0])
        return [*results, *work]

    done = e.scan(outer or (1,), [*(e.full(type, 0) for type in types), *scratch], body)
    return list(done[: len(types)])


class _Method:
    """A method that orders a row. `write` returns the working tensors, and the index of the one with the ordered
    indices."""

    def __init__(self, order: Order, count: Size) -> None:
        self.order, self.count = order, count

    def scratch(self, e: Emitter) -> list[Tensor]:
        raise NotImplementedError

    def write(self, s: SequenceEmitter, row: Row, work: Sequence[Tensor]) -> tuple[list[Tensor], int]:
        raise NotImplementedError


def _choose(order: Order, count: Size) -> _Method:
    most, length = bounds(count)[1], bounds(order.size)[1]
    if length <= COUNTED:
        return _Counting(order, count)
    return _Selection(order, count) if most * SELECTED <= length else _Radix(order, count)


class _Counting(_Method):
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


def _buffers(e: Emitter, order: Order, size: Size) -> list[Tensor]:
    """Returns two buffers of pairs, and a histogram for each byte of a key."""
    pair = (TensorType(order.key, (size,)), TensorType(order.index, (size,)))
    counts = TensorType(order.index, (order.passes, RADIX))
    return [e.full(type, 0) for type in (*pair, *pair, counts)]


class _Radix(_Method):
    def scratch(self, e: Emitter) -> list[Tensor]:
        return _buffers(e, self.order, self.order.size)

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


class _Selection(_Method):
    """Selection of the first elements. It is faster only if a row is at least `SELECTED` times as long as the
    selection."""

    @property
    def kept(self) -> int:
        return bounds(self.count)[1]

    @property
    def room(self) -> int:
        """The number of pairs that the buffer holds."""
        return self.kept + SLACK + BLOCK

    def scratch(self, e: Emitter) -> list[Tensor]:
        # One more than the number of blocks, which the last iteration reads.
        least = e.full(TensorType(self.order.key, (ceil_divide(self.order.size, BLOCK) + 1,)), 0)
        return [*_buffers(e, self.order, self.room), least]

    def write(self, s: SequenceEmitter, row: Row, work: Sequence[Tensor]) -> tuple[list[Tensor], int]:
        order = self.order
        size, block = s.size(order.size), s.constant(BLOCK, I64)
        zero, one = s.constant(0, I64), s.constant(1, I64)
        kept, full = s.constant(self.kept, I64), s.constant(self.kept + SLACK, I64)
        last_kept = [s.constant(max(self.kept - 1, 0), I64)]
        greatest = s.constant((1 << order.key.bits - 1) - 1, order.key)
        blocks = s.binary("div", size, block)
        *buffers, least = work

        def find_least(number: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turned:
            first = s.binary("mul", number, block)

            def smaller(_: object, j: Scalar, found: Sequence[Scalar]) -> Sequence[Scalar]:
                return [s.binary("min", found[0], row.key(s, s.binary("add", first, j)))]

            (found,) = s.iterate(block, [greatest], smaller)
            return [s.store(t[0], [number], found)], []

        (least,), _ = s.repeat(blocks, [least], [], find_least)
        some = s.binary("min", blocks, s.constant(self.room, I64))
        (*keys,), _ = s.repeat(some, buffers[:1], [], lambda i, t, _: ([s.store(t[0], [i], s.load(least, [i]))], []))
        buffers = order_some(s, order, some, [*keys, *buffers[1:]])
        # Keys that enter are smaller than the bound, so the bound is the key of the last needed block plus one.
        bound = s.load(buffers[0], last_kept)
        is_bounded = s.binary("and", s.compare("ge", some, kept), s.compare("lt", bound, greatest))
        bound = s.select(is_bounded, s.binary("add", bound, s.constant(1, order.key)), greatest)

        # Loops of zero iterations replace branches, and the elements after the last whole block are one more iteration,
        # since bufferization takes very long for deeper nests.
        def take(number: Scalar, tensors: Sequence[Tensor], state: Sequence[Scalar]) -> Turned:
            held, bound, is_bounded = state
            first, is_last = s.binary("mul", number, block), s.compare("eq", number, blocks)
            enters_any = s.compare("lt", s.load(least, [number]), bound)
            wanted = s.binary("or", enters_any, s.unary("not", is_bounded))
            count = s.select(is_last, s.binary("sub", size, first), s.select(wanted, block, zero))

            def append(j: Scalar, t: Sequence[Tensor], held: Sequence[Scalar]) -> Turned:
                number = s.binary("add", first, j)
                key = row.key(s, number)
                enters = s.binary("or", s.compare("lt", key, bound), s.unary("not", is_bounded))
                keys = s.store(t[0], [held[0]], key)
                positions = s.store(t[1], [held[0]], s.cast(number, order.index))
                return [keys, positions], [s.binary("add", held[0], s.cast(enters, I64))]

            pair, (held,) = s.repeat(count, tensors[:2], [held], append)
            is_full = s.compare("ge", held, full)
            ready = s.binary("or", is_full, is_last)
            ordered = order_some(s, order, s.select(ready, held, zero), [*pair, *tensors[2:]])
            bound = s.select(is_full, s.load(ordered[0], last_kept), bound)
            return ordered, [s.select(is_full, kept, held), bound, s.binary("or", is_bounded, is_full)]

        done, _ = s.repeat(s.binary("add", blocks, one), buffers, [zero, bound, is_bounded], take)
        return [*done, least], 1
