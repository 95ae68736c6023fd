"""In-place analysis: finds the operands of a stage that its results may overwrite.

A result may overwrite an operand where no element is read once it may have been overwritten, for any order of the work
items and any number of threads. The analysis uses addresses alone; liveness of the memory after the stage is checked
elsewhere. A schedule that computes an element more than once, from the current content of memory, shares nothing.

For example, y[i] = exp(x[i]) may overwrite x, since x[i] is read before y[i] is stored and never again. In contrast,
y[i, j] = x[j, i] may not: x[i, j] is read for y[j, i], possibly after y[i, j] has been stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from ....dialect.dims import Size
from .schedule import Stage
from .structure import Access, Buffer, Op

Sharing = tuple[tuple[Buffer, Buffer], ...]
"""Pairs of buffers: a written one, and a read one that may share its memory."""

_Reads = Mapping[Buffer, list[tuple[Op, Access]]]


def share_elements(stage: Stage) -> Sharing:
    """Finds the pairs where each position of all classes is computed once, and its results are stored when all of them
    are ready."""
    return _find(stage, range(len(stage.sizes)))


def share_rows(stage: Stage, kept: Op | None) -> Sharing:
    """Finds the pairs where each position of the outer classes is computed once, and all reductions of its row finish
    before any result is stored; results are then stored as by `share_elements`. The row of `kept`, if there is one,
    is stored in the result's memory as soon as it is computed."""
    outer = set(stage.outer)
    inner = {tuple(c for c in stage.parallel(sink) if c not in outer) for sink in stage.sinks}
    later = () if kept is None else _read_behind(stage, kept)
    return _find(stage, outer, later) if len(inner) == 1 else ()


def _read_behind(stage: Stage, kept: Op) -> set[Buffer]:
    """Returns the buffers that may be read after a row has been kept: the operands of the reductions and results
    after it, without those of the row itself."""
    behind = stage.ops[stage.ops.index(kept) + 1 :]
    pending = [op for op in behind if op.reduced or op in stage.sinks]
    found: set[Buffer] = set()
    while pending:
        op = pending.pop()
        for access in (*op.reads, *op.started):
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
        written = home.tensor.view.buffer  # type: ignore[union-attr]  # a sink has a home
        if homes[written] > 1 or written in reads or written in elsewhere:
            continue
        for buffer, accesses in reads.items():
            if buffer.constant or buffer in homes or buffer in elsewhere or buffer.element != written.element:
                continue
            if all(_is_read_before(stage, sink, op, access, outer) for op, access in accesses):
                pairs.append((written, buffer))
    return tuple(pairs)


def _reads(stage: Stage) -> tuple[_Reads, set[Buffer]]:
    """Returns the reads from memory at positions that follow from the loops, and the buffers of all other reads."""
    reads: dict[Buffer, list[tuple[Op, Access]]] = {}
    elsewhere: set[Buffer] = set()
    for op in stage.ops:
        accesses = [access for access in op.reads if not stage.holds(access.tensor)]
        accesses += op.started
        for access in accesses:
            if access.tensor.view is not None:
                reads.setdefault(access.tensor.view.buffer, []).append((op, access))
        extracted = (node.tensor for node in op.body.walk() if node.tensor is not None)
        elsewhere |= {tensor.view.buffer for tensor in extracted if tensor.view is not None}
    return reads, elsewhere


def _is_read_before(stage: Stage, sink: Op, op: Op, access: Access, outer: Collection[int]) -> bool:
    """Returns whether an op reads an element only before the sink writes it, or in order to compute it."""
    origin, written = access.origin, sink.written
    steps, goals = _steps(stage, op, access), _steps(stage, sink, written)
    if origin is None or origin != written.origin or steps is None or goals is None:
        return False
    if steps == goals:
        return True
    # A reduction may read its own row in any order.
    within = [{c: step for c, step in s.items() if c not in outer} for s in (steps, goals)]
    across = [{c: step for c, step in s.items() if c in outer} for s in (steps, goals)]
    read, wanted = (Counter((stage.sizes[c], step) for c, step in s.items()) for s in within)
    return bool(op.reduced) and across[0] == across[1] and read == wanted


def _steps(stage: Stage, op: Op, access: Access) -> dict[int, Size] | None:
    """Returns the number of elements that one step of each class moves, for classes that move at all; None where it
    differs."""
    steps: dict[int, Size] = {}
    for loop in range(len(op.loops)):
        c, step = stage.of(op, loop), access.step(loop)
        if step is None:
            return None
        if step != 0 and stage.sizes[c] != 1:
            steps[c] = step
    return steps
