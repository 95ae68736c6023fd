"""Launches that compute rows one after another become one: each row is computed by the threads of one block or warp.

    greatest[n] = maximum of x[n, :]        before: four launches, and each of them reads a tensor from memory
    e[n, :] = exp(x[n, :] - greatest[n])    after: a block has row n. It runs the four operations on the row, with a
    total[n] = sum of e[n, :]                      barrier after each, and later operations read the row from caches
    y[n, :] = e[n, :] / total[n]

Every element that an operation of the launch writes is read by others at the same row only. Rows are short, so that
threads are not idle where there are few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.mlir import ir
from .bodies import describe_nest, operands_of
from .groups import GENERIC, VIEWS, Group, root_of
from .nest import Nest, arguments_of
from .plain import THREADS, split_number, write_sizes
from .rows import lanes_of, orders_rows_as_results, write_row_count, write_rows
from .text import Text
from .vectors import WIDTH, can_vectorize, write_element, write_neighbours

_RESHAPES = frozenset({"memref.expand_shape", "memref.collapse_shape"})
_LONGEST = 8192
"""The most elements of a row."""


def join_rows(computing: Sequence[Any], groups: Sequence[Group]) -> list[Group]:
    """Returns the launches; one launch replaces each sequence of them that begins with a reduction of short rows."""
    made: list[Group] = []
    position = 0
    while position < len(groups):
        count = _count_joined(computing, groups[position:])
        if count > 1:
            joined = tuple(groups[position : position + count])
            made.append(Group(tuple(n for group in joined for n in group.members), rows=joined))
        else:
            made.append(groups[position])
        position += max(count, 1)
    return made


def _count_joined(computing: Sequence[Any], groups: Sequence[Group]) -> int:
    first = _nest_of(computing, groups[0])
    lanes = None if first is None else lanes_of(first)
    if first is None or lanes is None or not first.outer or not _is_short(first):
        return 0
    axes = len(first.outer)
    written: set[Any] = set()
    read: set[Any] = set()
    for count, group in enumerate(groups):
        nest = _nest_of(computing, group)
        if nest is None or not _fits(computing, group, nest, axes, lanes, written):
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


def _is_short(nest: Nest) -> bool:
    length = nest.static_count(nest.reductions)
    return length is not None and length <= _LONGEST


def _fits(computing: Sequence[Any], group: Group, nest: Nest, axes: int, lanes: int, written: set[Any]) -> bool:
    """Returns whether an operation has the rows of those before it: its first loops, at which it reads what they have
    written, and writes its results."""
    if nest.outer[:axes] != tuple(range(axes)) or any(loop < axes for loop in nest.reductions):
        return False
    if nest.reductions:
        own = len(nest.outer) == axes and lanes_of(nest) == lanes and orders_rows_as_results(nest, lanes)
        if not own or not _is_short(nest):
            return False
    elif nest.has_loops or any(nest.static_extent(loop) is None for loop in nest.outer[axes:]):
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
    while not isinstance(value.owner, ir.Block):
        view = value.owner
        if view.name in _RESHAPES:
            source, result = (ir.MemRefType(each.type).shape for each in (view.operands[0], value))
            longer = list(result if view.name == "memref.expand_shape" else source)
            given = ir.ArrayAttr(view.attributes["reassociation"])
            joined = [[ir.IntegerAttr(n).value for n in ir.ArrayAttr(group)] for group in given]
            for axis in range(axes):
                # A row axis is alone, and has the same number on both sides.
                if axis >= len(joined) or joined[axis][0] != axis or any(longer[n] != 1 for n in joined[axis][1:]):
                    return False
        elif view.name not in VIEWS:
            break
        value = view.operands[0]
    return True


def write_joined(nest: Nest, axes: int, lanes: int) -> str:
    """Returns the text of one operation's function, which ends with a barrier, and of the one that counts blocks."""
    if nest.reductions:
        return write_rows(nest, lanes, with_barrier=True)
    return _write_map(nest, axes, lanes) + write_row_count(nest, lanes, nest.outer[:axes])


def _write_map(nest: Nest, axes: int, lanes: int) -> str:
    text = Text()
    sizes = write_sizes(text, nest)
    block, thread = text.special("ctaid.x"), text.special("tid.x")
    each = text.constant(lanes)
    row = text.add(text.multiply(block, text.constant(THREADS // lanes)), text.index("divui", thread, each))
    lane = text.index("remui", thread, each)
    outer, columns = nest.outer[:axes], nest.outer[axes:]
    rows = text.multiply(text.constant(1), *(sizes[loop] for loop in outer))
    count = text.multiply(text.constant(1), *(sizes[loop] for loop in columns))
    width = WIDTH if columns and can_vectorize(nest, in_every_call=True) else 1
    with text.block(f"scf.if {text.below(row, rows)}"):
        known = dict(zip(outer, split_number(text, row, [sizes[loop] for loop in outer]), strict=True))
        number, step = text.fresh(), text.constant(lanes * width)
        begin = text.multiply(lane, text.constant(width))
        with text.loop(f"{number} = {begin} to {count} step {step}", [], [], []):
            inner = split_number(text, number, [sizes[loop] for loop in columns]) if columns else []
            at = known | dict(zip(columns, inner, strict=True))
            if width > 1:
                write_neighbours(text, nest, at, sizes[nest.outer[-1]])
            else:
                write_element(text, nest, [at[loop] for loop in range(len(nest.parallel))])
    text.barrier()
    return text.function(f"@{nest.name}({', '.join(f'{name}: {type}' for name, type in arguments_of(nest))})")
