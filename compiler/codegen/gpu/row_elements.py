"""The elements of a row that a lane takes together: neighbours, read by 16 bytes where memory is aligned.

    weights in bf16, 8 elements a load:   lane 0: 0 .. 7    lane 1: 8 .. 15    ...    lane 31: 248 .. 255
                                          lane 0: 256 .. 263, and so on

The alignment of a tensor is known in the call only. If it is not aligned, a lane takes the same elements in the same
order, each by a separate load, so that the sums have the same bits.

The elements of a row that lie one after another over several axes, as in the sum of a whole matrix, have one number
each. It is the position along the last axis, and that of the others is 0: no lane divides by their sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .alignment import BYTES, VECTOR_BYTES, bytes_of, can_be_contiguous, write_aligned, write_whole
from .nest import Nest, Operand
from .plain import load
from .text import Text

MOST_FEW = 8
"""The rows of an input that are few."""


def width_of(nest: Nest, lanes: int) -> int:
    """Returns the number of neighbouring elements that a lane takes at once: a power of two that divides the innermost
    loop of the row, in some calls if its size is that of a call, and leaves each lane some. It is 1 if an input that
    the loop moves along is not contiguous there. They are 16 bytes of the inputs that are read once, such as the matrix
    of a product of a few rows."""
    last, length, flat = nest.reductions[-1], 1, is_flat(nest)
    size, moving = nest.static_count(nest.reductions if flat else (last,)) or 0, moving_inputs(nest)
    for loop in nest.reductions:
        length *= nest.static_extent(loop) or lanes * VECTOR_BYTES
    if any(operand.element not in BYTES or operand.padded for operand in moving):
        return 1
    read_once = [operand for operand in moving if not is_of_few_rows(nest, operand)] or moving
    width = VECTOR_BYTES // max(BYTES[operand.element] for operand in read_once)
    while width > 1 and (
        size % width
        or length < width * lanes
        or not (flat or all(can_be_contiguous(operand, last, width) for operand in moving))
    ):
        width //= 2
    return width


def is_flat(nest: Nest) -> bool:
    """Returns whether the elements of a row lie one after another in all inputs, over several axes."""
    loops = nest.reductions
    if len(loops) < 2 or nest.reads_positions:
        return False
    own = [operand for operand in nest.inputs if operand.in_memory and operand.loops() & set(loops)]
    return all(operand.plain_axes()[-len(loops) :] == loops and "strided" not in operand.type for operand in own)


def is_whole(text: Text, nest: Nest, sizes: Sequence[str], width: int) -> str:
    """Returns whether rows of a call, whose loops have these sizes, consist of vectors; an empty text if they do in
    every call."""
    if is_flat(nest):
        # Rows follow one another, so that their length is the step between them too.
        if nest.static_count(nest.reductions) is not None:
            return ""
        length = text.multiply(*(sizes[loop] for loop in nest.reductions))
        rest = text.index("andi", length, text.constant(width - 1))
        return text.let(f"arith.cmpi eq, {rest}, {text.constant(0)} : index")
    moving, size = moving_inputs(nest), sizes[nest.reductions[-1]]
    named = [(f"%m{number}", operand) for number, operand in enumerate(nest.inputs) if operand in moving]
    return write_whole(text, nest, nest.reductions[-1], named, size, width)


def is_of_few_rows(nest: Nest, operand: Operand) -> bool:
    """Returns whether an input has few rows in every call, which the other rows of the results share."""
    rows = 1
    for loop in operand.loops() & set(nest.outer):
        rows *= nest.static_extent(loop) or MOST_FEW + 1
    return rows <= MOST_FEW


def moving_inputs(nest: Nest) -> list[Operand]:
    """Returns the inputs that another element is read of in each iteration of the innermost loop."""
    return [operand for operand in nest.inputs if operand.in_memory and nest.reductions[-1] in operand.loops()]


def is_aligned(text: Text, nest: Nest, width: int, chosen: Collection[int] | None = None) -> str:
    """Returns whether all inputs that are read by vectors, or the `chosen` ones of them, begin at a multiple of their
    bytes."""
    moving = moving_inputs(nest)
    numbered = [(number, operand) for number, operand in enumerate(nest.inputs) if operand in moving]
    named = [(f"%m{number}", operand) for number, operand in numbered if chosen is None or number in chosen]
    return write_aligned(text, named, width)


def read_elements(
    text: Text, nest: Nest, positions: Sequence[Sequence[str]], aligned: str, chosen: Collection[int]
) -> dict[int, Sequence[str]]:
    """Returns the elements of the chosen inputs at successive positions of the loops."""
    moving, first, width = moving_inputs(nest), positions[0], len(positions)
    made: dict[int, Sequence[str]] = {}
    numbers = []
    for number in chosen:
        if width > 1 and nest.inputs[number] in moving:
            numbers.append(number)
        else:
            made[number] = [load(text, nest, number, first)] * width
    if not numbers:
        return made
    types = [f"vector<{width}x{nest.inputs[number].element}>" for number in numbers]
    typed = list(zip(numbers, types, strict=True))

    def vectors() -> list[str]:
        made = []
        for number, type in typed:
            operand = nest.inputs[number]
            indices = ", ".join(text.apply(expression, first) for expression in operand.index)
            alignment = f"{{alignment = {bytes_of(operand, width)} : i64}}"
            made.append(text.let(f"vector.load %m{number}[{indices}] {alignment} : {operand.type}, {type}"))
        return made

    def elements() -> list[str]:
        made = []
        for number, type in typed:
            loaded = ", ".join([load(text, nest, number, at) for at in positions])
            made.append(text.let(f"vector.from_elements {loaded} : {type}"))
        return made

    for (number, type), vector in zip(typed, text.choose(aligned, types, vectors, elements), strict=True):
        element = nest.inputs[number].element
        made[number] = [text.let(f"vector.extract {vector}[{n}] : {element} from {type}") for n in range(width)]
    return made
