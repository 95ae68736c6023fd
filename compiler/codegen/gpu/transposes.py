"""The schedule of maps that read a tensor across the order in which they write, such as transposes.

    y[i, j] = f(x[j, i], b[i])      the last loop, j, is not the one along which x is contiguous, i

A block computes TILE x TILE results, and reads the elements of x through shared memory. Both the reads of x and the
stores of y are those of neighbouring elements, by vectors of four where rows have a multiple of four elements. Where
their size is that of a call, each call tests this, once for the reads and once for the stores:

    lane 8 s + c of a warp    reads  x[j, i .. i + 3]     j = s, i = 4 c  within 4 rows of 32 elements; stores each one
                              writes y[i, j .. j + 3]     i = s, j = 4 c; reads them from 4 rows of the tile
    elements, one by one      reads  x[j, i], writes y[i, j]: a lane for each of 32 neighbours

An element takes a word of shared memory, and a row has one word more than elements: element (j, i) lies in bank j + i,
modulo 32. The lanes of either step then have 32 different banks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....dialect.lazy_dataclass import dataclass
from ..structured.positions import loops_of
from .alignment import can_be_contiguous, write_aligned, write_whole
from .nest import Nest, Operand, arguments_of, call_body
from .plain import BYTES, THREADS, first_value, load, split_number, store, write_sizes
from .text import Text

TILE = 64
_PITCH = TILE + 1
_ACROSS = 32
"""The neighbouring elements that a warp reads or writes of a row."""
_WIDTH = 4
_WORD = 4
_LEAST = 16
"""The least size of a loop of a tile: a smaller one would leave most of it empty."""
_MOST_CROSSED = 2
"""The most tensors that are read through shared memory."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """The loop along which results are contiguous, that along which the `crossed` inputs are, and the neighbours that a
    thread reads and writes together, in some calls if sizes are those of a call."""

    last: int
    other: int
    crossed: tuple[int, ...]
    read: int
    written: int


def find_crossing(nest: Nest) -> Crossing | None:
    """Returns the loops of a map that reads inputs across the order of its results; None if it reads none so."""
    if nest.reductions or nest.has_loops or len(nest.outer) < 2:
        return None
    last = nest.outer[-1]
    crossed = tuple(number for number, operand in enumerate(nest.inputs) if _other_of(operand, last) is not None)
    others = {_other_of(nest.inputs[number], last) for number in crossed}
    if len(others) != 1 or len(crossed) > _MOST_CROSSED:
        return None
    (other,) = others
    if other is None or other not in nest.outer:
        return None
    if any(result.element not in BYTES or result.plain_axes()[-1] != last for result in nest.results):
        return None
    if any((nest.static_extent(loop) or _LEAST) < _LEAST for loop in (last, other)):
        return None
    reads, writes = [nest.inputs[number] for number in crossed], list(nest.results)
    widths = [
        _WIDTH if _may_be_whole(nest, loop) and all(can_be_contiguous(o, loop, _WIDTH) for o in operands) else 1
        for loop, operands in ((other, reads), (last, writes))
    ]
    return Crossing(last, other, crossed, *widths)


def _may_be_whole(nest: Nest, loop: int) -> bool:
    """Returns whether a loop has a multiple of the neighbours in some calls."""
    return (nest.static_extent(loop) or 0) % _WIDTH == 0


def _other_of(operand: Operand, last: int) -> int | None:
    """Returns the loop along which an input is contiguous, if that is not the last loop, which it depends on too."""
    if not operand.in_memory or operand.element not in BYTES or last not in operand.loops() or operand.padded:
        return None
    axes = operand.plain_axes()
    other = axes[-1]
    if other is None or other == last or axes.count(other) != 1 or axes.count(last) != 1:
        return None
    rest = [position for position, axis in zip(operand.index, axes, strict=True) if axis is None]
    if any({last, other} & loops_of(position) for position in rest):
        return None
    return other if operand.strides and operand.strides[-1] == 1 else None


def write_transpose(nest: Nest, crossing: Crossing) -> str:
    """Returns the text of the schedule: the function of the threads, and the one that counts the blocks."""
    writer = _Writer(nest, crossing)
    writer.write()
    arguments = ", ".join(f"{name}: {type}" for name, type in arguments_of(nest))
    return writer.declare_tiles() + writer.text.function(f"@{nest.name}({arguments})") + _write_count(nest, crossing)


def _write_count(nest: Nest, crossing: Crossing) -> str:
    text = Text()
    blocks = text.multiply(*_count_blocks(text, nest, crossing, write_sizes(text, nest)))
    arguments = ", ".join(f"%m{number}: {operand.type}" for number, operand in enumerate(nest.operands))
    return text.function(f"@{nest.name}_count({arguments}) -> index", [blocks], ["index"])


def _count_blocks(text: Text, nest: Nest, crossing: Crossing, sizes: Sequence[str]) -> list[str]:
    """Returns the numbers of blocks along the batch, the other loop and the last one."""
    batch = [sizes[loop] for loop in nest.outer if loop not in (crossing.last, crossing.other)]
    tiles = [text.index("ceildivui", sizes[loop], text.constant(TILE)) for loop in (crossing.other, crossing.last)]
    return [text.multiply(text.constant(1), *batch), *tiles]


class _Writer:
    """The writer of the threads' function."""

    def __init__(self, nest: Nest, crossing: Crossing) -> None:
        self.nest, self.crossing, self.text = nest, crossing, Text()
        text = self.text
        self.sizes = write_sizes(text, nest)
        _, others, lasts = _count_blocks(text, nest, crossing, self.sizes)
        block, thread = text.special("ctaid.x"), text.special("tid.x")
        rest, last = text.index("divui", block, lasts), text.index("remui", block, lasts)
        batch, other = text.index("divui", rest, others), text.index("remui", rest, others)
        loops = [loop for loop in nest.outer if loop not in (crossing.last, crossing.other)]
        self.batch = dict(zip(loops, split_number(text, batch, [self.sizes[n] for n in loops]), strict=True))
        self.first_last = text.multiply(last, text.constant(TILE))
        self.first_other = text.multiply(other, text.constant(TILE))
        self.warp = text.index("divui", thread, text.constant(32))
        self.lane = text.index("remui", thread, text.constant(32))
        self.tiles = [self._tile(number) for number in crossing.crossed]

    def _tile_type(self, number: int) -> str:
        element = self.nest.inputs[number].element
        return f"memref<{TILE * _PITCH * _WORD // BYTES[element]}x{element}, 3>"

    def _tile(self, number: int) -> str:
        return self.text.let(f"memref.get_global @{self.nest.name}_tile{number} : {self._tile_type(number)}")

    def declare_tiles(self) -> str:
        types = ((number, self._tile_type(number)) for number in self.crossing.crossed)
        return "".join(
            f'memref.global "private" @{self.nest.name}_tile{number} : {type} = uninitialized\n'
            for number, type in types
        )

    def _slot(self, number: int, last: str, other: str) -> str:
        """Returns the position of an element in a tile, which has a word for each."""
        text = self.text
        place = text.add(text.multiply(last, text.constant(_PITCH)), other)
        return text.multiply(place, text.constant(_WORD // BYTES[self.nest.inputs[number].element]))

    def write(self) -> None:
        crossing, nest = self.crossing, self.nest
        self._each_width(crossing.read, crossing.other, crossing.crossed, self._load)
        self.text.barrier()
        along = [number for number in range(len(nest.inputs)) if self._moves_along(number)]
        written = [*along, *range(len(nest.inputs), len(nest.operands))]
        self._each_width(crossing.written, crossing.last, written, self._store)

    def _moves_along(self, number: int) -> bool:
        """Returns whether an input has neighbouring elements for neighbouring results in some calls."""
        operand, last = self.nest.inputs[number], self.crossing.last
        known = operand.in_memory and last in operand.loops() and number not in self.crossing.crossed
        return known and operand.element in BYTES and not operand.padded and can_be_contiguous(operand, last, _WIDTH)

    def _each_width(
        self, width: int, loop: int, operands: Sequence[int], compute: Callable[[str, str, int], None]
    ) -> None:
        """Computes the parts of a tile by vectors along a loop of the operands, or element by element where the sizes
        of a call do not allow it."""
        text, named = self.text, [(f"%m{number}", self.nest.operands[number]) for number in operands]
        whole = write_whole(text, self.nest, loop, named, self.sizes[loop], width) if width > 1 else ""
        if not whole:
            self._each(width, compute)
            return
        with text.block(f"scf.if {whole}", "} else {"):
            self._each(width, compute)
        with text.next_region():
            self._each(1, compute)

    def _each(self, width: int, compute: Callable[[str, str, int], None]) -> None:
        """Computes the parts of a tile that belong to this thread: each in a row, from a column on."""
        text = self.text
        lanes = _ACROSS // width
        column = text.multiply(text.index("remui", self.lane, text.constant(lanes)), text.constant(width))
        rows = 32 // lanes
        inside, step = text.index("divui", self.lane, text.constant(lanes)), text.fresh()
        parts, warps = TILE // _ACROSS, THREADS // 32
        steps = text.constant(TILE // rows * parts // warps)
        with text.loop(f"{step} = {text.constant(0)} to {steps} step {text.constant(1)}", [], [], []):
            number = text.add(text.multiply(step, text.constant(warps)), self.warp)
            first = text.multiply(text.index("divui", number, text.constant(parts)), text.constant(rows))
            row = text.add(first, inside)
            part = text.multiply(text.index("remui", number, text.constant(parts)), text.constant(_ACROSS))
            compute(row, text.add(part, column), width)

    def _at(self, last: str, other: str) -> list[str]:
        """Returns the positions of the loops by those in the tensors."""
        positions = self.batch | {self.crossing.last: last, self.crossing.other: other}
        return [positions[loop] for loop in range(len(self.nest.parallel))]

    def _is_inside(self, last: str, other: str) -> str:
        """Returns whether the positions of both loops are less than their sizes."""
        text, crossing = self.text, self.crossing
        known = text.below(last, self.sizes[crossing.last]), text.below(other, self.sizes[crossing.other])
        return text.let(f"arith.andi {known[0]}, {known[1]} : i1")

    def _load(self, row: str, column: str, width: int) -> None:
        """Reads elements of a row of each crossed input, and stores them in its tile."""
        text, crossing = self.text, self.crossing
        last, other = text.add(self.first_last, row), text.add(self.first_other, column)
        with text.block(f"scf.if {self._is_inside(last, other)}"):
            for number, tile in zip(crossing.crossed, self.tiles, strict=True):
                positions = [self._at(last, text.add(other, text.constant(n))) for n in range(width)]
                for n, value in enumerate(self._read(number, positions)):
                    slot = self._slot(number, row, text.add(column, text.constant(n)))
                    text.line(f"memref.store {value}, {tile}[{slot}] : {self._tile_type(number)}")

    def _read(self, number: int, positions: Sequence[Sequence[str]]) -> list[str]:
        """Returns neighbouring elements of an input in memory."""
        text, width, operand = self.text, len(positions), self.nest.inputs[number]
        if width == 1:
            return [load(text, self.nest, number, positions[0])]
        type, vector = f"vector<{width}x{operand.element}>", text.fresh()
        with text.block(
            f"{vector} = scf.if {write_aligned(text, [(f'%m{number}', operand)], width)} -> ({type})", "} else {"
        ):
            indices = ", ".join(text.apply(expression, positions[0]) for expression in operand.index)
            alignment = f"{{alignment = {width * BYTES[operand.element]} : i64}}"
            read = text.let(f"vector.load %m{number}[{indices}] {alignment} : {operand.type}, {type}")
            text.carry([read], [type])
        with text.next_region():
            elements = ", ".join(load(text, self.nest, number, at) for at in positions)
            text.carry([text.let(f"vector.from_elements {elements} : {type}")], [type])
        return [text.let(f"vector.extract {vector}[{n}] : {operand.element} from {type}") for n in range(width)]

    def _store(self, row: str, column: str, width: int) -> None:
        """Computes the results of a row from a column on."""
        text, nest = self.text, self.nest
        last, other = text.add(self.first_last, column), text.add(self.first_other, row)
        with text.block(f"scf.if {self._is_inside(last, other)}"):
            positions = [self._at(text.add(last, text.constant(n)), other) for n in range(width)]
            columns = [self._read_for(number, positions, row, column) for number in range(len(nest.inputs))]
            made = []
            for n, at in enumerate(positions):
                elements = [values[n] for values in columns]
                before = [first_value(text, nest, result, at) for result in range(len(nest.results))]
                made.append(text.let_many(len(before), call_body(nest, [*elements, *before], at)))
            named = [(f"%m{len(nest.inputs) + n}", operand) for n, operand in enumerate(nest.results)]
            results = [[values[result] for values in made] for result in range(len(nest.results))]
            if width == 1:
                self._store_each(results, positions)
                return
            with text.block(f"scf.if {write_aligned(text, named, width)}", "} else {"):
                for number, values in enumerate(results):
                    store(text, nest, number, values, positions[0])
            with text.next_region():
                self._store_each(results, positions)

    def _store_each(self, results: Sequence[Sequence[str]], positions: Sequence[Sequence[str]]) -> None:
        for number, values in enumerate(results):
            for value, at in zip(values, positions, strict=True):
                store(self.text, self.nest, number, (value,), at)

    def _read_for(self, number: int, positions: Sequence[Sequence[str]], row: str, column: str) -> list[str]:
        """Returns the elements of an input for neighbouring results."""
        text, crossing = self.text, self.crossing
        operand, width = self.nest.inputs[number], len(positions)
        if number in crossing.crossed:
            tile = self.tiles[crossing.crossed.index(number)]
            slots = [self._slot(number, text.add(column, text.constant(n)), row) for n in range(width)]
            return [text.let(f"memref.load {tile}[{slot}] : {self._tile_type(number)}") for slot in slots]
        if not operand.in_memory or crossing.last not in operand.loops():
            return [load(text, self.nest, number, positions[0])] * width
        return (
            self._read(number, positions)
            if self._moves_along(number)
            else [load(text, self.nest, number, at) for at in positions]
        )
