"""The tiles of an attention in shared memory, and the positions that they are copied from.

Tiles of 16-bit elements have the axis that is contiguous in memory as their fast axis. If queries are f32, the fast
axis is the depth, or the columns of the values, since `ldmatrix` transposes 16-bit elements only; exact products read
keys along either axis. The queries stay in shared memory then, and keys and values may have a narrower dtype.
"""

from __future__ import annotations

from collections.abc import Sequence

from .attention import Attention
from .flash_shape import THREADS, WARP, WARPS, Shape
from .flash_split import FEW
from .fragments import BYTES, CHUNK, ZEROS, Source, Tile, commit_copies, shared_pointer, wait_for_copies
from .lengths import Length
from .plain import split_number
from .text import Text

LOG2E, LOWEST = "0x3FB8AA3B", "0xFF800000"


class FlashTiles:
    """The tiles of the threads' function; `place_block` and `place_tiles` come first. `at` maps axes of the scores to
    positions. The function of a launch that `combines` parts is another one."""

    def __init__(self, attention: Attention, name: str, *, combines: bool = False) -> None:
        self.attention, self.name, self.combines, self.text = attention, name, combines, Text()
        self.element = attention.scores.inputs[0].element
        self.size = BYTES[self.element]
        self.keeps_queries = self.size == 4
        self.part = ""
        """The part of the keys that this block computes, where they are split."""
        self.at: dict[int, str] = {}

    turns_keys = False
    """Whether keys of a tile may be its fast axis where queries are f32."""

    @property
    def reads_keys(self) -> bool:
        """Whether this launch computes scores. One that combines parts does if the scores of a causal mask are finite:
        rows without any other key attend to the masked ones."""
        causal = self.attention.causal
        return not self.combines or (causal is not None and causal.low != -float("inf"))

    def place_block(self) -> None:
        """Computes the batch element, the rows, the columns and the keys of this thread."""
        text = self.text
        shape = self.shape = Shape(text, self.attention)
        columns, rest = self._split(text.special("ctaid.x"), text.constant(shape.column_blocks))
        if shape.parts is not None and not self.combines:
            self.part, rest = self._split(rest, shape.parts)
        tile, self.batch = self._split(rest, shape.row_tiles)
        self.at |= zip(self.attention.batch, split_number(text, self.batch, shape.batch_sizes), strict=True)
        self.first_column = text.multiply(columns, text.constant(shape.columns))
        self.first_row = text.multiply(tile, text.constant(shape.rows))
        lane, warp = self._split(text.special("tid.x"), text.constant(WARP))
        quarter, self.group = self._split(lane, text.constant(4))
        self.pair = text.multiply(quarter, text.constant(2))
        self.warp = warp
        zero, sixteen = text.constant(0), text.constant(FEW)
        self.own_row = zero if shape.shares_keys else text.multiply(warp, sixteen)
        self.own_key = text.multiply(warp, sixteen) if shape.shares_keys else zero
        self.tiles = (FEW if shape.shares_keys else shape.keys) // 8
        """The tiles of 8 keys of a warp."""
        self.row_numbers = [
            text.add(text.add(self.first_row, self.own_row), text.add(self.group, text.constant(8 * n)))
            for n in range(2)
        ]
        last = text.let(f"arith.subi {shape.total_rows}, {text.constant(1)} : index")
        self.row_positions = [
            split_number(text, text.index("minui", row, last), shape.row_sizes) for row in self.row_numbers
        ]

        self._find_keys(lane, last)

    def _find_keys(self, lane: str, last: str) -> None:
        """Computes the bounds of the keys that have a weight in a row of the block."""
        text, attention = self.text, self.attention
        self.length, self.start = self.shape.total_keys, text.constant(0)
        """The bounds of the keys that all rows of a batch element have."""
        if attention.length is not None:
            self.length = self._join_bounds("minui", [attention.length], {})
        if attention.start is not None:
            self.start = self._join_bounds("maxui", [attention.start], {})
        self.begin_key, self.end = self.start, self.length
        """The bounds of the tiles of keys that have a weight in a row of the block."""
        if attention.ends and self.reads_keys:
            greatest = self._among_rows(attention.ends, lane, last, "minui", "maxui")
            self.end = text.index("minui", self.end, greatest)
        if attention.begins and self.reads_keys:
            least = self._among_rows(attention.begins, lane, last, "maxui", "minui")
            self.begin_key = text.index("maxui", self.begin_key, least)
        if attention.length is not None or attention.ends:
            self.end = self._end_tile(self.end)
        if attention.start is not None or attention.begins:
            tile = text.constant(self.shape.keys)
            self.begin_key = text.multiply(text.index("divui", self.begin_key, tile), tile)

    def _join_bounds(self, join: str, bounds: Sequence[Length], rows: dict[int, str]) -> str:
        """Returns the least or the greatest of some bounds, for positions along the rows."""
        text, positions = self.text, self._of_scores(rows)
        loops = [positions[loop] for loop in self.attention.of_scores()]
        first, *others = (each.evaluate(text, loops, self.shape.total_keys) for each in bounds)
        for other in others:
            first = text.index(join, first, other)
        return first

    def _end_tile(self, key: str) -> str:
        """Returns the end of the tiles that have all keys before one."""
        text, tile = self.text, self.text.constant(self.shape.keys)
        whole = text.multiply(text.index("ceildivui", key, tile), tile)
        return text.index("minui", whole, self.shape.total_keys)

    def _among_rows(self, bounds: Sequence[Length], lane: str, last: str, in_row: str, among: str) -> str:
        """Returns the greatest or the least bound of a block's rows, as `among` says. The bound of a row joins its own
        ones. Each warp finds the result alone: a lane takes every 32nd row."""
        text, shape, found = self.text, self.shape, ""
        for begin in range(0, shape.rows, WARP):
            row = text.add(self.first_row, text.add(lane, text.constant(begin)))
            positions = split_number(text, text.index("minui", row, last), shape.row_sizes)
            own = self._join_bounds(in_row, bounds, dict(zip(self.attention.rows, positions, strict=True)))
            found = text.index(among, found, own) if found else own
        word = text.let(f"arith.index_cast {found} : index to i32")
        for distance in (1, 2, 4, 8, 16):
            word = text.let(f"arith.{among} {word}, {text.exchange(word, 'i32', distance)} : i32")
        return text.let(f"arith.index_cast {word} : i32 to index")

    def _bound_of_values(self, bound: Length) -> str:
        """Returns a bound of the keys whose values are not 0."""
        positions = self._of_values({}, self.text.constant(0))
        loops = [positions[loop or 0] for loop in self.attention.values.inputs[1].plain_axes()]
        return bound.evaluate(self.text, loops, self.shape.total_keys)

    def _split(self, number: str, by: str) -> tuple[str, str]:
        """Returns the remainder and the quotient."""
        return self.text.index("remui", number, by), self.text.index("divui", number, by)

    def place_tiles(self) -> None:
        """Assigns shared memory to the tiles: keys and values later overwrite the queries."""
        text, shape, attention = self.text, self.shape, self.attention
        (q, k), v = attention.scores.inputs, attention.values.inputs[1]
        of_scores, of_values = attention.of_scores(), attention.of_values()
        depth, column = attention.scores.reductions[0], attention.column
        last_row = of_scores[attention.rows[-1]] if len(attention.rows) == 1 else -1
        type = "memref<{}xi8, 3>"
        along = (
            q.plain_axes()[-1] != last_row,
            k.plain_axes()[-1] != of_scores[attention.key],
            v.plain_axes()[-1] != of_values[attention.key],
        )
        self.is_plain = (True, along[1] or not self.turns_keys, True) if self.size == 4 else along
        """Whether the depth, or the columns of the values, is the fast axis of each tile."""
        sizes = [(shape.rows, shape.depth), (shape.keys, shape.depth), (shape.keys, shape.columns)]
        sizes = [size if plain else size[::-1] for size, plain in zip(sizes, self.is_plain, strict=True)]
        elements = [operand.element for operand in (q, k, v)]
        bytes = [slow * (fast * BYTES[of] + CHUNK) for of, (slow, fast) in zip(elements, sizes, strict=True)]
        combined = WARPS * FEW * (shape.columns + 2) * 4 if shape.shares_keys else 0
        both = bytes[1] + bytes[2]
        tiles = both + bytes[0] if self.keeps_queries else max(bytes[0], both)
        self.bytes = max(tiles if self.reads_keys else CHUNK, combined)
        memory = text.let(f"memref.get_global @{self.name}_memory : {type.format(self.bytes)}")
        self.memory = memory
        begin = text.let(f"memref.extract_aligned_pointer_as_index {memory} : {type.format(self.bytes)} -> index")
        self.begin = begin
        queries = text.add(begin, text.constant(both)) if self.keeps_queries else begin
        bases = [queries, begin, text.add(begin, text.constant(bytes[1]))]
        self.q, self.k, self.v = (
            Tile(text, base, of, *size) for base, of, size in zip(bases, elements, sizes, strict=True)
        )
        kept, since = attention.kept, attention.since
        end_of_values = shape.total_keys if kept is None else self._bound_of_values(kept)
        self.first_value = None if since is None else self._bound_of_values(since)
        """The first key whose values are not 0; None if there is no such bound."""
        sides = [(shape.total_rows, depth), (shape.total_keys, depth), (end_of_values, column)]
        names = ("%q0", "%q1", "%m1")
        loops = (last_row, of_scores[attention.key], of_values[attention.key])
        made = []
        for number, (operand, name) in enumerate(zip((q, k, v), names, strict=True)):
            limits = (sides[number][0], text.constant((attention.columns if number == 2 else attention.depth) or 0))
            axis = sides[number][1] if self.is_plain[number] else loops[number]
            at = [self._at_query, self._at_key, self._at_value][number]
            swapped = at if self.is_plain[number] else (lambda slow, fast, at=at: at(fast, slow))
            ordered = limits if self.is_plain[number] else limits[::-1]
            is_crossed = self.is_plain[number] and not along[number]
            made.append(Source(text, name, operand, operand.plain_axes().index(axis), ordered, swapped, is_crossed))
        self.sources = made
        self.aligned = [None if source.is_crossed else source.is_aligned() for source in made]

    def _positions(self, loops: Sequence[int], count: int, known: dict[int, str], extra: dict[int, str]) -> list[str]:
        zero = self.text.constant(0)
        positions = {loops[axis]: position for axis, position in known.items()} | extra
        return [positions.get(loop, zero) for loop in range(count)]

    def _of_scores(self, known: dict[int, str], depth: str | None = None) -> list[str]:
        scores = self.attention.scores
        extra = {} if depth is None else {scores.reductions[0]: depth}
        return self._positions(self.attention.of_scores(), len(scores.parallel), self.at | known, extra)

    def _of_values(self, known: dict[int, str], column: str) -> list[str]:
        values = self.attention.values
        extra = {self.attention.column: column}
        return self._positions(self.attention.of_values(), len(values.parallel), self.at | known, extra)

    def _at_query(self, row: str, depth: str) -> list[str]:
        positions = split_number(self.text, row, self.shape.row_sizes)
        return self._of_scores(dict(zip(self.attention.rows, positions, strict=True)), depth)

    def _at_key(self, key: str, depth: str) -> list[str]:
        return self._of_scores({self.attention.key: key}, depth)

    def _at_value(self, key: str, column: str) -> list[str]:
        return self._of_values({self.attention.key: key}, column)

    def copy(self, number: int, side: str) -> None:
        """Begins to copy a tile: from a row, or from a key."""
        tile = (self.q, self.k, self.v)[number]
        first = (side, self.first_column if number == 2 else self.text.constant(0))
        ordered = first if self.is_plain[number] else first[::-1]
        self.sources[number].copy(tile, ordered, THREADS, self.aligned[number])
        commit_copies(self.text)

    def clear_values(self, key: str) -> None:
        """Writes zeros in place of the values before the first one, in the tile that begins at a key."""
        text, first = self.text, self.first_value
        if first is None:
            return
        with text.block(f"scf.if {text.below(key, first)}"):
            number, zero = text.fresh(), text.let(f"arith.constant {ZEROS[self.v.element]} : {self.v.element}")
            total, step = text.constant(self.v.slow * self.v.fast), text.constant(THREADS)
            with text.loop(f"{number} = {text.special('tid.x')} to {total} step {step}", [], [], []):
                fast, slow = self._split(number, text.constant(self.v.fast))
                own = slow if self.is_plain[2] else fast
                with text.block(f"scf.if {text.below(text.add(key, own), first)}"):
                    target = shared_pointer(text, self.v.address(slow, fast))
                    text.line(f"llvm.store {zero}, {target} : {self.v.element}, !llvm.ptr<3>")
            text.barrier()

    def place_column(self, tile: int, part: int) -> str:
        """Returns the column of a sum of this thread, among the columns of the block."""
        return self.text.add(self.pair, self.text.constant(8 * tile + part % 2))

    def load_queries(self) -> None:
        text, zero, plain = self.text, self.text.constant(0), self.is_plain
        self.copy(0, self.first_row)
        wait_for_copies(text, 0)
        text.barrier()
        steps = range(0, self.shape.depth, 16)
        if plain[0]:
            lanes = self.q.lanes(self.own_row, 0)
            self.queries = [self.q.matrices(lanes, 0, k, turned=False) for k in steps]
        else:
            lanes = text.add(self.q.lanes(zero, 1), text.multiply(self.own_row, text.constant(2)))
            self.queries = [self.q.matrices(lanes, k, 0, turned=True) for k in steps]
        text.barrier()
        if plain[1]:
            self.key_lanes = self.k.lanes(self.own_key, 1)
        else:
            self.key_lanes = text.add(self.k.lanes(zero, 0), text.multiply(self.own_key, text.constant(2)))
        if plain[2]:
            self.value_lanes = self.v.lanes(self.own_key, 0)
        else:
            self.value_lanes = text.add(self.v.lanes(zero, 1), text.multiply(self.own_key, text.constant(2)))

    def words(self, element: str) -> tuple[str, str]:
        """Returns the block's shared memory as words, and the type of the view."""
        text, type = self.text, f"memref<{self.bytes // 4}x{element}, 3>"
        zero = text.constant(0)
        return text.let(f"memref.view {self.memory}[{zero}][] : memref<{self.bytes}xi8, 3> to {type}"), type
