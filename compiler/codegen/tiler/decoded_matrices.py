"""Tiles of a matrix unit for a quantized weight that is rounded to bf16: a part of the sum is decoded for many rows.

    sums[row] = start                                             on the stack, for each row of the work item
    for each part of the sum, in whole blocks:
        words = the numbers of the part in these columns          decoded once, rounded, two steps in a word
        for each 16 rows: sums += products of x and the words     see `matrices.py`

The numbers of a block are those of its bytes in turn: for values of 4 bits, the lower halves of all bytes and then the
upper ones. Rows of x are stored in this order. Where the weight is stored in groups (see `group_bytes.py`), a step of
the loop decodes the four numbers of a group, of each half.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ....dialect.dims import Size, bounds, multiply, static_size
from ....dialect.lazy_dataclass import dataclass
from ..isa import amx
from ..structured.body_nodes import Node, products_of
from ..structured.positions import Panel
from .addresses import pointer_to
from .evaluate import Evaluator, Iteration
from .forms import LANES, Form, variable
from .group_bytes import SIZE
from .matrices import FEWEST_ROWS, MatrixTiles, Part, is_whole, loop_of, write_tiles_of_rows
from .order import Order
from .prefetch import Panels, prefetch_panels
from .roles import Roles
from .row_loops import Rows
from .structure import Access, Op
from .text import Value, element_bytes

BLOCK_ROWS = 512
"""The rows that share decoded numbers: decoding takes about as long as the products of 64 rows."""
MOST_STEPS = 512
"""The most steps of a part of the sum, whose words stay in the cache."""
WIDENED = ("arith.extf", "arith.extf")
SPANS = (1, SIZE)
"""The numbers of a part that a step of the loop decodes: one, or those of a group of bytes."""
Factors = tuple[Node, Node]
"""The read of a bf16 number, and the number that is rounded to bf16."""


@dataclass(frozen=True, slots=True)
class DecodedMatrices:
    """The weight's numbers before they are rounded, `span` of them for each part of a block; the read of x for the
    first one, and the distance of its rows in elements; the steps of a block, and the blocks of a part of the sum."""

    roles: Roles
    weights: tuple[Node, ...]
    left: int
    distance: Size
    span: int
    steps: int
    blocks: int
    product: amx.TileProduct


def find_decoded_matrices(evaluator: Evaluator, op: Op, roles: Roles) -> DecodedMatrices | None:
    """Returns the tiles of an op that sums products of bf16 rows and numbers that are rounded to bf16, where its sizes
    are whole tiles."""
    stage, writer, row = evaluator.stage, evaluator.writer, roles.row
    if row is None or roles.windowed or len(op.reduced) != 2 or writer.lanes != amx.WORDS:
        return None
    most = bounds(stage.sizes[row])[1]
    if not is_whole(stage.sizes[roles.lane], writer.lanes) or most < FEWEST_ROWS:
        return None
    kind, added = op.combination or ("", op.body)
    factors = [_rounded_factors(pair) for pair in products_of(added)] if kind == "arith.addf" else []
    pairs = [pair for pair in factors if pair is not None]
    block, inner = op.reduced
    blocks, width = op.loops[block], op.loops[inner]
    if not pairs or len(pairs) < len(factors) or not isinstance(blocks, int) or not isinstance(width, int):
        return None
    product = amx.find_product("f32", WIDENED, writer.features)
    if product is None:
        return None
    steps = width * len(pairs)
    ordered = _in_order(op, pairs, inner, width)
    if ordered is None:
        return None
    reads = [op.reads[x.number] for x, _ in ordered]
    row_loop = loop_of(stage, op, row)
    distance = reads[0].step(row_loop)
    if distance is None or reads[0].step(block) != steps:
        return None
    if any(stage.holds(read.tensor) for read in reads) or any(row_loop in op.loops_read(w) for _, w in pairs):
        return None
    parts = [n for n in range(1, blocks + 1) if blocks % n == 0 and is_whole(n * steps, 2 * amx.WORDS)]
    fitting = [n for n in parts if n * steps <= MOST_STEPS]
    if not fitting:
        return None
    taken = replace(roles, rows=amx.ROWS, block=min(BLOCK_ROWS, most) if isinstance(most, int) else BLOCK_ROWS)
    left, span = ordered[0][0].number, static_size(reads[0].step(inner) or 1)
    weights = tuple(w for _, w in ordered)
    return DecodedMatrices(taken, weights, left, distance, span, steps, max(fitting), product)


def _in_order(op: Op, pairs: Sequence[Factors], inner: int, width: int) -> list[Factors] | None:
    """Returns the factors in the order of the rows of x; None where a block is not a range of a row."""
    first = op.reads[pairs[0][0].number]
    span, found = first.step(inner), dict[int, Factors]()
    for x, weight in pairs:
        distance = _distance(op.reads[x.number], first)
        if distance is None:
            return None
        found[distance] = x, weight
    if span not in SPANS or len(found) % span or span * width % 2:
        return None
    of_parts = range(0, len(found) * width, span * width)
    wanted = [part + n for part in of_parts for n in range(span)]
    return [found[n] for n in wanted] if set(wanted) == set(found) and len(found) == len(pairs) else None


def _rounded_factors(factors: Factors) -> Factors | None:
    for left, right in (factors, factors[::-1]):
        if left.kind != "arith.extf" or right.kind != "arith.extf":
            continue
        x, rounded = left.operands[0], right.operands[0]
        if x.kind == "read" and x.type == "bf16" and rounded.kind == "arith.truncf" and rounded.type == "bf16":
            return x, rounded.operands[0]
    return None


def _distance(access: Access, first: Access) -> int | None:
    """Returns the distance of the elements that an access reads from those of the first one, if all have the same."""
    if access.tensor is not first.tensor or access.origin is None or first.origin is None:
        return None
    if any(access.step(n) != first.step(n) for n in access.loops() | first.loops()):
        return None
    distance = access.origin - first.origin
    return distance if isinstance(distance, int) else None


class DecodedMatrixTiles(MatrixTiles):
    """The writer of blocks of rows of one op."""

    def __init__(self, evaluator: Evaluator, op: Op, matrices: DecodedMatrices) -> None:
        super().__init__(evaluator, op, matrices.roles, matrices.product)
        self.matrices = matrices
        self.fetched = Panels(self.roles.step, (), self.roles.prefetches)
        self.block, self.inner = (self.stage.of(op, loop) for loop in op.reduced)
        self.width = matrices.steps // len(matrices.weights)
        words = matrices.blocks * matrices.steps // 2
        self.words = evaluator.stack("words", op, words * self.roles.width, "i32")

    def add(self, iteration: Iteration, row: Form, column: Form, rows: Rows, vectors: int) -> None:
        writer, op, matrices = self.writer, self.op, self.matrices
        blocks = op.loops[op.reduced[0]]
        with writer.loop(writer.size(0), writer.size(blocks), matrices.blocks) as first_block:
            begin = variable(first_block)
            self._decode({**iteration, self.block: begin}, column, vectors)

            def add_tile(first: Form) -> None:
                at = {**self._cell(iteration, row + first, column), self.block: begin, self.inner: Form(())}
                x = op.reads[matrices.left]
                buffer, form = self.evaluator.home(x, op, at)
                bytes = element_bytes(x.tensor.element)

                def left(word: Form) -> Part:
                    return Part(
                        pointer_to(writer, buffer, form.base + word.times(2)), multiply(matrices.distance, bytes)
                    )

                def right(word: Form, v: int) -> Part:
                    first_lane = word.times(self.roles.width).plus(v * writer.lanes)
                    return Part(
                        pointer_to(writer, self.words, first_lane), self.roles.width * element_bytes(self.words.element)
                    )

                self.add_words(first, matrices.blocks * matrices.steps // 2, vectors, left, right)

            self.registers.in_tiles(rows, add_tile)

    def _decode(self, iteration: Iteration, column: Form, vectors: int) -> None:
        """Stores the words of a part of the sum."""
        writer, op, matrices, width = self.writer, self.op, self.matrices, self.roles.width
        with writer.loop(writer.size(0), writer.size(matrices.blocks), 1) as block:
            here = {**iteration, self.block: iteration[self.block] + variable(block)}
            # A word holds two numbers: of two steps, or of one step with a group of numbers.
            at_once = 2 if matrices.span == 1 else 1
            with writer.loop(writer.size(0), writer.size(self.width), at_once) as inner:
                steps = [variable(inner).plus(n) for n in range(at_once)]
                columns = [column.plus(v * writer.lanes) for v in range(vectors)]
                for number in self._coded():
                    cells = [{**self._cell(here, Form(()), c), self.inner: step} for step in steps for c in columns]
                    prefetch_panels(self.evaluator, op, number, cells, self.fetched)
                for offset, numbers in self._pairs(variable(inner)):
                    for v, c in enumerate(columns):
                        pair = [
                            self.evaluator.body(op, {**self._cell(here, Form(()), c), self.inner: step}, root=weight)
                            for weight, step in numbers
                        ]
                        slot = variable(block).times(matrices.steps // 2 * width)
                        slot = slot + variable(inner).times(matrices.span * width // 2)
                        slot = slot.plus(offset * width + v * writer.lanes)
                        writer.store(self.words, slot + LANES, self._word(*map(writer.broadcast, pair)))

    def _pairs(self, inner: Form) -> Iterator[tuple[int, tuple[tuple[Node, Form], tuple[Node, Form]]]]:
        """Yields the numbers of each word that a step of the loop decodes, and the word's distance from the first one
        of the step."""
        span, weights = self.matrices.span, self.matrices.weights
        for first in range(0, len(weights), span):
            begin = first * self.width // 2
            if span == 1:
                yield begin, ((weights[first], inner), (weights[first], inner.plus(1)))
            else:
                for n in range(0, span, 2):
                    yield begin + n // 2, ((weights[first + n], inner), (weights[first + n + 1], inner))

    def _word(self, even: Value, odd: Value) -> Value:
        """Returns words of two numbers, rounded to bf16; denormal numbers count as zero, as in the products."""
        writer = self.writer
        words = writer.vector_type("i32")
        low, high = (self._rounded(number) for number in (even, odd))
        moved = writer.let(f"arith.shli {high}, {writer.splat('16', words)} : {words}")
        return Value(writer.let(f"arith.ori {low}, {moved} : {words}"), "i32", True)

    def _rounded(self, number: Value) -> str:
        writer = self.writer
        floats, halves, short = (writer.vector_type(type) for type in ("f32", "bf16", "i16"))
        rounded = writer.let(f"llvm.fptrunc {number.name} : {floats} to {halves}")
        bits = writer.let(f"arith.bitcast {rounded} : {halves} to {short}")
        return writer.let(f"arith.extui {bits} : {short} to {writer.vector_type('i32')}")

    def _coded(self) -> list[int]:
        """Returns the panels that every step reads."""
        read = {n.number for w in self.matrices.weights for n in w.walk() if n.kind == "read"}
        inner = self.op.reduced[1]
        return [
            number
            for number in sorted(read)
            if inner in self.op.reads[number].loops() and any(isinstance(p, Panel) for p in self.op.reads[number].index)
        ]


def write_decoded_matrices(
    evaluator: Evaluator, op: Op, matrices: DecodedMatrices, order: Order, begin: str, end: str
) -> None:
    write_tiles_of_rows(evaluator, DecodedMatrixTiles(evaluator, op, matrices), order, begin, end)
