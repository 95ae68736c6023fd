"""Register tiles of a block-quantized weight: a block is dequantized once, into a cache, for all rows of a work item.

Partial sums are carried from block to block on the stack, since registers hold the sums within a block. A row is summed
in the order of `tiles.py`, which does not depend on the other rows of the work item.

The loops of a tile of columns:

    sums[row] = start                                             on the stack, for each row of the work item
    for each block of the sum:
        numbers = the block's values in these columns             dequantized once, on the stack
        for each tile of rows:
            part[row] = sum of x[row, k] * numbers[k] over the block   in registers
            sums[row] += part[row] * scale of the block

Where numbers are rounded after they are scaled, as those of a weight that is multiplied in bf16, the scale is no common
factor. The numbers then include it, and the sums of a row are carried through its blocks.

Numbers that are composed of bits take few instructions. If a call has no more rows than a tile, the tile decodes them
in registers, where they overlap with the multiplications, and the stack is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod

from ....dialect.dims import Size, bounds, static_size
from ...targets.vector_unit import Prefetches
from ..structured.body_nodes import Node, products_of
from ..structured.positions import Panel
from .dots import WORD
from .evaluate import Evaluator, Iteration, Kept
from .forms import Form, constant, variable
from .prefetch import Panels, prefetch_panels
from .quantized_sums import add_zero
from .roles import Roles
from .row_loops import Rows, each_row, in_tiles
from .schedule import Stage
from .structure import COMPOSED, Op, Scaled
from .text import Value
from .tiles import Cell, RowBlockTiles

BLOCK_ROWS = 64
"""The number of rows that share a dequantized block."""
COMPOSED_ROWS = 256
"""The number of rows that share a block of numbers composed of bits. Such a block has more steps, so that the sums of
the rows are read and written less often."""
PREFETCHES = Prefetches(((4096, 1),))
"""The prefetches of a weight that a single tile of rows decodes in registers, while it multiplies."""
FEWEST_FETCHING = 3
"""The fewest rows of such a tile: for fewer, memory is the limit, and the hardware reads ahead faster."""


def share_rows_of(stage: Stage, op: Op, roles: Roles) -> Roles | None:
    """Returns the roles with work items of many rows, where blocks are dequantized for all of them; else None."""
    scaled = _sum_of(op)
    if scaled is None or roles.windowed:
        return None
    most = 1 if roles.row is None else bounds(stage.sizes[roles.row])[1]
    if scaled.quantized is None and (most <= roles.rows or not _are_worth_it(stage, op, roles, scaled)):
        return None
    block = COMPOSED_ROWS if op.composed else BLOCK_ROWS
    return replace(roles, block=block if most > block else max(int(most), roles.rows))


def _sum_of(op: Op) -> Scaled | None:
    """Returns the sum of products with a common factor, or of products with numbers that are rounded after they are
    scaled, which have none."""
    kind, added = op.combination or ("", op.body)
    if op.body.kind == "dot" and op.composed and len(op.reduced) > 1:
        return Scaled(op.composed, None, frozenset(op.reduced[-1:]))
    if op.scaled is not None or kind != "arith.addf" or len(op.reduced) < 2:
        return op.scaled
    products = products_of(added)
    if not products or not all(any(map(_is_rounded, factors)) for factors in products):
        return None
    return Scaled(products, None, frozenset(op.reduced[-1:]))


def _is_rounded(factor: Node) -> bool:
    """Returns whether a factor is a number that is rounded after it is scaled, or one that is composed of bits."""
    is_rounded = factor.kind == "arith.extf" and factor.operands[0].kind == "arith.truncf"
    return is_rounded or factor.kind == COMPOSED


def _are_worth_it(stage: Stage, op: Op, roles: Roles, scaled: Scaled) -> bool:
    sizes = [op.loops[i] for i in scaled.inner]
    weights = _weights(stage, op, roles, scaled)
    if weights is None or any(w.kind == "read" for w in weights) or not all(isinstance(s, int) for s in sizes):
        return False
    # The dequantized block stays in the nearest cache beside rows.
    return 4 * roles.width * len(weights) * prod(static_size(s) for s in sizes) <= roles.caches.first


def _weights(stage: Stage, op: Op, roles: Roles, scaled: Scaled) -> list[Node] | None:
    """Returns each product's factor that all rows share; None where a product has no such factor."""
    if scaled.quantized is not None:
        return [bytes for _, bytes in scaled.products]
    found = []
    for factors in scaled.products:
        shared = [f for f in factors if roles.row not in _classes(stage, op, f)]
        if len(shared) != 1:
            return None
        found += shared
    return found


def _classes(stage: Stage, op: Op, node: Node) -> set[int]:
    """Returns the classes of loops that the value of a node depends on."""
    return {stage.of(op, loop) for loop in op.loops_read(node)}


def words_of(op: Op, scaled: Scaled) -> int:
    """Returns the numbers of a block in a column, or the words of them."""
    return len(scaled.products) * prod(static_size(op.loops[loop]) for loop in scaled.inner)


class DecodedTiles(RowBlockTiles):
    """The writer of blocks of rows of one op."""

    parts = 1
    """The vectors in which the numbers of a block in several columns are stored."""

    def __init__(self, evaluator: Evaluator, op: Op, roles: Roles) -> None:
        super().__init__(evaluator, op, roles)
        scaled = _sum_of(op)
        assert scaled is not None, op.location
        self.scaled = scaled
        self.vectors: int | None = None
        """The vectors of a tile; None where a tile has all columns of a block."""
        self.tile_fetched: Panels | None = None
        """The prefetches of a tile that decodes numbers in registers."""
        self.weights = _weights(self.stage, op, roles, scaled) or []
        self.products = [replace(scaled, products=(factors,)) for factors in scaled.products]
        self.outer = [loop for loop in self.loops if loop[0][0] not in scaled.inner]
        self.inner = [loop for loop in self.loops if loop[0][0] in scaled.inner]
        # A byte of several numbers takes so many instructions that the hardware does not fetch far enough ahead.
        fetches = Prefetches() if len(self.weights) > len(self._moving()) else roles.prefetches
        self.fetched = Panels(roles.step, (), fetches)
        self.numbers = evaluator.stack("numbers", op, words_of(op, scaled) * self.parts * roles.width, self._type)
        self.sums = evaluator.stack("sums", op, roles.block * roles.width, op.result.element)

    def _block(
        self,
        iteration: Iteration,
        row: Form,
        column: Form,
        rows: Rows,
        masks: Sequence[str | None],
        finish: Callable[[Iteration], None],
    ) -> None:
        writer, most = self.writer, self.roles.rows

        def share() -> None:
            self._share(iteration, row, column, rows, masks, finish)

        def tile(count: int) -> None:
            self.tile_fetched = Panels(self.roles.step, (), PREFETCHES) if count >= FEWEST_FETCHING else None
            self._tile(iteration, row, column, count, masks, finish)
            self.tile_fetched = None

        if not self.op.composed or isinstance(rows, int):
            share()
            return
        is_tile = writer.let(f"arith.cmpi ule, {rows}, {writer.size(most)} : index")
        writer.either(is_tile, lambda: writer.switch(rows, range(most, 0, -1), tile), share)

    def _share(
        self,
        iteration: Iteration,
        row: Form,
        column: Form,
        rows: Rows,
        masks: Sequence[str | None],
        finish: Callable[[Iteration], None],
    ) -> None:
        """Writes rows that read the numbers of a block from the stack."""
        writer, op = self.writer, self.op
        vectors = self.vectors or len(masks)

        def cells(first: Form, count: int, begin: int = 0, width: int = len(masks)) -> Iterator[Cell]:
            lane = begin * writer.lanes
            for mask, at, slot in self.cells(
                iteration, row, column.plus(lane), masks[begin : begin + width], first, count
            ):
                yield mask, at, slot.plus(lane)

        with each_row(writer, rows) as first:
            for mask, at, slot in cells(first, 1):
                with writer.masked(mask):
                    writer.store(self.sums, slot, writer.broadcast(self.evaluator.starting(op, at)))

        def add_block(at: Iteration, _: Sequence[Value]) -> list[Value]:
            starts = self._decode({**iteration, **at}, column, masks)
            self._prepare({**iteration, **at}, row, rows)
            with self._decoded(column):
                in_tiles(writer, rows, self.roles.rows, lambda first, count: add_rows(at, starts, first, count))
            return []

        def add_rows(block: Iteration, starts: Sequence[Value], first: Form, count: int) -> None:
            for vector in range(0, len(masks), vectors):
                with writer.scope(indent=False):
                    add_tile(block, starts, first, count, vector)

        def add_tile(block: Iteration, starts: Sequence[Value], first: Form, count: int, vector: int) -> None:
            these = [(mask, {**cell, **block}, slot) for mask, cell, slot in cells(first, count, vector, vectors)]
            iterations, of = [at for _, at, _ in these], [mask for mask, _, _ in these]
            begin = [*starts[vector : vector + vectors]] * count
            if self.scaled.factor is None:
                begin = []
                for mask, _, slot in these:
                    with writer.masked(mask):
                        begin.append(writer.load(self.sums, slot))
            parts = self._sum_block(iterations, of, begin, count)
            for (mask, at, slot), part in zip(these, parts, strict=True):
                with writer.masked(mask):
                    if self.scaled.factor is not None:
                        total = writer.load(self.sums, slot)
                        part = self.evaluator.add_scaled(op, self.scaled, at, part, total)
                    writer.store(self.sums, slot, part)

        self._each_step(self.outer, {}, [], add_block)
        with each_row(writer, rows) as first:
            for mask, at, slot in cells(first, 1):
                with writer.masked(mask):
                    self.evaluator.define(op, at, writer.load(self.sums, slot))
                    finish(at)

    def _prepare(self, iteration: Iteration, row: Form, rows: Rows) -> None:
        """Called once for a block, before the tiles of its rows."""

    def _sum_block(
        self, iterations: Sequence[Iteration], masks: Sequence[str | None], begin: Sequence[Value], rows: int
    ) -> list[Value]:
        """Returns the sums of all cells, unscaled, after the products of a block."""
        return self._sum(list(self.inner), iterations, masks, list(begin), rows, True)

    # Numbers of a block

    def _keep(self, kept: Kept, at: Iteration, value: Value) -> None:
        """Stores numbers of a block."""
        self.writer.store(self.numbers, kept.at(at), value)

    def _add_zero(self, zero: int, total: Value, value: Value) -> Value:
        """Returns a sum from which `_start` follows, after one more word."""
        return add_zero(self.writer, zero, total, value)

    def _start(self, zero: int, nothing: Value, total: Value) -> Value:
        """Returns the initial sum of a block, which takes the zero point off each product."""
        type = self.writer.vector_type(WORD)
        return Value(self.writer.let(f"arith.subi {nothing.name}, {total.name} : {type}"), WORD, True)

    @property
    def _type(self) -> str:
        """The type of the numbers: pairs of bf16 in words, floats, or integers."""
        return self.weights[0].type if self.op.composed else self.scaled.type

    def _decode(self, iteration: Iteration, column: Form, masks: Sequence[str | None]) -> list[Value]:
        """Dequantizes a block; returns the initial sums of its products, one for each vector."""
        writer, total = self.writer, self.scaled.quantized
        nothing = writer.broadcast(writer.constant("0" if total is not None else "0.0", self.scaled.type))
        zero = 0 if total is None else total.number
        kept = self._kept(column)

        def cells(at: Iteration) -> list[Iteration]:
            here = {**iteration, **at}
            return [self._cell(here, constant(0), column.plus(v * writer.lanes)) for v in range(len(masks))]

        def fetch(iterations: Sequence[Iteration]) -> None:
            for number in self._moving():
                prefetch_panels(self.evaluator, self.op, number, iterations, self.fetched)

        def step(at: Iteration, sums: Sequence[Value]) -> list[Value]:
            iterations = cells(at)
            after = list(sums)
            if self.fetched.each_line:
                fetch(iterations)
            for v, (here, mask) in enumerate(zip(iterations, masks, strict=True)):
                with writer.masked(mask):
                    for weight in self.weights:
                        value = writer.broadcast(self.evaluator.body(self.op, here, root=weight))
                        self._keep(kept[self._node(weight)], here, value)
                        if zero:
                            after[v] = self._add_zero(zero, after[v], value)
            return after

        if not self.fetched.each_line:
            fetch(cells({self.stage.of(self.op, n): constant(0) for numbers, _ in self.inner for n in numbers}))
        sums = self._each_step(self.inner, {}, [nothing] * len(masks) if zero else [], step)
        if not zero:
            return [nothing] * len(masks)
        return [self._start(zero, nothing, total) for total in sums]

    def _moving(self) -> list[int]:
        """Returns the panels that are dequantized step by step."""
        read = {n.number for w in self.weights for n in w.walk() if n.kind == "read"}
        reads = ((number, self.op.reads[number]) for number in sorted(read))
        return [
            number
            for number, access in reads
            if access.loops() & self.scaled.inner and any(isinstance(p, Panel) for p in access.index)
        ]

    def _node(self, node: Node) -> tuple[int, int]:
        return id(self.op), id(node)

    def _kept(self, column: Form) -> Mapping[tuple[int, int], Kept]:
        """Returns the stack memory of each weight's dequantized values, in the order of the reads."""
        strides: dict[int, Size] = {self.roles.lane: 1}
        apart = self.roles.width * self.parts
        length = apart * len(self.weights)
        for numbers, size in reversed(self.inner):
            strides[self.stage.of(self.op, numbers[-1])] = length
            length *= static_size(size)
        origin = column.times(-1)
        return {
            self._node(weight): Kept(self.numbers, strides, origin.plus(i * apart))
            for i, weight in enumerate(self.weights)
        }

    @contextmanager
    def _decoded(self, column: Form) -> Iterator[None]:
        """Within the context, the block's dequantized values are read rather than computed."""
        self.evaluator.made |= self._kept(column)
        yield
        for weight in self.weights:
            del self.evaluator.made[self._node(weight)]

    def _step(
        self,
        iterations: Sequence[Iteration],
        masks: Sequence[str | None],
        totals: Sequence[Value],
        rows: int,
        within: bool,
    ) -> list[Value]:
        """Writes one more iteration for every cell, product by product: the values of one product fill enough
        registers."""
        cells = list(zip(iterations, masks, strict=True))
        if self.tile_fetched is not None:
            first = iterations[: len(iterations) // rows]
            for number in self._moving():
                prefetch_panels(self.evaluator, self.op, number, first, self.tile_fetched)
        return self._add_cells(cells, totals, len(cells) // rows)

    def _add_cells(
        self, cells: Sequence[tuple[Iteration, str | None]], totals: Sequence[Value], width: int
    ) -> list[Value]:
        """Returns the sums of all cells after one more iteration; `width` cells belong to a row."""
        sums = list(totals)
        for weight, product in zip(self.weights, self.products, strict=True):
            self._read(weight, cells[:width])
            for number, (at, mask) in enumerate(cells):
                with self.writer.masked(mask):
                    sums[number] = self.evaluator.add_products(self.op, product, at, sums[number])
        return sums

    def _read(self, weight: Node, cells: Sequence[tuple[Iteration, str | None]]) -> None:
        """Reads the numbers of the first row, which the others share."""
        for at, mask in cells:
            with self.writer.masked(mask):
                self.evaluator.body(self.op, at, root=weight)

    # Loops

    def _each_step(
        self,
        loops: Sequence[tuple[tuple[int, ...], Size]],
        iteration: Iteration,
        carried: Sequence[Value],
        write: Callable[[Iteration, Sequence[Value]], list[Value]],
    ) -> list[Value]:
        """Writes nested loops of the sum around a body, which receives a position and carried values."""
        if not loops:
            return write(iteration, carried)
        (numbers, size), *inner = loops
        classes = [self.stage.of(self.op, n) for n in numbers]
        fixed = dict.fromkeys(classes[:-1], constant(0))
        with self.writer.carrying(self.writer.size(0), self.writer.size(size), 1, carried) as loop:
            at = {**iteration, **fixed, classes[-1]: variable(loop.index)}
            loop.after = self._each_step(inner, at, loop.values, write)
        return loop.results
