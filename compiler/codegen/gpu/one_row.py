"""Products whose number of rows is that of a call: calls with one row have a launch of their own.

A model that extends a sequence calls the same products with many rows first, and then with one row for each token. A
tile of many rows is almost empty then, and few blocks read the matrix. So there are two launches, and the rows of a
call choose the one that has blocks:

    x[T, k] @ w[k, n]     @product           T = 1: the schedule of a product with one row
                          @product_part1     otherwise: tiles
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from .contraction import Groups
from .few_rows import fits_few_rows
from .nest import Nest, Operand
from .plain import BYTES, write_sizes
from .rows import lanes_of
from .text import Text

ONE, SEVERAL = "_one", "_several"
"""The ends of the names of functions that choose between launches."""
_MANY_BYTES = 1 << 20
"""The bytes of a matrix from which on its reading decides: tiles read a smaller one in about the time of a launch."""


def fits_one_row(nest: Nest, groups: Groups | None) -> bool:
    """Returns whether a nest is a product with one large matrix whose rows may be one or several, and has a schedule
    for one row that reads the matrix by vectors."""
    if groups is None or groups.batch or nest.static_count((*groups.columns, *groups.depth)) is None:
        return False
    if {nest.static_extent(loop) for loop in groups.rows} not in ({None}, {None, 1}):
        return False
    matrix = [operand for operand, side in zip(nest.inputs, groups.sides, strict=True) if side == 1]
    if sum(map(_bytes, matrix)) <= _MANY_BYTES:
        return False
    single = in_one_row(nest, groups.rows)
    return fits_few_rows(single) or lanes_of(single) is not None


def _bytes(operand: Operand) -> int:
    return prod(size or 0 for size in operand.shape) * BYTES.get(operand.element, 8)


def in_one_row(nest: Nest, rows: Sequence[int]) -> Nest:
    """Returns a nest whose loops over rows have one iteration in every call."""

    def single(operand: Operand) -> Operand:
        axes = operand.plain_axes() if operand.in_memory else ()
        shape = tuple(1 if axis in rows else size for axis, size in zip(axes, operand.shape, strict=False))
        return replace(operand, shape=shape) if axes else operand

    return replace(nest, inputs=tuple(map(single, nest.inputs)), results=tuple(map(single, nest.results)))


def write_choice(nest: Nest, loops: Sequence[int], name: str) -> str:
    """Returns the text of functions of the operands of a product, whose rows are `loops`: the blocks that the launch
    for one row, and the one for several, have of a number of them."""
    arguments, made = ", ".join(f"%m{number}: {operand.type}" for number, operand in enumerate(nest.operands)), ""
    for kind in (ONE, SEVERAL):
        text = Text()
        sizes = write_sizes(text, nest)
        rows, one = text.multiply(text.constant(1), *(sizes[loop] for loop in loops)), text.constant(1)
        is_own = text.let(f"arith.cmpi {'eq' if kind == ONE else 'ne'}, {rows}, {one} : index")
        blocks = text.let(f"arith.select {is_own}, %blocks, {text.constant(0)} : index")
        made += text.function(f"@{name}{kind}({arguments}, %blocks: index) -> index", [blocks], ["index"])
    return made
