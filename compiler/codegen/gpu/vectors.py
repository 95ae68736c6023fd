"""The schedule of maps over contiguous memory: a thread computes four neighbouring elements.

It loads and stores them together, 8 or 16 bytes at once, if all tensors begin at a multiple of that many bytes; this is
known in a call only. Otherwise the thread goes through them one after another:

    thread t:  n = 4 * t;  positions of n, where the last loop has a multiple of 4 iterations
               aligned:    vectors of 4 elements of each operand, 4 calls of the body, a vector for each result
               otherwise:  4 times: elements, a call of the body, elements
"""

from __future__ import annotations

from collections.abc import Sequence

from .nest import Nest, Operand, arguments_of, call_body
from .plain import BYTES, THREADS, count_elements, first_value, load, split_number, store, write_count, write_sizes
from .text import Text

WIDTH = 4


def can_vectorize(nest: Nest) -> bool:
    """Returns whether neighbouring iterations of the last loop read and write neighbouring elements. A body with loops
    takes so long that a thread for each element is worth more than wide accesses to memory."""
    if nest.reductions or nest.has_loops or not nest.outer or (nest.static_extent(nest.outer[-1]) or 1) % WIDTH:
        return False
    last = nest.outer[-1]
    return all(_moves(operand, last) is not None for operand in nest.operands) and all(
        _moves(result, last) for result in nest.results
    )


def _moves(operand: Operand, loop: int) -> bool | None:
    """Returns whether an operand moves by one element with each iteration of a loop, or False if it does not move. None
    otherwise, and for steps of other loops that would break the alignment."""
    if not operand.in_memory or loop not in operand.loops():
        return False
    axes = operand.plain_axes()
    if operand.element not in BYTES or axes[-1] != loop or axes.count(loop) != 1 or "offset" in operand.type:
        return None
    if None in axes or any(step is None or step % WIDTH for step in operand.strides[:-1]) or operand.strides[-1] != 1:
        return None
    return True


def write_vectors(nest: Nest) -> str:
    """Returns the text of the schedule: the function of the threads, and the one that counts the blocks."""
    text = Text()
    sizes = write_sizes(text, nest)
    block, thread = text.special("ctaid.x"), text.special("tid.x")
    four = text.constant(WIDTH)
    number = text.multiply(text.add(text.multiply(block, text.constant(THREADS)), thread), four)
    with text.block(f"scf.if {text.below(number, count_elements(text, nest, sizes))}"):
        positions = split_number(text, number, [sizes[loop] for loop in nest.outer])
        known = dict(zip(nest.outer, positions, strict=True))
        write_neighbours(text, nest, known)
    arguments = ", ".join(f"{name}: {type}" for name, type in arguments_of(nest))
    return text.function(f"@{nest.name}({arguments})") + write_count(nest, THREADS * WIDTH)


def write_neighbours(text: Text, nest: Nest, known: dict[int, str]) -> None:
    """Computes the elements at a position and the next ones."""
    first = known[nest.outer[-1]]
    with text.block(f"scf.if {_is_aligned(text, nest)}", "} else {"):
        _compute(text, nest, known, first, together=True)
    with text.next_region():
        _compute(text, nest, known, first, together=False)


def _is_aligned(text: Text, nest: Nest) -> str:
    """Returns whether all tensors that are read by vectors are aligned to them."""
    bits = text.constant(0)
    for number, operand in enumerate(nest.operands):
        if _moves(operand, nest.outer[-1]):
            address = text.let(f"memref.extract_aligned_pointer_as_index %m{number} : {operand.type} -> index")
            mask = text.constant(WIDTH * BYTES[operand.element] - 1)
            bits = text.index("ori", bits, text.index("andi", address, mask))
    return text.let(f"arith.cmpi eq, {bits}, {text.constant(0)} : index")


def _compute(text: Text, nest: Nest, known: dict[int, str], first: str, *, together: bool) -> None:
    last = nest.outer[-1]
    coordinates = [text.add(first, text.constant(n)) for n in range(WIDTH)]

    def at(number: int) -> list[str]:
        positions = known | {last: coordinates[number]}
        return [positions[loop] for loop in range(len(nest.parallel))]

    def read(operand: int) -> Sequence[str]:
        """Returns the elements of an operand in all iterations."""
        what = nest.operands[operand]
        if not what.in_memory or not together or not _moves(what, last):
            return [load(text, nest, operand, at(number)) for number in range(WIDTH)]
        vector = f"vector<{WIDTH}x{what.element}>"
        indices = ", ".join(text.apply(expression, at(0)) for expression in what.index)
        bytes = WIDTH * BYTES[what.element]
        loaded = text.let(f"vector.load %m{operand}[{indices}] {{alignment = {bytes} : i64}} : {what.type}, {vector}")
        return [text.let(f"vector.extract {loaded}[{n}] : {what.element} from {vector}") for n in range(WIDTH)]

    if not together:
        # Each element is written before the next one is read: an operand may be the memory of a result.
        for number in range(WIDTH):
            write_element(text, nest, at(number))
        return
    columns = [read(operand) for operand in range(len(nest.inputs))]
    made: list[list[str]] = []
    for number in range(WIDTH):
        elements = [column[number] for column in columns]
        before = [first_value(text, nest, result, at(number)) for result in range(len(nest.results))]
        made.append(text.let_many(len(before), call_body(nest, [*elements, *before], at(number))))
    for result in range(len(nest.results)):
        store(text, nest, result, [values[result] for values in made], at(0))


def write_element(text: Text, nest: Nest, at: Sequence[str]) -> None:
    """Computes one element of each result."""
    elements = [load(text, nest, operand, at) for operand in range(len(nest.inputs))]
    before = [first_value(text, nest, result, at) for result in range(len(nest.results))]
    values = text.let_many(len(before), call_body(nest, [*elements, *before], at))
    for result, value in enumerate(values):
        store(text, nest, result, (value,), at)
