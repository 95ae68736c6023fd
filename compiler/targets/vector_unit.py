"""The vector unit of a CPU: the register file that tiles are sized for, and the instructions that code may use."""

from __future__ import annotations

from dataclasses import field, replace

from ...dialect.lazy_dataclass import dataclass

FEWEST_LANES = 4
"""Wider elements take several registers for a vector rather than fewer lanes."""


@dataclass(frozen=True, slots=True)
class Caches:
    """The bytes that are assumed to stay in the caches of a core: in the first level, and in the last level that the
    core does not share."""

    first: int = 32 << 10
    own: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Prefetches:
    """The prefetches of a weight that is read once, from its beginning to its end.

    distances: for each prefetch of a line, its distance in bytes and the level of the cache, 1 or 2.
    spacing: the bytes between prefetched lines: a line, or more if the hardware fetches the lines between them.

    By default, each line is fetched into the second cache, which may have more lines under way from memory than the
    first, and from there into the first cache. A core reads the distance of the former in a few latencies of memory.
    """

    distances: tuple[tuple[int, int], ...] = ((16384, 2), (2048, 1))
    spacing: int = 64


@dataclass(frozen=True, slots=True)
class PanelSizes:
    """The widths of panels of packed weights: multiples of `lanes` columns, at most `most` of them. Where
    panels of `most` would leave a single vector of up to `narrow`, panels have `most - 1`.

    A panel is as wide as a tile. A tile would read parts of the rows of a wider panel. If the weight exceeds the first
    cache, that costs up to a quarter of the speed, since the other parts of a cache line are loaded again later.

    `decoded` tells whether products in bf16 dequantize a weight for a matrix unit. They then read quantized values in
    the groups that another product needs. Panels of f64 have multiples of `lanes_of_f64` columns.
    """

    lanes: int = 16
    most: int = 3
    narrow: int = 0
    decoded: bool = False
    lanes_of_f64: int = 8

    @property
    def of_f64(self) -> PanelSizes:
        """The sizes of panels of f64."""
        return replace(self, lanes=self.lanes_of_f64)


@dataclass(frozen=True, slots=True)
class VectorUnit:
    """A vector unit with vectors of `bytes` bytes. The accumulators of a tile are at most `rows` by `vectors`; together
    with the operands loaded beside them, they fill the registers. `window` is the limit where rows share only
    overlapping reads: memory is the bottleneck there, and neighbours in memory should be read together. `halves` is the
    limit where words of several numbers are split, which needs registers too. `tall` is the limit on the rows of tiles
    with fewer vectors, if it is greater than `rows`; tiles of that height may be as fast as wider ones, which
    `narrow_panels` gives the bound for (see `PanelSizes`). `caches` are those of its core, `prefetches` are the fastest
    ones for its memory. `registers` is the number of vector registers. `lanes_by_memory`: whether many lanes become
    scalars faster by a store and loads than by instructions. `masks` is the feature with which comparisons of short
    integers write mask registers, where vectors without it are faster. `in_step` is the number of vectors that take the
    steps of a long chain of arithmetic together; `every_chain` tells whether the chain of any elementary function is
    long, and `rows_in_step` whether vectors of a row take the steps of `exp` together. `sum_steps` is the number of
    steps that one iteration of a sum takes where rows share a copied operand: with fewer of them, the loop's own
    instructions compete with the multiplications. `fetches_panels` tells whether the copy of a panel prefetches the
    next one: with few columns to a panel, a copy reads less than two lines from each row, and the hardware follows no
    stream. `level_tiles` tells whether the tiles of packed weights have two heights where one would leave few rows.
    `split_words` is the limit of tiles whose words of bytes are split in advance; None where they are split in the
    tile. `packed_stretches` tells whether many rows share copies of a packed weight that stay in the first cache.
    `pairs_of_words` tells whether products of pairs of 16-bit integers are faster than those of f32.
    `features` are those that decide the instructions; `inexact` those of them whose instructions flush denormal
    numbers to zero."""

    bytes: int
    rows: int
    vectors: int
    window: tuple[int, int]
    halves: tuple[int, int]
    tall: int = 0
    narrow_panels: int = 0
    caches: Caches = field(default_factory=Caches)
    prefetches: Prefetches = field(default_factory=Prefetches)
    registers: int = 16
    lanes_by_memory: bool = False
    masks: str = ""
    in_step: int = 1
    every_chain: bool = False
    rows_in_step: bool = False
    sum_steps: int = 1
    fetches_panels: bool = False
    level_tiles: bool = False
    split_words: tuple[int, int] | None = None
    packed_stretches: bool = False
    pairs_of_words: bool = False
    features: frozenset[str] = frozenset()
    inexact: frozenset[str] = frozenset()

    def lanes(self, width: int) -> int:
        """Returns the number of elements of `width` bits in a vector."""
        return max(self.bytes * 8 // width, FEWEST_LANES)

    @property
    def panels(self) -> PanelSizes:
        """The panels that fit its tiles."""
        return PanelSizes(self.lanes(32), self.vectors, self.narrow_panels, lanes_of_f64=self.lanes(64))

    def exact(self) -> VectorUnit:
        """Returns the unit without instructions that flush denormal numbers to zero, and without rounded factors."""
        return replace(self, features=self.features - self.inexact, pairs_of_words=False)
