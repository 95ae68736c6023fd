"""The schedule of reductions along memory: the threads of a warp, or of a block, share the sum of one result.

    lane l of the threads of a row:   total = neutral, or the start value in lane 0
                                      for r = l, l + LANES, ...: total = body(element r, total)
                                      several neighbouring elements at once where rows are contiguous
    a warp combines its totals by exchanges in registers; the warps of a block combine theirs in shared memory

Neighbouring lanes read neighbouring elements. Sums are in another order than in one thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from .nest import Nest, arguments_of, call_body
from .plain import THREADS, count_elements, first_value, load, split_number, store_total, write_sizes
from .row_elements import is_aligned, moving_inputs, read_elements, width_of
from .text import Text

WARP = 32
_FEW = 16
_LONG = 2048
"""A row of so many elements is worth a whole block."""

_EXTREMES = {"maxsi": -1, "minsi": 1}
_NEUTRAL = {"addf": "0.0", "mulf": "1.0", "addi": "0", "muli": "1", "maxui": "0", "ori": "0", "xori": "0"}
_INFINITY = {"f16": "7C00", "bf16": "7F80", "f32": "7F800000", "f64": "7FF0000000000000"}
_NEGATIVE = {"f16": "FC00", "bf16": "FF80", "f32": "FF800000", "f64": "FFF0000000000000"}


def lanes_of(nest: Nest) -> int | None:
    """Returns the number of threads that share a row; None where a row is not contiguous, or short."""
    totals = all(not result.loops() & set(nest.reductions) for result in nest.results)
    if not nest.reductions or not totals or None in nest.combines:
        return None
    if any(neutral_of(c, r.element) is None for c, r in zip(nest.combines, nest.results, strict=True)):
        return None
    if not any(o.in_memory and o.index and o.plain_axes()[-1] == nest.reductions[-1] for o in nest.inputs):
        return None
    length: int | None = 1
    for loop in nest.reductions:
        size = nest.static_extent(loop)
        length = None if size is None or length is None else length * size
    if length is not None and length < WARP:
        return None
    return THREADS if not nest.outer or (length is not None and length >= _LONG) else WARP


def neutral_of(combine: str | None, element: str) -> str | None:
    """Returns the text of the value that changes nothing."""
    name = (combine or "").removeprefix("arith.")
    if name in _NEUTRAL:
        return _NEUTRAL[name]
    if name in ("maximumf", "maxnumf", "minimumf", "minnumf"):
        table = _NEGATIVE if name.startswith("max") else _INFINITY
        return f"0x{table[element]}" if element in table else None
    bits = int(element[1:]) if element[:1] == "i" and element[1:].isdigit() else 0
    if bits < 8:
        return None
    if name in _EXTREMES:
        return str(-(1 << (bits - 1)) if name == "maxsi" else (1 << (bits - 1)) - 1)
    return "-1" if name in ("minui", "andi") else None


def write_rows(nest: Nest, lanes: int) -> str:
    """Returns the text of the schedule: the function of the threads, and the one that counts the blocks."""
    text = Text()
    sizes = write_sizes(text, nest)
    block, thread = text.special("ctaid.x"), text.special("tid.x")
    in_block = text.constant(THREADS // lanes)
    row = text.add(text.multiply(block, in_block), text.index("divui", thread, text.constant(lanes)))
    lane = text.index("remui", thread, text.constant(lanes))
    # All threads of a warp are in the same row, so that they take the same branch.
    with text.block(f"scf.if {text.below(row, count_elements(text, nest, sizes))}"):
        order = _order(nest)
        outer = dict(zip(order, split_number(text, row, [sizes[loop] for loop in order]), strict=True))
        totals = _sum_lane(text, nest, sizes, outer, lane, lanes)
        totals = [
            _combine_warp(text, str(c), value, r.element)
            for c, value, r in zip(nest.combines, totals, nest.results, strict=True)
        ]
        if lanes > WARP:
            totals = _combine_block(text, nest, totals, lane)
        first = text.let(f"arith.cmpi eq, {lane}, {text.constant(0)} : index")
        with text.block(f"scf.if {first}"):
            for number, value in enumerate(totals):
                store_total(text, nest, number, value, _positions(text, nest, outer))
    arguments = ", ".join(f"{name}: {type}" for name, type in arguments_of(nest))
    tiles = [
        f'memref.global "private" @{nest.name}_totals{n} : memref<{THREADS // WARP}x{r.element}, 3> = uninitialized\n'
        for n, r in enumerate(nest.results)
    ]
    made = text.function(f"@{nest.name}({arguments})")
    return ("".join(tiles) if lanes > WARP else "") + made + _write_count(nest, THREADS // lanes)


def _order(nest: Nest) -> list[int]:
    """Returns the loops of the rows, the fastest last. In a product of few rows with a matrix, these rows are the
    fastest loop: neighbouring warps read the same row of the matrix, which then comes from memory once."""

    def is_few(loop: int) -> bool:
        size = nest.static_extent(loop)
        return size is not None and size <= _FEW and any(loop not in operand.loops() for operand in moving_inputs(nest))

    return sorted(nest.outer, key=is_few)


def _write_count(nest: Nest, per_block: int) -> str:
    text = Text()
    total = count_elements(text, nest, write_sizes(text, nest))
    blocks = text.index("ceildivui", total, text.constant(per_block))
    arguments = ", ".join(f"%m{number}: {operand.type}" for number, operand in enumerate(nest.operands))
    return text.function(f"@{nest.name}_count({arguments}) -> index", [blocks], ["index"])


def _positions(text: Text, nest: Nest, known: dict[int, str]) -> list[str]:
    return [known.get(loop, text.constant(0)) for loop in range(len(nest.parallel))]


def _sum_lane(text: Text, nest: Nest, sizes: Sequence[str], outer: dict[int, str], lane: str, lanes: int) -> list[str]:
    """Sums the elements of one lane."""
    types = [result.element for result in nest.results]
    first = text.let(f"arith.cmpi eq, {lane}, {text.constant(0)} : index")
    starts = []
    for number, (result, combine) in enumerate(zip(nest.results, nest.combines, strict=True)):
        neutral = text.let(f"arith.constant {neutral_of(combine, result.element)} : {result.element}")
        start = first_value(text, nest, number, _positions(text, nest, outer))
        starts.append(text.let(f"arith.select {first}, {start}, {neutral} : {result.element}"))
    length = text.multiply(text.constant(1), *(sizes[loop] for loop in nest.reductions))
    width, carried, place = width_of(nest, lanes), [text.fresh() for _ in types], text.fresh()
    aligned = is_aligned(text, nest, width) if width > 1 else ""
    begin, step = text.multiply(lane, text.constant(width)), text.constant(lanes * width)
    with text.loop(f"{place} = {begin} to {length} step {step}", carried, starts, types) as totals:
        inner = split_number(text, place, [sizes[loop] for loop in nest.reductions])
        places = []
        for number in range(width):
            moved = [*inner[:-1], text.add(inner[-1], text.constant(number))]
            places.append(_positions(text, nest, outer | dict(zip(nest.reductions, moved, strict=True))))
        if width > 1:
            columns = read_elements(text, nest, places, aligned)
        else:
            columns = [[load(text, nest, number, places[0])] for number in range(len(nest.inputs))]
        after: Sequence[str] = carried
        for number, at in enumerate(places):
            elements = [column[number] for column in columns]
            after = text.let_many(len(types), call_body(nest, [*elements, *after], at))
        text.carry(after, types)
    return totals


def _combine_warp(text: Text, combine: str, value: str, element: str) -> str:
    distance = WARP // 2
    while distance:
        other = text.exchange(value, element, distance)
        value = text.let(f"{combine} {value}, {other} : {element}")
        distance //= 2
    return value


def _combine_block(text: Text, nest: Nest, totals: Sequence[str], lane: str) -> list[str]:
    """Combines the totals of all warps, in the same order in each thread."""
    warps = THREADS // WARP
    warp, inside = text.index("divui", lane, text.constant(WARP)), text.index("remui", lane, text.constant(WARP))
    types = [f"memref<{warps}x{result.element}, 3>" for result in nest.results]
    tiles = [text.let(f"memref.get_global @{nest.name}_totals{n} : {type}") for n, type in enumerate(types)]
    with text.block(f"scf.if {text.let(f'arith.cmpi eq, {inside}, {text.constant(0)} : index')}"):
        for value, tile, type in zip(totals, tiles, types, strict=True):
            text.line(f"memref.store {value}, {tile}[{warp}] : {type}")
    text.barrier()
    made = []
    for tile, type, combine, result in zip(tiles, types, nest.combines, nest.results, strict=True):
        parts = [text.let(f"memref.load {tile}[{text.constant(n)}] : {type}") for n in range(warps)]
        total = parts[0]
        for part in parts[1:]:
            total = text.let(f"{combine} {total}, {part} : {result.element}")
        made.append(total)
    return made
