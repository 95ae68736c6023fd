"""The schedule of reductions along memory: the threads of a warp, or of a block, share the sum of one result.

    lane l of the threads of a row:   total = neutral, or the start value in lane 0
                                      for r = l, l + LANES, ...: total = body(element r, total)
                                      several neighbouring elements at once where rows are contiguous
    a warp combines its totals by exchanges in registers; the warps of a block combine theirs in shared memory

A row has the threads of a block if it is long. Where its length is that of a call, each call decides. Several blocks
share a long row if there are few: see `part_ranges`.

Neighbouring lanes read neighbouring elements. Sums are in another order than in one thread.

In a product of up to 8 rows with a matrix whose rows lie along the depth, a warp computes one column of all results:
it reads and decodes the elements of the matrix once, and those of each row from caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from ....dialect.lazy_dataclass import dataclass
from .nest import Nest, arguments_of, call_body
from .part_ranges import Division, Part, divide_reduction, store_part, take_part
from .plain import THREADS, first_value, split_number, store_total, write_sizes
from .row_elements import (
    MOST_FEW,
    is_aligned,
    is_flat,
    is_of_few_rows,
    is_whole,
    moving_inputs,
    read_elements,
    width_of,
)
from .text import Text

WARP = 32
_FEW = 16
_LONG = 2048
"""The fewest elements of a row that keep a whole block busy."""
_MANY = 256
"""The number of warps that keep a device busy."""
BY_LENGTH = 0
"""The lanes of rows whose length is known in a call only: those of a warp or of a block."""
LANES = "%lanes"
"""The argument of operations that run one after another on each row: their lanes in a call, if all have `BY_LENGTH`."""
NAMES = {WARP: "row per warp", THREADS: "row", BY_LENGTH: "row per warp or block"}
"""The names of the schedules by the lanes."""

_EXTREMES = {"maxsi": -1, "minsi": 1}
_NEUTRAL = {"addf": "0.0", "mulf": "1.0", "addi": "0", "muli": "1", "maxui": "0", "ori": "0", "xori": "0"}
_INFINITY = {"f16": "7C00", "bf16": "7F80", "f32": "7F800000", "f64": "7FF0000000000000"}
_NEGATIVE = {"f16": "FC00", "bf16": "FF80", "f32": "FF800000", "f64": "FFF0000000000000"}


def lanes_of(nest: Nest) -> int | None:
    """Returns the number of threads that share a row, or `BY_LENGTH`; None where a row is not contiguous, or short."""
    totals = all(not result.loops() & set(nest.reductions) for result in nest.results)
    if not nest.reductions or not totals or None in nest.combines:
        return None
    if any(neutral_of(c, r.element) is None for c, r in zip(nest.combines, nest.results, strict=True)):
        return None
    if not any(o.in_memory and o.index and o.plain_axes()[-1] == nest.reductions[-1] for o in nest.inputs):
        return None
    length = nest.static_count(nest.reductions)
    if length is not None and length < WARP:
        return None
    if _loops_together(nest, WARP) and _columns_of(nest) >= _MANY:
        return WARP
    if not nest.outer:
        return THREADS
    if length is None:
        return WARP if _loops_together(nest, WARP) else BY_LENGTH
    return THREADS if length >= _LONG else WARP


def _columns_of(nest: Nest) -> int:
    """Returns the results of a product for each of its few rows, where their number is known, else many."""
    count = 1
    for loop in set(nest.outer) - set(_loops_together(nest, WARP)):
        count *= nest.static_extent(loop) or _MANY
    return count


def neutral_of(combine: str | None, element: str) -> str | None:
    """Returns the text of the value that changes nothing."""
    name = (combine or "").removeprefix("arith.")
    if name in _NEUTRAL:
        return _NEUTRAL[name]
    if name in ("maximumf", "maxnumf", "minimumf", "minnumf"):
        table = _NEGATIVE if name.startswith("max") else _INFINITY
        return f"0x{table[element]}" if element in table else None
    bits = int(element[1:]) if element[:1] == "i" and element[1:].isdigit() else 0
    if bits == 1 and name == "andi":
        return "1"
    if bits < 8:
        return None
    if name in _EXTREMES:
        return str(-(1 << (bits - 1)) if name == "maxsi" else (1 << (bits - 1)) - 1)
    return "-1" if name in ("minui", "andi") else None


def write_rows(nest: Nest, lanes: int, *, is_joined: bool = False, is_last: bool = True) -> str:
    """Returns the text of the schedule: the function of the threads, and the one that counts the blocks. If it
    `is_joined`, the operation is one of several of the launch: the function takes `LANES` if they differ from call to
    call, and ends with a barrier unless it `is_last`."""
    text = Text()
    sizes = write_sizes(text, nest)
    together = _loops_together(nest, lanes)
    given = [(LANES, "index")] if is_joined and lanes == BY_LENGTH else []
    place = place_rows(text, nest, sizes, lanes, with_argument=bool(given))
    row, lane, rows_of_call = place.row, place.lane, _count_rows(text, nest, sizes, together)
    part = None if nest.parts is None else _take_part(text, nest, sizes, rows_of_call, row)
    if part is not None:
        row, rows_of_call = part.row, part.count
    # All threads of a warp are in the same row, so that they take the same branch.
    with text.block(f"scf.if {text.below(place.row, rows_of_call)}"):
        # Totals of parts are in the order of the results.
        order = [loop for loop in (_order(nest) if part is None else nest.outer) if loop not in together]
        outer = dict(zip(order, split_number(text, row, [sizes[loop] for loop in order]), strict=True))
        counts = [range(nest.static_extent(loop) or 0) for loop in together]
        coordinates = [
            outer | {loop: text.constant(n) for loop, n in zip(together, numbers, strict=True)}
            for numbers in product(*counts)
        ]
        rows = _sum_lane(text, nest, sizes, coordinates, place, part)
        rows = [
            [
                combine_warp(text, str(c), value, r.element)
                for c, value, r in zip(nest.combines, totals, nest.results, strict=True)
            ]
            for totals in rows
        ]
        if place.lanes != WARP:
            rows = [_combine_warps(text, nest, totals, place) for totals in rows]
        first = text.let(f"arith.cmpi eq, {lane}, {text.constant(0)} : index")
        with text.block(f"scf.if {first}"):
            if part is None:
                _store_rows(text, nest, rows, coordinates)
            else:
                with text.block(f"scf.if {part.is_whole}", "} else {"):
                    _store_rows(text, nest, rows, coordinates)
                with text.next_region():
                    store_part(text, nest, part.number, rows[0][0])
    if not is_last:
        text.barrier()
    arguments = ", ".join(f"{name}: {type}" for name, type in [*arguments_of(nest), *given])
    tiles = [
        f'memref.global "private" @{nest.name}_totals{n} : memref<{THREADS // WARP}x{r.element}, 3> = uninitialized\n'
        for n, r in enumerate(nest.results)
    ]
    made = text.function(f"@{nest.name}({arguments})")
    loops = [loop for loop in nest.outer if loop not in together]
    return ("".join(tiles) if lanes != WARP else "") + made + write_row_count(nest, lanes, loops)


def _store_rows(text: Text, nest: Nest, rows: Sequence[Sequence[str]], coordinates: Sequence[dict[int, str]]) -> None:
    for totals, coordinate in zip(rows, coordinates, strict=True):
        for number, value in enumerate(totals):
            store_total(text, nest, number, value, _positions(text, nest, coordinate))


def _divide(text: Text, nest: Nest, sizes: Sequence[str], rows: str) -> tuple[str, Division]:
    """Returns the length of a row, and its parts."""
    length = text.multiply(text.constant(1), *(sizes[loop] for loop in nest.reductions))
    return length, divide_reduction(text, nest, rows, length)


def _take_part(text: Text, nest: Nest, sizes: Sequence[str], rows: str, number: str) -> Part:
    length, division = _divide(text, nest, sizes, rows)
    row, part = (text.index(name, number, division.parts) for name in ("divui", "remui"))
    return take_part(text, division, (number, row, part), rows, length)


def _loops_together(nest: Nest, lanes: int) -> tuple[int, ...]:
    """Returns the loops over the few rows of a product with a matrix, which a warp runs through together."""
    moving = moving_inputs(nest)
    few = {loop for operand in moving if is_of_few_rows(nest, operand) for loop in operand.loops()} & set(nest.outer)
    others = [operand for operand in moving if not is_of_few_rows(nest, operand)]
    count = 1
    for loop in few:
        count *= nest.static_extent(loop) or MOST_FEW + 1
    if lanes != WARP or not others or count > MOST_FEW or any(few & operand.loops() for operand in others):
        return ()
    return tuple(sorted(few))


def _count_rows(text: Text, nest: Nest, sizes: Sequence[str], together: Sequence[int]) -> str:
    return text.multiply(text.constant(1), *(sizes[loop] for loop in nest.outer if loop not in together))


def _order(nest: Nest) -> list[int]:
    """Returns the loops of the rows, the fastest last. In a product of few rows with a matrix, these rows are the
    fastest loop: neighbouring warps read the same row of the matrix, which then comes from memory once."""

    def is_few(loop: int) -> bool:
        size = nest.static_extent(loop)
        return size is not None and size <= _FEW and any(loop not in operand.loops() for operand in moving_inputs(nest))

    return sorted(nest.outer, key=is_few)


def orders_rows_as_results(nest: Nest, lanes: int) -> bool:
    """Returns whether a row has the number of its result, in the order of memory."""
    return not _loops_together(nest, lanes) and _order(nest) == list(nest.outer)


@dataclass(frozen=True, slots=True)
class Place:
    """The row and the lane of a thread. `lanes` are those of each row, or `BY_LENGTH`; `count` is their number in a
    call."""

    row: str
    lane: str
    lanes: int
    count: str


def place_lanes(
    text: Text, nest: Nest, sizes: Sequence[str], lanes: int, *, with_argument: bool = False
) -> tuple[str, str, str]:
    """Returns the number of lanes of a row, the rows of a block, and the logarithm of the lanes."""
    both = [(n, THREADS // n, n.bit_length() - 1) for n in (THREADS, WARP)]
    if lanes != BY_LENGTH:
        numbers = next(each for each in both if each[0] == lanes)
        return text.constant(numbers[0]), text.constant(numbers[1]), text.constant(numbers[2])
    if with_argument:
        is_short = text.let(f"arith.cmpi eq, {LANES}, {text.constant(WARP)} : index")
    else:
        length = text.multiply(text.constant(1), *(sizes[loop] for loop in nest.reductions))
        is_short = text.below(length, text.constant(_LONG))
    made = [
        text.let(f"arith.select {is_short}, {text.constant(few)}, {text.constant(many)} : index")
        for many, few in zip(*both, strict=True)
    ]
    return made[0], made[1], made[2]


def place_rows(text: Text, nest: Nest, sizes: Sequence[str], lanes: int, *, with_argument: bool = False) -> Place:
    """Returns the row and the lane of this thread."""
    block, thread = text.special("ctaid.x"), text.special("tid.x")
    count, in_block, shift = place_lanes(text, nest, sizes, lanes, with_argument=with_argument)
    row = text.add(text.multiply(block, in_block), text.index("shrui", thread, shift))
    last = text.let(f"arith.subi {count}, {text.constant(1)} : index")
    return Place(row, text.index("andi", thread, last), lanes, count)


def write_row_count(nest: Nest, lanes: int, loops: Sequence[int]) -> str:
    """Returns the text of the function that counts the blocks for the rows of loops."""
    text = Text()
    sizes = write_sizes(text, nest)
    total = text.multiply(text.constant(1), *(sizes[loop] for loop in loops))
    if nest.parts is not None:
        total = text.multiply(total, _divide(text, nest, sizes, total)[1].parts)
    in_block = place_lanes(text, nest, sizes, lanes)[1]
    blocks = text.index("ceildivui", total, in_block)
    arguments = ", ".join(f"%m{number}: {operand.type}" for number, operand in enumerate(nest.operands))
    return text.function(f"@{nest.name}_count({arguments}) -> index", [blocks], ["index"])


def _positions(text: Text, nest: Nest, known: dict[int, str]) -> list[str]:
    return [known.get(loop, text.constant(0)) for loop in range(len(nest.parallel))]


def _sum_lane(
    text: Text, nest: Nest, sizes: Sequence[str], rows: Sequence[dict[int, str]], place: Place, part: Part | None
) -> list[list[str]]:
    """Sums the elements of one lane in each of the rows, or in a part of one."""
    elements = [result.element for result in nest.results]
    types = elements * len(rows)
    first = text.let(f"arith.cmpi eq, {place.lane}, {text.constant(0)} : index")
    if part is not None:
        first = text.let(f"arith.andi {first}, {part.is_first} : i1")
    starts = []
    for outer in rows:
        for number, (result, combine) in enumerate(zip(nest.results, nest.combines, strict=True)):
            neutral = text.let(f"arith.constant {neutral_of(combine, result.element)} : {result.element}")
            start = first_value(text, nest, number, _positions(text, nest, outer))
            starts.append(text.let(f"arith.select {first}, {start}, {neutral} : {result.element}"))
    width = width_of(nest, place.lanes or WARP)
    whole = is_whole(text, nest, sizes, width) if width > 1 else ""

    def totals_of(width: int) -> list[str]:
        return _sum_steps(text, nest, sizes, rows, place, part, starts, width)

    totals = text.choose(whole, types, lambda: totals_of(width), lambda: totals_of(1)) if whole else totals_of(width)
    return [list(totals[n : n + len(elements)]) for n in range(0, len(types), len(elements))]


def _sum_steps(
    text: Text,
    nest: Nest,
    sizes: Sequence[str],
    rows: Sequence[dict[int, str]],
    place: Place,
    part: Part | None,
    starts: Sequence[str],
    width: int,
) -> list[str]:
    """Sums the elements of one lane from its starts on, `width` neighbours at a time."""
    elements = [result.element for result in nest.results]
    types = elements * len(rows)
    length = text.multiply(text.constant(1), *(sizes[loop] for loop in nest.reductions))
    end = length if part is None else part.end
    carried, coordinate = [text.fresh() for _ in types], text.fresh()
    aligned = is_aligned(text, nest, width) if width > 1 else ""
    begin = text.multiply(place.lane, text.constant(width))
    if part is not None:
        begin = text.add(part.begin, begin)
    step = text.multiply(place.count, text.constant(width))
    own = [
        n
        for n, o in enumerate(nest.inputs)
        if any(rows[0][k] != row[k] for row in rows for k in o.loops() & row.keys())
    ]
    with text.loop(f"{coordinate} = {begin} to {end} step {step}", carried, starts, types) as totals:
        if is_flat(nest):
            inner = [*[text.constant(0)] * (len(nest.reductions) - 1), coordinate]
        else:
            inner = split_number(text, coordinate, [sizes[loop] for loop in nest.reductions])
        steps = [[*inner[:-1], text.add(inner[-1], text.constant(number))] for number in range(width)]

        def positions(outer: dict[int, str]) -> list[list[str]]:
            return [_positions(text, nest, outer | dict(zip(nest.reductions, at, strict=True))) for at in steps]

        shared = [number for number in range(len(nest.inputs)) if number not in own]
        common = read_elements(text, nest, positions(rows[0]), aligned, shared)
        made: list[str] = []
        for row, outer in enumerate(rows):
            coordinates = positions(outer)
            columns = common | read_elements(text, nest, coordinates, aligned, own)
            after: Sequence[str] = carried[row * len(elements) : (row + 1) * len(elements)]
            for number, at in enumerate(coordinates):
                values = [columns[n][number] for n in range(len(nest.inputs))]
                after = text.let_many(len(elements), call_body(nest, [*values, *after], at))
            made += after
        text.carry(made, types)
    return totals


def combine_warp(text: Text, combine: str, value: str, element: str) -> str:
    """Returns the values of all lanes of a warp, combined."""
    distance = WARP // 2
    while distance:
        other = text.exchange(value, element, distance)
        value = text.let(f"{combine} {value}, {other} : {element}")
        distance //= 2
    return value


def _combine_warps(text: Text, nest: Nest, totals: Sequence[str], place: Place) -> list[str]:
    """Combines the totals of the warps of a row."""
    if place.lanes != BY_LENGTH:
        return _combine_block(text, nest, totals, place.lane)
    # All blocks of a launch take the same branch.
    is_block = text.let(f"arith.cmpi eq, {place.count}, {text.constant(THREADS)} : index")
    types = [result.element for result in nest.results]
    return text.choose(is_block, types, lambda: _combine_block(text, nest, totals, place.lane), lambda: totals)


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
