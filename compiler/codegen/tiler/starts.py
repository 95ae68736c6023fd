"""Initial values of sums: one that is broadcast from memory, such as a bias, is read where it lies.

    start[n, c, y, x]  = bias[c]                                         a separate op, which only the sum begins with
    result[n, c, y, x] = start[n, c, y, x] + sum of ...
    ->
    result[n, c, y, x] = bias[c] + sum of ...

The start becomes a view of the memory of `bias` with strides of 0, and is never in memory itself. This holds for
elements that are read as they are, by sums of the same dtype; a converted or a computed bias is stored first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....dialect.dims import Size
from ....dialect.emitter import Index
from ..structured.positions import plain
from .pages import move
from .selections import positions_of
from .structure import Access, Kernel, Op, Tensor, View


def take_starts(kernel: Kernel) -> None:
    """Lets sums begin with the elements of memory that a separate op would broadcast."""
    for op in kernel.ops:
        source = op.start.op if op.start is not None else None
        if source is not None and _is_broadcast(source) and _is_only_start(kernel, source, op):
            start = _view(op, source)
            if start is not None:
                op.start = start
                kernel.ops = [other for other in kernel.ops if other is not source]


def _is_broadcast(op: Op) -> bool:
    """Returns whether an op copies elements of memory."""
    if op.reduced or op.carried is not None or op.body.kind != "read":
        return False
    access = op.reads[op.body.number]
    is_linear = access.group is None and all(isinstance(position, Index) for position in access.index)
    memory = access.tensor
    return is_linear and memory.op is None and memory.view is not None and memory.element == op.result.element


def _is_only_start(kernel: Kernel, source: Op, reader: Op) -> bool:
    """Returns whether nothing but the initial value of an op reads a result."""
    tensors = [a.tensor for op in kernel.ops for a in op.reads]
    tensors += [n.tensor for op in kernel.ops for n in op.body.walk() if n.tensor is not None]
    tensors += [op.start for op in kernel.ops if op is not reader and op.start is not None]
    return not any(tensor.op is source for tensor in (*tensors, *kernel.written))


def _view(op: Op, source: Op) -> Tensor | None:
    """Returns the memory that the source copies, as a tensor of the shape of the op's result."""
    assert op.start is not None, op.location
    positions = positions_of(source, Access(op.start, op.map))
    if positions is None:
        return None
    steps = _steps(source, positions)
    loops = [plain(position) for position in op.map]
    if steps is None or any(loop not in loops for loop in steps[1]):
        return None
    origin, by_loop = steps
    (read,) = source.reads
    assert read.tensor.view is not None, source.location
    strides = tuple(0 if loop is None else by_loop.get(loop, 0) for loop in loops)
    view = View(read.tensor.view.buffer, origin, strides)
    return Tensor(op.start.shape, op.start.element, view)


def _steps(source: Op, positions: Mapping[int, Index]) -> tuple[Size, dict[int, Size]] | None:
    """Returns the element that a source reads at index 0 of all loops of its reader, and the step of each loop."""
    (read,) = source.reads
    moved = [p for p in (move(position, positions) for position in read.index) if p is not None]
    access = replace(read, index=tuple(moved))
    origin, steps = access.origin, {loop: access.step(loop) for loop in access.loops()}
    found = {loop: step for loop, step in steps.items() if step is not None}
    return None if origin is None or len(found) < len(steps) else (origin, found)
