"""Where every intermediate tensor of a function lives: symbolic offsets into one workspace, and its exact size.

Tensors whose lives do not overlap share a slot if the size of one is known not to exceed the other's whatever the dims;
nothing is assumed of sizes that cannot be compared. The plan decides nothing about what is computed, or when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..dialect.dims import INFINITY, Poly, Size, Symbol, add, bounds, ceil_divide, multiply, substitute, symbols

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


@dataclass(slots=True)
class _Slot:
    size: Size
    items: list[_Item] = field(default_factory=list)

    def is_free(self, item: _Item) -> bool:
        return all(item.last < other.first or other.last < item.first for other in self.items)


def aligned(size: Size) -> Size:
    return multiply(ALIGNMENT, ceil_divide(size, ALIGNMENT))


def never_less(left: Size, right: Size) -> bool:
    """Is `left >= right` for every value of the dims, as far as can be told?

    With every dim counted from its least value, a polynomial without a negative coefficient is nowhere negative: so
    `B*T >= T` where `B >= 1`, which bounds of the two sides do not tell.
    """
    difference = add(left, multiply(-1, right))
    if bounds(difference)[0] >= 0:
        return True
    shifted = substitute(difference, {s.name: _from_least(s) for s in symbols(difference)})
    terms = shifted.terms if isinstance(shifted, Poly) else (((), shifted),)
    return all(
        coefficient >= 0 and all(bounds(Poly(((((atom, 1),), 1),)))[0] >= 0 for atom, _ in monomial)
        for monomial, coefficient in terms
    )


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
    slots: list[_Slot] = []
    # The largest first, so that slots are there for the smaller ones to share.
    for item in sorted(_items(steps, sizes), key=_by_size):
        slot = _choose(slots, item)
        slot.items.append(item)
    offsets: dict[str, Size] = {}
    scratch: dict[tuple[int, int], Size] = {(i, k): 0 for i, step in enumerate(steps) for k in range(len(step.scratch))}
    offset: Size = 0
    for slot in slots:
        for item in slot.items:
            if isinstance(item.name, str):
                offsets[item.name] = offset
            else:
                scratch[item.name] = offset
        offset = add(offset, aligned(slot.size))
    placed = tuple(tuple(scratch[i, k] for k in range(len(step.scratch))) for i, step in enumerate(steps))
    return Plan(offsets, placed, offset)


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


def _choose(slots: list[_Slot], item: _Item) -> _Slot:
    free = [slot for slot in slots if slot.is_free(item)]
    large = [slot for slot in free if never_less(slot.size, item.size)]
    if large:
        best = large[0]
        for slot in large[1:]:
            if never_less(best.size, slot.size):
                best = slot
        return best
    for slot in free:
        if never_less(item.size, slot.size):
            slot.size = item.size
            return slot
    slots.append(_Slot(item.size))
    return slots[-1]
