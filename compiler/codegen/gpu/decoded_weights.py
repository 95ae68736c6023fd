"""The schedule of products on tensor cores whose weights are decoded from quantized values, such as two of 4 bits in a
byte with the scale of their block.

Blocks, warps and activations are those of `tensor_cores`. An iteration of the depth has one or two products, each with
an activation of its own, so that a step of 64 bytes of depth is shared by their tiles. Weights are decoded once for all
rows of a block:

    begin copies of the activations of the first STAGES - 1 steps; decode the weights of step 0 into tile 0
    for each step:  wait for the copies of this step; barrier: all warps have left the previous step
                    begin the copies of step + STAGES - 1; read the quantized values of step + 1
                    fragments of x and w; products
                    decode the weights of step + 1 into the other one of two tiles of weights

    thread t decodes for column t / 2 the first or the second half of a step: neighbours, read together

Weights after the end of the depth are 0, as activations are. Columns after the last one repeat it; their sums are not
stored. Bytes with a scale for each column are weights without it: sums are scaled before they are stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from .alignment import is_contiguous
from .contraction import Groups
from .fragments import CHUNK, Tile, shared_pointer, wait_for_copies
from .mma import DEPTH_BYTES, TF32, Product, float_product
from .nest import Decoding, Nest, call_decoding, call_scale
from .plain import load, split_number
from .row_elements import is_aligned, read_elements
from .staged_tiles import STEP_BYTES, product_of_loops
from .tensor_cores import COLUMNS, THREADS, TensorCoreWriter, write_tensor_core_count

_MOST_PRODUCTS = 2
_HALVES = THREADS // COLUMNS


def fits_decoded(nest: Nest, groups: Groups) -> bool:
    """Returns whether activations are contiguous along a known depth, and weights too where each has its own value."""
    decoding = nest.decoding
    if decoding is None or len(decoding.activations) > _MOST_PRODUCTS:
        return False
    last, sizes = groups.depth[-1], [nest.static_extent(loop) for loop in (*groups.depth, *groups.columns)]
    size, width = nest.static_extent(last), _width(decoding)
    if not all(sizes) or size is None or size % width:
        return False
    activations = [nest.inputs[number] for number in decoding.activations]
    values = [nest.inputs[number] for number in _weights(nest) if last in nest.inputs[number].loops()]
    if any(operand.padded for operand in nest.inputs):
        return False
    return all(x.plain_axes()[-1] == last for x in activations) and all(is_contiguous(w, last, width) for w in values)


def write_decoded(nest: Nest, groups: Groups) -> str:
    """Returns the text of the schedule: the function of the threads, and the one that counts the blocks."""
    assert nest.decoding is not None, nest.name
    element = nest.decoding.element
    product = TF32 if element == "f32" else float_product(element)
    return _Writer(nest, groups, product, element).write() + write_tensor_core_count(nest, groups)


def _width(decoding: Decoding) -> int:
    """Returns the iterations of the depth for which a thread decodes weights in a step."""
    return STEP_BYTES // len(decoding.activations) // (4 if decoding.element == "f32" else 2) // _HALVES


def _weights(nest: Nest) -> list[int]:
    """Returns the numbers of the inputs that weights are decoded from."""
    assert nest.decoding is not None, nest.name
    return [number for number in range(len(nest.inputs)) if number not in nest.decoding.activations]


class _Writer(TensorCoreWriter):
    """The writer of the threads' function. `tiles` are those of the activations in the first stage, `decoded` the first
    ones of the weights."""

    def __init__(self, nest: Nest, groups: Groups, product: Product, element: str) -> None:
        super().__init__(nest, groups, product, element)
        assert nest.decoding is not None, nest.name
        self.activations, self.weights = nest.decoding.activations, _weights(nest)
        self.depth_step //= len(self.activations)
        self.width = _width(nest.decoding)

    def place_tiles(self) -> None:
        text, count = self.text, len(self.activations)
        self.is_deep, self.sides = [True] * count, [0] * count
        kinds = [Tile(text, "", self.element, side, self.depth_step) for side in (self.rows, COLUMNS)]
        self.bytes, self.decoded_bytes = (count * kind.bytes for kind in kinds)
        begin = self.allot(self.stages * self.bytes + 2 * self.decoded_bytes)
        after = text.add(begin, text.constant(self.stages * self.bytes))
        self.tiles, self.decoded = (
            [
                Tile(text, text.add(base, text.constant(n * kind.bytes)), self.element, kind.slow, kind.fast)
                for n in range(count)
            ]
            for base, kind in zip((begin, after), kinds, strict=True)
        )
        self.depth = product_of_loops(text, self.sizes, self.groups.depth)
        self.columns = product_of_loops(text, self.sizes, self.groups.columns)
        self.sources = [self.source(number, self.groups.rows, self.depth, is_deep=True) for number in self.activations]
        self.aligned = [self.find_alignment(source, self.groups.depth) for source in self.sources]
        self.is_wide = is_aligned(text, self.nest, self.width, self.weights)

    # Weights

    def _read(self, step: str) -> tuple[str, list[list[str]], list[list[str]]]:
        """Reads the quantized values of this thread for a step. Returns whether they exist, their elements and the
        positions of the loops."""
        text, groups, thread = self.text, self.groups, self.text.special("tid.x")
        column, half = (text.index(name, thread, text.constant(_HALVES)) for name in ("divui", "remui"))
        depth = text.add(step, text.multiply(half, text.constant(self.width)))
        inside = text.below(depth, self.depth)
        depth = text.let(f"arith.select {inside}, {depth}, {text.constant(0)} : index")
        last = text.let(f"arith.subi {self.columns}, {text.constant(1)} : index")
        column = text.index("minui", text.add(self.first[1], column), last)
        begin = split_number(text, depth, [self.sizes[loop] for loop in groups.depth])
        at = self.split(groups.columns, column)
        steps = [[*begin[:-1], text.add(begin[-1], text.constant(n))] for n in range(self.width)]
        positions = [self.positions(at | dict(zip(groups.depth, each, strict=True))) for each in steps]
        read = read_elements(text, self.nest, positions, self.is_wide, self.weights)
        elements = [[read[number][n] for number in self.weights] for n in range(self.width)]
        return inside, elements, positions

    def _decode(self, values: tuple[str, list[list[str]], list[list[str]]], tile: str) -> None:
        """Decodes what was read, and stores it to the tiles of weights at a distance from the first ones."""
        text, (inside, elements, positions) = self.text, values
        count, element = len(self.activations), self.element
        zero = text.let(f"arith.constant 0.0 : {element}")
        decoded = [
            text.let_many(count, call_decoding(self.nest, *each)) for each in zip(elements, positions, strict=True)
        ]
        thread = text.special("tid.x")
        column, half = (text.index(name, thread, text.constant(_HALVES)) for name in ("divui", "remui"))
        chunk = CHUNK // self.size
        for number in range(count):
            kept = [text.let(f"arith.select {inside}, {each[number]}, {zero} : {element}") for each in decoded]
            address = self.decoded[number].address(column, text.multiply(half, text.constant(self.width)))
            address = text.add(address, tile)
            for first in range(0, self.width, chunk):
                part = kept[first : first + chunk]
                vector = f"vector<{len(part)}x{element}>"
                joined = text.let(f"vector.from_elements {', '.join(part)} : {vector}")
                target = shared_pointer(text, text.add(address, text.constant(first * self.size)))
                text.line(f"llvm.store {joined}, {target} {{alignment = {CHUNK} : i64}} : {vector}, !llvm.ptr<3>")

    # Steps

    def run_steps(self) -> list[str]:
        text = self.text
        zero, one, step, stages = (text.constant(n) for n in (0, 1, self.depth_step, self.stages))
        for number in range(self.stages - 1):
            self.copy(text.constant(number), text.constant(number * self.depth_step))
        self._decode(self._read(zero), zero)
        self.lanes = [self.tiles[0].lanes(self.own[0], 0), self.decoded[0].lanes(self.own[1], 1)]
        types = ["index", "index", *[self.product.sums] * self.sum_count()]
        carried, begin = [text.fresh() for _ in types], text.fresh()
        assert self.nest.decoding is not None, self.nest.name
        start = text.let("arith.constant 0.0 : f32") if self.nest.decoding.scale else "%s0"
        starts = [zero, zero, *[start] * self.sum_count()]
        with text.loop(f"{begin} = {zero} to {self.depth} step {step}", carried, starts, types) as results:
            stage, tile = carried[:2]
            wait_for_copies(text, self.stages - 2)
            text.barrier()
            ahead = text.index("remui", text.add(stage, text.constant(self.stages - 1)), stages)
            self.copy(ahead, text.add(begin, text.constant((self.stages - 1) * self.depth_step)))
            values = self._read(text.add(begin, step))
            sums = self._multiply(text.multiply(stage, text.constant(self.bytes)), tile, carried[2:])
            other = text.let(f"arith.subi {text.constant(self.decoded_bytes)}, {tile} : index")
            self._decode(values, other)
            after = text.index("remui", text.add(stage, one), stages)
            text.carry([after, other, *sums], types)
        # No copy may be in flight when the block ends.
        wait_for_copies(text, 0)
        return results[2:]

    def _multiply(self, stage: str, tile: str, before: Sequence[str]) -> list[str]:
        text, sums = self.text, list(before)
        x, w = text.add(self.lanes[0], stage), text.add(self.lanes[1], tile)
        for number in range(len(self.activations)):
            for k in range(0, self.depth_step, DEPTH_BYTES // self.size):
                lanes = [
                    text.add(lane, text.constant(number * kind[0].bytes))
                    for lane, kind in ((x, self.tiles), (w, self.decoded))
                ]
                a = [self.fragment(self.tiles[0], lanes[0], side, k) for side in range(0, self.rows // 2, 16)]
                b = [self.fragment(self.decoded[0], lanes[1], side, k) for side in range(0, 32, 16)]
                sums = self.multiply_fragments(a, b, sums)
        return sums

    def store_totals(self, totals: Sequence[str]) -> None:
        """Stores the sums of a thread, which has 8 columns: 2 of each of 4 fragments."""
        text, nest = self.text, self.nest
        assert nest.decoding is not None, nest.name
        if nest.decoding.scale:
            begin = text.add(text.add(self.first[1], self.own[1]), self.pair)
            scales = [self._scale(text.add(begin, text.constant(8 * (n // 2) + n % 2))) for n in range(8)]
            columns = [2 * (number // 4 % 4) + number % 2 for number in range(len(totals))]
            totals = [
                text.let(f"arith.mulf {total}, {scales[column]} : f32")
                for total, column in zip(totals, columns, strict=True)
            ]
            totals = [text.let(f"arith.addf {total}, %s0 : f32") for total in totals]
        super().store_totals(totals)

    def _scale(self, column: str) -> str:
        """Returns the scale of a column, or of the last one."""
        text, nest = self.text, self.nest
        last = text.let(f"arith.subi {self.columns}, {text.constant(1)} : index")
        at = self.positions(self.split(self.groups.columns, text.index("minui", column, last)))
        elements = [load(text, nest, number, at) for number in self.weights]
        return text.let(call_scale(nest, elements, at))
