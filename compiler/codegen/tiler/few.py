"""Results whose memory has a few neighbours along one class, such as the columns of a block of pixels.

Vectors run along the class around them; they are interleaved in registers, and each store is a whole vector. For
y[i, j] with 2 elements j and 4 lanes:

    y[i .. i+3, 0]    a b c d     ->    a e b f    y[i, 0], y[i, 1], y[i+1, 0], y[i+1, 1]
    y[i .. i+3, 1]    e f g h     ->    c g d h    y[i+2, 0], ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....dialect.lazy_dataclass import dataclass
from .branches import watching
from .evaluate import Evaluator, Iteration
from .forms import LANES, constant, variable
from .halves import is_bit_pattern
from .schedule import Stage
from .structure import Access, Op
from .text import Value, Writer

MOST = 4
"""The most neighbours that are interleaved. Their number squared is about the number of instructions for it."""


@dataclass(frozen=True, slots=True)
class Few:
    """The class of `count` neighbours, and the class around them, along which vectors run."""

    lane: int
    count: int
    around: int


def find_around(stage: Stage, lane: int | None, lanes: int) -> Few | None:
    """Returns the classes, if the results have few neighbours, and no read is strided along the class around them."""
    if lane is None or lanes < MOST:
        return None
    count = stage.sizes[lane]
    if not isinstance(count, int) or not 1 < count <= min(MOST, lanes // 2):
        return None
    if any(_step(stage, sink, sink.written, lane) != 1 for sink in stage.sinks):
        return None
    for c in stage.loops(stage.sinks[-1]):
        if stage.sizes[c] == 1 or c in stage.around:
            continue
        written = all(_step(stage, sink, sink.written, c) == count for sink in stage.sinks)
        if written and all(_step(stage, op, access, c) in (0, 1) for op, access in _reads(stage)):
            return Few(lane, count, c)
    return None


def _reads(stage: Stage) -> Iterator[tuple[Op, Access]]:
    return ((op, a) for op in stage.ops for a in op.reads if not stage.holds(a.tensor))


def _step(stage: Stage, op: Op, access: Access, c: int) -> object:
    loops = [i for i in range(len(op.loops)) if stage.of(op, i) == c]
    return access.step(loops[0]) if loops else 0


def is_copy(op: Op) -> bool:
    """Returns whether the op only moves numbers, so that a scalar costs no more than a vector."""
    moving = ("read", "extract", "constant", "size", "index", "arith.select")
    return all(
        n.kind in moving or n.type == "index" or n.type.startswith("i") or is_bit_pattern(n) for n in op.body.walk()
    )


def write_interleaved(evaluator: Evaluator, few: Few, iteration: Iteration, first: str, last: str) -> None:
    """Writes all neighbours at the positions `first` to `last` of the class around them."""
    writer = evaluator.writer
    end = writer.rounded(first, last, writer.lanes)
    with writer.loop(first, end, writer.lanes) as start:
        _write(evaluator, few, iteration, start, None)
    size = evaluator.stage.sizes[few.around]
    if isinstance(size, int) and size % writer.lanes == 0:
        return
    left = writer.let(f"arith.subi {last}, {end} : index")
    some = writer.let(f"arith.cmpi ugt, {left}, {writer.size(0)} : index")
    with writer.when(some):
        _write(evaluator, few, iteration, end, left)


def _write(evaluator: Evaluator, few: Few, iteration: Iteration, start: str, left: str | None) -> None:
    """Writes one vector of positions, or the `left` ones under masks."""
    writer, sinks = evaluator.writer, evaluator.stage.sinks
    at = {**iteration, few.around: variable(start) + LANES}
    mask = None if left is None else writer.first_lanes(variable(left))
    with watching(writer), writer.masked(mask):
        values = [
            [writer.broadcast(evaluator.value(op, {**at, few.lane: constant(i)})) for i in range(few.count)]
            for op in sinks
        ]
    corner = {**iteration, few.around: variable(start), few.lane: constant(0)}
    for op, parts in zip(sinks, values, strict=True):
        buffer, base = evaluator.home(op.written, op, corner)
        with writer.at(op.location):
            for k, value in enumerate(interleave(writer, parts)):
                behind = k * writer.lanes
                within = None
                if left is not None:
                    within = writer.first_lanes(variable(left).times(few.count).plus(-behind))
                with writer.masked(within):
                    writer.store(buffer, base.plus(behind) + LANES, value)


def interleave(writer: Writer, values: Sequence[Value]) -> list[Value]:
    """Returns the vectors of the first elements of all values, then of the second ones, and so on."""
    lanes, count, shuffle = writer.lanes, len(values), writer.shuffle
    results = []
    for k in range(count):
        # Element e of vector k is position (k * lanes + e) / count of value (k * lanes + e) % count.
        sources = [divmod(k * lanes + e, count) for e in range(lanes)]
        total = shuffle(values[0], values[1], [position + lanes * (number == 1) for position, number in sources])
        for new in range(2, count):
            picks = [lanes + position if number == new else e for e, (position, number) in enumerate(sources)]
            total = shuffle(total, values[new], picks)
        results.append(total)
    return results
