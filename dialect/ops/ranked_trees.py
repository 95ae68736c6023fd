"""Decision trees on ranks, for blocks of rows: all nodes of the first levels are compared, and later ones followed.

Ranks are those of `feature_ranks`, [blocks, columns, ROWS], so that one instruction compares a column of ROWS rows.

`ranked_trees` adds the values of leaves to `initial` in the order of the trees. All nodes of the first levels of a tree
are compared, and the results select one of 2^levels positions in the next level. The attribute `steps` is the number of
further levels, in which each row follows the words of `nodes`. Words of 32 bits [groups, trees, nodes] are those of
complete trees, level after level; a step leads from position `p` to position 2 p or 2 p + 1 of the next level:

    border of each level or node     the row goes to the right if its rank is not below it
    column                           its number times ROWS
    word of a node                   column << 16 | border
    value                            first[tree] + position

Words of 64 bits are those of trees with few nodes on many levels:

    position -> node                 first[tree] + position; the values and words of a tree are consecutive
    word of a node                   left << 32 | column << 16 | border; the right child follows the left one
    leaf before the last level       a word with its own index as the left child and a border that no rank reaches

Indices from tables are kept within the tables: columns count modulo a power of two, nodes end at the last value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import product, static_size
from ..emitter import BodyEmitter, Emitter, Loop, Result, Scalar, Tensor, loops
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType, TensorType
from .feature_ranks import RANKS, ROWS, is_power, least_rank
from .indexing import zeros_like
from .support.accumulate import Numbers

MOST_LEVELS, MOST_NODES = 8, 255
"""The levels whose nodes are all compared: a position is a short integer."""
MOST_OBLIVIOUS = 14
MOST_STEPS = 20
"""The most levels after the first ones."""
_FLOATS = (F32, F64)
_POSITIONS = {I8: U8, I16: U16}


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    ranks, column, border, first, nodes, values, initial = types
    is_complete = nodes.dtype == U32
    given = (ranks.rank, column.rank, nodes.rank, values.rank)
    if given != (3, 3, 3 if is_complete else 1, 1) or border.shape != column.shape:
        message = f"`ranked_trees` needs ranks [blocks, columns, {ROWS}] and tables [groups, trees, nodes]"
        message += f", not {ranks}, {column}, {border}"
        raise InferenceError("shape-mismatch", message)
    if first.shape != column.shape[:2] or not is_power(ranks.shape[1]) or ranks.shape[2] != ROWS:
        message = f"`ranked_trees` needs a power of two of columns, {ROWS} rows of them, and `first` [groups, trees]"
        message += f", not {ranks}, {first}"
        raise InferenceError("shape-mismatch", message)
    count, steps = column.shape[2], attributes["steps"]
    oblivious = attributes["shape"] == "levels"
    known = isinstance(count, int) and (count <= MOST_OBLIVIOUS if oblivious else is_power(count + 1))
    if not known or (not oblivious and static_size(count) > MOST_NODES) or not 0 <= steps <= MOST_STEPS:
        message = f"`ranked_trees` supports {MOST_OBLIVIOUS} levels, or a power of two less 1 up to {MOST_NODES} nodes"
        message += f", and {MOST_STEPS} steps"
        raise InferenceError("shape-mismatch", f"{message}, not {count} and {steps}", operand=1)
    positions = 1 << static_size(count) if oblivious else static_size(count) + 1
    if is_complete:
        words = (*first.shape, ((1 << steps) - 1) * positions)
        if oblivious or nodes.shape != words:
            message = f"`nodes` of `ranked_trees` has the words {list(words)} of complete trees, not {nodes}"
            raise InferenceError("shape-mismatch", message, operand=4)
        positions <<= steps
    if not isinstance(values.shape[0], int) or values.shape[0] < positions:
        raise InferenceError(
            "shape-mismatch", f"`values` of `ranked_trees` has at least {positions} elements", operand=5
        )
    if steps and not is_complete and nodes.shape != values.shape:
        raise InferenceError("shape-mismatch", "`nodes` of `ranked_trees` has one word for each value", operand=4)
    result = TensorType(values.dtype, (ranks.shape[0], column.shape[0], ROWS))
    if initial != result:
        raise InferenceError("shape-mismatch", f"`initial` of `ranked_trees` is {result}, not {initial}", operand=6)
    return (result,)


def _reference(
    ranks: Numbers,
    column: Numbers,
    border: Numbers,
    first: Numbers,
    nodes: Numbers,
    values: Numbers,
    initial: Numbers,
    *,
    shape: str,
    steps: int,
) -> Numbers:
    blocks, columns, _ = ranks.shape
    groups, trees, count = column.shape
    total, is_complete = initial.copy(), nodes.dtype == np.uint32
    for group in range(groups):
        for tree in range(trees):
            right = ranks[:, column[group, tree] // ROWS & columns - 1] >= border[group, tree][:, None]
            position = np.zeros((blocks, ROWS), np.int64)
            if shape == "levels":
                for level in range(count):
                    position |= right[:, level].astype(np.int64) << level
            else:
                for _ in range((count + 1).bit_length() - 1):
                    position = 2 * position + 1 + np.take_along_axis(right, position[:, None], 1)[:, 0]
                position -= count
            positions = 1 << count if shape == "levels" else count + 1
            size = positions << steps if is_complete else positions
            node = position if is_complete else position + np.clip(first[group, tree], 0, len(values) - size)
            for step in range(steps):
                word = nodes[group, tree, ((1 << step) - 1) * positions + node] if is_complete else nodes[node]
                rank = np.take_along_axis(ranks, ((word >> 16 & 0xFFFF) // ROWS & columns - 1)[:, None], 1)[:, 0]
                border_of_word = (word & 0xFFFF).astype(np.uint16).view(np.int16)
                is_right = rank >= (border_of_word.astype(ranks.dtype) if is_complete else border_of_word)
                if is_complete:
                    node = 2 * node + is_right
                    continue
                node = np.minimum(((word >> 32) + is_right).view(np.uint64), len(values) - 1).astype(np.int64)
            if is_complete:
                node = node + np.clip(first[group, tree], 0, len(values) - size)
            total[:, group] = (total[:, group] + values[node]).astype(values.dtype)
    return total


class _Body:
    """Writes the addend of one row and one tree."""

    def __init__(self, e: Emitter, operands: Sequence[Tensor], attributes: Attributes) -> None:
        ranks, self.column, self.border, _, self.nodes, self.values, _ = operands
        self.ranks = e.reshape(ranks, (ranks.type.shape[0], static_size(ranks.type.shape[1]) * ROWS))
        self.shape, self.steps = str(attributes["shape"]), int(attributes["steps"])
        self.count, self.columns, self.size = (
            static_size(n) for n in (self.column.type.shape[2], ranks.type.shape[1], self.values.type.shape[0])
        )

    def write(self, s: BodyEmitter, first: Scalar) -> Scalar:
        block, group, lane, tree = (s.index(i) for i in range(4))
        # Columns are multiples of ROWS: the positions of their rows in a block.
        mask, dtype = s.constant((self.columns - 1) * ROWS, I64), self.ranks.type.dtype

        def is_left(number: int) -> Scalar:
            at = [group, tree, s.constant(number, I64)]
            column = s.binary("and", s.cast(s.load(self.column, at), I64), mask)
            rank = s.load(self.ranks, [block, s.binary("add", column, lane)])
            return s.compare("lt", rank, s.load(self.border, at))

        if self.shape == "levels":
            position, positions = self._write_levels(s, is_left), 1 << self.count
        else:
            positions = self.count + 1
            position = s.cast(self._select(s, is_left, 0, dtype), I64)
        is_complete = self.nodes.type.dtype == U32
        size = positions << self.steps if is_complete else positions
        begin = s.binary("min", s.cast(first, I64), s.constant(self.size - size, I64))
        begin = s.binary("max", begin, s.constant(0, I64))
        if is_complete:
            for step in range(self.steps):
                at = s.binary("add", position, s.constant(((1 << step) - 1) * positions, I64))
                word = s.load(self.nodes, [group, tree, at])
                column = s.binary("and", s.cast(s.binary("shr", word, s.constant(16, U32)), I64), mask)
                rank = s.load(self.ranks, [block, s.binary("add", column, lane)])
                right = s.cast(s.compare("ge", rank, s.cast(word, dtype)), I64)
                position = s.binary("add", s.binary("add", position, position), right)
            return s.load(self.values, [s.binary("add", begin, position)])
        node = s.binary("add", begin, position)
        for _ in range(self.steps):
            word = s.load(self.nodes, [node])
            column = s.binary("and", s.binary("shr", word, s.constant(16, I64)), mask)
            rank = s.cast(s.load(self.ranks, [block, s.binary("add", column, lane)]), I16)
            right = s.cast(s.compare("ge", rank, s.cast(word, I16)), I64)
            child = s.binary("add", s.binary("shr", word, s.constant(32, I64)), right)
            # As unsigned numbers, negative ones are the greatest.
            node = s.cast(s.binary("min", s.cast(child, U64), s.constant(self.size - 1, U64)), I64)
        return s.load(self.values, [node])

    def _select(self, s: BodyEmitter, is_left: Any, node: int, dtype: DType) -> Scalar:
        """Returns the position that a row reaches below a node, bottom up."""
        if node >= self.count:
            return s.constant(node - self.count, _POSITIONS[dtype])
        left, right = (self._select(s, is_left, 2 * node + side, dtype) for side in (1, 2))
        return s.select(is_left(node), left, right)

    def _write_levels(self, s: BodyEmitter, is_left: Any) -> Scalar:
        """Returns the position as bits; short integers hold MOST_LEVELS of them."""
        total: Scalar = s.constant(0, I64)
        for start in range(0, self.count, MOST_LEVELS):
            part: Scalar = s.constant(0, _POSITIONS[self.ranks.type.dtype])
            for level in range(start, min(start + MOST_LEVELS, self.count)):
                bit = s.constant(1 << (level - start), part.dtype)
                part = s.binary("or", part, s.select(is_left(level), s.constant(0, part.dtype), bit))
            wide = s.cast(part, I64)
            total = wide if not start else s.binary("add", total, s.binary("mul", wide, s.constant(1 << start, I64)))
        return total


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (result,), first, initial = types, operands[3], operands[6]
    groups, trees = first.type.shape
    body = _Body(e, operands, attributes)
    return e.structured(
        [Loop(result.shape[0]), Loop(groups), Loop(ROWS), Loop(trees, parallel=False)],
        [(first, loops(1, 3))],
        [Result(result, loops(0, 1, 2), initial)],
        lambda s, start, total: [s.binary("add", total, body.write(s, start))],
    )


def _differentiate(b: Builder, use: Use) -> Sequence[Value | None]:
    """Ranks only choose leaves: gradients go to the values. With the numbers of the leaves as values and a group for
    each tree, the sums are the leaves that are reached."""
    ranks, column, border, first, nodes, values, _ = use.inputs
    groups, trees, count = column.type.shape
    each = product((groups, trees))
    apart = (each, 1, count)
    if nodes.type.rank == 3:
        nodes = b.reshape(nodes, shape=(each, 1, nodes.type.shape[2]))
    tables = b.reshape(column, shape=apart), b.reshape(border, shape=apart), b.reshape(first, shape=(each, 1))
    numbers = b.iota(shape=values.type.shape, dtype=F64)
    blocks = ranks.type.shape[0]
    zeros = b.full(shape=(blocks, each, ROWS), value=0.0, dtype=F64)
    leaves = b.ranked_trees(ranks, *tables, nodes, numbers, zeros, **use.attributes)
    given = b.reshape(use.gradient, shape=(blocks, groups, 1, ROWS))
    spread = b.broadcast_to(given, shape=(blocks, groups, trees, ROWS))
    number = product((blocks, each, ROWS))
    positions = b.reshape(b.cast(leaves, dtype=I64), shape=(number,))
    added = b.scatter_add(zeros_like(b, values), positions, b.reshape(spread, shape=(number,)), axis=0)
    return [None, None, None, None, None, added, use.gradient]


def _cases() -> tuple[Case, ...]:
    rng = np.random.default_rng(1)
    made = []
    for blocks, groups, trees, shape, count, steps, dtype, words in (
        (2, 1, 5, "nodes", 7, 0, I8, I64),
        (1, 2, 3, "nodes", 3, 2, I8, I64),
        (3, 1, 4, "levels", 3, 0, I16, I64),
        (9, 1, 2, "levels", 9, 0, I8, I64),
        (1, 1, 1, "nodes", 0, 0, I16, I64),
        (1, 2, 0, "nodes", 1, 1, I8, I64),
        (0, 1, 3, "nodes", 3, 0, I8, I64),
        (2, 2, 3, "nodes", 3, 3, I8, U32),
        (1, 1, 2, "nodes", 0, 2, I16, U32),
        (3, 2, 4, "nodes", 0, 0, I8, U32),
    ):
        is_complete = words == U32
        positions = (1 << count if shape == "levels" else count + 1) << (steps if is_complete else 0)
        size = max(groups * trees, 1) * positions + 8 * steps
        word = (
            rng.integers(-2, size + 2, size) << 32
            | rng.integers(0, 9, size) * ROWS << 16
            | rng.integers(0, 1 << 16, size)
        )
        least = least_rank(dtype)
        arrays: dict[int, Any] = {
            0: rng.integers(least, -least, (blocks, 4, ROWS)).astype(dtype.numpy),
            1: (rng.integers(-1, 6, (groups, trees, count)) * ROWS).astype(np.int32),
            2: rng.integers(least, -least, (groups, trees, count)).astype(dtype.numpy),
            3: (rng.integers(-1, max(trees, 1), (groups, trees)) * positions).astype(np.int32),
            4: word if steps else np.zeros(0, np.int64),
            5: rng.normal(size=size),
            6: rng.normal(size=(blocks, groups, ROWS)),
        }
        if is_complete:
            inner = (groups, trees, ((1 << steps) - 1) * (count + 1))
            arrays[4] = (rng.integers(0, 9, inner) * ROWS << 16 | rng.integers(0, 1 << 16, inner)).astype(np.uint32)
        shapes = tuple(a.shape for a in arrays.values())
        attributes = {"shape": shape, "steps": steps}
        made.append(Case(shapes, attributes, arrays=arrays, terms=max(trees, 1)))
    return tuple(made)


ranked_trees = Operator(
    name="ranked_trees",
    summary="initial + the leaves [blocks, groups, 32] that rows of ranks reach in decision trees, in their order",
    operands=(
        Operand("ranks", RANKS, "R"),
        Operand("column", (I32,), "I"),
        Operand("border", RANKS, "R"),
        Operand("first", (I32,), "I"),
        Operand("nodes", (I64, U32), "N"),
        Operand("values", _FLOATS),
        Operand("initial", _FLOATS),
    ),
    attributes=(AttributeSpec("shape", "str", "nodes", ("nodes", "levels")), AttributeSpec("steps", "int", 0)),
    infer=_infer,
    reference=_reference,
    gradient=_differentiate,
    lower=_lower,
    cases=LateCases(lambda: _cases()),
    properties=frozenset({"costly", "summing"}),
)

OPERATORS = (ranked_trees,)
