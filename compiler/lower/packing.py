"""Packing of weights in the order in which contractions read them: panels of as many columns as a tile is wide.

A weight with one contraction as its only reader is stored as `[batch..., panels, summed..., width]`: a tile reads
memory from beginning to end. The last panel is padded with zeros, which are never read. The width depends on the
targets: see `PanelSizes`.

For numbers narrower than 32 bits, as many as fill 32 bits are multiplied together where both factors are that narrow.
This many steps of the last summed axis are then adjacent, `[batch..., panels, summed.../group, width, group]`, and that
axis is padded with zeros to whole groups. This order is the same for every CPU.

A convolution of bytes in which each channel has a separate window (depthwise) uses the same layout. The steps of a
group are then adjacent in the weight only, and they are steps of the loop before the last, so that several windows
share a group of the other factor.

The panels of a matrix of 2 steps and 4 columns, 2 columns wide:

    a b c d     ->     a b   e f   c d   g h     [panels, summed, width]
    e f g h
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...dialect.dims import static_size
from ...dialect.emitter import ZERO, Index, IndexMap
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import ANY, BF16, F32, F64, I8, I32, U8, U32, Array, DType, TensorType
from ..targets.vector_unit import PanelSizes
from .records import Structured
from .shapes import PanelIndex, panel_indices, plain_loop

WIDE = PanelSizes()
"""The sizes of panels with adjacent steps, which are the same for every CPU."""
WIDE_WINDOWS = PanelSizes(most=2)
"""The same, for depthwise convolutions, where every column has a separate window."""
LEAST_COLUMNS = 8
"""The least number of columns that makes panels profitable."""
FACTORS: Mapping[DType, tuple[DType, ...]] = {
    F32: (F32, U32, *(dtype for dtype in ANY if dtype.is_short)),
    F64: (F64,),
    I32: tuple(dtype for dtype in ANY if I32 in dtype.sums_in),
}
"""The dtypes of packed weights, by the dtype in which products are summed. Quantized values, their scales and the words
of packed floats are among them."""
GROUPS: Mapping[tuple[DType, DType], int] = {
    (total, dtype): dtype.group for total, factors in FACTORS.items() for dtype in factors
}
"""The number of adjacent steps of a sum, by its dtype and that of its factors; one elsewhere. Sums of quantized values
over blocks are added up in f32."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The layout of a weight: its batch axes, panels of its axis `lane`, its summed axes, the columns of a panel, and
    the number of adjacent steps of the last summed axis."""

    batch: tuple[int, ...]
    summed: tuple[int, ...]
    lane: int
    width: int
    group: int = 1

    @property
    def name(self) -> str:
        axes = "_".join(map(str, (*self.batch, "p", *self.summed)))
        return f"packed_{axes}_{self.lane}x{self.width}" + (f"x{self.group}" if self.group > 1 else "")

    def type(self, type: TensorType) -> TensorType:
        sizes = [static_size(s) for s in type.shape]
        panels = -(-sizes[self.lane] // self.width)
        *outer, last = (sizes[a] for a in self.summed)
        groups = (*outer, -(-last // self.group))
        inside = (self.width, self.group) if self.group > 1 else (self.width,)
        return TensorType(type.dtype, (*(sizes[a] for a in self.batch), panels, *groups, *inside))

    def map(self, map: IndexMap) -> IndexMap:
        """Returns the index map of the stored weight for an op that reads the original by `map`."""
        panel, column = panel_indices(map[self.lane], self.width)
        *outer, last = (map[a] for a in self.summed)
        batch = (map[a] for a in self.batch)
        if self.group == 1:
            return (*batch, panel, *outer, last, column)
        group, step = panel_indices(last, self.group)
        return (*batch, panel, *outer, group, column, step)

    def positions(self, positions: Sequence[str], divide: Callable[[str, int], tuple[str, str]]) -> tuple[str, ...]:
        """Returns the position of an element in the stored weight from its computed index along each axis; `divide`
        returns a quotient and a remainder."""
        panel, column = divide(positions[self.lane], self.width)
        *outer, last = (positions[axis] for axis in self.summed)
        batch = (positions[axis] for axis in self.batch)
        if self.group == 1:
            return (*batch, panel, *outer, last, column)
        group, step = divide(last, self.group)
        return (*batch, panel, *outer, group, column, step)

    def __call__(self, data: Array) -> Array:
        """Returns the stored form of the data."""
        ordered = data.transpose(*self.batch, *self.summed, self.lane)
        *outer, steps, columns = ordered.shape
        panels, groups = -(-columns // self.width), -(-steps // self.group)
        padding = [(0, 0)] * len(outer) + [(0, groups * self.group - steps), (0, panels * self.width - columns)]
        padded = np.pad(ordered, padding).reshape(*outer, groups, self.group, panels, self.width)
        stored = np.ascontiguousarray(np.moveaxis(np.moveaxis(padded, -3, -1), -3, len(self.batch)))
        return stored if self.group > 1 else stored.squeeze(-1)

    def unpacked(self, stored: Array) -> Array:
        """Returns the data of a stored form, followed by the padding of the last panel and the last group."""
        grouped = stored if self.group > 1 else stored[..., np.newaxis]
        padded = np.moveaxis(np.moveaxis(grouped, len(self.batch), -3), -1, -3)
        *outer, groups, group, panels, width = padded.shape
        order = (*self.batch, *self.summed, self.lane)
        ordered = padded.reshape(*outer, groups * group, panels * width)
        return ordered.transpose([order.index(axis) for axis in range(len(order))])


_NAME = re.compile(r"(.*)\.packed_((?:\d+_)*)p((?:_\d+)*)_(\d+)x(\d+)(?:x(\d+))?")


def read_packing(name: str) -> tuple[str, Packing | None]:
    """Returns a stored weight's own name, and the packing that the full name encodes."""
    found = _NAME.fullmatch(name)
    if found is None:
        return name, None
    batch, summed = (tuple(map(int, filter(None, axes.split("_")))) for axes in (found[2], found[3]))
    return found[1], Packing(batch, summed, int(found[4]), int(found[5]), int(found[6] or 1))


@dataclass(frozen=True, slots=True)
class Reading:
    """Another operand of a contraction, and its index map."""

    dtype: DType
    map: IndexMap


def choose_packing(
    op: Structured, type: TensorType, map: IndexMap, others: Sequence[Reading], sizes: PanelSizes
) -> Packing | None:
    """Returns the packing of a weight that an op reads by `map`, if it is the matrix of a contraction with `others`, in
    panels of these sizes."""
    parallel = [loop.parallel for loop in op.loops]
    loops = [plain_loop(index) for index in map]
    columns = plain_loop(op.result_maps[0][-1]) if op.result_maps[0] else None
    if type.dtype not in FACTORS.get(op.types[0].dtype, ()):
        return None
    if all(parallel) or len(op.types) != 1 or columns is None or not parallel[columns] or columns not in loops:
        return None
    if all(any(columns in dict(index.coefficients) for index in other.map) for other in others):
        return _choose_window(op, type, map, others)
    still = tuple(axis for axis, index in enumerate(map) if type.dtype is U32 and _is_constant(index))
    if loops.count(None) > len(still) or len(set(loops)) != len(loops):
        return None
    lane = loops.index(columns)
    size = type.shape[lane]
    ordered = sorted((loop, axis) for axis, loop in enumerate(loops) if loop is not None and axis != lane)
    summed = tuple(axis for loop, axis in ordered if not parallel[loop])
    if not isinstance(size, int) or size < LEAST_COLUMNS or not summed or type.elements == 0:
        return None
    batch = tuple(axis for loop, axis in ordered if parallel[loop])
    total = op.types[0].dtype
    group = _choose_group(total, type.dtype, others, loops[summed[-1]])
    # The scales of a block-quantized weight have panels of the same columns as its quantized values.
    is_wide = group > 1 or _is_grouped(op, total, others)
    if total is F64:
        sizes = sizes.of_f64
    return Packing(batch, (*summed, *still), lane, _choose_width(size, WIDE if is_wide else sizes), group)


def _is_constant(index: Index) -> bool:
    return not isinstance(index, PanelIndex) and not index.coefficients


def reads_groups(
    op: Structured, type: TensorType, map: IndexMap, others: Sequence[Reading], sizes: PanelSizes, groups: Packing
) -> bool:
    """Returns whether an op that sums products in bf16 with a dequantized weight may read its quantized values in
    groups that another op chose: where a matrix unit computes the op, which unpacks groups of bytes."""
    own = choose_packing(op, type, map, others, sizes)
    if own is None or not sizes.decoded or type.dtype not in (U8, I8) or own.group > 1:
        return False
    columns, steps = type.shape[own.lane], type.shape[own.summed[-1]]
    is_whole = isinstance(columns, int) and columns % sizes.lanes == 0
    is_whole &= isinstance(steps, int) and steps % groups.group == 0 and groups.width % sizes.lanes == 0
    if not is_whole or (groups.lane, groups.summed) != (own.lane, own.summed):
        return False
    step = max(number for number, loop in enumerate(op.loops) if not loop.parallel)
    moving = [o for o in others if any(step in dict(index.coefficients) for index in o.map)]
    return bool(moving) and all(other.dtype is BF16 for other in moving)


def _is_grouped(op: Structured, total: DType, others: Sequence[Reading]) -> bool:
    """Returns whether all operands indexed by the last summed loop are narrow enough for groups of its steps."""
    step = max((number for number, loop in enumerate(op.loops) if not loop.parallel), default=None)
    moving = [o for o in others if any(step in dict(index.coefficients) for index in o.map)]
    return bool(moving) and all(GROUPS.get((total, o.dtype), 1) > 1 for o in moving)


def _choose_width(columns: int, sizes: PanelSizes) -> int:
    """Returns the panel width that gives the fewest panels, and among those the least padding."""
    vectors = -(-columns // sizes.lanes)
    if vectors <= sizes.narrow and vectors % sizes.most == 1 and vectors % (sizes.most - 1) == 0:
        return sizes.lanes * (sizes.most - 1)
    panels = -(-vectors // sizes.most)
    return sizes.lanes * -(-vectors // panels)


def _choose_window(op: Structured, type: TensorType, map: IndexMap, others: Sequence[Reading]) -> Packing | None:
    """Returns the packing of the weight of a depthwise convolution of bytes: each column has a separate window, which
    slides over two axes of the other factor."""
    *axes, lane = range(len(map))
    loops = [plain_loop(map[axis]) for axis in axes]
    moving = [(loop, axis) for axis, loop in enumerate(loops) if loop is not None and not op.loops[loop].parallel]
    still = tuple(axis for axis in axes if map[axis] == ZERO)
    group = GROUPS.get((op.types[0].dtype, type.dtype), 1)
    narrow = [GROUPS.get((op.types[0].dtype, other.dtype), 1) == group for other in others]
    columns = type.shape[lane]
    if group != 4 or narrow != [True] or len(moving) < 2 or len(moving) + len(still) < len(axes):
        return None
    if not isinstance(columns, int) or columns < LEAST_COLUMNS or plain_loop(map[lane]) is None:
        return None
    *outer, grouped, inner = (axis for _, axis in sorted(moving))
    if type.shape[grouped] == 1:
        return None
    return Packing(still, (*outer, inner, grouped), lane, _choose_width(columns, WIDE_WINDOWS), group)


def _choose_group(total: DType, weight: DType, others: Sequence[Reading], step: int | None) -> int:
    """Returns the number of adjacent steps of a sum's loop: the group size of the dtypes, if every operand indexed by
    the loop has the same group size and this loop as its last axis; else 1."""
    group = GROUPS.get((total, weight), 1)
    moving = [o for o in others if any(step in dict(index.coefficients) for index in o.map)]
    beside = all(GROUPS.get((total, o.dtype), 1) == group and plain_loop(o.map[-1]) == step for o in moving)
    return group if moving and beside else 1


Packings = Mapping[int, Packing]
"""The packings by the slot of the kernel's input."""
