"""Prefetching of weight panels, which would arrive from memory too late for their reads.

The hardware prefetches too, but within a page of 4 KiB, and starts again with every page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....dialect.dims import Size, bounds, ceil_divide, maximum, multiply, product
from .evaluate import Evaluator, Iteration
from .forms import Form, constant, variable
from .structure import Op

AHEAD = 2048
"""The prefetch distance in elements of a panel, or groups of them: their use takes longer than a memory access."""
SHARING = 2
"""The least number of turns that share the prefetch of the next panel. With a single turn per panel, memory bandwidth
is the limit anyway, and an early prefetch may be evicted before its use."""


@dataclass(frozen=True, slots=True)
class Turns:
    """A class of loops that revisits a panel: its position moves by `step`, `count` times from index `first` on."""

    of: int
    step: int
    count: Size
    first: Form


@dataclass(frozen=True, slots=True)
class Panels:
    """A tiled op's traversal of a weight's panels, which are `width` wide: each panel is read in all turns before the
    next one. The last class of the turns runs fastest."""

    width: int
    turns: tuple[Turns, ...]

    @property
    def times(self) -> Size:
        return product(maximum(1, t.count) for t in self.turns)

    def turn(self, iteration: Iteration) -> Form | None:
        """Returns the index of the turn; None where the position does not define it."""
        total = constant(0)
        for t in self.turns:
            at = iteration.get(t.of)
            number = None if at is None else at.divided(t.step)
            if number is None:
                return None
            total = total.times(maximum(1, t.count)) + number + t.first.times(-1)
        return total


def prefetch_panels(evaluator: Evaluator, op: Op, number: int, iterations: Sequence[Iteration], panels: Panels) -> None:
    """Prefetches the weight's next elements while its vectors at some positions are read. Where a panel is read in many
    turns, each turn fetches its share of the next panel; otherwise the panel itself is fetched a little ahead."""
    buffer, here = evaluator.home(op.reads[number], op, iterations[0])
    group = op.reads[number].width
    shared = bounds(panels.times)[1] >= SHARING
    target = _next_panel(evaluator, op, number, iterations[0], here, panels) if shared else None
    if target is None:
        for at in iterations:
            _, form = evaluator.home(op.reads[number], op, at)
            evaluator.writer.prefetch(buffer, form.base.plus(AHEAD * group))
        return
    # Shares of successive steps adjoin: where a share is less than a vector, one prefetch a step covers all of them.
    length = evaluator.writer.lanes * group
    fewest = bounds(panels.times)[0]
    share = -(-panels.width * group // fewest) if fewest >= SHARING else len(iterations) * length
    for vector in range(min(len(iterations), -(-share // length))):
        evaluator.writer.prefetch(buffer, target.plus(vector * length))


def _next_panel(
    evaluator: Evaluator, op: Op, number: int, iteration: Iteration, here: Form, panels: Panels
) -> Form | None:
    """Returns the start of this step's share of the next panel, or a form in the current panel where the run-time
    number of turns is too small. None where positions are not steps and turns."""
    writer, group = evaluator.writer, op.reads[number].width
    width = panels.width * group
    begin = {evaluator.stage.of(op, i): constant(0) for i in op.reduced}
    _, first = evaluator.home(op.reads[number], op, {**iteration, **begin})
    steps, turn = (here + first.times(-1)).divided(width), panels.turn(iteration)
    if steps is None or turn is None:
        return None
    depth = product(op.loops[i] for i in op.reduced)
    share = ceil_divide(width, panels.times)
    origin = first.base.plus(multiply(depth, width)) + turn.times(multiply(depth, share))
    if bounds(panels.times)[0] >= SHARING:
        return origin + steps.times(share)
    many = writer.let(f"arith.cmpi uge, {writer.size(panels.times)}, {writer.size(SHARING)} : index")
    near = writer.index(first.base.plus(AHEAD * group))
    origin = variable(writer.let(f"arith.select {many}, {writer.index(origin)}, {near} : index"))
    stride = writer.let(f"arith.select {many}, {writer.size(share)}, {writer.size(width)} : index")
    return origin + variable(writer.let(f"arith.muli {writer.index(steps)}, {stride} : index"))
