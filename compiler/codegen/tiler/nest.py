"""The outermost loop of a stage: its units, any range of which may be computed apart from the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ....dialect.dims import Size, ceil_divide, product
from .forms import Form, constant, variable
from .text import Writer


@contextmanager
def units(writer: Writer, counts: Sequence[Size], begin: str, end: str) -> Iterator[list[Form]]:
    """A loop over the units `begin` to `end` of the product of the counts; gives the number in each, the last of which
    runs fastest."""
    with writer.loop(begin, end, 1) as unit:
        yield list(_numbers(writer, counts, unit))


def _numbers(writer: Writer, counts: Sequence[Size], unit: str) -> Iterator[Form]:
    varying = [i for i, count in enumerate(counts) if count != 1]
    for number, count in enumerate(counts):
        if number not in varying:
            yield constant(0)
            continue
        later = product(counts[i] for i in varying if i > number)
        value = unit if later == 1 else writer.let(f"arith.divui {unit}, {writer.size(later)} : index")
        if number != varying[0]:
            value = writer.let(f"arith.remui {value}, {writer.size(count)} : index")
        yield variable(value)


def blocks(size: Size, step: int) -> Size:
    """How many blocks of `step` cover a size."""
    return ceil_divide(size, step)
