"""Prefetching of weight panels, which would arrive from memory too late for their reads.

The hardware prefetches too, but within a page of 4 KiB, and starts again with every page.

A panel of 64 steps of 32 columns that 4 blocks of rows read, one after another, is read in 4 turns. Each turn fetches a
quarter of the next panel, 8 elements at each step:

    turn 0 of panel p, step k    reads panel p from 32*k on, fetches panel p + 1 from 8*k on
    turn 1                       the same step k fetches from 512 + 8*k on
    turns 2 and 3                from 1024 + 8*k and 1536 + 8*k on

With a single turn, steps fetch lines of the same panel at the distances that suit the CPU (`Prefetches`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ....dialect.dims import Size, bounds, ceil_divide, maximum, multiply, product
from ....dialect.lazy_dataclass import dataclass
from ...targets.vector_unit import Prefetches
from .evaluate import Evaluator, Iteration
from .forms import Form, constant, variable
from .structure import Access, Op
from .text import element_bytes

LINE = 64
"""The bytes that a prefetch fetches: a line of the cache."""
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
    next one. The last class of the turns runs fastest. `prefetches` are those of panels with a single turn. Where a
    panel is read in parts (see `split_sums.py`), `around` are the loops of the sum around a part, and each part is read
    in all turns before the next one."""

    width: int
    turns: tuple[Turns, ...]
    prefetches: Prefetches
    around: frozenset[int] = frozenset()

    @property
    def times(self) -> Size:
        return product(maximum(1, t.count) for t in self.turns)

    @property
    def each_line(self) -> bool:
        """Whether each line of a panel with a single turn is prefetched."""
        return self.prefetches.spacing == LINE

    @property
    def may_share(self) -> bool:
        """Whether several turns may share the prefetch of the next panel."""
        return bounds(self.times)[1] >= SHARING

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
    target = _next_panel(evaluator, op, number, iterations[0], here, panels) if panels.may_share else None
    if target is None:
        # Vectors of a step adjoin, and so do those of successive steps: one prefetch serves all vectors of a line.
        bytes, fetches = element_bytes(buffer.element), panels.prefetches
        of_line = max(1, fetches.spacing // (evaluator.writer.lanes * group * bytes))
        for at in iterations[::of_line]:
            _, form = evaluator.home(op.reads[number], op, at)
            for distance, level in fetches.distances:
                evaluator.writer.prefetch(buffer, form.base.plus(distance // bytes), level=level)
        return
    # Shares of successive steps adjoin: where a share is less than a vector, one prefetch a step covers all of them.
    length = evaluator.writer.lanes * group
    share = _share(panels, group) or len(iterations) * length
    for vector in range(min(len(iterations), -(-share // length))):
        evaluator.writer.prefetch(buffer, target.plus(vector * length))


def _share(panels: Panels, group: int) -> int | None:
    """Returns the greatest number of elements that a step fetches of the next panel; None where too few turns may share
    it."""
    fewest = bounds(panels.times)[0]
    return -(-panels.width * group // fewest) if fewest >= SHARING else None


def steps_of_a_fetch(panels: Panels, access: Access, lanes: int, steps: int, words: int = 1) -> int:
    """Returns the number of successive steps that one prefetch serves: those whose shares of the next panel are at most
    a vector together, or those within about the spacing of prefetches. It divides the number of steps of a loop. A step
    reads `words` vectors of a panel, side by side, for each vector of columns."""
    if panels.may_share:
        share = _share(panels, access.width)
        most = 1 if share is None else lanes * access.width // share
    else:
        bytes = panels.width * access.width * element_bytes(access.tensor.element) * words
        spacing = panels.prefetches.spacing + (bytes // 2 if words > 1 else 0)
        most = spacing // bytes
    return max(n for n in range(1, max(1, min(most, steps)) + 1) if steps % n == 0)


def _next_panel(
    evaluator: Evaluator, op: Op, number: int, iteration: Iteration, here: Form, panels: Panels
) -> Form | None:
    """Returns the start of this step's share of the next panel, or a form in the current panel where the run-time
    number of turns is too small. None where positions are not steps and turns."""
    writer, group = evaluator.writer, op.reads[number].width
    width = panels.width * group
    within = [i for i in op.reduced if i not in panels.around]
    begin = {evaluator.stage.of(op, i): constant(0) for i in within}
    buffer, first = evaluator.home(op.reads[number], op, {**iteration, **begin})
    steps, turn = (here + first.times(-1)).divided(width), panels.turn(iteration)
    if steps is None or turn is None:
        return None
    depth = product(op.loops[i] for i in within)
    share = ceil_divide(width, panels.times)
    origin = first.base.plus(multiply(depth, width)) + turn.times(multiply(depth, share))
    if bounds(panels.times)[0] >= SHARING:
        return origin + steps.times(share)
    farthest = panels.prefetches.distances[0][0]
    many = writer.let(f"arith.cmpi uge, {writer.size(panels.times)}, {writer.size(SHARING)} : index")
    ahead = writer.index(first.base.plus(farthest // element_bytes(buffer.element)))
    origin = variable(writer.let(f"arith.select {many}, {writer.index(origin)}, {ahead} : index"))
    stride = writer.let(f"arith.select {many}, {writer.size(share)}, {writer.size(width)} : index")
    return origin + variable(writer.let(f"arith.muli {writer.index(steps)}, {stride} : index"))
