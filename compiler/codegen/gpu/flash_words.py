"""The products of an attention of f32: exact ones, or those of tensor cores with factors rounded to tf32.

Rows, keys and the softmax are those of `flash`. Lane l has g = l / 4 and p = l % 4; it computes the scores of rows g
and g + 8 and of keys 2p and 2p + 1 of every 8. The weights of a row are in the four lanes of a group.

    exact   q k^T   4 of the depth at once: 16 bytes of each row, 4 elements of each key. Where keys lie along the depth
                    in memory, a tile has their order: both keys of a lane are neighbours then
            p v     lane p ^ x hands over its weights, x = 0..3; they are multiplied by columns 4p..4p + 3 of every 16
    tf32    q k^T   fragments by `ldmatrix`, whose elements are words
            p v     the depth of a product has the keys 2p in its first half, 2p + 1 in its second one, so that weights
                    stay in their lanes
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from .flash import FlashWriter
from .fragments import Tile, shared_pointer
from .mma import TF32, multiply, round_word

_STEP = 16
"""The depth that an iteration of the exact products computes."""
_VECTOR = 4


class _WordsWriter(FlashWriter):
    """The parts that both have in common."""

    def load_queries(self) -> None:
        self.copy(0, self.first_row)


class ExactWriter(_WordsWriter):
    """The writer of exact products. Elements of keys and values are widened when they are read."""

    turns_keys = True

    def read_vector(self, tile: Tile, address: str, bytes: int, count: int = _VECTOR) -> list[str]:
        """Returns neighbouring elements of a tile as f32."""
        text, type = self.text, f"vector<{count}x{tile.element}>"
        pointer = shared_pointer(text, text.add(address, text.constant(bytes)))
        value = text.let(f"llvm.load {pointer} {{alignment = {count * tile.size} : i64}} : !llvm.ptr<3> -> {type}")
        made = [text.let(f"vector.extract {value}[{n}] : {tile.element} from {type}") for n in range(count)]
        if tile.element == "f32":
            return made
        widening = "sitofp" if tile.element == "i8" else "extf"
        return [text.let(f"arith.{widening} {each} : {tile.element} to f32") for each in made]

    def load_queries(self) -> None:
        super().load_queries()
        text, zero = self.text, self.text.constant(0)
        self.query_address = self.q.address(text.add(self.own_row, self.group), zero)
        key = text.add(self.own_key, self.pair)
        self.key_address = self.k.address(key, zero) if self.is_plain[1] else self.k.address(zero, key)
        quarter = text.index("divui", self.pair, text.constant(2))
        first_columns = text.multiply(quarter, text.constant(_VECTOR))
        self.value_addresses = []
        for distance in range(4):
            other = text.index("xori", quarter, text.constant(distance))
            key = text.add(self.own_key, text.multiply(other, text.constant(2)))
            self.value_addresses.append(self.v.address(key, first_columns))

    def place_column(self, tile: int, part: int) -> str:
        text = self.text
        first = text.multiply(self.pair, text.constant(_VECTOR // 2))
        return text.add(first, text.constant(16 * (tile // 2) + 2 * (tile % 2) + part % 2))

    def multiply_keys(self, starts: Sequence[str]) -> list[str]:
        text, types = self.text, ["f32"] * len(starts)
        carried, step = [text.fresh() for _ in starts], text.fresh()
        zero, end, by = (text.constant(n) for n in (0, self.shape.depth, _STEP))
        with text.loop(f"{step} = {zero} to {end} step {by}", carried, starts, types) as results:
            sums = list(carried)
            queries = text.add(self.query_address, text.multiply(step, text.constant(self.size)))
            each = self.k.size if self.is_plain[1] else self.k.pitch
            keys = text.add(self.key_address, text.multiply(step, text.constant(each)))
            for depth in range(0, _STEP, _VECTOR):
                rows = [self.read_vector(self.q, queries, 8 * n * self.q.pitch + depth * self.size) for n in range(2)]
                for tile in range(self.tiles):
                    pair = self._read_pair(keys, tile, depth)
                    for part, row, n in product(range(2), range(2), range(_VECTOR)):
                        at = 4 * tile + 2 * row + part
                        sums[at] = text.let(f"math.fma {rows[row][n]}, {pair[part][n]}, {sums[at]} : f32")
            text.carry(sums, types)
        return results

    def _read_pair(self, keys: str, tile: int, depth: int) -> list[list[str]]:
        """Returns the elements of this thread's two keys, of 8, from a depth on."""
        if self.is_plain[1]:
            places = [(8 * tile + part) * self.k.pitch + depth * self.k.size for part in range(2)]
            return [self.read_vector(self.k, keys, bytes) for bytes in places]
        steps = [8 * tile * self.k.size + (depth + n) * self.k.pitch for n in range(_VECTOR)]
        pairs = [self.read_vector(self.k, keys, bytes, 2) for bytes in steps]
        return [[pair[part] for pair in pairs] for part in range(2)]

    def multiply_values(self, weights: Sequence[str], starts: Sequence[str]) -> list[str]:
        text, sums = self.text, list(starts)
        for tile, distance, part in product(range(self.tiles), range(4), range(2)):
            own = [weights[4 * tile + 2 * row + part] for row in range(2)]
            given = [text.exchange(weight, "f32", distance) for weight in own] if distance else own
            for column in range(self.shape.columns // 16):
                bytes = (8 * tile + part) * self.v.pitch + 16 * self.v.size * column
                values = self.read_vector(self.v, self.value_addresses[distance], bytes)
                for row, n in product(range(2), range(_VECTOR)):
                    at = 4 * (2 * column + n // 2) + 2 * row + n % 2
                    sums[at] = text.let(f"math.fma {given[row]}, {values[n]}, {sums[at]} : f32")
        return sums


class Tf32Writer(_WordsWriter):
    """The writer of products on tensor cores."""

    def _read_word(self, address: str, bytes: int) -> str:
        """Returns the content of shared memory at a distance from an address."""
        pointer = shared_pointer(self.text, self.text.add(address, self.text.constant(bytes)))
        return self.text.let(f"llvm.load {pointer} {{alignment = 4 : i64}} : !llvm.ptr<3> -> i32")

    def load_queries(self) -> None:
        super().load_queries()
        text = self.text
        self.query_lanes, self.key_lanes = self.q.lanes(self.own_row, 0), self.k.lanes(self.own_key, 1)
        self.value_address = self.v.address(text.add(self.own_key, self.pair), self.group)

    def multiply_keys(self, starts: Sequence[str]) -> list[str]:
        text, sums = self.text, list(starts)
        for step in range(0, self.shape.depth, 8):
            a = [round_word(text, word) for word in self.q.matrices(self.query_lanes, 0, step, turned=False)]
            for pair in range(self.tiles // 2):
                b = [round_word(text, w) for w in self.k.matrices(self.key_lanes, 16 * pair, step, turned=False)]
                for half in range(2):
                    at = 4 * (2 * pair + half)
                    sums[at : at + 4] = multiply(text, TF32, a, b[2 * half : 2 * half + 2], sums[at : at + 4])
        return sums

    def multiply_values(self, weights: Sequence[str], starts: Sequence[str]) -> list[str]:
        text, sums = self.text, list(starts)
        for tile in range(self.tiles):
            own = [weights[4 * tile + n] for n in (0, 2, 1, 3)]
            a = [round_word(text, text.let(f"arith.bitcast {weight} : f32 to i32")) for weight in own]
            for column in range(self.shape.columns // 8):
                offsets = [(8 * tile + n) * self.v.pitch + 8 * self.size * column for n in range(2)]
                b = [round_word(text, self._read_word(self.value_address, bytes)) for bytes in offsets]
                sums[4 * column : 4 * column + 4] = multiply(text, TF32, a, b, sums[4 * column : 4 * column + 4])
        return sums
