"""Orders the first elements of a row sequentially: by extraction or by blocks.

- Extraction: the least pair of key and index, then the least of those that follow it, and so on. A pair of a short key
  is one integer, so each step is a minimum over vectors.
- Blocks: a row has at least k elements up to the k-th of the least elements of its blocks. This bound skips most
  blocks. From the other blocks, a buffer collects the pairs within the bound; when it is full, it is ordered and cut to
  k, and the last of these is the new bound.

An example of an extraction from the keys 31 12 11 12 at the indices 0 to 3: the pairs are (31, 0) (12, 1) (11, 2)
(12, 3), the first is (11, 2), the least pair after it (12, 1), and the next one (12, 3).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dims import ceil_divide
from ...emitter import Emitter, Scalar, ScalarEmitter, SequenceEmitter, Tensor
from ...types import I32, I64, TensorType
from .sorting import Method, Row, Turned, order_some, pair_buffers

BLOCK = 64
"""The number of elements in a block; the least element is compared with the bound."""
SLACK = 448
"""The pairs that a selection collects beyond k before it orders them."""
_INDEX_BITS = 32
"""The bits of a pair that hold the index; the key is above them."""


class Extraction(Method):
    """Extraction of the first elements, one after the other."""

    @property
    def packs(self) -> bool:
        """Whether a pair of key and index is one integer."""
        return self.order.key == I32 and self.order.index == I32

    def cost(self) -> float:
        steps = 0.4 if self.packs else 1.6
        return 2 * self.length + self.kept * (steps * self.length + 40)

    def scratch(self, e: Emitter) -> list[Tensor]:
        return [e.full(TensorType(I64, (self.order.size,)), 0), e.full(TensorType(self.order.index, (self.count,)), 0)]

    def write(self, s: SequenceEmitter, row: Row, work: Sequence[Tensor]) -> tuple[list[Tensor], int]:
        size = s.size(self.order.size)

        def fill(i: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turned:
            key = s.cast(row.key(s, i), I64)
            return [s.store(t[0], [i], self._pair(s, key, i) if self.packs else key)], []

        (pairs,), _ = s.repeat(size, work[:1], [], fill)

        def extract(i: Scalar, t: Sequence[Tensor], least: Sequence[Scalar]) -> Turned:
            next_index = self._next_packed if self.packs else self._next
            index, least = next_index(s, pairs, least)
            return [s.store(t[0], [i], s.cast(index, self.order.index))], least

        start = [s.constant(-1 << 63, I64)] + ([] if self.packs else [s.constant(0, I64)])
        (positions,), _ = s.repeat(s.size(self.count), work[1:], start, extract)
        return [pairs, positions], 1

    def _pair(self, s: SequenceEmitter, key: Scalar, index: Scalar) -> Scalar:
        return s.binary("or", s.binary("shl", key, s.constant(_INDEX_BITS, I64)), index)

    def _next_packed(
        self, s: SequenceEmitter, pairs: Tensor, least: Sequence[Scalar]
    ) -> tuple[Scalar, Sequence[Scalar]]:
        """Returns the index of the least pair that is at least `least`, and the least integer of a pair after it."""
        greatest = s.constant((1 << 63) - 1, I64)

        def smaller(_: ScalarEmitter, j: Scalar, found: Sequence[Scalar]) -> Sequence[Scalar]:
            pair = s.load(pairs, [j])
            return [s.binary("min", found[0], s.select(s.compare("ge", pair, least[0]), pair, greatest))]

        (pair,) = s.iterate(s.size(self.order.size), [greatest], smaller)
        index = s.binary("and", pair, s.constant((1 << _INDEX_BITS) - 1, I64))
        return index, [s.binary("add", pair, s.constant(1, I64))]

    def _next(self, s: SequenceEmitter, keys: Tensor, least: Sequence[Scalar]) -> tuple[Scalar, Sequence[Scalar]]:
        """Returns the index of the least pair that is at least `least`, a key and an index, and the next such pair."""
        size, greatest = s.size(self.order.size), s.constant((1 << 63) - 1, I64)

        def key_from(j: Scalar) -> tuple[Scalar, Scalar]:
            key = s.load(keys, [j])
            equal = s.binary("and", s.compare("eq", key, least[0]), s.compare("ge", j, least[1]))
            return key, s.binary("or", s.compare("gt", key, least[0]), equal)

        def smaller(_: ScalarEmitter, j: Scalar, found: Sequence[Scalar]) -> Sequence[Scalar]:
            key, follows = key_from(j)
            return [s.binary("min", found[0], s.select(follows, key, greatest))]

        (found,) = s.iterate(size, [greatest], smaller)

        def earlier(_: ScalarEmitter, j: Scalar, first: Sequence[Scalar]) -> Sequence[Scalar]:
            key, follows = key_from(j)
            is_found = s.binary("and", s.compare("eq", key, found), follows)
            return [s.binary("min", first[0], s.select(is_found, j, size))]

        (index,) = s.iterate(size, [size], earlier)
        return index, [found, s.binary("add", index, s.constant(1, I64))]


class Selection(Method):
    """Selection of the first elements by blocks."""

    def cost(self) -> float:
        return 1.5 * self.length + 500 * self.kept

    @property
    def room(self) -> int:
        """The number of pairs that the buffer holds."""
        return self.kept + SLACK + BLOCK

    def scratch(self, e: Emitter) -> list[Tensor]:
        # One more than the number of blocks, which the last iteration reads.
        least = e.full(TensorType(self.order.key, (ceil_divide(self.order.size, BLOCK) + 1,)), 0)
        return [*pair_buffers(e, self.order, self.room), least]

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
