"""Places groups with a contraction where the contraction itself stood, so that its operands need not be kept.

A group takes the place of its last member. A gradient's product whose epilogue is a part of the update therefore would
stand behind the whole backward computation, and the activation and the gradient that it multiplies would be kept:

    g1 = matmul(g2, w2)           the backward computation
    d = 0.9 * velocity            the update, for one parameter after another
    v = einsum(x2, g2) + d        moves up behind `g1`, together with `d`
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Collection, Sequence

from ...dialect.graph import read_values
from .fuse_flow import Flow, has

_Turn = tuple[int, int]


def move_contractions_up(flow: Flow, order: Sequence[int]) -> list[int]:
    """Returns the units in another order. Units are given by their last members.

    A unit stays behind the units before it that read the same states, so that it can overwrite them. Units that only a
    contraction reads move with it."""
    turns: dict[int, _Turn] = {number: (turn, 0) for turn, number in enumerate(order)}
    given = {
        n: {v.name for m in flow.unit(n) for v in read_values(flow.nodes[m]) if flow.source(v) is None} for n in order
    }
    readers: dict[str, list[int]] = {}
    for number in order:
        for name in given[number]:
            readers.setdefault(name, []).append(number)
    reached = list(itertools.accumulate(order, max))
    count = itertools.count(1)
    for number in order:
        group = flow.groups.get(number)
        if group is None or group.kind != "contraction":
            continue
        seed = next(m for m in group.members if has(flow.nodes[m], "contraction"))
        first = bisect_left(reached, seed)
        moved = _late_operands(flow, number, turns, first)
        before = {(s, m) for m in moved for s in _sources(flow, m)}
        before |= {(r, m) for m in moved for name in given[m] for r in readers[name]}
        place = max((turns[n][0] for n, m in before if n not in moved and turns[n] < turns[m]), default=0)
        place = max(place, first - 1)
        if place < turns[number][0] - len(moved):
            late = sorted((m for m in moved if turns[m][0] > place), key=turns.__getitem__)
            turns |= {m: (place, next(count)) for m in late}
    return sorted(order, key=turns.__getitem__)


def _late_operands(flow: Flow, number: int, turns: dict[int, _Turn], first: int) -> set[int]:
    """Returns the unit and the units from the turn `first` on that it alone reads, or that compute scalars for it."""
    moved, pending = {number}, [number]
    while pending:
        for source in _sources(flow, pending.pop()) - moved:
            if turns[source][0] >= first and _moves_with(flow, source, moved):
                moved.add(source)
                pending.append(source)
    return moved


def _moves_with(flow: Flow, number: int, moved: Collection[int]) -> bool:
    if number in flow.groups or flow.nodes[number].regions:
        return False
    outputs = flow.nodes[number].outputs
    alone = not flow.leaves[number] and all(flow.unit(reader)[-1] in moved for reader in flow.readers[number])
    return alone or all(v.type.rank == 0 for v in outputs)


def _sources(flow: Flow, number: int) -> set[int]:
    return {flow.unit(s)[-1] for m in flow.unit(number) for s in flow.sources(m)} - {number}
