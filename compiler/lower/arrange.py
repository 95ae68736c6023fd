"""What is decided about a recorded kernel before it is written: what is dead, what needs memory of its own, what is
written inside another operation's loops, and which results are computed in the caller's memory.

Assumes operations in an order in which each follows its operands, and keeps that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...dialect.emitter import IndexMap
from .records import Argument, Dense, Full, Insert, Op, Ref, Reshape, Scan, Slice, Structured, copy_of
from .shapes import plain_loop

Key = tuple[int, int]
"""An operation (by identity) and the number of one of its results."""


def key(ref: Ref) -> Key:
    return id(ref.op), ref.number


@dataclass
class Arrangement:
    """The operations to write. `inlined` (by identity) are those that are written where they are read; `destinations`
    gives, for whoever memory is made for that is a result of the kernel, the number of that result."""

    ops: list[Op]
    results: list[Ref]
    inlined: set[int] = field(default_factory=set)
    destinations: dict[Key, int] = field(default_factory=dict)


def arrange(ops: Sequence[Op], results: Sequence[Ref]) -> Arrangement:
    plan = Arrangement(list(ops), list(results))
    plan.ops = _live(plan)
    _protect(plan)
    _place_results(plan)
    plan.ops = _live(plan)
    _inline(plan)
    return plan


def _live(plan: Arrangement) -> list[Op]:
    """Those that results depend on."""
    needed = {id(ref.op) for ref in plan.results}
    kept: list[Op] = []
    for op in reversed(plan.ops):
        if id(op) in needed:
            kept.append(op)
            needed |= {id(ref.op) for ref in (*op.operands, *op.loads)}
    return kept[::-1]


def _count_uses(plan: Arrangement) -> Counter[Key]:
    uses = Counter(key(ref) for ref in plan.results)
    for op in plan.ops:
        uses.update(key(ref) for ref in op.operands)
        uses.update(key(ref) for ref in op.loads)
    return uses


def _owned(ref: Ref, uses: Counter[Key]) -> bool:
    """May the only reader of `ref` overwrite its memory?"""
    if uses[key(ref)] != 1 or isinstance(ref.op, (Argument, Dense)):
        return False
    return _owned(ref.op.operands[0], uses) if isinstance(ref.op, (Reshape, Slice)) else True


def _protect(plan: Arrangement) -> None:
    """Puts a copy before whatever would overwrite a tensor that others read or that is not the kernel's own."""
    uses = _count_uses(plan)
    ops: list[Op] = []
    for op in plan.ops:
        for position in op.overwritten:
            ref = op.operands[position]
            if _owned(ref, uses):
                continue
            fresh = Full(types=ref.op.types, value=ref.op.value) if isinstance(ref.op, Full) else copy_of(ref, op.span)
            if isinstance(fresh, Full):
                uses[key(ref)] -= 1
            ops.append(fresh)
            op.operands[position] = fresh.result()
            uses[key(fresh.result())] += 1
        ops.append(op)
    plan.ops = ops


def _root(ref: Ref) -> Ref | None:
    """Whoever the memory of `ref` was made for, where `ref` is all of it under the same shape, else None."""
    op = ref.op
    if isinstance(op, Full):
        return ref
    if isinstance(op, Structured):
        start = op.starts[ref.number]
        return ref if start is None else _root(op.operands[start])
    if isinstance(op, Insert):
        return _root(op.operands[1])
    if isinstance(op, Scan):
        return _root(op.operands[ref.number])
    return None


def _place_results(plan: Arrangement) -> None:
    """Lets each result be computed in the memory of the caller, behind a copy where that cannot be."""
    for number, ref in enumerate(plan.results):
        # The caller's memory has no shape: a reshape at the end costs nothing.
        while isinstance(ref.op, Reshape):
            ref = ref.op.operands[0]
        root = _root(ref)
        if root is None or key(root) in plan.destinations:
            copy = copy_of(ref, ref.op.span)
            plan.ops.append(copy)
            ref = root = copy.result()
        plan.destinations[key(root)] = number
        plan.results[number] = ref


def _inline(plan: Arrangement) -> None:
    """Marks the elementwise operations that are computed once where they are read, and those that compute nothing."""
    uses = _count_uses(plan)
    slots: Counter[Key] = Counter()
    readers: dict[Key, list[tuple[Structured, IndexMap]]] = {}
    for op in plan.ops:
        if isinstance(op, Structured):
            inputs = list(zip(op.operands, op.input_maps, strict=False))
            slots.update(key(ref) for ref, _ in inputs)
            # The same element read twice is one read.
            for name, map in dict.fromkeys((key(ref), map) for ref, map in inputs):
                readers.setdefault(name, []).append((op, map))
    repeated: set[int] = set()
    # Readers come first, since what is inlined into an operation that is repeated would be repeated too.
    for op in reversed(plan.ops):
        name = (id(op), 0)
        if not isinstance(op, Structured) or not op.elementwise or slots[name] != uses[name]:
            continue
        once = len(readers[name]) == 1 and all(_covers(*reader, repeated) for reader in readers[name])
        if once or op.moves:
            plan.inlined.add(id(op))
            if not once:
                repeated.add(id(op))


def _covers(reader: Structured, map: IndexMap, repeated: set[int]) -> bool:
    """Does the reader read every element through the map at most once?"""
    loops = {plain_loop(index) for index in map}
    return id(reader) not in repeated and all(i in loops or loop.size == 1 for i, loop in enumerate(reader.loops))
