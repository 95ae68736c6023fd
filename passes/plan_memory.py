"""Where every intermediate tensor of a function lives: symbolic offsets into one workspace, and its exact size.

Tensors whose lives do not overlap share memory where the sizes are known to allow it whatever the dims; nothing is
assumed of sizes that cannot be compared. The plan decides nothing about what is computed, or when.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..dialect.dims import (
    INFINITY,
    FloorDiv,
    Monomial,
    Poly,
    Size,
    Symbol,
    add,
    bounds,
    ceil_divide,
    divisible,
    evaluate,
    multiply,
    substitute,
    symbols,
    symbols_of,
)

ALIGNMENT = 64
"""Of the workspace and everything in it, in bytes."""
_CHUNK = 256
"""So many offsets are tried at once."""


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel: the tensors it reads and writes, by name, and the sizes in bytes of what it needs besides."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    scratch: tuple[Size, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Offsets in bytes: of tensors by name, and of each step's scratch; and how large the workspace must be."""

    offsets: Mapping[str, Size]
    scratch: tuple[tuple[Size, ...], ...]
    total: Size


@dataclass(slots=True)
class _Item:
    """Something that needs memory from step `first` to step `last`."""

    name: str | tuple[int, int]
    size: Size
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """A place in the workspace, and where it is for a few values of the dims. There is one for each size."""

    size: Size
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Placed:
    """Memory from `offset` to `end`, both multiples of the alignment."""

    item: _Item
    offset: _Point
    end: _Point


def aligned(size: Size) -> Size:
    return multiply(ALIGNMENT, ceil_divide(size, ALIGNMENT))


def never_less(left: Size, right: Size) -> bool:
    """Is `left >= right` for every value of the dims, as far as can be told?"""
    return _never_negative(add(left, multiply(-1, right)))


@lru_cache(maxsize=1 << 16)
def _never_negative(size: Size) -> bool:
    """With every dim counted from its least value, a polynomial without a negative coefficient is nowhere negative: so
    `B*T - T` where `B >= 1`, which its bounds do not tell.
    """
    difference = _without_quotients(size)
    if bounds(difference)[0] >= 0:
        return True
    shifted = substitute(difference, {s.name: _from_least(s) for s in symbols(difference)})
    return all(
        coefficient >= 0 and all(bounds(Poly(((((atom, 1),), 1),)))[0] >= 0 for atom, _ in monomial)
        for monomial, coefficient in _terms(shifted)
    )


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    return size.terms if isinstance(size, Poly) else (((), size),)


def _without_quotients(size: Size) -> Size:
    """Something that is nowhere more than `size`: `n - (d - 1) <= d * (n // d) <= n`."""
    total = size
    for monomial, coefficient in _terms(size):
        if len(monomial) == 1 and monomial[0][1] == 1 and isinstance(monomial[0][0], FloorDiv):
            total = add(total, _bound_of_quotient(monomial[0][0], coefficient))
    return total


@lru_cache(maxsize=1 << 14)
def _bound_of_quotient(quotient: FloorDiv, coefficient: int) -> Size:
    """What bounds the term from below, less the term; 0 where nothing does."""
    divisor = quotient.denominator
    if not isinstance(divisor, int) or coefficient % divisor:
        return 0
    times = coefficient // divisor
    bound = add(quotient.numerator, 1 - divisor) if times > 0 else quotient.numerator
    return add(multiply(times, bound), Poly(((((quotient, 1),), -coefficient),)))


def _from_least(symbol: Symbol) -> Size:
    """The dim as its least value and a dim that counts from 0."""
    least = -(-symbol.low // symbol.multiple) * symbol.multiple
    high = INFINITY if symbol.high == INFINITY else symbol.high - least
    return add(Symbol(symbol.name, 0, high, symbol.multiple).size, least)


def plan_memory(steps: Sequence[Step], sizes: Mapping[str, Size]) -> Plan:
    """Places the tensors named in `sizes` (bytes); what steps name besides lives elsewhere.

    Assumes that steps run in order, that the first step that names a tensor writes it, and that a step's results may
    share no memory with what it reads.
    """
    placed = _Placement(len(steps))
    items = list(_items(steps, sizes))
    points = _Points([item.size for item in items])
    total = points.of(0)
    # The largest first: smaller ones fill what they leave. Sizes that have to be rounded up come after the others,
    # since little can be told of offsets behind them.
    for item in sorted(items, key=lambda item: (not divisible(item.size, ALIGNMENT), *_by_size(item))):
        offset = _find_place(placed.beside(item), item, total, points)
        end = points.of(add(offset.size, aligned(item.size)))
        placed.add(_Placed(item, offset, end))
        if not points.never_less(total, points.of(add(offset.size, item.size))):
            total = end
    offsets = {p.item.name: p.offset.size for p in placed.all}
    return Plan(
        {name: offset for name, offset in offsets.items() if isinstance(name, str)},
        tuple(tuple(offsets[i, k] for k in range(len(step.scratch))) for i, step in enumerate(steps)),
        total.size,
    )


class _Placement:
    """Everything that has its place, by the steps in which it lives."""

    def __init__(self, steps: int) -> None:
        self.all: list[_Placed] = []
        self._at: list[list[int]] = [[] for _ in range(steps)]

    def add(self, placed: _Placed) -> None:
        for step in range(placed.item.first, placed.item.last + 1):
            self._at[step].append(len(self.all))
        self.all.append(placed)

    def beside(self, item: _Item) -> list[_Placed]:
        """What lives at the same time as the item, in the order in which it was placed."""
        found = {number for step in range(item.first, item.last + 1) for number in self._at[step]}
        return [self.all[number] for number in sorted(found)]


def _samples(sizes: Sequence[Size]) -> list[dict[str, int]]:
    """Some values of the dims: what overlaps for one of them needs no proof, and most of what is tried does."""
    dims = symbols_of(sizes)
    least = {s.name: -(-s.low // s.multiple) * s.multiple for s in dims}
    larger = {s.name: min(s.high // s.multiple, least[s.name] // s.multiple + 61) * s.multiple for s in dims}
    one_larger = [least | {name: larger[name]} for name in list(larger)[:6]]
    return [least, larger, *(one_larger if len(dims) > 1 else [])] if dims else [{}]


class _Points:
    """The points of one plan, and their order as far as it was asked for: every pair is decided once."""

    def __init__(self, sizes: Sequence[Size]) -> None:
        self.samples = _samples(sizes)
        self._known: dict[Size, _Point] = {}
        self._ordered: dict[tuple[_Point, _Point], bool] = {}

    def of(self, size: Size) -> _Point:
        if size not in self._known:
            self._known[size] = _Point(size, tuple(float(evaluate(size, sample)) for sample in self.samples))
        return self._known[size]

    def never_less(self, left: _Point, right: _Point) -> bool:
        pair = left, right
        if pair not in self._ordered:
            may_hold = all(x >= y for x, y in zip(left.values, right.values, strict=True))
            self._ordered[pair] = may_hold and never_less(left.size, right.size)
        return self._ordered[pair]


def _candidates(others: Sequence[_Placed], size: _Point, points: _Points) -> Iterator[tuple[_Point, list[bool]]]:
    """The points where something of that size overlaps nothing for any of the samples; and which of the others then
    lie above it."""
    starts = list(dict.fromkeys((points.of(0), *(p.end for p in others))))
    offsets = np.array([p.offset.values for p in others]).reshape(-1, len(size.values))
    ends = np.array([p.end.values for p in others]).reshape(-1, len(size.values))
    for first in range(0, len(starts), _CHUNK):
        chunk = starts[first : first + _CHUNK]
        start = np.array([point.values for point in chunk])[:, None, :]
        above = (offsets >= start + np.array(size.values)).all(axis=2)
        fits = (above | (start >= ends).all(axis=2)).all(axis=1)
        for row in np.flatnonzero(fits).tolist():
            yield chunk[row], above[row].tolist()


def _find_place(others: Sequence[_Placed], item: _Item, total: _Point, points: _Points) -> _Point:
    """The least offset at which the item is known to overlap none of the others, and to stay below the total or to
    raise it to its own end; else the total."""
    never_less = points.never_less
    best: _Point | None = None
    for offset, above in _candidates(others, points.of(item.size), points):
        if best is not None and never_less(offset, best):
            continue
        # Offsets are multiples of the alignment: what ends below one does so when rounded up, too.
        end = points.of(add(offset.size, item.size))
        if not all(
            never_less(p.offset, end) if is_above else never_less(offset, p.end)
            for p, is_above in zip(others, above, strict=True)
        ):
            continue
        if never_less(total, end) or never_less(end, total):
            best = offset
    return total if best is None else best


def _items(steps: Sequence[Step], sizes: Mapping[str, Size]) -> Iterable[_Item]:
    lives: dict[str, _Item] = {}
    for number, step in enumerate(steps):
        for name in (*step.writes, *step.reads):
            if name in sizes:
                lives.setdefault(name, _Item(name, sizes[name], number, number)).last = number
        for k, size in enumerate(step.scratch):
            yield _Item((number, k), size, number, number)
    yield from lives.values()


def _by_size(item: _Item) -> tuple[int, int, int, str]:
    low, high = bounds(item.size)
    return -high, -low, item.first, str(item.name)
