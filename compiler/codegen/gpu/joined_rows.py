"""Launches that compute rows one after another become one: each row is computed by the threads of one block or warp.

    greatest[n] = maximum of x[n, :]        before: four launches, and each of them reads a tensor from memory
    e[n, :] = exp(x[n, :] - greatest[n])    after: a block has row n. It runs the four operations on the row, with a
    total[n] = sum of e[n, :]                      barrier between two, and later operations read the row from caches
    y[n, :] = e[n, :] / total[n]

Every element that an operation of the launch writes is read by others at the same row only. Rows are short, or many, so
that threads are not idle. Where this depends on the call, the separate launches stand beside the joined one, and the
numbers of their blocks choose: either the joined launch has none, or all others have none.

    softmax of f32[B, T]      @softmax           T <= LONGEST or B >= MANY: blocks for B rows; otherwise none
                              @softmax_part1     otherwise: the maximum of each row
                              @softmax_part2 ... the other operations
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...base.mlir import ir
from ...targets.chips import CHIPS
from ..structured.operations import GENERIC, iterators, operands_of
from ..structured.values import RESHAPES, VIEWS, axes_of_reshape, made_by, root_of
from .bodies import describe_nest
from .contraction import find_groups
from .groups import Group
from .nest import Nest, arguments_of
from .plain import split_number, write_sizes
from .rows import (
    BY_LENGTH,
    LANES,
    lanes_of,
    orders_rows_as_results,
    place_lanes,
    place_rows,
    write_rows,
)
from .text import Text
from .transposes import find_crossing
from .vectors import write_row

_LONGEST = 8192
"""The most elements of a row, where rows are few."""
_MANY = CHIPS["h100"].processors
"""The rows that keep every multiprocessor busy, however long they are."""
BLOCKS_AT_ONCE = 6
"""The blocks of a joined launch for lengths of a call that a processor has registers for. For more of them, ptxas keeps
registers in memory."""
JOINED, SEPARATE = "_joined", "_separate"
"""The ends of the names of functions that choose between launches."""


def join_rows(computing: Sequence[Any], groups: Sequence[Group]) -> list[Group]:
    """Returns the launches; one launch replaces each sequence of them that begins with a reduction of short rows, or
    stands before them where they are short in some calls."""
    made: list[Group] = []
    position = 0
    while position < len(groups):
        count = _count_joined(computing, groups[position:])
        several = tuple(groups[position : position + max(count, 1)])
        if count > 1:
            first = several[0].members[-1]
            by_call = None if _is_short(_nest_of(computing, several[0])) else first
            made.append(Group(tuple(n for group in several for n in group.members), rows=several, chosen_by=by_call))
            made += [] if by_call is None else [replace(group, chosen_by=first) for group in several]
        else:
            made += several
        position += len(several)
    return made


def _count_joined(computing: Sequence[Any], groups: Sequence[Group]) -> int:
    last = [computing[number] for number in groups[0].members[-1:]]
    # Most launches are maps, which begin no sequence.
    if not any(op.name == GENERIC and not all(iterators(op)) for op in last):
        return 0
    first = _nest_of(computing, groups[0])
    lanes = None if first is None else lanes_of(first)
    if first is None or lanes is None or not first.outer or find_groups(first) is not None:
        return 0
    axes, is_short = len(first.outer), _is_short(first)
    written: set[Any] = set()
    read: set[Any] = set()
    for count, group in enumerate(groups):
        nest = _nest_of(computing, group)
        if (
            nest is None
            or not _fits(computing, group, nest, axes, lanes, written)
            or (is_short and not _stays_short(nest, axes))
        ):
            return count
        written |= {root_of(value) for value in _written(computing, group)}
        # Other blocks may still read other rows of what this one would overwrite.
        values = operands_of(computing[group.members[-1]])[0]
        rows = tuple(range(axes))
        read |= {
            root_of(v)
            for v, o in zip(values, nest.inputs, strict=True)
            if o.in_memory and o.plain_axes()[:axes] != rows
        }
        if read & written:
            return count
    return len(groups)


def _nest_of(computing: Sequence[Any], group: Group) -> Nest | None:
    """Returns the nest of a launch that may be joined: one without a prologue or an epilogue."""
    if not group.members:
        return None
    op = computing[group.members[-1]]
    special = group.has_prologue or group.has_epilogue or group.attention or group.padded or group.rows
    if special or op.name != GENERIC:
        return None
    results = operands_of(op)[1]
    started = {operands_of(computing[n])[1][0] for n in group.members[:-1]}
    nest = describe_nest(op, "", [True if result in started else None for result in results])
    return nest if nest.is_independent() and len(operands_of(op)[0]) == len(nest.inputs) else None


def _written(computing: Sequence[Any], group: Group) -> list[Any]:
    return [value for n in group.members for value in operands_of(computing[n])[1]]


def _is_short(nest: Nest | None) -> bool:
    """Returns whether rows are short in every call."""
    length = None if nest is None else nest.static_count(nest.reductions)
    return length is not None and length <= _LONGEST


def _stays_short(nest: Nest, axes: int) -> bool:
    """Returns whether the row of an operation is short in every call, or a map of as many elements in each."""
    if nest.reductions:
        return _is_short(nest)
    return all(nest.static_extent(loop) is not None for loop in nest.outer[axes:])


def _fits(computing: Sequence[Any], group: Group, nest: Nest, axes: int, lanes: int, written: set[Any]) -> bool:
    """Returns whether an operation has the rows of those before it: its first loops, at which it reads what they have
    written, and writes its results."""
    if nest.outer[:axes] != tuple(range(axes)) or any(loop < axes for loop in nest.reductions):
        return False
    if nest.reductions:
        own = len(nest.outer) == axes and lanes_of(nest) == lanes and orders_rows_as_results(nest, lanes)
        if not own:
            return False
    elif nest.has_loops or find_crossing(nest) is not None:
        return False
    inputs, results = operands_of(computing[group.members[-1]])
    known = [(root_of(value), o) for value, o in zip(inputs, nest.inputs, strict=True) if o.in_memory]
    of_row = [operand for memory, operand in known if memory in written]
    if written and not of_row:
        return False
    rows = tuple(range(axes))
    own = all(operand.plain_axes()[:axes] == rows for operand in (*of_row, *nest.results))
    viewed = [value for value in inputs if root_of(value) in written] + list(results)
    return (
        own
        and all(_keeps_rows(value, axes) for value in viewed)
        and not {memory for memory, _ in known} & {root_of(value) for value in results}
    )


def _keeps_rows(value: Any, axes: int) -> bool:
    """Returns whether a view has the first `axes` of the memory that it is of: no reshape joins one of them with an
    axis of more than one element, or splits it."""
    while (view := made_by(value, *VIEWS)) is not None:
        if view.name in RESHAPES:
            source, result = (ir.MemRefType(each.type).shape for each in (view.operands[0], value))
            longer = list(result if view.name == "memref.expand_shape" else source)
            joined = axes_of_reshape(view)
            for axis in range(axes):
                # A row axis is alone, and has the same number on both sides.
                if axis >= len(joined) or joined[axis][0] != axis or any(longer[n] != 1 for n in joined[axis][1:]):
                    return False
        value = view.operands[0]
    return True


def write_joined(nest: Nest, axes: int, lanes: int, *, is_last: bool) -> str:
    """Returns the text of one operation's function, which ends with a barrier unless it `is_last`, and for a reduction
    of the one that counts blocks."""
    if nest.reductions:
        return write_rows(nest, lanes, is_joined=True, is_last=is_last)
    text = Text()
    sizes = write_sizes(text, nest)
    given = [(LANES, "index")] if lanes == BY_LENGTH else []
    place = place_rows(text, nest, sizes, lanes, with_argument=bool(given))
    outer = nest.outer[:axes]
    rows = text.multiply(text.constant(1), *(sizes[loop] for loop in outer))
    with text.block(f"scf.if {text.below(place.row, rows)}"):
        known = dict(zip(outer, split_number(text, place.row, [sizes[loop] for loop in outer]), strict=True))
        write_row(text, nest, place, known, [(loop, sizes[loop]) for loop in nest.outer[axes:]])
    if not is_last:
        text.barrier()
    arguments = [*arguments_of(nest), *given]
    return text.function(f"@{nest.name}({', '.join(f'{name}: {type}' for name, type in arguments)})")


def write_choice(nest: Nest, name: str) -> str:
    """Returns the text of functions of the operands of the first reduction: its lanes in a call, and the blocks that
    the joined launch and each separate one have of a number of them."""
    arguments = ", ".join(f"%m{number}: {operand.type}" for number, operand in enumerate(nest.operands))
    text = Text()
    own = lanes_of(nest)
    assert own is not None, name
    lanes, _, _ = place_lanes(text, nest, write_sizes(text, nest), own)
    made = text.function(f"@{name}_lanes({arguments}) -> index", [lanes], ["index"])
    for kind in (JOINED, SEPARATE):
        text = Text()
        sizes = write_sizes(text, nest)
        length, rows = (
            text.multiply(text.constant(1), *(sizes[loop] for loop in loops)) for loops in (nest.reductions, nest.outer)
        )
        is_short = text.below(length, text.constant(_LONGEST + 1))
        are_many = text.below(text.constant(_MANY - 1), rows)
        is_joined = text.let(f"arith.ori {is_short}, {are_many} : i1")
        kept = ("%blocks", text.constant(0))[:: 1 if kind == JOINED else -1]
        blocks = text.let(f"arith.select {is_joined}, {kept[0]}, {kept[1]} : index")
        made += text.function(f"@{name}{kind}({arguments}, %blocks: index) -> index", [blocks], ["index"])
    return made
