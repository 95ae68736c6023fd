"""Tensor maps, by which the device copies boxes of a tensor to shared memory.

The driver makes them on the host from numbers, which a host function returns in the order of `nacre_tile_map` in
`runtime/cuda/tiles.h`. Axes are in the order of a map, the fastest one first: the fast axis of a tile, its slow one,
then those of the batch, whose boxes have one element.

    x: memref<?x?x512xf16> at (d0, d1, d4), rows d1, depth d4      axes 2, 1, 0; a box has 64 x 128 x 1 elements

A device refuses tensors whose rows do not begin at multiples of 16 bytes. `fits_map` checks this in each call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....dialect.lazy_dataclass import dataclass
from .fragments import layout_of
from .nest import Nest, Operand
from .text import Text
from .warpgroup_mma import ROW_BYTES

MOST_AXES = 5
WORDS = 14
"""The numbers of a map."""
BYTES = 2
"""The bytes of an element."""
CHUNK = ROW_BYTES // BYTES
"""The elements of a row of a tile."""
_TYPES = {"f16": 6, "bf16": 9}
"""The driver's numbers of dtypes."""


@dataclass(frozen=True, slots=True)
class TileMap:
    """The map of an operand, whose loops are `side` and `depth`. A block copies `count` positions of the side."""

    name: str
    operand: Operand
    side: int
    depth: int
    count: int

    @property
    def is_deep(self) -> bool:
        """Whether the depth is the fast axis."""
        return self.operand.plain_axes()[-1] == self.depth

    @property
    def axes(self) -> tuple[int, ...]:
        loops = self.operand.plain_axes()
        slow = loops.index(self.side if self.is_deep else self.depth)
        return (len(loops) - 1, slow, *(axis for axis in reversed(range(len(loops) - 1)) if axis != slow))

    @property
    def box(self) -> tuple[int, int]:
        """The sizes of a box along the first two axes."""
        return (CHUNK, self.count if self.is_deep else CHUNK)

    @property
    def boxes(self) -> int:
        return 1 if self.is_deep else self.count // CHUNK

    @property
    def box_bytes(self) -> int:
        return self.box[0] * self.box[1] * BYTES

    def positions(self, side: str, depth: str, at: Mapping[int, str]) -> list[str]:
        """Returns the position of a box by those of the loops."""
        known = {**at, self.side: side, self.depth: depth}
        loops = self.operand.plain_axes()
        return [known[loop] for axis in self.axes if (loop := loops[axis]) is not None]

    def words(self, text: Text) -> list[str]:
        """Returns the numbers of the map."""
        base, strides = layout_of(text, self.name, self.operand)
        sizes = [self._size(text, axis) for axis in self.axes]
        steps = [text.multiply(strides[axis], text.constant(BYTES)) for axis in self.axes[1:]]
        none = text.constant(0)
        fixed = (len(self.axes), _TYPES[self.operand.element], *self.box)
        words = [
            base,
            *map(text.constant, fixed),
            *_padded(sizes, MOST_AXES, none),
            *_padded(steps, MOST_AXES - 1, none),
        ]
        assert len(words) == WORDS, words
        return words

    def fits(self, text: Text) -> str:
        """Returns whether the driver can make the map."""
        base, strides = layout_of(text, self.name, self.operand)
        bits = base
        for axis in self.axes[1:]:
            bits = text.index("ori", bits, text.multiply(strides[axis], text.constant(BYTES)))
        low = text.index("andi", bits, text.constant(15))
        known = [
            text.let(f"arith.cmpi eq, {low}, {text.constant(0)} : index"),
            text.let(f"arith.cmpi eq, {strides[self.axes[0]]}, {text.constant(1)} : index"),
        ]
        known += [text.below(text.constant(0), self._size(text, axis)) for axis in self.axes]
        return all_of(text, known)

    def _size(self, text: Text, axis: int) -> str:
        return text.let(f"memref.dim {self.name}, {text.constant(axis)} : {self.operand.type}")


def _padded(values: Sequence[str], count: int, rest: str) -> list[str]:
    return [*values, *[rest] * (count - len(values))]


def all_of(text: Text, known: Sequence[str]) -> str:
    result, *others = known
    for other in others:
        result = text.let(f"arith.andi {result}, {other} : i1")
    return result


def can_have_map(nest: Nest, number: int, side: int, depth: int) -> bool:
    """Returns whether an input of a nest can have a map: its axes are different loops, the last one its side or the
    depth."""
    operand = nest.inputs[number]
    loops = operand.plain_axes()
    if operand.element not in _TYPES or None in loops or len(set(loops)) != len(loops):
        return False
    return 2 <= len(loops) <= MOST_AXES and {side, depth} <= set(loops) and loops[-1] in (side, depth)
