"""The schedule of reductions over windows whose results lie along rows, such as depthwise convolutions and pooling with
the channels first: a thread computes neighbouring results, whose windows share most elements of a row.

    y[c, i, j] = sum x[c, i + k, 2 j + l - 1] * w[c, k, l] over the window (k, l)

    thread t:  j = 4 t .. 4 t + 3
               aligned:    for each k: x[c, i + k, 8 t - 1], two vectors from 8 t on; w[c, k, 0 .. 2]; 12 calls of
                           the body
               otherwise:  the results one after another, as in `plain`

Rows have whole vectors, so that padding is a whole vector or none of it. The loops of the window along the row are
written out; the others are loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from ....dialect.emitter import Index
from ..structured.positions import coefficient_of, loops_of
from .alignment import is_contiguous
from .channel_windows import WIDTHS, Window, are_enough, load_vector, moves
from .nest import Nest, Operand
from .pairs import written_operands
from .plain import BYTES, is_inside, load, load_inside
from .text import Text

_MOST, _FEW = 16, 5
"""The most elements of a window along the row, which are written out; and those that need few registers."""


def width_of_row(nest: Nest) -> int:
    """Returns the number of neighbouring results of a thread; 1 if their windows do not share elements of rows."""
    if not nest.reductions or nest.has_loops or not nest.outer:
        return 1
    last, reductions = nest.outer[-1], set(nest.reductions)
    moving = [operand for operand in nest.inputs if moves(operand, last)]
    size, along = nest.static_extent(last), _loops_along(nest, moving)
    if not size or not along or any(operand.loops() & reductions for operand in nest.results):
        return 1
    written = written_operands(nest, last)
    if not all(operand.element in BYTES for operand in (*moving, *(operand for _, operand, _ in written))):
        return 1
    for width in WIDTHS:
        ends = all(is_contiguous(operand, loop, width) for _, operand, loop in written)
        fits = size % width == 0 and ends and all(_has_vectors(operand, width) for operand in moving)
        if fits and are_enough(nest.static_count(nest.outer), width):
            return width
    return 1


def blocks_at_once(nest: Nest) -> int:
    """Returns the least number of blocks of a processor, so that a thread has registers for the elements of several
    rows of its window, which ptxas loads before it multiplies them."""
    along = _loops_along(nest, [operand for operand in nest.inputs if moves(operand, nest.outer[-1])])
    return 4 if (nest.static_count(along) or 0) <= _FEW else 2


def _loops_along(nest: Nest, moving: Sequence[Operand]) -> tuple[int, ...]:
    """Returns the loops of the window along the rows, the last reductions; none if an operand does not have its rows
    there, or if they are long."""
    last, found = nest.outer[-1], set[int]()
    for operand in moving:
        *others, position = operand.index
        if not isinstance(position, Index) or min((c for _, c in position.coefficients), default=0) < 1:
            return ()
        own = loops_of(position) - {last}
        if last not in loops_of(position) or any(last in loops_of(other) for other in others):
            return ()
        found |= own
    along = tuple(loop for loop in nest.reductions if loop in found)
    sizes = [nest.static_extent(loop) or _MOST + 1 for loop in along]
    is_end = bool(along) and found == set(along) == set(nest.reductions[-len(along) :])
    mixed = any(loops_of(position) & found for operand in moving for position in operand.index[:-1])
    return along if is_end and not mixed and prod(sizes) <= _MOST else ()


def _has_vectors(operand: Operand, width: int) -> bool:
    """Returns whether the rows of an operand have whole vectors and begin at one."""
    size, steps = operand.shape[-1], operand.strides
    if size is None or size % width or "offset" in operand.type:
        return False
    return "strided" not in operand.type or (steps[-1] == 1 and not any(s is None or s % width for s in steps[:-1]))


class RowWindow(Window):
    """The writer of a thread's neighbours in a row."""

    def iterate(self, left: list[int], window: dict[int, str], totals: Sequence[str]) -> list[str]:
        """Runs the loops of the window that are left; those along the row are written out."""
        nest, last = self.nest, self.nest.outer[-1]
        along = _loops_along(nest, [operand for operand in nest.inputs if moves(operand, last)])
        if set(left) != set(along):
            return super().iterate(left, window, totals)
        read = {number: self._read_row(number, along, window) for number in self._moving()}
        made = list(totals)
        for steps in self._steps(along):
            at = self.positions(window | {loop: self.text.constant(step) for loop, step in steps.items()})
            columns = []
            for number, operand in enumerate(nest.inputs):
                if number in read:
                    columns.append([read[number][offset] for offset in self._offsets(operand, steps)])
                else:
                    columns.append([load(self.text, nest, number, at[0])] * len(at))
            made = self.call_bodies(columns, at, made)
        return made

    def _moving(self) -> list[int]:
        return [number for number, operand in enumerate(self.nest.inputs) if moves(operand, self.nest.outer[-1])]

    def _steps(self, along: Sequence[int]) -> list[dict[int, int]]:
        """Returns the positions of the loops along the row, in order."""
        sizes = [range(self.nest.static_extent(loop) or 0) for loop in along]
        return [dict(zip(along, numbers, strict=True)) for numbers in product(*sizes)]

    def _offsets(self, operand: Operand, steps: dict[int, int]) -> list[int]:
        """Returns the place of the element of each result in the row, from the multiple of a vector on at which the
        first window lies if there is no padding."""
        position = operand.index[-1]
        assert isinstance(position, Index), operand
        own = position.constant + sum(coefficient_of(position, loop) * step for loop, step in steps.items())
        return [own + coefficient_of(position, self.nest.outer[-1]) * n for n in range(len(self.channels))]

    def _read_row(self, number: int, along: Sequence[int], window: dict[int, str]) -> dict[int, str]:
        """Returns the elements of a row that the results read, by their places: several of a vector by one load."""
        text, operand, width = self.text, self.nest.inputs[number], len(self.channels)
        wanted = sorted({offset for steps in self._steps(along) for offset in self._offsets(operand, steps)})
        at, name = self.positions(window)[0], f"%m{number}"
        *others, position = operand.index
        assert isinstance(position, Index), operand
        rows = [text.apply(other, at) for other in others]
        begin = text.apply(Index(position.coefficients), at)
        found: dict[int, str] = {}
        for first in sorted({offset // width * width for offset in wanted}):
            own = [offset for offset in wanted if first <= offset < first + width]
            start = first if len(own) > 1 else own[0]
            indices = [*rows, _shifted(text, begin, start)]
            inside = is_inside(text, operand, name, indices)
            if len(own) > 1:
                vector = load_vector(text, operand, name, indices, width, inside)
                found |= {offset: vector[offset - first] for offset in own}
            else:
                found[start] = load_inside(text, operand, name, indices, inside)
        return found


def _shifted(text: Text, index: str, distance: int) -> str:
    """Returns an index plus a number, which may be negative."""
    return text.let(f"arith.addi {index}, {text.constant(distance)} : index") if distance else index
