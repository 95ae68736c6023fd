"""The sizes of an attention, its tiles, and the arguments of its schedule."""

from __future__ import annotations

from .attention import Attention
from .flash_split import FEW, WIDE, can_split, column_blocks, count_parts, count_rows
from .fragments import BYTES
from .nest import arguments_beside, arguments_of
from .text import Text

WARP, WARPS = 32, 4
THREADS = WARP * WARPS
PARTS = "%q2"
"""The memory of the scores."""
_MOST = 256
WIDENED = frozenset({"f32", "f16", "bf16", "i8"})
"""The dtypes of keys and values that are multiplied as f32."""


def fits_flash(attention: Attention | None) -> bool:
    """Returns whether an attention has this schedule."""
    if attention is None:
        return False
    (q, k), (_, v) = attention.scores.inputs, attention.values.inputs
    depth, columns = attention.depth or 0, attention.columns or 0
    has_one_dtype = q.element == k.element == v.element and q.element in ("f16", "bf16")
    is_widened = q.element == "f32" and {k.element, v.element} <= WIDENED
    fits = (has_one_dtype or is_widened) and q.element == attention.values.inputs[0].element
    return fits and 0 < depth <= _MOST and 0 < columns <= _MOST


def flash_arguments(attention: Attention) -> list[tuple[str, str]]:
    """Returns the arguments of the threads' function: queries, keys, the memory of the scores if it holds parts, the
    epilogue of scores, the function of shares, the bounds of the values, then those of the second product."""
    q, k = attention.scores.inputs
    named = [("%q0", q.type), ("%q1", k.type)]
    if can_split(attention):
        named.append((PARTS, attention.scores.results[0].type))
    if attention.scores.epilogue is not None:
        named += arguments_beside("x", attention.scores.epilogue)
    if attention.shares is not None:
        named += arguments_beside("y", attention.shares)
    for bound in (attention.kept, attention.since):
        named += [] if bound is None else bound.arguments()
    return named + arguments_of(attention.values)


def counted_arguments(attention: Attention) -> list[tuple[str, str]]:
    q, k = attention.scores.inputs
    _, v, result = attention.values.operands
    return [("%q0", q.type), ("%q1", k.type), ("%m1", v.type), ("%m2", result.type)]


def shares_keys(attention: Attention) -> bool:
    """Returns whether the warps of a block share the keys: there are never more rows than one warp computes."""
    return count_rows(attention) <= FEW and (attention.depth or 0) <= WIDE


def blocks_at_once(attention: Attention) -> int:
    """Returns the least number of blocks of a processor; 0 leaves it to ptxas. By default, ptxas limits the registers
    of a thread so that three or four blocks fit, or more if their tiles are small, as those of few rows are. The
    products of f32 need more, and so do few rows, and a causal mask beside another one."""
    end = attention.scores.epilogue
    has_masks = attention.causal is not None and end is not None and len(end.nest.inputs) > 1
    is_wide = BYTES[attention.scores.inputs[0].element] == 4
    return 2 if is_wide or has_masks or shares_keys(attention) else 0


class Shape:
    """The sizes of an attention, and its tiles."""

    def __init__(self, text: Text, attention: Attention) -> None:
        self.shares_keys = shares_keys(attention)
        self.rows = FEW if self.shares_keys else FEW * WARPS
        self.depth = -(-(attention.depth or 0) // 16) * 16
        is_wide = self.depth > WIDE
        if BYTES[attention.scores.inputs[0].element] == 2 or self.shares_keys:
            self.keys = FEW if is_wide else 64
        else:
            self.keys = FEW if is_wide else 32
        self.columns = min(-(-(attention.columns or 0) // 16) * 16, WIDE)
        self.column_blocks = column_blocks(attention)
        sizes = {axis: _size_of(text, attention, axis) for axis in range(attention.key + 1)}
        self.row_sizes = [sizes[axis] for axis in attention.rows]
        self.batch_sizes = [sizes[axis] for axis in attention.batch]
        self.total_rows = text.multiply(text.constant(1), *self.row_sizes)
        self.total_keys = sizes[attention.key]
        self.batches = text.multiply(text.constant(1), *self.batch_sizes)
        self.row_tiles = text.index("ceildivui", self.total_rows, text.constant(self.rows))
        self.whole = text.multiply(self.batches, self.row_tiles, text.constant(self.column_blocks))
        """The blocks of whole rows."""
        self.parts = count_parts(text, attention, self.whole, self.total_keys) if can_split(attention) else None
        """The parts of the keys, which are blocks of their own; None if the keys are never split."""


def _size_of(text: Text, attention: Attention, axis: int) -> str:
    """Returns the size of an axis of the scores."""
    of_scores, of_values = attention.of_scores()[axis], attention.of_values()[axis]
    loops = dict(zip(("%q0", "%q1", "%m1", "%m2"), (of_scores, of_scores, of_values, of_values), strict=True))
    operands = (*attention.scores.inputs, *attention.values.operands[1:])
    for (name, loop), operand in zip(loops.items(), operands, strict=True):
        if loop in operand.plain_axes():
            position = text.constant(operand.plain_axes().index(loop))
            return text.let(f"memref.dim {name}, {position} : {operand.type}")
    raise AssertionError(f"no operand has the axis {axis} of the scores")
