"""The schedule of maps over contiguous memory: a thread computes four neighbouring elements.

It loads and stores them together, up to 16 bytes at once, if all tensors begin at a multiple of that many bytes; this
is known in a call only:

    thread t:  n = 4 * t
               aligned:    vectors of 4 elements of each operand, 4 calls of the body, a vector for each result
               otherwise:  4 times: elements, a call of the body, elements

Where the size of rows is that of a call, each call also tests whether it is a multiple of four. If not, the threads of
a block go through its elements four times, and neighbouring threads have neighbouring elements.

Truth values have a byte each, which a thread reads and writes alone.

Rows may have any size where tensors are `linear`: their elements are in the order of the iterations. Four of them may
lie in two rows then, and tensors with fewer axes, such as a bias, are read one element at a time. The thread whose
vector reaches beyond the last element computes its elements one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .alignment import BYTES, bytes_of, can_be_contiguous, is_contiguous, write_aligned, write_whole
from .nest import Nest, Operand, arguments_of, call_body
from .plain import THREADS, count_elements, first_value, load, split_number, store, write_count, write_sizes
from .rows import Place
from .text import Text

WIDTH = 4


def can_vectorize(nest: Nest, *, in_every_call: bool = False) -> bool:
    """Returns whether neighbouring iterations of the last loop read and write neighbouring elements, in some calls if
    sizes are those of a call. A body with loops takes so long that a thread for each element is worth more than wide
    accesses to memory."""
    if nest.reductions or nest.has_loops or not nest.outer:
        return False
    last = nest.outer[-1]
    size = nest.static_extent(last)
    if in_every_call if size is None else size % WIDTH:
        return False
    fits = is_contiguous if in_every_call else can_be_contiguous
    wide = [nest.operands[number] for number in _vectors_along(nest, last)]
    known = bool(wide) and all(fits(operand, last, WIDTH) for operand in wide)
    is_padded = any(operand.padded for operand in nest.operands if _moves(operand, last))
    return known and not is_padded and all(_moves(result, last) for result in nest.results)


def _vectors_along(nest: Nest, loop: int) -> list[int]:
    """Returns the numbers of the operands whose elements along a loop are read and written several at once."""
    numbered = enumerate(nest.operands)
    return [number for number, operand in numbered if _moves(operand, loop) and operand.element in BYTES]


def _moves(operand: Operand, loop: int) -> bool:
    return operand.in_memory and loop in operand.loops()


def is_linear(nest: Nest) -> bool:
    """Returns whether results, and inputs that another element is read of in each iteration, have their elements in the
    order of the iterations, and a row is no multiple of a vector in some calls."""
    if nest.reductions or nest.has_loops or not nest.outer:
        return False
    known = [operand for operand in nest.operands if operand.in_memory]
    linear = [operand for operand in known if _has_order(nest, operand)]
    others = [operand for operand in known if operand not in linear]
    if any(result not in linear for result in nest.results) or not any(o.element in BYTES for o in linear):
        return False
    # Divisions for four positions beside operands that are read one by one take more registers than ptxas keeps.
    if others and any(operand.element not in BYTES for operand in linear):
        return False
    size = nest.static_extent(nest.outer[-1])
    # Each position in rows whose size is that of a call takes a division.
    is_whole = bool(others) or nest.reads_positions if size is None else size % WIDTH == 0
    return not is_whole and all(not o.padded and len(o.loops()) < len(nest.outer) for o in others)


def _has_order(nest: Nest, operand: Operand) -> bool:
    return operand.in_memory and operand.plain_axes() == nest.outer and "strided" not in operand.type


def blocks_at_once(nest: Nest) -> int:
    """Returns the least number of blocks of a processor. By default, ptxas limits the registers of a thread so that
    eight blocks fit. A division in f64 calls a subroutine for uncommon operands, and a vector of results needs more
    registers around the call."""
    return 4 if nest.divides_f64 else 0


def write_vectors(nest: Nest) -> str:
    """Returns the text of the schedule: the function of the threads, and the one that counts the blocks."""
    text = Text()
    sizes = write_sizes(text, nest)
    block, thread = text.special("ctaid.x"), text.special("tid.x")
    count, first = count_elements(text, nest, sizes), text.multiply(block, text.constant(THREADS * WIDTH))

    def split(number: str) -> list[str]:
        known = dict(zip(nest.outer, split_number(text, number, [sizes[n] for n in nest.outer]), strict=True))
        return [known[loop] for loop in range(len(nest.parallel))]

    if can_vectorize(nest, in_every_call=True):
        number = text.add(first, text.multiply(thread, text.constant(WIDTH)))
        with text.block(f"scf.if {text.below(number, count)}"):
            write_neighbours(text, nest, split(number), sizes[nest.outer[-1]])
    else:
        _write_open(text, nest, sizes, (first, thread, count), split)
    arguments = ", ".join(f"{name}: {type}" for name, type in arguments_of(nest))
    return text.function(f"@{nest.name}({arguments})") + write_count(nest, THREADS * WIDTH)


def _write_open(
    text: Text, nest: Nest, sizes: Sequence[str], place: tuple[str, str, str], split: Callable[[str], list[str]]
) -> None:
    """Computes the elements of a thread where rows are a multiple of a vector in some calls only. `place` has the first
    element of the block, the thread, and the number of elements; `split` returns the positions of an element."""
    first, thread, count = place
    linear, last = is_linear(nest), nest.outer[-1]
    vectors = _vectors_along(nest, last)
    vectors = [n for n in vectors if _has_order(nest, nest.operands[n])] if linear else vectors
    aligned = _is_aligned(text, nest, vectors, "" if linear else sizes[last])
    begin, step = text.add(first, thread), text.constant(THREADS)
    if linear:
        number = text.add(first, text.multiply(thread, text.constant(WIDTH)))
        following = [number, *(text.add(number, text.constant(n)) for n in range(1, WIDTH))]
        whole = text.let(f"arith.andi {aligned}, {text.below(following[-1], count)} : i1")
        # The thread with the last elements computes them by the loop of calls without alignment: this is less code.
        begin, step = (_select(text, aligned, *pair) for pair in ((number, begin), (text.constant(1), step)))
        with text.block(f"scf.if {whole}", "} else {"):
            _write_together(text, nest, vectors, [split(each) for each in following])
    else:
        with text.block(f"scf.if {aligned}", "} else {"):
            number = text.add(first, text.multiply(thread, text.constant(WIDTH)))
            with text.block(f"scf.if {text.below(number, count)}"):
                _write_together(text, nest, vectors, _neighbours(text, nest, split(number)))
    with text.next_region():
        end = text.index("minui", count, text.add(first, text.constant(THREADS * WIDTH)))
        number = text.fresh()
        with text.loop(f"{number} = {begin} to {end} step {step}", [], [], []):
            write_element(text, nest, split(number))


def _select(text: Text, condition: str, first: str, second: str) -> str:
    return text.let(f"arith.select {condition}, {first}, {second} : index")


def write_neighbours(text: Text, nest: Nest, position: Sequence[str], size: str) -> None:
    """Computes the elements at a position and the next ones; rows have a multiple of them in every call."""
    at, vectors = _neighbours(text, nest, position), _vectors_along(nest, nest.outer[-1])
    with text.block(f"scf.if {_is_aligned(text, nest, vectors, size)}", "} else {"):
        _write_together(text, nest, vectors, at)
    with text.next_region():
        # Each element is written before the next one is read: an operand may be the memory of a result.
        for positions in at:
            write_element(text, nest, positions)


def write_row(text: Text, nest: Nest, place: Place, known: dict[int, str], columns: Sequence[tuple[int, str]]) -> None:
    """Computes the elements of a row that belong to one of its lanes: neighbours together where a call allows it.
    `known` has the positions of the row's loops, `columns` its other loops and their sizes."""
    sizes = [size for _, size in columns]
    count = text.multiply(text.constant(1), *sizes)

    def steps(width: int, compute: Callable[[list[str]], None]) -> None:
        number, step = text.fresh(), text.multiply(place.count, text.constant(width))
        begin = text.multiply(place.lane, text.constant(width))
        with text.loop(f"{number} = {begin} to {count} step {step}", [], [], []):
            inner = split_number(text, number, sizes)
            at = known | {loop: position for (loop, _), position in zip(columns, inner, strict=True)}
            compute([at[loop] for loop in range(len(nest.parallel))])

    if not columns or not can_vectorize(nest):
        steps(1, lambda at: write_element(text, nest, at))
    elif can_vectorize(nest, in_every_call=True):
        steps(WIDTH, lambda at: write_neighbours(text, nest, at, sizes[-1]))
    else:
        vectors = _vectors_along(nest, nest.outer[-1])
        with text.block(f"scf.if {_is_aligned(text, nest, vectors, sizes[-1])}", "} else {"):
            steps(WIDTH, lambda at: _write_together(text, nest, vectors, _neighbours(text, nest, at)))
        with text.next_region():
            steps(1, lambda at: write_element(text, nest, at))


def _neighbours(text: Text, nest: Nest, at: Sequence[str]) -> list[list[str]]:
    """Returns the positions of the loops at an iteration and at the next ones of the last loop."""
    last = nest.outer[-1]
    return [[*at[:last], text.add(at[last], text.constant(n)), *at[last + 1 :]] for n in range(WIDTH)]


def _is_aligned(text: Text, nest: Nest, vectors: Sequence[int], size: str) -> str:
    """Returns whether all tensors that are read and written by vectors are aligned to them. Unless the `size` of a row
    is empty, rows must have a multiple of their elements."""
    named = [(f"%m{number}", nest.operands[number]) for number in vectors]
    aligned = write_aligned(text, named, WIDTH)
    whole = write_whole(text, nest, nest.outer[-1], named, size, WIDTH) if size else ""
    return text.let(f"arith.andi {aligned}, {whole} : i1") if whole else aligned


def _write_together(text: Text, nest: Nest, vectors: Sequence[int], at: Sequence[Sequence[str]]) -> None:
    """Computes the elements at neighbouring positions: operands with the numbers `vectors` by vectors."""

    def read(operand: int) -> Sequence[str]:
        """Returns the elements of an operand in all iterations."""
        what = nest.operands[operand]
        if operand not in vectors:
            different = len({tuple(positions[loop] for loop in what.loops()) for positions in at}) > 1
            each = [load(text, nest, operand, positions) for positions in (at if different else at[:1])]
            return each if different else each * WIDTH
        vector = f"vector<{WIDTH}x{what.element}>"
        indices = ", ".join(text.apply(expression, at[0]) for expression in what.index)
        alignment = f"{{alignment = {bytes_of(what, WIDTH)} : i64}}"
        loaded = text.let(f"vector.load %m{operand}[{indices}] {alignment} : {what.type}, {vector}")
        return [text.let(f"vector.extract {loaded}[{n}] : {what.element} from {vector}") for n in range(WIDTH)]

    columns = [read(operand) for operand in range(len(nest.inputs))]
    made: list[list[str]] = []
    for number in range(WIDTH):
        elements = [column[number] for column in columns]
        before = [first_value(text, nest, result, at[number]) for result in range(len(nest.results))]
        made.append(text.let_many(len(before), call_body(nest, [*elements, *before], at[number])))
    for result in range(len(nest.results)):
        own = [values[result] for values in made]
        if len(nest.inputs) + result in vectors:
            store(text, nest, result, own, at[0])
        else:
            for value, positions in zip(own, at, strict=True):
                store(text, nest, result, (value,), positions)


def write_element(text: Text, nest: Nest, at: Sequence[str]) -> None:
    """Computes one element of each result."""
    elements = [load(text, nest, operand, at) for operand in range(len(nest.inputs))]
    before = [first_value(text, nest, result, at) for result in range(len(nest.results))]
    values = text.let_many(len(before), call_body(nest, [*elements, *before], at))
    for result, value in enumerate(values):
        store(text, nest, result, (value,), at)
