"""A static model of the grid of a product: a block for each tile, or persistent blocks, which loop over tiles.

    a block for each tile   copies of the first steps (fill); products; stores (end); then the next block
    persistent blocks       the fill of a tile overlaps with the end of the one before: products; stores; products; ...

Blocks that share a processor hide the fill and the end of each other, as long as the products of the others last. The
bandwidth is shared by all processors, and a tile takes no less than its share of it. With `shared`, the longer one of
the products of a tile and its traffic, a processor with `b` blocks computes `n` tiles in

    grid          ceil(n / b) waves of max(fill + shared + end, b * shared)
    persistent    fill + ceil(n / b) rounds of max(shared + end, b * shared)

Neither grid changes how many tiles the busiest processor computes, so that the last wave gains nothing. Latencies are
assumptions about the order of magnitude, and not measured.
"""

from __future__ import annotations

from ....dialect.lazy_dataclass import dataclass
from ...targets.chips import Chip

FILL = 0.8e-6
"""Seconds from the start of a block to its first products: its launch, its barriers, and one access to memory."""
_LEAST_GAIN = 1.01
_MANY_WAVES = 8
"""The waves of a call whose sizes are unknown."""
_TYPICAL_DEPTH = 1024
"""The depth of a product whose depth is unknown."""


@dataclass(frozen=True, slots=True)
class TileWork:
    """The work on a tile: its sizes, the dtype of its factors, and the bytes of a factor and of a result. The depth is
    None if it is unknown. `reads_columns`: whether no other tile has the same columns, which then come from memory;
    other factors may be in the L2 cache."""

    rows: int
    columns: int
    depth: int | None
    element: str
    factor_bytes: int
    result_bytes: int
    reads_columns: bool = False

    def products(self, chip: Chip) -> float:
        """Returns the seconds of the products on one processor."""
        return 2 * self.rows * self.columns * self.known_depth * chip.processors / chip.rate(self.element)

    def traffic(self, chip: Chip) -> float:
        """Returns the seconds that the tile's traffic takes at the processor's share of the bandwidth."""
        read = self.known_depth * self.columns * self.factor_bytes if self.reads_columns else 0
        return read * chip.processors / chip.bandwidth + self.end(chip)

    def end(self, chip: Chip) -> float:
        """Returns the seconds that the stores take at the processor's share of the bandwidth."""
        return self.rows * self.columns * self.result_bytes * chip.processors / chip.bandwidth

    @property
    def known_depth(self) -> int:
        return _TYPICAL_DEPTH if self.depth is None else self.depth


def gain_of_persistence(work: TileWork, chip: Chip, at_once: int, tiles: int | None = None) -> float:
    """Returns the time that a grid with a block for each tile takes, divided by that of persistent blocks. A processor
    runs `at_once` blocks of either grid. `tiles` is the number of tiles; None if it is unknown."""
    slots = chip.processors * at_once
    waves = _MANY_WAVES if tiles is None else -(-tiles // slots)
    end = work.end(chip)
    shared = max(work.products(chip), work.traffic(chip))
    grid = waves * max(FILL + shared + end, at_once * shared)
    persistent = FILL + waves * max(shared + end, at_once * shared)
    return grid / persistent


def gains_from_persistence(work: TileWork, chip: Chip, at_once: int, tiles: int | None = None) -> bool:
    return gain_of_persistence(work, chip, at_once, tiles) > _LEAST_GAIN
