"""Groups the operations of a kernel into launches.

    fill; generic (sum)                              a reduction begins with a constant in registers
    generic (elementwise); generic (sum)             a prologue: the first value of each sum, such as a bias
    fill; generic (sum); generic (elementwise)       its epilogue: activation, residual, rounding

An epilogue takes each sum from a register. The memory of the sums is left out, so nothing else may read it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from ....dialect.lazy_dataclass import dataclass
from ...base.mlir import ir
from ..structured.operations import GENERIC, body_of, iterators, maps_of, operands_of
from ..structured.positions import is_permutation, picks_loops
from ..structured.values import root_of
from .bodies import combining, is_fill


@dataclass(frozen=True, slots=True)
class Group:
    """The operations of a launch by their positions: fills or the prologue, the main one, the epilogue."""

    members: tuple[int, ...]
    has_prologue: bool = False
    has_epilogue: bool = False
    attention: tuple[Group, ...] = ()
    """The launches that are computed as one attention."""
    combines: bool = False
    """Whether the launch combines the parts of an attention whose keys are split."""
    rows: tuple[Group, ...] = ()
    """The launches that run one after another on each row."""
    chosen_by: int | None = None
    """The reduction, by its position, whose sizes in a call decide whether this launch has blocks: that of `rows` or
    those which it joins, that for one row or that for several. None: this is the same in every call."""
    padded: tuple[int, int] | None = None
    """The fill and the copy that pad an input of the main operation, which reads the copied tensor instead."""
    on_warpgroups: bool | None = None
    """Whether the launch is for calls that fit products of warpgroups, or for the others; None: for all calls."""
    in_wide_tiles: bool | None = None
    """Whether the launch is for calls in which a product has many wide tiles, or for the others; None: for all."""
    in_one_row: bool | None = None
    """Whether the launch is for calls in which a product has one row, or for the others; None: for all calls."""
    parts: int | None = None
    """The memory for totals by its number, if blocks share the reduction."""
    joins: bool = False
    """Whether the launch joins the parts of a reduction that blocks share."""

    @property
    def masks_values(self) -> bool:
        """Whether the launch before the last one of an attention masks its values."""
        return len(self.attention) > 6


def group_operations(computing: Sequence[Any], scratch: Collection[Any]) -> list[Group]:
    """Returns the launches of the operations that write memory. `scratch` are the arguments that are not read after the
    kernel."""
    groups: list[Group] = []
    for number, op in enumerate(computing):
        if op.name != GENERIC or is_fill(op):
            groups.append(Group((number,)))
            continue
        first = _find_first(computing, groups, op)
        if first:
            has_prologue = not is_fill(computing[first[0].members[0]])
            groups = [group for group in groups if group not in first]
            groups.append(Group((*(n for group in first for n in group.members), number), has_prologue))
        elif groups and _is_epilogue(computing, groups[-1], number, scratch):
            groups[-1] = replace(groups[-1], members=(*groups[-1].members, number), has_epilogue=True)
        else:
            groups.append(Group((number,)))
    return groups


def _find_first(computing: Sequence[Any], groups: Sequence[Group], op: Any) -> list[Group]:
    """Returns the launches that write the first values of an op's results: fills, or a prologue. Other launches may lie
    between them and the op, such as those that pad an image."""
    fills: list[Group] = []
    prologues: list[Group] = []
    for position, group in enumerate(groups):
        first = computing[group.members[0]]
        if len(group.members) != 1 or first.name != GENERIC:
            continue
        begins, found = (_begins(first, op), fills) if is_fill(first) else (_is_prologue(first, op), prologues)
        between = [computing[n] for later in groups[position + 1 :] for n in later.members]
        if begins and not any(_disturbs(other, first) for other in between):
            found.append(group)
    return fills or prologues[-1:]


def _disturbs(other: Any, first: Any) -> bool:
    """Returns whether an op may not be moved before another one, which it follows."""
    inputs, results = operands_of(first)
    if any(touches(other, root_of(value)) for value in results):
        return True
    written = operands_of(other)[1] if other.name == GENERIC else list(other.operands)
    known = {root_of(value) for value in written}
    return any(root_of(value) in known for value in inputs) or (other.name != GENERIC and bool(inputs))


def _begins(fill: Any, op: Any) -> bool:
    """Returns whether an op accumulates into the memory that a fill has written, and reads that memory nowhere else."""
    (written,), (inputs, results) = operands_of(fill)[1], operands_of(op)
    reads = any(root_of(value) == root_of(written) for value in inputs)
    return not all(iterators(op)) and written in results and not reads


def _is_prologue(op: Any, main: Any) -> bool:
    """Returns whether an op computes the first values of a sum, and reads none of them."""
    (inputs, results), (sources, sums) = operands_of(op), operands_of(main)
    if not all(iterators(op)) or len(results) != 1 or list(body_of(op).arguments[len(inputs)].uses):
        return False
    reads = any(root_of(value) == root_of(results[0]) for value in (*inputs, *sources))
    if reads or sums != results or not is_permutation(maps_of(op)[-1], len(iterators(op))):
        return False
    if not picks_loops(maps_of(main)[-1]):
        return False
    return not all(iterators(main)) and combining(main, 0) == "arith.addf"


def _is_epilogue(computing: Sequence[Any], group: Group, number: int, scratch: Collection[Any]) -> bool:
    """Returns whether an op can be the epilogue of the reduction of a group."""
    op, main = computing[number], computing[group.members[-1]]
    if op.name != GENERIC or not all(iterators(op)) or group.has_epilogue or len(group.members) != 2:
        return False
    sources, sums = operands_of(main)
    inputs, results = operands_of(op)
    (total, *more), memory = sums, root_of(sums[0])
    maps, loops = maps_of(op), len(iterators(op))
    reading = {map for value, map in zip(inputs, maps, strict=False) if value == total}
    writing = [maps[len(inputs) + n] for n in range(len(results))]
    if more or len(reading) != 1 or not picks_loops(maps_of(main)[-1]):
        return False
    if not all(is_permutation(map, loops) for map in (*writing, *reading)):
        return False
    if any(root_of(value) == memory and value != total for value in (*inputs, *results)):
        return False
    if {root_of(value) for value in results} & {root_of(value) for value in sources}:
        return False
    if total in results:
        # The element is written where its sum would be.
        return {map for value, map in zip(results, writing, strict=True) if value == total} == reading
    users = {n for n, other in enumerate(computing) if touches(other, memory)}
    return memory in scratch and users <= {*group.members, number}


def touches(op: Any, memory: Any) -> bool:
    """Returns whether an operation, or one in its regions, has a view of memory as an operand."""
    found = False

    def visit(inner: Any) -> Any:
        nonlocal found
        found = found or any(root_of(value) == memory for value in inner.operands)
        return ir.WalkResult.ADVANCE

    op.walk(visit)
    return found
