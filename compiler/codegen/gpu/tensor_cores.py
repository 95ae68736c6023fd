"""The schedule of contractions of f16 and bf16 on tensor cores, with sums in f32.

The groups of loops and the blocks are those of `contraction`. The eight warps of a block compute 4 x 2 parts of its 64
by 64 results: 16 rows and 32 columns each, which are four products of the instruction m16n8k16. In shared memory, both
operands have the depth as their last axis, so that a thread reads the two neighbours of a register at once:

    registers of lane l, g = l / 4, p = l % 4    a: rows g, g + 8; depths 2p, 2p + 1 and 2p + 8, 2p + 9
                                                 b: column g;      the same depths
                                                 c: rows g, g + 8; columns 2p, 2p + 1

https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-fragment-mma-16816-float. Depths beyond the
end are zeros in both operands.
"""

from __future__ import annotations

from collections.abc import Sequence

from .contraction import COLUMNS, DEPTH, ROWS, ContractionWriter, Groups, write_contraction_count
from .nest import Nest
from .plain import store_total
from .text import Text

_PAD = 8
"""Elements behind each row in shared memory, so that the rows of a fragment are in different banks."""
_TILES = 4
_INTRINSICS = {"f16": "llvm.nvvm.mma.m16n8k16.row.col.f32.f32", "bf16": "llvm.nvvm.mma.m16n8k16.row.col.bf16"}


def fits_tensor_cores(nest: Nest) -> bool:
    """Returns whether a contraction is a sum of products of f16 or bf16 in f32."""
    x, w = nest.inputs
    return nest.is_product and x.element == w.element in _INTRINSICS and nest.results[0].element == "f32"


def write_tensor_cores(nest: Nest, groups: Groups) -> str:
    """Returns the text of the schedule: the function of the threads, and the one that counts the blocks."""
    return _Writer(nest, groups).write() + write_contraction_count(nest, groups)


class _Writer(ContractionWriter):
    def tile_type(self, number: int) -> str:
        width = (ROWS, COLUMNS)[number]
        return f"memref<{width}x{DEPTH + _PAD}x{self.nest.inputs[number].element}, 3>"

    def tile_place(self, k: str, side: str) -> str:
        return f"{side}, {k}"

    def own_places(self) -> list[str]:
        """Returns the first row and column of the thread's warp in the block."""
        text = self.text
        warp = text.index("divui", self.thread, text.constant(32))
        row, column = (text.index(op, warp, text.constant(4)) for op in ("remui", "divui"))
        lane = text.index("remui", self.thread, text.constant(32))
        self.group, part = (text.index(op, lane, text.constant(4)) for op in ("divui", "remui"))
        self.pair = text.multiply(part, text.constant(2))
        return [text.multiply(row, text.constant(16)), text.multiply(column, text.constant(8 * _TILES))]

    def run_steps(self, first: Sequence[str], own: Sequence[str]) -> list[str]:
        text, depth = self.text, self.total[self.groups.depth]
        types = ["f32"] * (4 * _TILES)
        carried, begin = [text.fresh() for _ in types], text.fresh()
        zero, step = text.constant(0), text.constant(DEPTH)
        with text.loop(f"{begin} = {zero} to {depth} step {step}", carried, ["%s0"] * len(types), types) as totals:
            for number in range(2):
                self.copy(number, first[number], begin)
            text.barrier()
            a = [self._pair(0, own[0], row, k) for k in (0, 8) for row in (0, 8)]
            sums: list[str] = []
            for tile in range(_TILES):
                b = [self._pair(1, own[1], 8 * tile, k) for k in (0, 8)]
                sums += self._multiply_tile(a, b, carried[4 * tile : 4 * tile + 4])
            text.barrier()
            text.carry(sums, types)
        return totals

    def _pair(self, number: int, own: str, side: int, k: int) -> str:
        """Returns two neighbours of an operand along the depth, as one register."""
        text, element = self.text, self.nest.inputs[number].element
        place = text.add(text.add(own, self.group), text.constant(side))
        deep = text.add(self.pair, text.constant(k))
        vector, type = f"vector<2x{element}>", self.tile_type(number)
        pair = text.let(
            f"vector.load {self.shared[number]}[{place}, {deep}] {{alignment = 4 : i64}} : {type}, {vector}"
        )
        if element == "f16":
            return pair
        word = text.let(f"vector.bitcast {pair} : {vector} to vector<1xi32>")
        return text.let(f"vector.extract {word}[0] : i32 from vector<1xi32>")

    def _multiply_tile(self, a: Sequence[str], b: Sequence[str], c: Sequence[str]) -> list[str]:
        text, element = self.text, self.nest.inputs[0].element
        register, result = "vector<2xf16>" if element == "f16" else "i32", "!llvm.struct<(f32, f32, f32, f32)>"
        types = ", ".join([register] * 6 + ["f32"] * 4)
        made = text.let(
            f'llvm.call_intrinsic "{_INTRINSICS[element]}"({", ".join([*a, *b, *c])}) : ({types}) -> {result}'
        )
        return [text.let(f"llvm.extractvalue {made}[{n}] : {result}") for n in range(4)]

    def store_totals(self, first: Sequence[str], own: Sequence[str], totals: Sequence[str]) -> None:
        text: Text = self.text
        for number, value in enumerate(totals):
            tile, part = divmod(number, 4)
            row = text.add(text.add(first[0], own[0]), text.add(self.group, text.constant(8 * (part // 2))))
            column = text.add(text.add(first[1], own[1]), text.add(self.pair, text.constant(8 * tile + part % 2)))
            with self.inside(row, column):
                store_total(text, self.nest, 0, value, self.positions())
