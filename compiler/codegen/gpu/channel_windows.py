"""The schedule of reductions over windows whose results lie along the channels, such as depthwise convolutions and
pooling with the channels last: a thread computes neighbouring channels.

    y[i, j, c] = sum x[i + k, j + l, c] * w[k, l, c] over the window (k, l)

    thread t:  n = width * t;  positions of n
               aligned:    for each (k, l): a vector of x and one of w, a call of the body for each channel
               otherwise:  the channels one after another, as in `plain`

The width is 4, or 2 where threads of four channels would be too few for a device. Where those of two are too few also,
the width is 2 for elements of less than 4 bytes in short windows, and 1 for others.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...targets.chips import CHIPS
from .alignment import is_contiguous, write_aligned
from .nest import Nest, Operand, arguments_of, call_body
from .pairs import written_operands
from .plain import (
    BYTES,
    THREADS,
    accumulate_results,
    complete_total,
    count_elements,
    first_value,
    is_inside,
    load,
    split_number,
    store_completed,
    write_count,
    write_sizes,
)
from .text import Text

WIDTHS = (4, 2)
_WORD = 4
_SHORT = 64
"""The elements of a window, which take a thread less time than a launch."""
_ENOUGH = CHIPS["h100"].processors * THREADS
"""The threads that give each multiprocessor a block."""


def width_of_channels(nest: Nest) -> int:
    """Returns the number of neighbouring results of a thread; 1 if an operand is not contiguous along them."""
    if not nest.reductions or nest.has_loops or not nest.outer:
        return 1
    last, reductions = nest.outer[-1], set(nest.reductions)
    size, count = nest.static_extent(last), nest.static_count(nest.outer)
    moving = [operand for operand in nest.inputs if moves(operand, last)]
    if not size or not moving or any(operand.loops() & reductions for operand in nest.results):
        return 1
    written = written_operands(nest, last)
    is_short = (nest.static_count(nest.reductions) or _SHORT + 1) <= _SHORT
    is_narrow = all(BYTES.get(operand.element, _WORD) < _WORD for operand in moving)
    for width in WIDTHS:
        ends = [is_contiguous(operand, loop, width) for _, operand, loop in written]
        known = all(operand.element in BYTES for operand in (*moving, *(operand for _, operand, _ in written)))
        fits = known and all(is_contiguous(operand, last, width) for operand in moving) and all(ends)
        is_enough = are_enough(count, width) or (width == WIDTHS[-1] and is_short and is_narrow)
        if fits and is_enough and size % width == 0:
            return width
    return 1


def are_enough(count: int | None, width: int) -> bool:
    """Returns whether threads of `width` results are enough for a device; those of a number that is known in a call
    only may be."""
    return count is None or count >= width * _ENOUGH


def moves(operand: Operand, loop: int) -> bool:
    """Returns whether another element of an operand is read in each iteration of a loop."""
    return operand.in_memory and loop in operand.loops()


def write_windows(nest: Nest, width: int, window: type[Window]) -> str:
    """Returns the text of the schedule: the function of the threads, and the one that counts the blocks. `window` is
    the writer of a thread's results where tensors are aligned."""
    text = Text()
    sizes = write_sizes(text, nest)
    block, thread = text.special("ctaid.x"), text.special("tid.x")
    number = text.add(text.multiply(block, text.constant(THREADS)), thread)
    number = text.multiply(number, text.constant(width))
    with text.block(f"scf.if {text.below(number, count_elements(text, nest, sizes))}"):
        positions = split_number(text, number, [sizes[loop] for loop in nest.outer])
        loops = dict(zip(nest.outer, positions, strict=True))
        last = nest.outer[-1]
        channels = [loops | {last: text.add(loops[last], text.constant(n))} for n in range(width)]
        with text.block(f"scf.if {_is_aligned(text, nest, width)}", "} else {"):
            window(text, nest, sizes, channels).write()
        with text.next_region():
            for channel in channels:
                accumulate_results(text, nest, sizes, channel)
    arguments = ", ".join(f"{name}: {type}" for name, type in arguments_of(nest))
    return text.function(f"@{nest.name}({arguments})") + write_count(nest, THREADS * width)


def _is_aligned(text: Text, nest: Nest, width: int) -> str:
    """Returns whether all tensors that are read or written by vectors begin at a multiple of their bytes."""
    last = nest.outer[-1]
    named = [(f"%m{number}", operand) for number, operand in enumerate(nest.inputs) if moves(operand, last)]
    return write_aligned(text, [*named, *((name, operand) for name, operand, _ in written_operands(nest, last))], width)


class Window:
    """The writer of a thread's channels, or other neighbouring results. `channels` are the positions of the parallel
    loops of each."""

    def __init__(self, text: Text, nest: Nest, sizes: Sequence[str], channels: Sequence[dict[int, str]]) -> None:
        self.text, self.nest, self.sizes, self.channels = text, nest, sizes, channels
        self.types = [result.element for _ in channels for result in nest.results]

    def write(self) -> None:
        text, nest = self.text, self.nest
        zero = text.constant(0)
        at = [[channel.get(loop, zero) for loop in range(len(nest.parallel))] for channel in self.channels]
        starts = [first_value(text, nest, number, own) for own in at for number in range(len(nest.results))]
        totals = self.iterate(list(nest.reductions), {}, starts)
        for number in range(len(nest.results)):
            own = totals[number :: len(nest.results)]
            ends = [complete_total(text, nest, number, value, each) for value, each in zip(own, at, strict=True)]
            for end, values in enumerate(zip(*ends, strict=True)):
                store_completed(text, nest, number + end, values, at[0])

    def iterate(self, left: list[int], window: dict[int, str], totals: Sequence[str]) -> list[str]:
        """Runs the loops of the window that are left, and returns the totals after them."""
        if not left:
            return self._add(window, totals)
        text, (loop, *inner) = self.text, left
        carried, position = [text.fresh() for _ in totals], text.fresh()
        bounds = f"{position} = {text.constant(0)} to {self.sizes[loop]} step {text.constant(1)}"
        with text.loop(bounds, carried, totals, self.types) as results:
            text.carry(self.iterate(inner, window | {loop: position}, carried), self.types)
        return results

    def _add(self, window: dict[int, str], totals: Sequence[str]) -> list[str]:
        """Returns the totals with the elements at a position of the window."""
        at = self.positions(window)
        return self.call_bodies([self._read(number, at) for number in range(len(self.nest.inputs))], at, totals)

    def positions(self, window: dict[int, str]) -> list[list[str]]:
        """Returns the positions of the loops of each channel, at a position of the window."""
        loops, zero = range(len(self.nest.parallel)), self.text.constant(0)
        return [[(channel | window).get(loop, zero) for loop in loops] for channel in self.channels]

    def call_bodies(
        self, columns: Sequence[Sequence[str]], at: Sequence[Sequence[str]], totals: Sequence[str]
    ) -> list[str]:
        """Returns the totals with the elements of all inputs, `columns`, each with one for each channel."""
        count, made = len(self.nest.results), list[str]()
        for number, own in enumerate(at):
            elements = [column[number] for column in columns]
            before = totals[number * count : (number + 1) * count]
            made += self.text.let_many(count, call_body(self.nest, [*elements, *before], own))
        return made

    def _read(self, number: int, at: Sequence[Sequence[str]]) -> list[str]:
        """Returns the elements of an input for all channels."""
        text, operand, width = self.text, self.nest.inputs[number], len(self.channels)
        if not moves(operand, self.nest.outer[-1]):
            return [load(text, self.nest, number, at[0])] * width
        indices = [text.apply(expression, at[0]) for expression in operand.index]
        name = f"%m{number}"
        inside = is_inside(text, operand, name, indices)
        return load_vector(text, operand, name, indices, width, inside)


def load_vector(text: Text, operand: Operand, name: str, indices: Sequence[str], width: int, inside: str) -> list[str]:
    """Returns neighbouring elements of an operand, read by one aligned load; those of its padding unless they lie
    `inside`, a condition. An empty one always holds."""
    type = f"vector<{width}x{operand.element}>"
    alignment = f"{{alignment = {width * BYTES[operand.element]} : i64}}"
    read = f"vector.load {name}[{', '.join(indices)}] {alignment} : {operand.type}, {type}"
    if inside:
        vector = text.fresh()
        with text.block(f"{vector} = scf.if {inside} -> ({type})", "} else {"):
            text.carry([text.let(read)], [type])
        with text.next_region():
            value = text.let(f"arith.constant {operand.padding}")
            text.carry([text.let(f"vector.broadcast {value} : {operand.element} to {type}")], [type])
    else:
        vector = text.let(read)
    return [text.let(f"vector.extract {vector}[{n}] : {operand.element} from {type}") for n in range(width)]
