"""The outermost loop of a stage: its work items, with any range computable independently of the others.

With the counts (2, 3, 4), work item u of 24 has the numbers (u / 12, u / 4 % 3, u % 4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ....dialect.dims import FloorDiv, Size, ceil_divide, product
from .forms import Form, constant, variable
from .text import Writer


@contextmanager
def work_items(writer: Writer, counts: Sequence[Size], begin: str, end: str) -> Iterator[list[Form]]:
    """Writes a loop over the work items `begin` to `end` of the product of the counts; yields the index in each count.
    The last index runs fastest."""
    with writer.loop(begin, end, 1) as item:
        yield list(numbers_of(writer, counts, item))


def numbers_of(writer: Writer, counts: Sequence[Size], item: str) -> Iterator[Form]:
    """Yields the index in each count of a work item."""
    varying = [i for i, count in enumerate(counts) if count != 1]
    for number, count in enumerate(counts):
        if number not in varying:
            yield constant(0)
            continue
        later = product(counts[i] for i in varying if i > number)
        value = item if later == 1 else writer.let(f"arith.divui {item}, {writer.size(later)} : index")
        if number != varying[0]:
            value = writer.let(f"arith.remui {value}, {writer.size(count)} : index")
        yield variable(value)


def blocks(size: Size, step: int) -> Size:
    """Returns the number of blocks of `step` that cover a size."""
    return ceil_divide(size, step)


def divisors(size: Size) -> set[int]:
    """Returns the block sizes that a count was divided by."""
    if isinstance(size, int):
        return set()
    quotients = [atom for monomial, _ in size.terms for atom, _ in monomial if isinstance(atom, FloorDiv)]
    return {q.denominator for q in quotients if isinstance(q.denominator, int)}
