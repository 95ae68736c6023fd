"""A static model of the time of a product whose sums are split among blocks of threads.

    seconds = max(bytes / (bandwidth * fill), operations / (rate * busy)) + the launch that adds the parts

A block keeps some bytes of the matrix in flight. As long as all blocks together have less in flight than arrives while
an access waits (Little's law), they reach that share of the bandwidth: the fill. Multiprocessors without a block
compute nothing, and the others are busy. The figures are those of the data sheet of an H100; latencies are assumptions
about the order of magnitude, and not measured.
"""

from __future__ import annotations

from ...dialect.lazy_dataclass import dataclass

TILE = 64
"""The rows and the columns of a block of the schedules with tiles."""
LEAST_GAIN = 1.05
"""The least ratio of the times without and with parts, since the model is rough."""
_FEW = 16
"""The rows of the schedule for few rows."""
_GROUPS, _VECTOR = 8, 16
"""The groups of columns of a block of that schedule, and the bytes of a group."""
PROCESSORS, BANDWIDTH = 132, 3.35e12
RATES = {1: 1979e12, 2: 989e12, 4: 66.9e12}
"""Operations per second by the bytes of a factor."""
_WAIT = 0.8e-6
"""Seconds of an access to memory when many blocks access it."""
_LAUNCH = 2e-6
"""Seconds from the last block of a launch to the first results of the next one, in a graph of launches."""
_IN_FLIGHT, _COPIES_IN_FLIGHT = 8 << 10, 16 << 10
"""The bytes that a block has in flight: two vectors of each of 256 threads, or five copies of a step of a tile."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product of rows with a matrix of `depth` x `columns` factors of so many bytes."""

    rows: int
    columns: int
    depth: int
    bytes: int

    @property
    def is_few(self) -> bool:
        """Returns whether the schedule for few rows reads the matrix by threads alone: tensor cores multiply several
        rows in 16 bits."""
        return self.rows <= _FEW and (self.bytes != 2 or self.rows == 1)

    def blocks(self, parts: int) -> int:
        if self.is_few:
            return parts * -(-self.columns * self.bytes // (_GROUPS * _VECTOR))
        return parts * -(-self.columns // TILE) * -(-self.rows // TILE)

    def seconds(self, parts: int) -> float:
        """Returns the time with so many parts of each sum."""
        blocks = self.blocks(parts)
        in_flight = blocks * (_IN_FLIGHT if self.is_few else _COPIES_IN_FLIGHT)
        read = self.bytes * self.depth * (self.columns + self.rows)
        memory = read / (BANDWIDTH * min(1.0, in_flight / (BANDWIDTH * _WAIT)))
        operations = 2 * self.rows * self.columns * self.depth
        compute = operations / (RATES[self.bytes] * min(1.0, blocks / PROCESSORS))
        if parts == 1:
            return max(memory, compute)
        # Each partial sum is written, and read by the launch that adds them.
        return max(memory, compute) + _LAUNCH + 2 * 4 * parts * self.rows * self.columns / BANDWIDTH
