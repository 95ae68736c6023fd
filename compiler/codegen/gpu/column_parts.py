"""The schedule of reductions across memory that threads share: a thread for each part of a result.

    sum of x[T, 64] along T    thread t of part p:  total of x[p * each ... (p + 1) * each, t]

Neighbouring threads have neighbouring results, so that they read neighbouring elements. Another launch joins the
totals. A call with many results has a thread for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from .nest import Nest, arguments_of, call_body
from .part_ranges import Part, divide_nest, store_part, take_part
from .plain import THREADS, first_value, load, split_number, store_total, write_sizes
from .rows import neutral_of
from .text import Text


def write_column_parts(nest: Nest) -> str:
    """Returns the text of the schedule: the function of the threads, and the one that counts the blocks."""
    text = Text()
    sizes = write_sizes(text, nest)
    results, length, division = divide_nest(text, nest, sizes)
    block, thread = text.special("ctaid.x"), text.special("tid.x")
    number = text.add(text.multiply(block, text.constant(THREADS)), thread)
    with text.block(f"scf.if {text.below(number, text.multiply(results, division.parts))}"):
        part, row = (text.index(name, number, results) for name in ("divui", "remui"))
        place = text.add(text.multiply(row, division.parts), part)
        _reduce(text, nest, sizes, take_part(text, division, (place, row, part), results, length))
    arguments = ", ".join(f"{name}: {type}" for name, type in arguments_of(nest))
    return text.function(f"@{nest.name}({arguments})") + _write_count(nest)


def _reduce(text: Text, nest: Nest, sizes: Sequence[str], part: Part) -> None:
    """Reduces a part, and stores its total, or the result if the part is whole."""
    known = dict(zip(nest.outer, split_number(text, part.row, [sizes[loop] for loop in nest.outer]), strict=True))
    at = [known.get(loop, text.constant(0)) for loop in range(len(nest.parallel))]
    element, total, step = nest.results[0].element, text.fresh(), text.fresh()
    neutral = text.let(f"arith.constant {neutral_of(nest.combines[0], element)} : {element}")
    start = text.let(f"arith.select {part.is_first}, {first_value(text, nest, 0, at)}, {neutral} : {element}")
    bounds = f"{step} = {part.begin} to {part.end} step {text.constant(1)}"
    with text.loop(bounds, [total], [start], [element]) as totals:
        steps = split_number(text, step, [sizes[loop] for loop in nest.reductions])
        now = known | dict(zip(nest.reductions, steps, strict=True))
        positions = [now[loop] for loop in range(len(nest.parallel))]
        elements = [load(text, nest, number, positions) for number in range(len(nest.inputs))]
        text.carry([text.let(call_body(nest, [*elements, total], positions))], [element])
    with text.block(f"scf.if {part.is_whole}", "} else {"):
        store_total(text, nest, 0, totals[0], at)
    with text.next_region():
        store_part(text, nest, part.number, totals[0])


def _write_count(nest: Nest) -> str:
    text = Text()
    results, _, division = divide_nest(text, nest, write_sizes(text, nest))
    blocks = text.index("ceildivui", text.multiply(results, division.parts), text.constant(THREADS))
    arguments = ", ".join(f"%m{number}: {operand.type}" for number, operand in enumerate(nest.operands))
    return text.function(f"@{nest.name}_count({arguments}) -> index", [blocks], ["index"])
