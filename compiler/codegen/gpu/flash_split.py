"""Splits the keys of an attention with few query rows among blocks (flash decoding).

One query of 8 heads has 8 blocks, which occupy 8 of a chip's multiprocessors. Each of them computes several parts, and
another launch combines the parts of a row:

    flash attention, a block for each part s      m[s], l[s], o[s]                maximum, sum of weights, sums
    combined attention                            m = max m[s];  c[s] = exp(m[s] - m)
                                                  o = sum c[s] o[s];  l = sum c[s] l[s];  result = o / l

Where the number of rows is that of a call, as in a prompt of any length, calls with few blocks of rows split the keys
too. The number of parts depends on the sizes of the call alone, so that a call always returns the same bits. With `n`
blocks of whole rows and `k` keys, it is

    1                              where n >= PROCESSORS: every multiprocessor has a block
    min(BLOCKS / n, k / least)     at most MOST; elsewhere

A single part is the result: the launch of the parts stores it, and the other launch has no blocks. The parts are in the
memory of the scores, which the schedule does not store: a part of a row needs fewer numbers than it has keys.

https://pytorch.org/blog/flash-decoding/
"""

from __future__ import annotations

from math import inf, prod

from ...targets.chips import CHIPS
from .attention import Attention
from .text import Text

PROCESSORS = CHIPS["h100"].processors
"""The multiprocessors of the chip whose figures decide about the parts."""
BLOCKS = 2 * PROCESSORS
"""The blocks of all parts: the copies of two hide the latency of memory."""
MOST = 64
"""The most parts of a row, which one warp or four combine one after another."""
_LEAST = 256
"""The fewest keys of a part: their copies take longer than its share of the second launch."""
FEW = 16
"""The rows of a warp, and the most rows whose keys are split."""
WIDE = 128
"""The most columns of the values that a block computes."""


def column_blocks(attention: Attention) -> int:
    """Returns the number of blocks for the columns of a row."""
    return -(-(attention.columns or 0) // WIDE)


def part_width(attention: Attention) -> int:
    """Returns the numbers of a part of a row: the columns, and the maximum and the sum for each block of them."""
    return (attention.columns or 0) + 2 * column_blocks(attention)


def least_keys(attention: Attention) -> int:
    """Returns the fewest keys of a part, so that it has no more numbers than keys."""
    least = _LEAST
    while least < part_width(attention):
        least *= 2
    return least


def count_rows(attention: Attention) -> int:
    """Returns the number of rows, if it is the same in every call and one warp computes them; else FEW + 1."""
    rows = attention.scores.static_count(attention.of_scores()[axis] for axis in attention.rows)
    return FEW + 1 if rows is None else min(rows, FEW + 1)


def _may_have_few_rows(attention: Attention) -> bool:
    """Returns whether calls decide about the number of rows. With a causal mask whose scores are finite, the second
    launch would need the code of the first one, for rows that see no key."""
    rows = attention.scores.static_count(attention.of_scores()[axis] for axis in attention.rows)
    return rows is None and (attention.causal is None or attention.causal.low == -inf)


def can_split(attention: Attention) -> bool:
    """Returns whether the keys are split in some calls."""
    axes, scores = attention.of_scores(), attention.scores
    sizes = [scores.static_extent(axes[axis]) for axis in attention.batch]
    keys = scores.static_extent(axes[attention.key])
    return (
        scores.results[0].element == "f32"
        and (count_rows(attention) <= FEW or _may_have_few_rows(attention))
        and prod(size for size in sizes if size) * column_blocks(attention) < PROCESSORS
        and (keys is None or keys >= 2 * least_keys(attention))
    )


def count_parts(text: Text, attention: Attention, blocks: str, keys: str) -> str:
    """Returns the number of parts of each row, for a number of blocks of whole rows."""
    one = text.constant(1)
    wanted = text.index("divui", text.constant(BLOCKS), text.index("maxui", blocks, one))
    long = text.index("divui", keys, text.constant(least_keys(attention)))
    parts = text.index("minui", text.index("minui", wanted, long), text.constant(MOST))
    few = text.below(blocks, text.constant(PROCESSORS))
    return text.let(f"arith.select {few}, {text.index('maxui', parts, one)}, {one} : index")
