"""Slice-by-slice schedule: all stages of a run are computed for one step of their outermost loops before the next step.

Where each stage reads only the same step's part of the earlier stages' results, as in chains of depthwise convolutions,
no stage waits for all of another one. A buffer between two stages then shrinks to one slice: it stays on the stack, and
so in the cache. The analysis uses addresses alone. Constants in such a buffer, such as the zeros around an image, are
written once and not for every slice.

The parts of one result, such as the edges and the middle of a padded image, are computed slice by slice too, so that
its memory passes through the cache once and not once for each part.

Only stages of maps and of register tiles take part, and only slices of known size.

For two depthwise convolutions, t = f(x) and y = g(t):

    as a whole:        f for all channels, then g for all channels       t has all channels
    slice by slice:    for each channel: f, then g                       t has one channel, on the stack
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise

from ....dialect.dims import Size, bounds, product
from ....dialect.lazy_dataclass import dataclass
from ...targets.vector_unit import Caches
from ..structured.positions import plain
from .schedule import Stage, is_tiled, lane_loop
from .sharing import share_elements
from .structure import Access, Buffer, Kernel, Op, Tensor
from .text import element_bytes

STACK = 112 * 1024
"""The most bytes that slices take on the stack."""
SLICES = 16
"""The least number of slices, so that threads can share them out."""
READ_AGAIN = 4
"""The part of a core's own cache, as a divisor, that every slice may read again: it should stay there beside the
slice."""


@dataclass(frozen=True, slots=True)
class Local:
    """A slice of a buffer between stages: a separate tensor with `elements` elements."""

    buffer: Buffer
    elements: int
    tensors: tuple[tuple[Tensor, frozenset[int]], ...]
    """The tensors in the buffer, with the axes that slices are steps of."""
    slot: int
    """The slot of the slice; slices of the same slot share memory."""

    def move(self, memory: Buffer) -> None:
        """Moves the tensors to other memory, which holds one slice."""
        for tensor, axes in self.tensors:
            view = tensor.view
            assert view is not None, self.buffer
            strides = tuple(0 if axis in axes else stride for axis, stride in enumerate(view.strides))
            tensor.view = replace(view, buffer=memory, strides=strides)


@dataclass(frozen=True, slots=True)
class Slices:
    """A run of stages, in order; the `constant` ones are written once before all others. A single stage is computed as
    a whole. Stages without `locals` write parts of one result.

    Each stage's `around` holds the classes of the loops around the slices.
    """

    constant: tuple[Stage, ...]
    stages: tuple[Stage, ...]
    locals: tuple[Local, ...] = ()

    @property
    def counts(self) -> list[Size]:
        stage = self.stages[0]
        return [stage.sizes[c] for c in stage.around]


def plan_slices(kernel: Kernel, stages: Sequence[Stage], caches: Caches) -> list[Slices]:
    """Splits the stages of a kernel into maximal runs that are computed slice by slice."""
    planned: list[Slices] = []
    begin = 0
    while begin < len(stages):
        ends = range(len(stages), begin + 1, -1)
        found = (_slice(kernel, stages, begin, end, caches) for end in ends)
        made = next((s for s in found if s is not None), Slices((), (stages[begin],)))
        planned.append(made)
        begin += len(made.constant) + len(made.stages)
    return planned


def _slice(kernel: Kernel, stages: Sequence[Stage], begin: int, end: int, caches: Caches) -> Slices | None:
    run = stages[begin:end]
    if not all(_takes_part(stage) for stage in run):
        return None
    elsewhere = {
        a.tensor.view.buffer for s in (*stages[:begin], *stages[end:]) for _, a in accesses(s) if a.tensor.view
    }
    candidates = [_candidates(stage) for stage in run]
    for depth in range(min(map(len, candidates)), 0, -1):
        around = [tuple(c[:depth]) for c in candidates]
        sizes = {tuple(s.sizes[c] for c in cs) for s, cs in zip(run, around, strict=True)}
        if any(_loses_rows(stage, cs) for stage, cs in zip(run, around, strict=True)):
            continue
        if len(sizes) == 1 and bounds(product(next(iter(sizes))))[0] >= SLICES:
            made = _Planner(kernel, run, around, elsewhere, caches).plan()
            if made is not None:
                for stage, classes in zip(run, around, strict=True):
                    stage.around = classes
                return made
    return None


def _candidates(stage: Stage) -> list[int]:
    """Returns the classes of the outer loops that slices may be steps of: the classes before the vectors' class."""
    lanes = {stage.of(op, loop) for op in stage.ops if op.reduced for loop in [lane_loop(op)] if loop is not None}
    lanes |= {stage.of(op, i) for op in stage.sinks for i in op.outer if op.written.step(i) == 1}
    found = [c for c in stage.outer if stage.sizes[c] != 1]
    return found[: next((i for i, c in enumerate(found) if c in lanes), len(found))]


def _loses_rows(stage: Stage, around: Sequence[int]) -> bool:
    """Returns whether slices take from a sum all loops in which several rows share the vectors that they read, as the
    output channels of a convolution do."""
    for op in stage.ops:
        lane = lane_loop(op) if op.reduced else None
        if lane is None:
            continue
        shared = [i for i in op.outer if i != lane and op.loops[i] != 1]
        shared = [i for i in shared if not any(i in a.loops() for a in op.reads if lane in a.loops())]
        if shared and {stage.of(op, i) for i in shared} <= set(around):
            return True
    return False


def _takes_part(stage: Stage) -> bool:
    reductions = [op for op in stage.ops if op.reduced]
    if any(op.carried is not None for op in stage.ops):
        return False
    return not reductions or (len(reductions) == 1 and is_tiled(reductions[0]))


def accesses(stage: Stage) -> Iterable[tuple[Op, Access]]:
    """Yields a stage's reads from memory, then its writes."""
    for op in stage.ops:
        yield from ((op, access) for access in op.reads if not stage.holds(access.tensor))
        yield from ((op, access) for access in op.started)
        for node in op.body.walk():
            if node.tensor is not None:
                yield op, Access(node.tensor, ())
    yield from ((op, op.written) for op in stage.sinks)


@dataclass(frozen=True, slots=True)
class _Use:
    """A stage's access to memory: its start in a slice, the strides of its loops, and its extent."""

    stage: int
    op: Op
    access: Access
    around: tuple[Size | None, ...]
    origin: int
    steps: tuple[tuple[int, int], ...]
    writes: bool

    @property
    def reach(self) -> int:
        return self.origin + sum(step * (size - 1) for step, size in self.steps) + 1

    @property
    def footprint(self) -> tuple[object, ...]:
        return self.origin, tuple(sorted(self.steps))


@dataclass
class _Planner:
    kernel: Kernel
    run: Sequence[Stage]
    around: Sequence[tuple[int, ...]]
    elsewhere: set[Buffer]
    caches: Caches
    uses: dict[Buffer, list[_Use]] = field(default_factory=dict)

    def plan(self) -> Slices | None:
        """Plans the slices; returns None where slices depend on each other, or give no benefit."""
        if not self.look() or not all(self.is_sliced(buffer) for buffer in self.written()):
            return None
        inside = [b for b in self.written() if b not in self.elsewhere and b not in self.kernel.results]
        if self.are_parts():
            return Slices((), tuple(self.run))
        if not inside or self.read_again() > self.caches.own // READ_AGAIN:
            return None
        found = [self.local(b) for b in inside]
        locals = self.share([each for each in found if each is not None])
        if len(found) != len([each for each in found if each is not None]) or _bytes(locals) > STACK:
            return None
        constant = [s for s in self.run if self.is_constant(s, inside)]
        stages = tuple(s for s in self.run if all(s is not c for c in constant))
        return Slices(tuple(constant), stages, tuple(locals))

    def are_parts(self) -> bool:
        """Returns whether the stages are maps that only write parts of one result, and share no memory with operands.
        A slice of it should stay in a core's own cache."""
        written = self.written()
        if len(written) != 1 or written[0] in self.elsewhere or written[0] not in self.kernel.results:
            return False
        uses = self.uses[written[0]]
        if any(op.reduced for stage in self.run for op in stage.ops) or not all(use.writes for use in uses):
            return False
        if any(share_elements(stage) for stage in self.run):
            return False
        return max(use.reach for use in uses) * element_bytes(written[0].element) <= self.caches.own // READ_AGAIN

    def written(self) -> list[Buffer]:
        return [b for b, uses in self.uses.items() if any(u.writes for u in uses)]

    def look(self) -> bool:
        """Finds the reads and writes; returns False where the index of one is not analysable."""
        written = {sink.result.view.buffer for s in self.run for sink in s.sinks if sink.result.view is not None}
        for number, (stage, around) in enumerate(zip(self.run, self.around, strict=True)):
            for op, access in accesses(stage):
                view = access.tensor.view
                if view is None:
                    return False
                if view.buffer not in written:
                    continue
                use = _use(number, stage, around, op, access)
                if use is None:
                    return False
                self.uses.setdefault(view.buffer, []).append(use)
        return True

    def is_sliced(self, buffer: Buffer) -> bool:
        """Returns whether each step of the outer loops has a separate part of the memory, the same one in all
        stages."""
        uses = self.uses[buffer]
        steps = uses[0].around
        if len(uses) == 1:
            return True
        if any(use.around != steps for use in uses):
            return False
        sizes = [self.run[0].sizes[c] for c in self.around[0]]
        numbers = [step for step in steps if isinstance(step, int)]
        if len(numbers) < len(steps) or any(use.reach > numbers[-1] or use.origin < 0 for use in uses):
            return False
        return all(outer == inner * size for (outer, inner), size in zip(pairwise(numbers), sizes[1:], strict=True))

    def read_again(self) -> int:
        """Returns the size in bytes of the memory that every slice reads as a whole."""
        again: dict[Buffer, int] = {}
        for stage, around in zip(self.run, self.around, strict=True):
            for op, access in accesses(stage):
                if access.tensor.view is not None and not {stage.of(op, i) for i in access.loops()} & set(around):
                    count = bounds(product(access.tensor.shape))[1]
                    again[access.tensor.view.buffer] = count * element_bytes(access.tensor.element)
        return sum(again.values())

    def local(self, buffer: Buffer) -> Local | None:
        """Returns the slice of a buffer; None where the axes do not separate its tensors, or it is read before it is
        written."""
        uses = self.uses[buffer]
        tensors: dict[int, tuple[Tensor, frozenset[int]]] = {}
        for use in uses:
            around = set(self.around[use.stage])
            stage = self.run[use.stage]
            axes: set[int] = set()
            for axis, position in enumerate(use.access.index):
                loops = {loop for loop, _ in getattr(position, "coefficients", ())}
                if any(stage.of(use.op, loop) in around for loop in loops):
                    if plain(position) is None:
                        return None
                    axes.add(axis)
            known = tensors.setdefault(id(use.access.tensor), (use.access.tensor, frozenset(axes)))
            if known[1] != axes:
                return None
        if self.life(buffer)[0] < 0 or any(not u.writes and u.stage <= w.stage for u in uses for w in uses if w.writes):
            return None
        elements = max(use.reach for use in uses)
        return Local(buffer, elements, tuple(tensors.values()), slot=0)

    def life(self, buffer: Buffer) -> tuple[int, int]:
        """Returns the indices of the first stage that writes the buffer and of the last stage that reads it."""
        computed = [u.stage for u in self.uses[buffer] if u.writes and not _is_constant(u.op)]
        return min(computed, default=-1), max(u.stage for u in self.uses[buffer])

    def share(self, locals: Sequence[Local]) -> list[Local]:
        """Assigns slots: slices with the same write pattern, constants included, share memory one after another."""
        slots: list[list[Local]] = []
        for each in sorted(locals, key=lambda e: self.life(e.buffer)):
            fitting = (
                number
                for number, others in enumerate(slots)
                if all(self.are_apart(each, other) for other in others)
                and self.pattern(each.buffer) == self.pattern(others[0].buffer)
            )
            slot = next(fitting, len(slots))
            slots[slot:] = slots[slot:] or [[]]
            slots[slot].append(replace(each, slot=slot))
        sizes = [max(each.elements for each in slot) for slot in slots]
        return [replace(each, elements=size) for slot, size in zip(slots, sizes, strict=True) for each in slot]

    def are_apart(self, one: Local, other: Local) -> bool:
        (begin, end), (first, last) = self.life(one.buffer), self.life(other.buffer)
        return end < first or last < begin

    def pattern(self, buffer: Buffer) -> object:
        """Returns the positions of the writes to the buffer, and the constants among them."""
        writes = [u for u in self.uses[buffer] if u.writes]
        return buffer.element, sorted((repr(u.footprint), u.op.body.text if _is_constant(u.op) else "") for u in writes)

    def is_constant(self, stage: Stage, inside: Sequence[Buffer]) -> bool:
        return all(
            _is_constant(op) and op.result.view is not None and op.result.view.buffer in inside for op in stage.ops
        )


def _is_constant(op: Op) -> bool:
    return op.body.kind == "constant"


def _use(number: int, stage: Stage, around: Sequence[int], op: Op, access: Access) -> _Use | None:
    """Returns the use of an access; None where its position does not follow from the loops, or goes backwards."""
    if not access.index:
        return None  # an element at a computed index, or a scalar
    origin = access.origin
    steps: list[tuple[int, int]] = []
    outer: dict[int, Size | None] = dict.fromkeys(around)
    for loop, size in enumerate(op.loops):
        step, c = access.step(loop), stage.of(op, loop)
        if c in outer:
            outer[c] = step
        elif step != 0 and size != 1:
            if not isinstance(step, int) or not isinstance(size, int) or step < 0:
                return None
            steps.append((step, size))
    if not isinstance(origin, int):
        return None
    writes = access.tensor is op.result
    return _Use(number, op, access, tuple(outer.values()), origin, tuple(steps), writes)


def _bytes(locals: Sequence[Local]) -> int:
    slots: Mapping[int, int] = {each.slot: each.elements * element_bytes(each.buffer.element) for each in locals}
    return sum(slots.values())
