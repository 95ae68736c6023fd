"""Lifetimes of tensors in memory, the tensors that may share memory, and a lower bound of the memory that they need.

This module assigns no offsets.

    step             0   1   2   3
    0: writes a      a---a                    one life of (a, b), if step 1 allows that b takes the memory of a
    1: a -> b            b---b
    2: b -> c                c---c
    3: c -> d                    d
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from ...dialect.dims import Size, ceil_divide, evaluate, multiply
from ...dialect.lazy_dataclass import dataclass

ALIGNMENT = 64
"""The alignment of the workspace and of every tensor in it, in bytes."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of execution: the names of all tensors that it reads or writes. `in_place` are pairs of a written and a
    read tensor that may share memory if no other step needs both."""

    tensors: tuple[str, ...]
    in_place: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Life:
    """Tensors of one size that need memory from step `first` to step `last`. Each takes the memory of the previous one
    when that one dies."""

    names: tuple[str, ...]
    size: Size
    first: int
    last: int


@lru_cache(maxsize=1 << 14)
def aligned(size: Size) -> Size:
    return multiply(ALIGNMENT, ceil_divide(size, ALIGNMENT))


def find_lives(steps: Sequence[Step], sizes: Mapping[str, Size]) -> tuple[Life, ...]:
    """Returns the lifetime of every tensor named in `sizes` (bytes), ordered by first step. A lifetime reaches from the
    first step that names the tensor to the last one."""
    ends: dict[str, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for name in step.tensors:
            if name in sizes:
                first, _ = ends.get(name, (number, number))
                ends[name] = first, number
    return tuple(Life((name,), sizes[name], first, last) for name, (first, last) in ends.items())


def join_in_place(steps: Sequence[Step], lives: Sequence[Life]) -> tuple[Life, ...]:
    """Merges lifetimes: as many tensors as possible take the memory of a tensor that dies."""
    over = _reuse_buffers(steps, lives)
    later = {read: written for written, read in over.items()}
    by_name = {life.names[0]: life for life in lives}
    joined: list[Life] = []
    for name, life in by_name.items():
        if name in over:
            continue
        # a chain of takeovers, a <- b <- c, is one life
        names = [name]
        while names[-1] in later:
            names.append(later[names[-1]])
        joined.append(Life(tuple(names), life.size, life.first, by_name[names[-1]].last))
    return tuple(joined)


def lower_bound(steps: Sequence[Step], sizes: Mapping[str, Size], dims: Mapping[str, int]) -> int:
    """Returns the bytes that every plan needs at these dims: the largest sum, over the steps, of the bytes that are
    live at the same time, with sizes rounded up to the alignment.

    A tensor is live at a step if the step reads it, writes it or uses it as scratch, or if it was written before and is
    read later. Two tensors of the same size may share memory at a step if one dies there and the other begins; such a
    pair is counted once, and each tensor shares with at most one other.
    """
    lives = join_in_place(steps, find_lives(steps, sizes))
    live = [0] * len(steps)
    for life in lives:
        size = evaluate(aligned(life.size), dims)
        for number in range(life.first, life.last + 1):
            live[number] += size
    return max(live, default=0)


def _reuse_buffers(steps: Sequence[Step], lives: Sequence[Life]) -> dict[str, str]:
    """Returns, for each tensor that reuses memory, the tensor whose memory it takes. Every step maximises the number of
    pairs on its own."""
    by_name = {life.names[0]: life for life in lives}
    over: dict[str, str] = {}
    for number, step in enumerate(steps):
        reusable: dict[str, list[str]] = {}
        for written, read in step.in_place:
            if written in by_name and read in by_name:
                new, old = by_name[written], by_name[read]
                # The old tensor dies at the step at which the new one is written, and both have one size.
                if new.first == number == old.last and new.size == old.size:
                    reusable.setdefault(written, []).append(read)
        over |= {written: read for read, written in _match(reusable).items()}
    return over


def _match(reusable: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Returns a maximum bipartite matching, by augmenting paths."""
    taken: dict[str, str] = {}

    def find(who: str, tried: set[str]) -> bool:
        for buffer in reusable[who]:
            if buffer in tried:
                continue
            tried.add(buffer)
            # The holder of a buffer moves to another one if it can: an augmenting path.
            if buffer not in taken or find(taken[buffer], tried):
                taken[buffer] = who
                return True
        return False

    for who in reusable:
        find(who, set())
    return taken
