"""From when to when tensors are needed in memory, which of them may take the place of another, and how much memory that
takes at least. Nothing is placed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..dialect.dims import Size, ceil_divide, evaluate, multiply

ALIGNMENT = 64
"""Of the workspace and everything in it, in bytes."""


@dataclass(frozen=True, slots=True)
class Step:
    """What runs at once: the names of all tensors that it reads or writes. `in_place` are pairs of a tensor that it
    writes and one that it reads, which may lie where the other lies if nobody needs both."""

    tensors: tuple[str, ...]
    in_place: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Life:
    """Tensors of one size that need memory from step `first` to step `last`, each taking the place of the one before
    when that dies."""

    names: tuple[str, ...]
    size: Size
    first: int
    last: int


def aligned(size: Size) -> Size:
    return multiply(ALIGNMENT, ceil_divide(size, ALIGNMENT))


def find_lives(steps: Sequence[Step], sizes: Mapping[str, Size]) -> tuple[Life, ...]:
    """The life of every tensor named in `sizes` (bytes), in the order in which they begin: from the first step that
    names it to the last one."""
    ends: dict[str, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for name in step.tensors:
            if name in sizes:
                first, _ = ends.get(name, (number, number))
                ends[name] = first, number
    return tuple(Life((name,), sizes[name], first, last) for name, (first, last) in ends.items())


def join_in_place(steps: Sequence[Step], lives: Sequence[Life]) -> tuple[Life, ...]:
    """The lives of as many tensors as can be put in the place of others, and of the others, as one."""
    over = _take_places(steps, lives)
    later = {read: written for written, read in over.items()}
    by_name = {life.names[0]: life for life in lives}
    joined: list[Life] = []
    for name, life in by_name.items():
        if name in over:
            continue
        names = [name]
        while names[-1] in later:
            names.append(later[names[-1]])
        joined.append(Life(tuple(names), life.size, life.first, by_name[names[-1]].last))
    return tuple(joined)


def lower_bound(steps: Sequence[Step], sizes: Mapping[str, Size], dims: Mapping[str, int]) -> int:
    """The bytes that no plan can do without at these dims: the largest sum, over the steps, of what must be there at
    one time, sizes rounded up to the alignment.

    At a step must be there all that it reads, writes or uses as scratch, and all that was written before and is read
    later. Of two tensors that may share their place at the step, as the one ends its life there and the other begins
    it, and have the same size, one is counted; each tensor shares with one other at most.
    """
    lives = join_in_place(steps, find_lives(steps, sizes))
    live = [0] * len(steps)
    for life in lives:
        size = evaluate(aligned(life.size), dims)
        for number in range(life.first, life.last + 1):
            live[number] += size
    return max(live, default=0)


def _take_places(steps: Sequence[Step], lives: Sequence[Life]) -> dict[str, str]:
    """In whose place each tensor is put that is put in one: at every step as many as possible, each by itself."""
    by_name = {life.names[0]: life for life in lives}
    over: dict[str, str] = {}
    for number, step in enumerate(steps):
        places: dict[str, list[str]] = {}
        for written, read in step.in_place:
            if written in by_name and read in by_name:
                new, old = by_name[written], by_name[read]
                if new.first == number == old.last and new.size == old.size:
                    places.setdefault(written, []).append(read)
        over |= {written: read for read, written in _match(places).items()}
    return over


def _match(places: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Who takes which place, by place: as many as can, by augmenting paths."""
    taken: dict[str, str] = {}

    def find(who: str, tried: set[str]) -> bool:
        for place in places[who]:
            if place in tried:
                continue
            tried.add(place)
            if place not in taken or find(taken[place], tried):
                taken[place] = who
                return True
        return False

    for who in places:
        find(who, set())
    return taken
