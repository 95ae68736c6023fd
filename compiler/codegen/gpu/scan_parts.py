"""The schedules of running sums of few long rows, whose length is that of a call: threads share a row.

    s = cumsum x[T]    totals    thread p:  total of part p of x
                       scan      thread p:  total of all parts before p, then the running sums of part p

Each thread adds the totals before its part one after another, in the same order as all others. Neighbouring threads
have neighbouring rows. If the rows of a call are short or many, a part is a whole row, and the first launch has no
blocks. https://developer.nvidia.com/gpugems/gpugems3/part-vi-gpu-computing/chapter-39-parallel-prefix-sum-scan-cuda
"""

from __future__ import annotations

from ...lower.part_memory import MOST_OF_SCAN
from .nest import Nest, arguments_of, call_body
from .part_ranges import Division, Part, divide_nest, memory_of, store_part, take_part
from .plain import THREADS, first_value, load, split_number, store, store_total, undefined, write_sizes
from .rows import neutral_of
from .text import Text


def is_scan(nest: Nest) -> bool:
    """Returns whether an op writes an element in each step of a reduction, whose total depends on no such element."""
    if len(nest.results) != 2 or len(nest.reductions) != 1 or nest.has_loops or nest.beside:
        return False
    total, running = nest.results
    is_running = set(running.plain_axes()) == set(range(len(nest.parallel))) and not running.used
    return (
        is_running and not total.loops() & set(nest.reductions) and neutral_of(nest.running, total.element) is not None
    )


def write_scan(nest: Nest) -> str:
    """Returns the text of one of the two schedules: the function of the threads, and the one that counts the blocks."""
    assert nest.parts is not None, nest.name
    text = Text()
    sizes = write_sizes(text, nest)
    rows, length, division = divide_nest(text, nest, sizes, MOST_OF_SCAN)
    block, thread = text.special("ctaid.x"), text.special("tid.x")
    number = text.add(text.multiply(block, text.constant(THREADS)), thread)
    with text.block(f"scf.if {text.below(number, text.multiply(rows, division.parts))}"):
        part, row = (text.index(name, number, rows) for name in ("divui", "remui"))
        place = text.add(text.multiply(row, division.parts), part)
        taken = take_part(text, division, (place, row, part), rows, length)
        known = dict(zip(nest.outer, split_number(text, row, [sizes[loop] for loop in nest.outer]), strict=True))
        neutral = text.let(f"arith.constant {neutral_of(nest.running, _element(nest))} : {_element(nest)}")
        if nest.parts.joins:
            _run(text, nest, taken, known, _add_earlier(text, nest, division, taken, part, known), length)
        else:
            store_part(text, nest, place, _run(text, nest, taken, known, neutral))
    arguments = ", ".join(f"{name}: {type}" for name, type in arguments_of(nest))
    return text.function(f"@{nest.name}({arguments})") + _write_count(nest)


def _element(nest: Nest) -> str:
    return nest.results[0].element


def _add_earlier(text: Text, nest: Nest, division: Division, part: Part, number: str, known: dict[int, str]) -> str:
    """Returns the total of the parts of a row before one, with the value that the row begins with."""
    element, (memory, type) = _element(nest), memory_of(text, nest)
    start = first_value(text, nest, 0, [known.get(loop, text.constant(0)) for loop in range(len(nest.parallel))])
    begin = text.multiply(part.row, division.parts)
    total, earlier = text.fresh(), text.fresh()
    with text.loop(
        f"{earlier} = {text.constant(0)} to {number} step {text.constant(1)}", [total], [start], [element]
    ) as totals:
        value = text.let(f"memref.load {memory}[{text.add(begin, earlier)}] : {type}")
        text.carry([text.let(f"{nest.running} {total}, {value} : {element}")], [element])
    return totals[0]


def _run(text: Text, nest: Nest, part: Part, known: dict[int, str], start: str, length: str = "") -> str:
    """Returns the total of the steps of a part after a start. With a length of the row, it stores the running
    elements, and the last part the total."""
    element, total, step = _element(nest), text.fresh(), text.fresh()
    bounds = f"{step} = {part.begin} to {part.end} step {text.constant(1)}"
    with text.loop(bounds, [total], [start], [element]) as totals:
        now = known | {nest.reductions[0]: step}
        positions = [now[loop] for loop in range(len(nest.parallel))]
        elements = [load(text, nest, number, positions) for number in range(len(nest.inputs))]
        unread = undefined(text, nest.results[1])
        after, running = text.let_many(2, call_body(nest, [*elements, total, unread], positions))
        if length:
            store(text, nest, 1, (running,), positions)
        text.carry([after], [element])
    if length:
        is_last = text.let(f"arith.cmpi eq, {part.end}, {length} : index")
        with text.block(f"scf.if {is_last}"):
            at = [known.get(loop, text.constant(0)) for loop in range(len(nest.parallel))]
            store_total(text, nest, 0, totals[0], at)
    return totals[0]


def _write_count(nest: Nest) -> str:
    assert nest.parts is not None, nest.name
    text = Text()
    rows, _, division = divide_nest(text, nest, write_sizes(text, nest), MOST_OF_SCAN)
    blocks = text.index("ceildivui", text.multiply(rows, division.parts), text.constant(THREADS))
    if not nest.parts.joins:
        blocks = text.let(f"arith.select {division.is_whole(text)}, {text.constant(0)}, {blocks} : index")
    arguments = ", ".join(f"%m{number}: {operand.type}" for number, operand in enumerate(nest.operands))
    return text.function(f"@{nest.name}_count({arguments}) -> index", [blocks], ["index"])
