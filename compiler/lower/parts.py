"""The functions generated from a kernel, to the extent that callers and the memory plan depend on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...dialect.lazy_dataclass import dataclass

SEQUENCE = "sequence"
"""The schedule of a kernel of sequential loops with steps that depend on elements of earlier steps: radix sort, updates
at positions that may be equal. Upstream passes compile its loops in the stated order."""
PLAIN = "plain"
"""The schedule of an op on a GPU that no other one fits: a thread for each element, which reads them one by one."""
MATRIX_TILE = "matrix tile"
"""The schedule of a loop nest that uses the registers of a matrix unit."""
FIXED_POINT = "fixed-point tile"
"""The schedule of a sum of products whose factors are rounded to 16-bit integers, in calls of `ROUNDED_ROWS` rows or
more (`dialect/emitter.py`)."""

INNER = "_inner"
"""The suffix of the copies of kernels' functions that are linked into the module of the entries, for loops that are one
function."""


@dataclass(frozen=True, slots=True)
class KernelPart:
    """A function of a kernel; the parts of a kernel are called one after another.

    `uses` holds a flag for each tensor of the kernel, its inputs, results and scratch in this order: whether the part
    reads or writes it. `in_place` are pairs of tensor indices, a written tensor and a read one, that may share memory.
    """

    uses: tuple[bool, ...]
    in_place: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> KernelPart:
        return KernelPart(tuple(fields["uses"]), tuple((written, read) for written, read in fields["in_place"]))


Parts = Mapping[str, Sequence[KernelPart]]
"""The parts of kernels by the kernel's symbol; a kernel that is missing is one part that uses everything."""


def join_targets(targets: Sequence[Sequence[KernelPart]]) -> tuple[KernelPart, ...]:
    """Returns the parts of one kernel that hold for all its targets: the union of the uses, and the common in-place
    pairs."""
    first, *others = targets
    if any(len(parts) != len(first) for parts in others):
        uses = zip(*(part.uses for parts in targets for part in parts), strict=True)
        return (KernelPart(tuple(any(used) for used in uses)),)
    return tuple(_join(parts) for parts in zip(*targets, strict=True))


def _join(parts: Sequence[KernelPart]) -> KernelPart:
    uses = tuple(any(used) for used in zip(*(part.uses for part in parts), strict=True))
    common = set.intersection(*(set(part.in_place) for part in parts))
    return KernelPart(uses, tuple(sorted(common)))
