"""Which of the memory that a stage reads its results may be written over.

That is so where no element is read once it may have been overwritten, whatever the order of the units and on however
many threads they are computed. It is told by addresses alone: who reads the memory later is for others to know. A
scheme that computes an element more than once, from whatever lies in memory then, shares nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from ....dialect.dims import Size
from .schedule import Stage
from .structure import Access, Buffer, Op

Sharing = tuple[tuple[Buffer, Buffer], ...]
"""Pairs of memory that is written, and memory that is read and may be the same."""

_Reads = Mapping[Buffer, list[tuple[Op, Access]]]


def share_elements(stage: Stage) -> Sharing:
    """Where each place of all classes is computed once, and its results are stored when all of them are there."""
    return _find(stage, range(len(stage.sizes)))


def share_rows(stage: Stage, kept: Op | None) -> Sharing:
    """Where each place of the outer classes is computed once, and all reductions of its row are done before any of the
    results, which are then stored as by `share_elements`. The row of `kept`, if there is one, is stored where the
    result will be as soon as it is computed."""
    outer = set(stage.outer)
    inner = {tuple(c for c in stage.parallel(sink) if c not in outer) for sink in stage.sinks}
    later = () if kept is None else _read_behind(stage, kept)
    return _find(stage, outer, later) if len(inner) == 1 else ()


def _read_behind(stage: Stage, kept: Op) -> set[Buffer]:
    """What may be read once a row has been kept: by what follows from it, but for what it was computed from itself."""
    behind = stage.ops[stage.ops.index(kept) + 1 :]
    pending = [op for op in behind if op.reduced or op in stage.sinks]
    found: set[Buffer] = set()
    while pending:
        for access in pending.pop().reads:
            source = access.tensor.op
            if source is None or not stage.holds(access.tensor):
                found |= {access.tensor.view.buffer} if access.tensor.view is not None else set()
            elif source is not kept and not source.reduced:
                pending.append(source)
    return found


def _find(stage: Stage, outer: Collection[int], never: Collection[Buffer] = ()) -> Sharing:
    reads, elsewhere = _reads(stage)
    elsewhere |= set(never)
    homes = Counter(sink.result.view.buffer for sink in stage.sinks if sink.result.view is not None)
    pairs: list[tuple[Buffer, Buffer]] = []
    for sink in stage.sinks:
        home = sink.written
        written = home.tensor.view.buffer  # type: ignore[union-attr]  # what is a sink has a home
        if homes[written] > 1 or written in reads or written in elsewhere:
            continue
        for buffer, accesses in reads.items():
            if buffer in homes or buffer in elsewhere or buffer.element != written.element:
                continue
            if all(_is_read_before(stage, sink, op, access, outer) for op, access in accesses):
                pairs.append((written, buffer))
    return tuple(pairs)


def _reads(stage: Stage) -> tuple[_Reads, set[Buffer]]:
    """What is read from memory at places that follow from the loops, and what elsewhere."""
    reads: dict[Buffer, list[tuple[Op, Access]]] = {}
    elsewhere: set[Buffer] = set()
    for op in stage.ops:
        accesses = [access for access in op.reads if not stage.holds(access.tensor)]
        if op.start is not None and op.start.splat is None:
            accesses.append(Access(op.start, op.map))
        for access in accesses:
            if access.tensor.view is not None:
                reads.setdefault(access.tensor.view.buffer, []).append((op, access))
        extracted = (node.tensor for node in op.body.walk() if node.tensor is not None)
        elsewhere |= {tensor.view.buffer for tensor in extracted if tensor.view is not None}
    return reads, elsewhere


def _is_read_before(stage: Stage, sink: Op, op: Op, access: Access, outer: Collection[int]) -> bool:
    """Is an element read by an op only before the sink writes it, or by what computes it?"""
    origin, written = access.origin, sink.written
    steps, goals = _steps(stage, op, access), _steps(stage, sink, written)
    if origin is None or origin != written.origin or steps is None or goals is None:
        return False
    if steps == goals:
        return True
    # Of its own row a reduction reads whatever it likes.
    within = [{c: step for c, step in s.items() if c not in outer} for s in (steps, goals)]
    across = [{c: step for c, step in s.items() if c in outer} for s in (steps, goals)]
    read, wanted = (Counter((stage.sizes[c], step) for c, step in s.items()) for s in within)
    return bool(op.reduced) and across[0] == across[1] and read == wanted


def _steps(stage: Stage, op: Op, access: Access) -> dict[int, Size] | None:
    """By how many elements one step of each class moves, where it moves at all; None where that differs."""
    steps: dict[int, Size] = {}
    for loop in range(len(op.loops)):
        c, step = stage.of(op, loop), access.step(loop)
        if step is None:
            return None
        if step != 0 and stage.sizes[c] != 1:
            steps[c] = step
    return steps
