"""The launch that joins the parts of reductions: a warp for each result, which combines the totals in a fixed order.

    lane l of a warp:   total = totals[row, l] + totals[row, l + 32] + ...
                        the lanes are combined by exchanges in registers

It has no blocks in a call in which each reduction has one part.
"""

from __future__ import annotations

from .nest import Nest, arguments_of
from .part_ranges import divide_nest, memory_of
from .plain import THREADS, split_number, store_total, write_sizes
from .rows import WARP, combine_warp, neutral_of
from .text import Text

_ROWS = THREADS // WARP


def write_join(nest: Nest) -> str:
    """Returns the text of the schedule: the function of the threads, and the one that counts the blocks."""
    text = Text()
    sizes = write_sizes(text, nest)
    element, combine = nest.results[0].element, str(nest.combines[0])
    block, thread = text.special("ctaid.x"), text.special("tid.x")
    row = text.add(
        text.multiply(block, text.constant(_ROWS)), text.index("shrui", thread, text.constant(WARP.bit_length() - 1))
    )
    lane = text.index("andi", thread, text.constant(WARP - 1))
    rows, _, division = divide_nest(text, nest, sizes)
    with text.block(f"scf.if {text.below(row, rows)}"):
        memory, type = memory_of(text, nest)
        neutral = text.let(f"arith.constant {neutral_of(combine, element)} : {element}")
        begin = text.multiply(row, division.parts)
        total, part = text.fresh(), text.fresh()
        bounds = f"{part} = {lane} to {division.parts} step {text.constant(WARP)}"
        with text.loop(bounds, [total], [neutral], [element]) as totals:
            value = text.let(f"memref.load {memory}[{text.add(begin, part)}] : {type}")
            text.carry([text.let(f"{combine} {total}, {value} : {element}")], [element])
        joined = combine_warp(text, combine, totals[0], element)
        with text.block(f"scf.if {text.let(f'arith.cmpi eq, {lane}, {text.constant(0)} : index')}"):
            known = dict(zip(nest.outer, split_number(text, row, [sizes[loop] for loop in nest.outer]), strict=True))
            store_total(text, nest, 0, joined, [known.get(n, text.constant(0)) for n in range(len(nest.parallel))])
    arguments = ", ".join(f"{name}: {type}" for name, type in arguments_of(nest))
    return text.function(f"@{nest.name}({arguments})") + _write_count(nest)


def _write_count(nest: Nest) -> str:
    text = Text()
    rows, _, division = divide_nest(text, nest, write_sizes(text, nest))
    blocks = text.index("ceildivui", rows, text.constant(_ROWS))
    blocks = text.let(f"arith.select {division.is_whole(text)}, {text.constant(0)}, {blocks} : index")
    arguments = ", ".join(f"%m{number}: {operand.type}" for number, operand in enumerate(nest.operands))
    return text.function(f"@{nest.name}_count({arguments}) -> index", [blocks], ["index"])
