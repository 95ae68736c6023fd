"""Memory for the parts of reductions, on devices.

Blocks of threads share a reduction whose length is that of a call, if there are few results: each block reduces a part
and stores its total, and another launch combines the totals. Code generation decides whether it uses the memory: a
kernel that does not use it needs none of it.

    sum of x[B, T] to one number       1056 totals
    sum of x[T, 64] to 64 numbers      270336 totals, 4224 for each number
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dialect.dims import bounds, product
from ...dialect.dtype import DType
from ...dialect.types import TensorType
from .arrange import Arrangement
from .records import Structured
from .shapes import plain_loop

BLOCKS = 1056
"""The blocks that share reductions: as many as all multiprocessors of an H100 run at once."""
THREADS = 256
"""The threads of a block. Each thread has a total where the elements of one reduction are not neighbours."""
FEWEST = 8
"""The fewest parts of a reduction: fewer do not save the time of another launch."""
LEAST_OF_BLOCK, LEAST_OF_THREAD, LEAST_OF_DEPTH = 1024, 64, 256
"""The fewest elements of a part that a block or a thread reduces, and of the depth of a product."""
MOST_OF_SCAN, _TOTALS_OF_SCANS = 1024, 1 << 16
"""The most parts of a running sum, whose totals a thread adds one after another, and those of all rows together."""


def find_part_memory(plan: Arrangement) -> tuple[TensorType, ...]:
    """Returns the tensors that hold the totals of parts, one for each dtype of reductions that may be split."""
    most: dict[DType, int] = {}
    for op in plan.ops:
        if isinstance(op, Structured) and id(op) not in plan.inlined and (count := _count_totals(op)):
            dtype = op.types[0].dtype
            most[dtype] = max(most.get(dtype, 0), count)
    return tuple(TensorType(dtype, (count,)) for dtype, count in most.items())


def _count_totals(op: Structured) -> int:
    """Returns the most totals of parts that an op has in a call; 0 if it is not split in any call."""
    reduced = {number for number, loop in enumerate(op.loops) if not loop.parallel}
    length = product(op.loops[number].size for number in reduced)
    results = product(loop.size for loop in op.loops if loop.parallel)
    is_scan = len(op.types) == 2 and len(op.result_maps[0]) < len(op.result_maps[1]) == len(op.loops)
    if isinstance(length, int) or not (is_scan or len(op.types) == 1):
        return 0
    if is_scan:
        totals, least = _TOTALS_OF_SCANS, LEAST_OF_THREAD
    elif _reduces_neighbours(op, reduced):
        totals, least = BLOCKS, LEAST_OF_BLOCK
    else:
        totals, least = BLOCKS * THREADS, LEAST_OF_THREAD
    fewest, (_, longest) = bounds(results)[0], bounds(length)
    if fewest * FEWEST > totals or longest < FEWEST * least:
        return 0
    return min(totals, bounds(results)[1] * -(-longest // least))


def _reduces_neighbours(op: Structured, reduced: set[int]) -> bool:
    """Returns whether all inputs have the elements of a reduction side by side in memory, so that a block shares it."""
    moving: Sequence[object] = [plain_loop(map[-1]) for map in op.input_maps if map]
    return all(loop in reduced for loop in moving)
