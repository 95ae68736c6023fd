"""Arranges a recorded kernel before it is written: removes dead operations, inserts copies, inlines operations into the
loops of their readers, and selects the results that are computed in the caller's memory.

Assumes operations in an order in which each follows its operands, and keeps that order.

For y = sum of (x * s) along rows, recorded as `t = map(x, s: mul)`, `f = full(0)`, `y = reduce(t into f)`:

    live             t, f, y: y depends on all of them
    protect          f has no other reader, so y may overwrite it without a copy
    place results    f is computed in the memory of the caller, and so is y
    inline           t has one reader, which reads each element once: its multiplication moves into the loops of y
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

from ...dialect.emitter import IndexMap, Loop, identity
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import BF16, F16, F32, F64
from .records import (
    Argument,
    Dense,
    Full,
    Insert,
    Op,
    Ref,
    Reshape,
    Resident,
    Scan,
    Slice,
    Structured,
    compose,
    copy_of,
)
from .shapes import plain_loop

Key = tuple[int, int]
"""An operation (by identity) and the index of one of its results."""


def key(ref: Ref) -> Key:
    return id(ref.op), ref.number


@dataclass
class Arrangement:
    """The operations to write. `inlined` holds the operations (by identity) that are written inside their readers;
    `destinations` maps an op with a buffer that is a kernel result to that result's index."""

    ops: list[Op]
    results: list[Ref]
    inlined: set[int] = field(default_factory=set)
    destinations: dict[Key, int] = field(default_factory=dict)


def arrange(ops: Sequence[Op], results: Sequence[Ref], *, in_place: bool = False) -> Arrangement:
    """Returns the operations to write. With `in_place`, sums read transposed tensors where they are."""
    plan = Arrangement(list(ops), list(results))
    plan.ops = _live(plan)
    _protect(plan)
    _place_results(plan)
    plan.ops = _live(plan)
    _inline(plan, in_place)
    return plan


def _live(plan: Arrangement) -> list[Op]:
    """Returns the operations that results depend on."""
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
    """Returns whether the only reader of `ref` may overwrite its memory."""
    if uses[key(ref)] != 1 or isinstance(ref.op, (Argument, Dense)):
        return False
    return _owned(ref.op.operands[0], uses) if isinstance(ref.op, (Reshape, Slice)) else True


def _protect(plan: Arrangement) -> None:
    """Inserts a copy before each operation that would overwrite a tensor with other readers or outside the kernel."""
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
    """Returns the value whose memory `ref` occupies, if `ref` is all of this memory in the same shape; else None."""
    op = ref.op
    if isinstance(op, (Full, Resident)):
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
    """Places each result in the memory of the caller, after a copy where that is impossible."""
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


Site = tuple[int, IndexMap]
"""The site of an inlined operation: the operation (by identity) in whose loops it is computed, and its own loop indices
as linear forms of those loops."""


def _inline(plan: Arrangement, in_place: bool) -> None:
    """Marks the operations to inline: elementwise operations with a single site, pure data movements, and operations
    that depend on the indices alone."""
    uses = _count_uses(plan)
    slots: Counter[Key] = Counter()
    readers: dict[Key, list[tuple[Structured, IndexMap]]] = {}
    for op in plan.ops:
        if isinstance(op, Structured):
            for ref, map in zip(op.operands, op.input_maps, strict=False):
                slots[key(ref)] += 1
                readers.setdefault(key(ref), []).append((op, map))
    structured = [op for op in plan.ops if isinstance(op, Structured)]
    loops = {id(op): op.loops for op in structured}
    products = {id(op) for op in structured if not op.elementwise and len(op.input_maps) > 1}
    # Devices compute two products and the softmax between them as one loop over the factors, also those of one row.
    joined = products if in_place and len(products) > 1 else frozenset()
    sites: dict[int, set[Site]] = {}
    # In reverse order, readers precede their operands: an operation is computed at the sites of its readers.
    for op in reversed(plan.ops):
        if not isinstance(op, Structured):
            continue
        sites[id(op)] = {(id(op), identity(len(op.loops)))}
        name = (id(op), 0)
        if not op.elementwise or slots[name] != uses[name]:
            continue
        inside = {
            (root, tuple(compose(index, access) for index in map))
            for reader, map in readers[name]
            for root, access in sites[id(reader)]
        }
        if (
            (op.moves and (in_place or not _turns(op, loops, inside)))
            or op.generates
            or (len(inside) == 1 and all(_covers(loops[root], access, root in joined) for root, access in inside))
        ):
            plan.inlined.add(id(op))
            sites[id(op)] = inside


def _turns(op: Structured, loops: Mapping[int, Sequence[Loop]], inside: set[Site]) -> bool:
    """Returns whether inlining `op`, such as a transpose, gives a sum strided vectors: the contiguous axis of the
    operand of `op` is a summed loop, and that of a copy of its result is a parallel loop. Sums of floats over
    one loop do not count, because their tiles transpose panels themselves."""
    if not op.input_maps or not op.input_maps[0]:
        return False
    for root, access in inside:
        if op.types[0].dtype in (F64, F32, F16, BF16) and sum(not loop.parallel for loop in loops[root]) == 1:
            continue
        before = plain_loop(access[-1]) if access else None
        after = plain_loop(compose(op.input_maps[0][-1], access))
        if before is None or after is None:
            continue
        if loops[root][before].parallel and not loops[root][after].parallel:
            return True
    return False


def _covers(loops: Sequence[Loop], access: IndexMap, is_joined: bool) -> bool:
    """Returns whether no two iterations of the loops access the same element. Loops of one iteration count as others if
    the operation `is_joined` with another one, whatever the number of iterations."""
    plain = {plain_loop(index) for index in access}
    return all(i in plain or (loop.size == 1 and not is_joined) for i, loop in enumerate(loops))
