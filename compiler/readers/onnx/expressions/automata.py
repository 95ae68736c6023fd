"""Automata of regular expressions over the bytes of UTF-8.

A state is the set of positions in the expression that a string may have reached, and the kind of the byte before it. A
position between characters, such as `\\b`, holds or not once the next byte is known:

    state {before \\b, after a word byte}, next byte `.`   ->  the boundary holds: positions after it follow
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .tree import Choice, Chosen, ExpressionError, Join, Repeat, Tree, Where

_MOST_POSITIONS = 20_000
_MOST_STATES = 2_000
_SURROGATES = (0xD800, 0xDFFF)
"""The code points that have no UTF-8 form."""
_ENDS = (0x7F, 0x7FF, 0xFFFF, 0x10FFFF)
_BEGIN, _WORD, _OTHER, _END = "begin", "word", "other", "end"
_WORD_BYTES = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")

ByteRanges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Automaton:
    """`classes` [256] is the class of each byte, `steps` [states, classes] the next state, `accepts` [states] whether a
    string may end there. State 0 is the first."""

    classes: Any
    steps: Any
    accepts: Any


@dataclass(slots=True)
class _Position:
    """A position in the expression: a byte of `bytes` (None: no byte) leads to the positions `after`. If `condition` is
    given, the transition requires that it holds."""

    bytes: tuple[int, int] | None = None
    condition: Where | None = None
    after: list[int] = field(default_factory=list)


class _Positions:
    def __init__(self) -> None:
        self.all: list[_Position] = []

    def new(self, position: _Position) -> int:
        if len(self.all) >= _MOST_POSITIONS:
            raise ExpressionError("the expression is too large")
        self.all.append(position)
        return len(self.all) - 1

    def write(self, tree: Tree, after: int) -> int:
        """Returns the position before a tree, where `after` is the position after it."""
        if isinstance(tree, Where):
            return self.new(_Position(condition=tree, after=[after]))
        if isinstance(tree, Join):
            for part in reversed(tree.parts):
                after = self.write(part, after)
            return after
        if isinstance(tree, Choice):
            return self.new(_Position(after=[self.write(part, after) for part in tree.parts]))
        if isinstance(tree, Repeat):
            return self._repeat(tree, after)
        return self._characters(tree, after)

    def _repeat(self, tree: Repeat, after: int) -> int:
        if tree.most is None:
            loop = self.new(_Position(after=[after]))
            self.all[loop].after.append(self.write(tree.tree, loop))
            start = loop
        else:
            start = after
            for _ in range(tree.most - tree.least):
                start = self.new(_Position(after=[after, self.write(tree.tree, start)]))
        for _ in range(tree.least):
            start = self.write(tree.tree, start)
        return start

    def _characters(self, tree: Chosen, after: int) -> int:
        starts = []
        for low, high in tree.ranges:
            for encoded in byte_ranges(low, high):
                position = after
                for part in reversed(encoded):
                    position = self.new(_Position(bytes=part, after=[position]))
                starts.append(position)
        return self.new(_Position(after=starts))


def byte_ranges(low: int, high: int) -> Iterator[ByteRanges]:
    """Yields the UTF-8 forms of a range of code points, as ranges of bytes that are independent of each other."""
    first, last = _SURROGATES
    if low <= last and high >= first:
        if low < first:
            yield from byte_ranges(low, first - 1)
        if high > last:
            yield from byte_ranges(last + 1, high)
        return
    for end in _ENDS:
        if low <= end < high:
            yield from byte_ranges(low, end)
            yield from byte_ranges(end + 1, high)
            return
    for bits in (6, 12, 18):
        mask = (1 << bits) - 1
        if low > 0x7F and (low & ~mask) != (high & ~mask):
            if low & mask:
                yield from byte_ranges(low, low | mask)
                yield from byte_ranges((low | mask) + 1, high)
                return
            if high & mask != mask:
                yield from byte_ranges(low, (high & ~mask) - 1)
                yield from byte_ranges(high & ~mask, high)
                return
    yield tuple(zip(chr(low).encode(), chr(high).encode(), strict=True))


def build_automaton(tree: Tree) -> Automaton:
    """Returns the automaton of the strings that a tree matches. Raises ExpressionError if it is too large."""
    positions = _Positions()
    final = positions.new(_Position())
    start = positions.write(tree, final)
    classes, members = _classes(positions.all)
    states: dict[tuple[frozenset[int], str], int] = {(frozenset((start,)), _BEGIN): 0}
    waiting = list(states)
    steps, accepts = [], []
    for kernel, before in waiting:
        accepts.append(final in _reached(positions.all, kernel, before, _END))
        reached = {kind: _reached(positions.all, kernel, before, kind) for kind in (_WORD, _OTHER)}
        row = []
        for byte in members:
            kind = _WORD if byte in _WORD_BYTES else _OTHER
            after = frozenset(
                follower
                for number in reached[kind]
                for bounds in (positions.all[number].bytes,)
                if bounds is not None and bounds[0] <= byte <= bounds[1]
                for follower in positions.all[number].after
            )
            state = (after, kind if after else _OTHER)
            if state not in states:
                if len(states) >= _MOST_STATES:
                    raise ExpressionError(f"the automaton would have more than {_MOST_STATES} states")
                states[state] = len(states)
                waiting.append(state)
            row.append(states[state])
        steps.append(row)
    return Automaton(classes, np.array(steps, np.int32), np.array(accepts, np.bool_))


def _classes(positions: Sequence[_Position]) -> tuple[Any, list[int]]:
    """Returns the class of each byte, and one byte of each class. Bytes with the same transitions from all positions
    form a class."""
    cuts = {0, *(byte for byte in range(1, 256) if (byte in _WORD_BYTES) != (byte - 1 in _WORD_BYTES))}
    for position in positions:
        if position.bytes is not None:
            cuts |= {position.bytes[0], position.bytes[1] + 1}
    members = sorted(cut for cut in cuts if cut < 256)
    return np.searchsorted(members, np.arange(256), side="right") - 1, members


def _reached(positions: Sequence[_Position], kernel: frozenset[int], before: str, next: str) -> set[int]:
    """Returns the positions that are reached without a byte, between two bytes of the given kinds."""
    is_boundary = (before == _WORD) != (next == _WORD)
    holds = {
        Where.START: before == _BEGIN,
        Where.END: next == _END,
        Where.BOUNDARY: is_boundary,
        Where.INSIDE: not is_boundary,
    }
    found, waiting = set(kernel), list(kernel)
    while waiting:
        position = positions[waiting.pop()]
        if position.bytes is None and (position.condition is None or holds[position.condition]):
            new = [number for number in position.after if number not in found]
            found.update(new)
            waiting += new
    return found
