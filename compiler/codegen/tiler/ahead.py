"""What is fetched into the cache ahead of its use: panels of weights, which memory sends too late when they are read.

The hardware fetches ahead too, but within a page of 4 KiB, and begins anew with every page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....dialect.dims import Size, bounds, ceil_divide, maximum, multiply, product
from .evaluate import Evaluator, Place
from .forms import Form, constant, variable
from .structure import Op

AHEAD = 2048
"""Elements of a panel, or groups of them, that take longer to use than memory takes to answer."""
SHARING = 2
"""Turns from which on they share out the next panel. Where a panel is read in one alone, time is what memory needs for
it anyway, and what comes early may be gone when it is used."""


@dataclass(frozen=True, slots=True)
class Turns:
    """A class of loops that takes a panel again: its place moves by `step`, `count` times from the one of number
    `first` on."""

    of: int
    step: int
    count: Size
    first: Form


@dataclass(frozen=True, slots=True)
class Panels:
    """How a tiled op goes through the panels of a weight, which are `width` wide: each is read in so many turns, the
    last class of which runs fastest, before the next."""

    width: int
    turns: tuple[Turns, ...]

    @property
    def times(self) -> Size:
        return product(maximum(1, t.count) for t in self.turns)

    def turn(self, place: Place) -> Form | None:
        """The number of the turn; None where a place does not tell it."""
        total = constant(0)
        for t in self.turns:
            at = place.get(t.of)
            number = None if at is None else at.divided(t.step)
            if number is None:
                return None
            total = total.times(maximum(1, t.count)) + number + t.first.times(-1)
        return total


def fetch_ahead(evaluator: Evaluator, op: Op, number: int, places: Sequence[Place], panels: Panels) -> None:
    """Lets come what will be read of a weight, while its vectors at some places are read. Where a panel is read in
    many turns, each fetches its share of the next one; else the panel itself is fetched a little ahead."""
    buffer, here = evaluator.home(op.reads[number], op, places[0])
    group = op.reads[number].width
    shared = bounds(panels.times)[1] >= SHARING
    target = _next_panel(evaluator, op, number, places[0], here, panels) if shared else None
    for vector, at in enumerate(places):
        if target is None:
            _, form = evaluator.home(op.reads[number], op, at)
            evaluator.writer.prefetch(buffer, form.base.plus(AHEAD * group))
        else:
            evaluator.writer.prefetch(buffer, target.plus(vector * evaluator.writer.lanes * group))


def _next_panel(evaluator: Evaluator, op: Op, number: int, place: Place, here: Form, panels: Panels) -> Form | None:
    """Where in the next panel the share of this step of this turn begins; in the panel itself while it turns out when
    the model is called that there are too few turns. None where places are not steps and turns."""
    writer, group = evaluator.writer, op.reads[number].width
    width = panels.width * group
    begin = {evaluator.stage.of(op, i): constant(0) for i in op.reduced}
    _, first = evaluator.home(op.reads[number], op, {**place, **begin})
    steps, turn = (here + first.times(-1)).divided(width), panels.turn(place)
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
