"""Weights in the order in which contractions read them: panels of as many columns as a tile is wide.

A weight that one contraction reads, and nothing else of the kernel, is stored as `[batch..., panels, summed...,
width]`: a tile walks through memory from beginning to end. The last panel is filled up with zeros, which nobody reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...dialect.emitter import IndexMap
from ...dialect.types import F32, Array, TensorType
from .records import Structured
from .shapes import PanelIndex, plain_loop

LANES = 16
"""Columns of the narrowest panel: every vector of the targets divides it."""
MOST = 3
"""The vectors of LANES in the widest panel."""
LEAST_COLUMNS = 8
"""Fewer columns than this are not worth panels."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How a weight is stored: its batch axes, panels of its axis `lane`, its summed axes, the columns of a panel."""

    batch: tuple[int, ...]
    summed: tuple[int, ...]
    lane: int
    width: int

    @property
    def name(self) -> str:
        axes = "_".join(map(str, (*self.batch, "p", *self.summed)))
        return f"packed_{axes}_{self.lane}x{self.width}"

    def type(self, type: TensorType) -> TensorType:
        sizes = [int(str(s)) for s in type.shape]
        panels = -(-sizes[self.lane] // self.width)
        shape = (*(sizes[a] for a in self.batch), panels, *(sizes[a] for a in self.summed), self.width)
        return TensorType(type.dtype, shape)

    def map(self, map: IndexMap) -> IndexMap:
        """How the stored weight is read by whom the other is read by `map`."""
        column = map[self.lane]
        return (
            *(map[a] for a in self.batch),
            PanelIndex(column.coefficients, column.constant, self.width),
            *(map[a] for a in self.summed),
            PanelIndex(column.coefficients, column.constant, self.width, within=True),
        )

    def __call__(self, data: Array) -> Array:
        """The stored form of the data."""
        ordered = data.transpose(*self.batch, *self.summed, self.lane)
        columns = ordered.shape[-1]
        panels = -(-columns // self.width)
        padding = [(0, 0)] * (ordered.ndim - 1) + [(0, panels * self.width - columns)]
        padded = np.pad(ordered, padding).reshape(*ordered.shape[:-1], panels, self.width)
        return np.ascontiguousarray(np.moveaxis(padded, -2, len(self.batch)))


def choose_packing(op: Structured, type: TensorType, map: IndexMap, others: Sequence[IndexMap]) -> Packing | None:
    """The packing of a weight that an op reads by `map`, if it is the matrix of a contraction; `others` are the maps of
    what else it reads."""
    parallel = [loop.parallel for loop in op.loops]
    loops = [plain_loop(index) for index in map]
    columns = plain_loop(op.result_maps[0][-1]) if op.result_maps[0] else None
    if type.dtype != F32 or all(parallel) or len(op.types) != 1 or columns is None or None in loops:
        return None
    if len(set(loops)) != len(loops) or not parallel[columns] or columns not in loops:
        return None
    if any(columns in dict(index.coefficients) for other in others for index in other) or not others:
        return None
    lane = loops.index(columns)
    size = type.shape[lane]
    ordered = sorted((loop, axis) for axis, loop in enumerate(loops) if loop is not None and axis != lane)
    summed = tuple(axis for loop, axis in ordered if not parallel[loop])
    if not isinstance(size, int) or size < LEAST_COLUMNS or not summed or type.elements == 0:
        return None
    batch = tuple(axis for loop, axis in ordered if parallel[loop])
    vectors = -(-size // LANES)
    panels = -(-vectors // MOST)
    return Packing(batch, summed, lane, LANES * -(-vectors // panels))


Packings = Mapping[int, Packing]
"""By the slot of the kernel's input."""
