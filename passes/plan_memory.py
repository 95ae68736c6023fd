"""Where every intermediate tensor of a function lives: symbolic offsets into one workspace, and its exact size.

Tensors whose lives do not overlap share memory where the sizes are known to allow it whatever the dims; nothing is
assumed of sizes that cannot be compared. The plan decides nothing about what is computed, or when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
    multiply,
    substitute,
    symbols,
)

ALIGNMENT = 64
"""Of the workspace and everything in it, in bytes."""


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


@dataclass(frozen=True, slots=True)
class _Placed:
    """Memory from `offset` to `end`, both multiples of the alignment."""

    item: _Item
    offset: Size
    end: Size


def aligned(size: Size) -> Size:
    return multiply(ALIGNMENT, ceil_divide(size, ALIGNMENT))


@lru_cache(maxsize=1 << 16)
def never_less(left: Size, right: Size) -> bool:
    """Is `left >= right` for every value of the dims, as far as can be told?

    With every dim counted from its least value, a polynomial without a negative coefficient is nowhere negative: so
    `B*T >= T` where `B >= 1`, which bounds of the two sides do not tell.
    """
    difference = _without_quotients(add(left, multiply(-1, right)))
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
        if len(monomial) != 1 or monomial[0][1] != 1 or not isinstance(monomial[0][0], FloorDiv):
            continue
        quotient = monomial[0][0]
        divisor = quotient.denominator
        if isinstance(divisor, int) and coefficient % divisor == 0:
            times = coefficient // divisor
            bound = add(quotient.numerator, 1 - divisor) if times > 0 else quotient.numerator
            total = add(total, add(multiply(times, bound), Poly(((monomial, -coefficient),))))
    return total


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
    placed: list[_Placed] = []
    total: Size = 0
    # The largest first: smaller ones fill what they leave. Sizes that have to be rounded up come after the others,
    # since little can be told of offsets behind them.
    for item in sorted(_items(steps, sizes), key=lambda item: (not divisible(item.size, ALIGNMENT), *_by_size(item))):
        offset = _find_place(placed, item, total)
        end = add(offset, aligned(item.size))
        placed.append(_Placed(item, offset, end))
        if not never_less(total, add(offset, item.size)):
            total = end
    offsets = {p.item.name: p.offset for p in placed}
    return Plan(
        {name: offset for name, offset in offsets.items() if isinstance(name, str)},
        tuple(tuple(offsets[i, k] for k in range(len(step.scratch))) for i, step in enumerate(steps)),
        total,
    )


def _find_place(placed: Sequence[_Placed], item: _Item, total: Size) -> Size:
    """The least offset at which the item is known to overlap nothing that lives at the same time, and to stay below the
    total or to raise it to its own end; else the total."""
    others = [p for p in placed if p.item.first <= item.last and item.first <= p.item.last]
    best: Size | None = None
    for offset in dict.fromkeys((0, *(p.end for p in others))):
        if best is not None and never_less(offset, best):
            continue
        # Offsets are multiples of the alignment: what ends below one does so when rounded up, too.
        end = add(offset, item.size)
        if not all(never_less(p.offset, end) or never_less(offset, p.end) for p in others):
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
