"""Histograms of numbers that arrive in pieces, in constant memory.

Bins have a power of two as width. When a number does not fit, the width doubles and pairs of bins merge. A histogram
thus depends on the numbers alone, and neither on their order nor on the division into pieces.

    numbers up to 0.75   power 0   8192 bins of width 1/4096 from -1 to 1
    then 3.0             power 2   8192 bins of width 4/4096 from -4 to 4, after merging pairs twice
"""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np
import numpy.typing as npt

from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import Array

HALF = 4096
"""Bins on each side of 0."""
_LEAST = -1000
"""The least power: the smallest numbers share a bin."""
Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


@dataclass
class Histogram:
    """The numbers seen so far: their bounds, and the count in each of the bins, which extend from -2**power to
    2**power; numbers that are not finite are only counted, in `strange`."""

    low: float = 0.0
    high: float = 0.0
    strange: int = 0
    power: int | None = None
    counts: Counts = field(default_factory=lambda: np.zeros(2 * HALF, np.int64))

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def width(self) -> float:
        """The width of a bin."""
        return math.ldexp(1.0, (self.power or 0)) / HALF

    @property
    def centres(self) -> Numbers:
        return np.arange(-HALF + 0.5, HALF, dtype=np.float64) * self.width

    def add(self, array: Array) -> None:
        numbers = array.astype(np.float64).reshape(-1)
        finite = numbers[np.isfinite(numbers)]
        self.strange += numbers.size - finite.size
        if finite.size == 0:
            return
        first = self.power is None
        self.low = float(finite.min()) if first else min(self.low, float(finite.min()))
        self.high = float(finite.max()) if first else max(self.high, float(finite.max()))
        # The least power whose range holds all of them, however small they are; zeros do not constrain it.
        largest = max(-self.low, self.high)
        power = max(math.frexp(largest)[1], _LEAST) if largest else _LEAST
        self._grow(power)
        positions = np.floor(finite * math.ldexp(HALF, -power)).astype(np.int64) + HALF
        self.counts += np.bincount(positions, minlength=2 * HALF)

    def _grow(self, power: int) -> None:
        if self.power is None:
            self.power = power
        # Each side merges to half as many bins, adjacent to 0.
        merges = min(power - self.power, HALF.bit_length())
        for _ in range(merges):
            pairs = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts[:] = 0
            self.counts[HALF // 2 : HALF // 2 + HALF] = pairs
        self.power = max(self.power, power)
