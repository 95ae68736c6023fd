"""Fusion of a kernel's ops into loop nests: stages, and classes of corresponding loops.

Loops of different ops belong to one class where one op reads the other op's result at the same index. A stage is
written as one nest: the loops around all of its ops are the classes that are parallel in each op. Results of an earlier
stage are read from memory.

The classes of a softmax; the loop over class a surrounds all three ops:

    greatest[i] = max of x[i, j] over j          i: class a    j: class b
    e[i, j]     = exp(x[i, j] - greatest[i])     i: class a    j: class c
    total[i]    = sum of e[i, j] over j          i: class a    j: class c
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field

from ....dialect.dims import Size, bounds, multiply
from ....dialect.lazy_dataclass import dataclass
from ..structured.positions import plain
from .strided import APART
from .structure import Access, Buffer, Kernel, Op, Tensor, extract_step
from .text import element_bytes
from .windows import is_window

ROW_BYTES = 64 * 1024
"""The most bytes of rows that are kept between passes, several times over."""
BLOCK_BYTES = 256 * 1024
"""The most bytes of a block of rows that stays on the stack between contractions."""
ROWS = 8
"""The fewest rows of such a block."""


@dataclass
class Stage:
    """A stage: its ops in order, and the class of every loop. `sinks` are the ops with results that are needed in
    memory."""

    ops: list[Op] = field(default_factory=list)
    classes: dict[tuple[int, int], int] = field(default_factory=dict)
    sizes: list[Size] = field(default_factory=list)
    sinks: list[Op] = field(default_factory=list)
    around: tuple[int, ...] = ()
    """The leading classes of the stage's work items, where the stage is computed slice by slice with others."""

    def of(self, op: Op, loop: int) -> int:
        return self.classes[id(op), loop]

    def loops(self, op: Op) -> list[int]:
        """Returns the classes of an op's loops, in their order."""
        return [self.of(op, i) for i in range(len(op.loops))]

    def parallel(self, op: Op) -> list[int]:
        return [self.of(op, i) for i in op.outer]

    def reduced(self, op: Op) -> list[int]:
        return [self.of(op, i) for i in op.reduced]

    def holds(self, tensor: Tensor) -> bool:
        """Returns whether the tensor is computed in this stage."""
        return tensor.op is not None and any(tensor.op is op for op in self.ops)

    @property
    def outer(self) -> list[int]:
        """The classes that are parallel in every op, in the order of the last op."""
        shared = set.intersection(*(set(self.parallel(op)) for op in self.ops))
        return [c for c in self.parallel(self.ops[-1]) if c in shared]

    def copy(self) -> Stage:
        return Stage(list(self.ops), dict(self.classes), list(self.sizes))


def plan_stages(kernel: Kernel, most: int | None = None) -> list[Stage]:
    """Returns the stages of a kernel, in order. `most` bounds the bytes of a block of rows between contractions."""
    stages: list[Stage] = []
    for op in _numbers_first(kernel.ops):
        joined = _join(stages[-1], op, most) if stages else None
        if joined is None:
            stages.append(_start(op))
        else:
            stages[-1] = joined
    wanted = {id(t.op) for t in kernel.written if t.op is not None}
    for number, stage in enumerate(stages):
        later = [op for other in stages[number + 1 :] for op in other.ops]
        stage.sinks = [op for op in stage.ops if id(op) in wanted or _is_read_from_memory(op, later)]
    return stages


def _numbers_first(ops: Sequence[Op]) -> list[Op]:
    """Returns the ops of a kernel without reductions, with those of single numbers first, as far as they depend on no
    others: they would separate maps that share loops. The ops of other kernels stay in order."""
    if any(op.reduced or op.carried is not None for op in ops):
        return list(ops)
    made = {id(op) for op in ops}
    first: set[int] = set()
    for op in ops:
        sources = {id(tensor.op) for tensor in _sources(op)} & made
        if not op.loops and sources <= first:
            first.add(id(op))
    return sorted(ops, key=lambda op: id(op) not in first)


def merge_loops(stage: Stage) -> None:
    """Merges neighbouring parallel classes that move through all memory as one: the inner class takes the product of
    both sizes, the outer class becomes size 1."""
    if any(n.kind in ("index", "extract") for op in stage.ops for n in op.body.walk()):
        return
    order = max((stage.loops(op) for op in stage.ops), key=len)
    apart = {*stage.around, *(c for op in stage.ops for c in stage.reduced(op))}
    # The distance of a step from the index of a loop is lost in a merged loop.
    apart |= {stage.of(op, bound[0]) for op in stage.ops for bound in (op.until, op.since) if bound is not None}
    candidates = [c for c in order if c not in apart and stage.sizes[c] != 1]
    position = len(candidates) - 2
    while position >= 0:
        outer, inner = candidates[position : position + 2]
        if all(_moves_as_one(stage, op, outer, inner) for op in stage.ops):
            stage.sizes[inner] = multiply(stage.sizes[outer], stage.sizes[inner])
            stage.sizes[outer] = 1
            del candidates[position]
        position -= 1


def _moves_as_one(stage: Stage, op: Op, outer: int, inner: int) -> bool:
    loops = {stage.of(op, i): i for i in op.outer}
    if outer not in loops and inner not in loops:
        return True
    if outer not in loops or inner not in loops:
        return False
    accesses = [a for a in op.reads if not stage.holds(a.tensor)]
    if op in stage.sinks:
        accesses.append(op.written)
    accesses += op.started
    steps = [(a.step(loops[outer]), a.step(loops[inner])) for a in accesses]
    return all(x is not None and y is not None and x == multiply(y, stage.sizes[inner]) for x, y in steps)


def _is_read_from_memory(op: Op, later: Sequence[Op]) -> bool:
    home = op.result.view
    return home is not None and any(
        tensor.view is not None and tensor.view.buffer == home.buffer for other in later for tensor in _sources(other)
    )


def _sources(op: Op) -> list[Tensor]:
    """Returns the operands of an op, from memory or not."""
    extracted = [n.tensor for n in op.body.walk() if n.tensor is not None]
    return [*(a.tensor for a in op.reads), *([op.start] if op.start is not None else []), *extracted]


def _start(op: Op) -> Stage:
    stage = Stage([op])
    for loop, size in enumerate(op.loops):
        stage.classes[id(op), loop] = len(stage.sizes)
        stage.sizes.append(size)
    return stage


def _join(stage: Stage, op: Op, most: int | None) -> Stage | None:
    """Returns the stage with the op added, if the two can share loops and fusion is profitable."""
    if any(each.carried is not None for each in (*stage.ops, op)):
        return None
    joined = _unify(stage, op)
    return joined if joined is not None and _worth(stage, op, joined) and _fits(joined, most) else None


def _unify(stage: Stage, op: Op) -> Stage | None:
    """Assigns classes to an op's loops by its reads from the stage; returns None where the reads contradict each
    other."""
    homes = {o.result.view.buffer for o in stage.ops if o.result.view is not None}
    if any(n.tensor is not None and _lies_in(n.tensor, homes) for n in op.body.walk()):
        return None
    if op.start is not None and op.start.splat is None and _lies_in(op.start, homes):
        return None
    own = op.result.view
    if own is not None and own.buffer in homes:
        return None
    if own is not None and any(_lies_in(t, {own.buffer}) for o in stage.ops for t in _sources(o) if not stage.holds(t)):
        return None
    found: dict[int, int] = {}
    for access in op.reads:
        if not stage.holds(access.tensor):
            if _lies_in(access.tensor, homes):
                return None
            continue
        if not _pair(stage, access, op, found):
            return None
    joined = stage.copy()
    found = found or _pair_shared_reads(stage, op)
    for loop, size in enumerate(op.loops):
        if loop not in found:
            found[loop] = len(joined.sizes)
            joined.sizes.append(size)
        joined.classes[id(op), loop] = found[loop]
    joined.ops.append(op)
    return joined


def _lies_in(tensor: Tensor, buffers: Collection[Buffer]) -> bool:
    return tensor.splat is None and tensor.view is not None and tensor.view.buffer in buffers


def _pair(stage: Stage, access: Access, op: Op, found: dict[int, int]) -> bool:
    """Assigns the classes of a result's loops to the loops of an op that index the result."""
    producer, axes = access.tensor.op, access.tensor.axes
    assert producer is not None and axes is not None, access
    if producer.result.element != access.tensor.element or access.group is not None:
        return False
    for computed, axis in zip(producer.map, axes, strict=True):
        made = plain(computed)
        if made is None:
            if computed.coefficients or computed.constant:
                return False
            continue
        size = producer.loops[made]
        if axis is None:
            continue
        read = plain(access.index[axis])
        if read is None:
            if size == 1:
                continue
            return False
        wanted = stage.of(producer, made)
        if found.setdefault(read, wanted) != wanted:
            return False
        if any(loop != read and c == wanted for loop, c in found.items()):
            return False
        if op.loops[read] != size:
            return False
    return True


def _pair_shared_reads(stage: Stage, op: Op) -> dict[int, int]:
    """Returns the classes for the loops of a map that reads no result of a stage of maps, but an operand of theirs at
    the same index; none where loops stay without a class, or would share one.

    The averages of an optimizer are such maps: m[i] = b * m[i] + c * g[i] and v[i] = d * v[i] + e * g[i].
    """
    if any(each.reduced or any(n.kind in ("index", "extract") for n in each.body.walk()) for each in (*stage.ops, op)):
        return {}
    for access in op.reads:
        for other, read in ((o, a) for o in stage.ops for a in o.reads):
            if (
                read.tensor.view is None
                or read.tensor.view != access.tensor.view
                or len(read.index) != len(access.index)
            ):
                continue
            loops = [(plain(own), plain(theirs)) for own, theirs in zip(access.index, read.index, strict=True)]
            found = {own: stage.of(other, theirs) for own, theirs in loops if own is not None and theirs is not None}
            sizes = all(op.loops[own] == stage.sizes[c] for own, c in found.items())
            if sizes and len(found) == len(loops) == len(op.loops) == len({*found.values()}):
                return found
    return {}


# Profitability of fusion


def is_tiled(op: Op) -> bool:
    """Returns whether a reduction runs over whole vectors of its result, rather than along vectors of its operand."""
    return bool(op.reduced) and (lane_loop(op) is not None)


def lane_loop(op: Op) -> int | None:
    """Returns the parallel loop of a reduction with contiguous steps, in its operands and in its result."""
    found = [i for i in op.outer if op.loops[i] != 1 and op.written.step(i) is not None and _is_vector(op, i)]
    near = [i for i in found if op.written.step(i) == 1]
    if not found and (number := turned_read(op)) is not None:
        return _turned_loop(op, op.reads[number], op.reads[1 - number])
    return next(reversed(near or found), None)


def turned_read(op: Op) -> int | None:
    """Returns the factor of a sum of products that is contiguous along the sum, but not along the result's vectors.
    Several rows of the result share the factor, so that a transposition is profitable."""
    if op.factors is None or len(op.reduced) != 1 or len(op.reads) != 2:
        return None
    if any(_is_vector(op, i) for i in op.outer if op.loops[i] != 1):
        return None
    found = (n for n, access in enumerate(op.reads) if _turned_loop(op, access, op.reads[1 - n]) is not None)
    return next(found, None)


def _turned_loop(op: Op, access: Access, other: Access) -> int | None:
    """Returns the loop of the result's vectors, where the access is a candidate of `turned_read`."""
    (sum,) = op.reduced
    if access.tensor.op is not None or access.tensor.view is None:
        return None
    if access.group is not None or access.step(sum) != 1:
        return None
    if not any(op.loops[i] != 1 and i not in access.loops() for i in op.outer):
        return None
    loops = (i for i in op.outer if op.loops[i] != 1 and op.written.step(i) == 1)
    return next((i for i in loops if i not in other.loops() and access.step(i) not in (0, None)), None)


def _is_vector(op: Op, loop: int) -> bool:
    steps = [(a.step(loop), a.width) for a in op.reads]
    steps += [(extract_step(n, loop), 1) for n in op.body.walk() if n.kind == "extract"]
    if any(step == width for step, width in steps):
        return all(step in (0, width) for step, width in steps)
    # Windows that begin a few elements apart, also beside weights that all of them share.
    apart = [step in APART and width == 1 for step, width in steps if step != 0]
    return is_window(op) and bool(apart) and all(apart)


def _worth(stage: Stage, op: Op, joined: Stage) -> bool:
    tiles = [o for o in joined.ops if is_tiled(o)]
    rows = [o for o in joined.ops if o.reduced and not is_tiled(o)]
    if not tiles and not rows:
        return all(set(joined.loops(o)) == set(joined.loops(op)) for o in stage.ops)
    if rows and any(turned_read(o) is not None for o in tiles):
        return False
    if not rows:
        return not op.reduced and len(tiles) == 1 and set(joined.parallel(op)) == set(joined.parallel(tiles[0]))
    outer = set(joined.outer)
    if not outer and any(o.outer for o in joined.ops if o.reduced):
        return False
    for o in joined.ops:
        inner = [c for c in joined.parallel(o) if c not in outer and joined.sizes[c] != 1]
        if (o in rows and inner) or len(inner) > 1:
            return False
        if o in tiles and [joined.of(o, lane) for lane in [lane_loop(o)] if lane is not None] != inner:
            return False
    if not tiles:
        return True
    return is_tiled(stage.ops[0])


def _fits(stage: Stage, most: int | None) -> bool:
    """Returns whether `ROWS` rows between contractions have at most that many bytes."""
    has_rows = any(op.reduced and not is_tiled(op) for op in stage.ops)
    if most is None or not has_rows or not any(map(is_tiled, stage.ops)):
        return True
    outer = set(stage.outer)
    return all(row_bytes(stage, op, outer) <= most for op in stage.ops)


def row_bytes(stage: Stage, op: Op, outer: set[int]) -> int:
    """Returns the bytes of a block of `ROWS` rows of an op's result."""
    inner = 1
    for c in stage.parallel(op):
        if c not in outer:
            inner *= bounds(stage.sizes[c])[1]
    return ROWS * element_bytes(op.result.element) * inner
