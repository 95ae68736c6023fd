"""Sums of products over a part of their steps: elements of a triangular matrix are 0, or a mask replaces results.

    x[i, k] == 0 for k > i                y[k, j] == 0 for k < j                z[i, j] replaced for j > i
    rows i .. i + 4                       columns j .. j + 4                    rows i .. i + 4, columns from j on
    steps 0      i + 4            K       steps 0   j                     K     j <= i + 3: all steps
          |------|                |             |   |---------------------|     j >  i + 3: no step

A tile takes the steps that any of its elements needs, up to a multiple of the steps of one iteration. The other
products are 0, so that a sum has the same bits in every tile. Where one of them may be a NaN, which holds at run time
only, the tile takes all steps: `stretches.py` looks at the factors.
"""

from __future__ import annotations

from ....dialect.lazy_dataclass import dataclass
from .evaluate import Evaluator, Span
from .forms import Form
from .ranges import find_kept
from .roles import Roles
from .structure import Op
from .text import Writer


@dataclass(frozen=True, slots=True)
class Ends:
    """The distances of an op's bounds, where it has them: the steps of row i end after step i + `until`, those of
    column j begin with j + `since`, and results are replaced from column i + `kept` on."""

    until: int | None = None
    since: int | None = None
    kept: int | None = None

    def last(self, writer: Writer, span: Span, past: Form, column: Form, unsure: str | None) -> str:
        """Returns the end of the steps that rows before `past` and columns from `column` on need; all steps of a sum
        are needed where `unsure` holds."""
        last = span.last
        if self.until is not None and unsure is not None:
            end = _clamped(writer, past.plus(self.until), span.together - 1, span.together, span)
            last = writer.let(f"arith.select {unsure}, {last}, {end} : index")
        if self.kept is not None:
            end = writer.index(past.plus(self.kept - 1))
            some = writer.let(f"arith.cmpi slt, {writer.index(column)}, {end} : index")
            last = writer.let(f"arith.select {some}, {last}, {span.first} : index")
        return last

    def first(self, writer: Writer, span: Span, column: Form, multiple: int) -> str:
        """Returns the begin of the steps that columns from `column` on need, a multiple of some steps."""
        if self.since is None:
            return span.first
        return _clamped(writer, column.plus(self.since), 0, multiple, span)


def _clamped(writer: Writer, step: Form, more: int, multiple: int, span: Span) -> str:
    """Returns the multiple of some steps that a step and `more` steps reach, within a span. A step beyond the span
    counts as its end: without more steps, vectors of `multiple` steps do not reach beyond it."""

    def let(operation: str, left: str, right: str | int) -> str:
        right = writer.size(right) if isinstance(right, int) else right
        return writer.let(f"arith.{operation} {left}, {right} : index")

    inside = let("minui", let("maxsi", writer.index(step), 0), span.last)
    rounded = let("muli", let("divui", let("addi", inside, more), multiple), multiple)
    return let("minui", let("maxui", rounded, span.first), span.last)


def find_ends(evaluator: Evaluator, op: Op, roles: Roles) -> Ends:
    """Returns the bounds of an op whose sums are not bounded in another way."""
    stage = evaluator.stage
    if roles.row is None or any(stage.of(op, loop) in evaluator.spans for loop in op.reduced):
        return Ends()

    def distance(bound: tuple[int, int] | None, c: int) -> int | None:
        return bound[1] if bound is not None and stage.of(op, bound[0]) == c else None

    return Ends(distance(op.until, roles.row), distance(op.since, roles.lane), _find_kept_columns(evaluator, op, roles))


def _find_kept_columns(evaluator: Evaluator, op: Op, roles: Roles) -> int | None:
    """Returns the distance from a row to the first column that the only op with a result in memory replaces."""
    stage = evaluator.stage
    sinks = stage.sinks
    if len(sinks) != 1 or sinks[0] is op or len([o for o in stage.ops if o.reduced]) != 1:
        return None
    kept = find_kept(stage, sinks[0], roles.lane, roles.row)
    bounds = [] if kept is None else kept.upper
    found = (b.constant for b in bounds if b.terms == ((roles.row, 1),) and isinstance(b.constant, int))
    return min(found, default=None)
