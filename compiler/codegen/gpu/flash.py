"""The schedule of attention: scores stay in registers, a tile of keys at a time (online softmax).

A block of four warps computes ROWS rows of one batch element; rows of several heads that share keys are one axis:

    q in registers, or in shared memory;  m = -inf, l = 0, o = 0                          for each row, in f32
    for each tile of KEYS keys:   s = q k^T;  s = epilogue(s);  -inf beyond the last key
                                  m' = max(m, max s);  p = exp(s - m');  c = exp(m - m')
                                  l = l c + sum p;  o = o c + p v
    result = o / l

The products are those of a subclass: on tensor cores for f16 and bf16 here, for f32 in `flash_words`. Copies of v
overlap the first product, those of the next k the second one. With a causal mask, the kernel skips tiles whose keys all
follow the last row, and never reads their keys and values, unless the maximum of a row is a masked score, as in a row
without any key. It does not read tiles behind the ends of all rows either, where each row has an end of its own, nor
tiles before their starts, as with a sliding window. Where a block has 16 rows or fewer, as with one query, its warps
share the keys instead of the rows, and combine their partial results at the end; `flash_split` splits the keys among
blocks.

Dao et al., FlashAttention-2, https://arxiv.org/abs/2307.08691
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import inf

from .flash_end import FlashEnd
from .flash_shape import WARPS, flash_arguments
from .flash_split import FEW
from .flash_tiles import LOG2E, LOWEST
from .fragments import round_pair, wait_for_copies
from .mma import float_product, multiply
from .nest import Beside
from .plain import call_beside, split_number


class FlashWriter(FlashEnd):
    """The writer of the threads' function."""

    def write(self) -> str:
        self.place_block()
        self.place_tiles()
        if not self.combines:
            self.load_queries()
        self.finish(self.run_passes())
        self.store_empty_sums()
        arguments = ", ".join(f"{argument}: {type}" for argument, type in flash_arguments(self.attention))
        memory = f'memref.global "private" @{self.name}_memory : memref<{self.bytes}xi8, 3> = uninitialized'
        return f"{memory} {{alignment = 16 : i64}}\n" + self.text.function(f"@{self.name}({arguments})")

    def run_passes(self) -> list[str]:
        lowest, none = (self.text.let(f"arith.constant {n} : f32") for n in (LOWEST, "0.0"))
        starts = [lowest, lowest, none, none] + [none] * (self.shape.columns // 2)
        if self.combines:
            starts = self.load_parts(starts)
            return self.add_masked_keys(starts) if self.reads_keys else starts
        if self.attention.causal is None:
            return self.run_tiles(*self.own_keys(self.end), starts)
        return self.run_causal(starts)

    def run_causal(self, starts: Sequence[str]) -> list[str]:
        """Computes the keys before the limit of a causal mask, then the others if a row needs them: none does if masked
        scores are -inf. If the keys are split, the launch that combines the parts computes the others."""
        text, shape, types = self.text, self.shape, ["f32"] * len(starts)
        zero, one, two = text.constant(0), text.constant(1), text.constant(2)
        limit = self.find_limit()
        own = self.own_keys(limit)
        assert self.attention.causal is not None
        if self.attention.causal.low == -inf:
            return self.run_tiles(*own, starts)
        passes = two if shape.parts is None else text.let(f"arith.select {self.is_whole()}, {two}, {one} : index")
        carried, number = [text.fresh() for _ in types], text.fresh()
        with text.loop(f"{number} = {zero} to {passes} step {one}", carried, starts, types) as results:
            again = self.is_masked(carried)
            rest = text.let(f"arith.select {again}, {self.end}, {limit} : index")
            first = text.let(f"arith.cmpi eq, {number}, {zero} : index")
            begin = text.let(f"arith.select {first}, {own[0]}, {limit} : index")
            end = text.let(f"arith.select {first}, {own[1]}, {rest} : index")
            text.carry(self.run_tiles(begin, end, carried), types)
        return results

    def add_masked_keys(self, starts: Sequence[str]) -> list[str]:
        """Adds the keys behind the limit of a causal mask if a row needs them."""
        text, types = self.text, ["f32"] * len(starts)
        made, again = text.fresh(), self.is_masked(starts)
        with text.block(f"{made}:{len(types)} = scf.if {again} -> ({', '.join(types)})", "} else {"):
            self.load_queries()
            text.carry(self.run_tiles(self.find_limit(), self.end, starts), types)
        with text.next_region():
            text.carry(starts, types)
        return [f"{made}#{number}" for number in range(len(types))]

    def find_limit(self) -> str:
        """Returns the first key, at the begin of a tile, after which a causal mask keeps none for the block's rows."""
        text, shape, causal = self.text, self.shape, self.attention.causal
        assert causal is not None
        one = text.constant(1)
        behind = text.index("minui", text.add(self.first_row, text.constant(shape.rows)), shape.total_rows)
        last = text.let(f"arith.subi {behind}, {one} : index")
        coordinates = [split_number(text, number, shape.row_sizes) for number in (self.first_row, last)]
        axis = self.attention.rows.index(causal.axis)
        # Rows of other heads lie between the first and the last one, unless all outer positions agree.
        position = coordinates[1][axis]
        if len(shape.row_sizes) > 1:
            inner = text.multiply(one, *shape.row_sizes[axis:])
            heads = [text.index("divui", number, inner) for number in (self.first_row, last)]
            same = text.let(f"arith.cmpi eq, {heads[0]}, {heads[1]} : index")
            most = text.let(f"arith.subi {shape.row_sizes[axis]}, {one} : index")
            position = text.let(f"arith.select {same}, {position}, {most} : index")
        kept = text.let(f"arith.addi {position}, {text.constant(causal.number + 1)} : index")
        if causal.captured is not None:
            epilogue = self.attention.scores.epilogue
            assert epilogue is not None
            type = epilogue.nest.captures[causal.captured]
            distance = f"%xc{causal.captured}"
            if type != "index":
                distance = text.let(f"arith.index_cast {distance} : {type} to index")
            kept = text.let(f"arith.addi {kept}, {distance} : index")
        kept = text.index("maxsi", kept, text.constant(0))
        tile = text.constant(shape.keys)
        whole = text.multiply(text.index("ceildivui", kept, tile), tile)
        return text.index("minui", text.index("maxui", whole, self.begin_key), self.end)

    def is_masked(self, carried: Sequence[str]) -> str:
        """Returns whether the greatest score of a row in the block is that of a masked key."""
        text, causal = self.text, self.attention.causal
        assert causal is not None
        least = text.let(f"arith.constant {causal.low / 2:.9e} : f32")
        most = self.join_maxima(carried[:2]) if self.shape.shares_keys else carried[:2]
        low = [text.let(f"arith.cmpf olt, {value}, {least} : f32") for value in most]
        real = [text.below(row, self.shape.total_rows) for row in self.row_numbers]
        each = [text.let(f"arith.andi {a}, {b} : i1") for a, b in zip(low, real, strict=True)]
        word = text.let(f"arith.extui {text.let(f'arith.ori {each[0]}, {each[1]} : i1')} : i1 to i32")
        for distance in (1, 2, 4, 8, 16):
            other = text.exchange(word, "i32", distance)
            word = text.let(f"arith.ori {word}, {other} : i32")
        if not self.shape.shares_keys:
            (word,) = self.exchange_words(self.text.constant(0), [word], "i32", "arith.ori")
        return text.let(f"arith.cmpi ne, {word}, {text.constant(0, 'i32')} : i32")

    def join_maxima(self, own: Sequence[str]) -> list[str]:
        """Returns the maxima of this thread's rows among all warps, which share the keys."""
        return self.exchange_words(self.group, own, "f32", "arith.maximumf")

    def exchange_words(self, place: str, own: Sequence[str], element: str, joins: str) -> list[str]:
        """Returns numbers of the warps joined by an operation: those that threads have at the same place, of 8."""
        text, (view, type) = self.text, self.words(element)

        def position(warp: str, number: int) -> str:
            return text.add(text.multiply(warp, text.constant(FEW)), text.add(place, text.constant(8 * number)))

        text.barrier()
        for number, value in enumerate(own):
            text.line(f"memref.store {value}, {view}[{position(self.warp, number)}] : {type}")
        text.barrier()
        made = []
        for number in range(len(own)):
            warps = [position(text.constant(warp), number) for warp in range(WARPS)]
            joined, *others = (text.let(f"memref.load {view}[{at}] : {type}") for at in warps)
            for other in others:
                joined = text.let(f"{joins} {joined}, {other} : {element}")
            made.append(joined)
        text.barrier()
        return made

    def run_tiles(self, begin: str, end: str, starts: Sequence[str]) -> list[str]:
        text, types = self.text, ["f32"] * len(starts)
        step = text.constant(self.shape.keys)
        carried, key = [text.fresh() for _ in types], text.fresh()
        self.copy_keys(begin, end)
        with text.loop(f"{key} = {begin} to {end} step {step}", carried, starts, types) as results:
            wait_for_copies(text, 0)
            text.barrier()
            self.copy(2, key)
            scores = self.score(key)
            most, weights, factors = self.weigh(scores, carried[:2])
            wait_for_copies(text, 0)
            text.barrier()
            self.clear_values(key)
            self.copy_keys(text.add(key, step), end)
            text.carry([*most, *self.add_values(key, weights, factors, carried[2:])], types)
        wait_for_copies(text, 0)
        text.barrier()
        return results

    def copy_keys(self, key: str, end: str) -> None:
        """Begins to copy the tile of keys at a key, if it is one before the end."""
        with self.text.block(f"scf.if {self.text.below(key, end)}"):
            self.copy(1, key)

    def score(self, key: str) -> list[str]:
        """Returns the scores of this thread, four for each tile of 8 keys."""
        text = self.text
        none, lowest = (text.let(f"arith.constant {n} : f32") for n in ("0.0", LOWEST))
        sums = self.multiply_keys([none] * (4 * self.tiles))
        return self._change_scores(key, self.attention.scores.epilogue, "x", sums, lowest)

    def _change_scores(
        self, key: str, beside: Beside | None, letter: str, values: Sequence[str], outside: str
    ) -> list[str]:
        """Returns what an op computes from each score of this thread, and `outside` for scores behind the last key."""
        text, shape, made = self.text, self.shape, []
        # Keys are numbers of 32 bits here: there are two comparisons for each score.
        count, first = (
            text.let(f"arith.index_cast {number} : index to i32")
            for number in (shape.total_keys, text.add(text.add(key, self.own_key), self.pair))
        )
        last = text.let(f"arith.subi {count}, {text.constant(1, 'i32')} : i32")
        for number, value in enumerate(values):
            tile, part = divmod(number, 4)
            coordinate = text.let(f"arith.addi {first}, {text.constant(8 * tile + part % 2, 'i32')} : i32")
            if beside is not None:
                known = dict(zip(self.attention.rows, self.row_positions[part // 2], strict=True))
                inner = text.let(f"arith.minui {coordinate}, {last} : i32")
                known[self.attention.key] = text.let(f"arith.index_castui {inner} : i32 to index")
                loops = self._of_scores(known)
                (value,) = call_beside(text, self.attention.scores, beside, letter, value, loops)
            inside = text.let(f"arith.cmpi ult, {coordinate}, {count} : i32")
            made.append(text.let(f"arith.select {inside}, {value}, {outside} : f32"))
        return made

    def multiply_keys(self, starts: Sequence[str]) -> list[str]:
        """Returns the sums of the products of queries and keys."""
        text, sums = self.text, list(starts)
        for step, pair in product(range(self.shape.depth // 16), range(self.tiles // 2)):
            coordinates = (16 * pair, 16 * step) if self.is_plain[1] else (16 * step, 16 * pair)
            b = self.k.matrices(self.key_lanes, *coordinates, turned=not self.is_plain[1])
            for half in range(2):
                at = 4 * (2 * pair + half)
                sums[at : at + 4] = multiply(
                    text, float_product(self.element), self.queries[step], b[2 * half : 2 * half + 2], sums[at : at + 4]
                )
        return sums

    def weigh(self, scores: Sequence[str], before: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
        """Returns the new maxima of both rows, the weights, and the factors of earlier sums."""
        text = self.text
        lowest, none = (text.let(f"arith.constant {n} : f32") for n in (LOWEST, "0.0"))
        most, factors, shifts = [], [], []
        for row in range(2):
            own = [value for number, value in enumerate(scores) if number % 4 // 2 == row]
            greatest = own[0]
            for value in own[1:]:
                greatest = text.let(f"arith.maximumf {greatest}, {value} : f32")
            for distance in (1, 2):
                other = text.exchange(greatest, "f32", distance)
                greatest = text.let(f"arith.maximumf {greatest}, {other} : f32")
            most.append(text.let(f"arith.maximumf {before[row]}, {greatest} : f32"))
            empty = text.let(f"arith.cmpf oeq, {most[row]}, {lowest} : f32")
            safe = text.let(f"arith.select {empty}, {none}, {most[row]} : f32")
            shifts.append(self.shift(safe))
            factors.append(self.power(self.scale(before[row], shifts[row])))
        weights = [self.power(self.scale(value, shifts[number % 4 // 2])) for number, value in enumerate(scores)]
        return most, weights, factors

    def shift(self, most: str) -> str:
        """Returns the number of a maximum that `scale` takes."""
        text = self.text
        if self.element != "f16":
            return most
        scaled = text.let(f"arith.mulf {most}, {text.let(f'arith.constant {LOG2E} : f32')} : f32")
        return text.let(f"arith.negf {scaled} : f32")

    def scale(self, value: str, shift: str) -> str:
        """Returns the distance of a score from a maximum, as an exponent of 2. Masked scores of f16 are far from the
        limits of f32; those of other dtypes are so close to them that their multiples are infinite."""
        text = self.text
        log2e = text.let(f"arith.constant {LOG2E} : f32")
        if self.element == "f16":
            return text.let(f"math.fma {value}, {log2e}, {shift} : f32")
        return text.let(f"arith.mulf {text.let(f'arith.subf {value}, {shift} : f32')}, {log2e} : f32")

    def add_values(self, key: str, weights: Sequence[str], factors: Sequence[str], before: Sequence[str]) -> list[str]:
        text = self.text
        totals = []
        for row in range(2):
            total = text.let(f"arith.mulf {before[row]}, {factors[row]} : f32")
            for number, weight in enumerate(weights):
                if number % 4 // 2 == row:
                    total = text.let(f"arith.addf {total}, {weight} : f32")
            totals.append(total)
        sums = [
            text.let(f"arith.mulf {value}, {factors[number % 4 // 2]} : f32") for number, value in enumerate(before[2:])
        ]
        if self.attention.shares is not None:
            none = text.let("arith.constant 0.0 : f32")
            weights = self._change_scores(key, self.attention.shares, "y", weights, none)
        return [*totals, *self.multiply_values(weights, sums)]

    def multiply_values(self, weights: Sequence[str], starts: Sequence[str]) -> list[str]:
        """Returns the sums with the products of weights and values."""
        text, sums = self.text, list(starts)
        for step in range(self.tiles // 2):
            own = weights[8 * step : 8 * step + 8]
            a = [round_pair(text, self.element, own[n], own[n + 1]) for n in (0, 2, 4, 6)]
            for pair in range(self.shape.columns // 16):
                coordinates = (16 * step, 16 * pair) if self.is_plain[2] else (16 * pair, 16 * step)
                b = self.v.matrices(self.value_lanes, *coordinates, turned=self.is_plain[2])
                for half in range(2):
                    at = 4 * (2 * pair + half)
                    columns = b[2 * half : 2 * half + 2]
                    sums[at : at + 4] = multiply(text, float_product(self.element), a, columns, sums[at : at + 4])
        return sums
