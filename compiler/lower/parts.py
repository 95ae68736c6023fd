"""What code generation makes of a kernel, as far as those need to know who call it and give it memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class KernelPart:
    """A function of a kernel; the parts of a kernel are called one after another.

    `uses` says of each tensor of the kernel, of its inputs, results and scratch in this order, whether the part reads
    or writes it. `in_place` are pairs of their numbers, a tensor that is written and one that is read: they may lie at
    the same place in memory.
    """

    uses: tuple[bool, ...]
    in_place: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> KernelPart:
        return KernelPart(tuple(fields["uses"]), tuple((written, read) for written, read in fields["in_place"]))


Parts = Mapping[str, Sequence[KernelPart]]
"""The parts of kernels by the kernel's symbol; a kernel that is not there is one part that uses everything."""


def join_targets(targets: Sequence[Sequence[KernelPart]]) -> tuple[KernelPart, ...]:
    """Parts of one kernel that hold for all targets it was made for: none uses, or shares, anything else."""
    first, *others = targets
    if any(len(parts) != len(first) for parts in others):
        uses = zip(*(part.uses for parts in targets for part in parts), strict=True)
        return (KernelPart(tuple(any(used) for used in uses)),)
    return tuple(_join(parts) for parts in zip(*targets, strict=True))


def _join(parts: Sequence[KernelPart]) -> KernelPart:
    uses = tuple(any(used) for used in zip(*(part.uses for part in parts), strict=True))
    common = set.intersection(*(set(part.in_place) for part in parts))
    return KernelPart(uses, tuple(sorted(common)))
