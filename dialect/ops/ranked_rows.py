"""Decision trees on ranks, for calls of few rows: a row follows the nodes of several trees at the same time.

Trees and results are those of `ranked_trees`, but ranks are those of `row_ranks`, [rows, width], and a row follows the
nodes of a tree instead of comparing all of them. Ranks and borders are unsigned, so they count from 0, and columns are
plain numbers; words are those of `ranked_trees`. A row has a rank for every number that a column in 8 bits can be;
wider columns count modulo the width, a power of two. The first levels of a tree are complete, so that a node has no
children in memory: those of node `n` are 2 n + 1 and 2 n + 2. PATHS trees are followed at the same time, level after
level, so that their loads overlap:

    tree 0   node 0 -> node 2 -> node 5 ...
    tree 1   node 0 -> node 1 -> node 4 ...      one comparison of all trees, then the next one
    ...

The words of complete trees are laid out [groups, trees, positions, 2^steps]: the subtree of a position is contiguous,
and the children of its word `n` are 2 n and 2 n + 1, from word 1 on. Four further levels are thus one cache line. In
the order of `ranked_trees`, level after level, they are four. Values of leaves are added in the order of the trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..dims import ceil_divide, product, static_size
from ..emitter import Emitter, Scalar, SequenceEmitter, Tensor
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import F64, I16, I32, I64, U8, U16, U32, U64, DType, TensorType, dtype_of
from .feature_ranks import ROWS, least_rank
from .indexing import zeros_like
from .ranked_trees import MOST_STEPS, ranked_trees
from .row_ranks import LEAST_WIDTH, SIGNED, in_rows
from .support.accumulate import Numbers

PATHS, PATHS_OF_DEEP_TREES = 8, 16
"""The number of trees that are followed at the same time. Trees with further levels are read from caches far away, so
more of their loads must overlap."""
Turn = tuple[Sequence[Tensor], Sequence[Scalar]]


def _in_blocks(rows: Numbers) -> Numbers:
    count, width = rows.shape
    blocks = -(-count // ROWS)
    padded = np.zeros((blocks * ROWS, width), rows.dtype)
    padded[:count] = rows
    return padded.reshape(blocks, ROWS, width).transpose(0, 2, 1)


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    ranks, *tables, initial = types
    if ranks.rank != 2 or initial.rank != 2:
        message = f"`ranked_rows` needs ranks [rows, columns] and initial [rows, groups], not {ranks}, {initial}"
        raise InferenceError("shape-mismatch", message)
    rows, width = ranks.shape
    column, border, *others = tables
    if ranks.dtype not in SIGNED or border.dtype != ranks.dtype:
        message = f"`ranked_rows` needs ranks and borders of one unsigned dtype, not {ranks}, {border}"
        raise InferenceError("dtype-mismatch", message, operand=2)
    signed = SIGNED[ranks.dtype]
    nodes, steps = others[1], attributes["steps"]
    if nodes.rank == 3 and isinstance(column.shape[-1], int) and 0 < steps <= MOST_STEPS:
        positions = column.shape[-1] + 1
        if nodes.shape[2] != positions << steps:
            message = f"`nodes` of `ranked_rows` has {positions << steps} words for each tree, not {nodes}"
            raise InferenceError("shape-mismatch", message, operand=4)
        others[1] = TensorType(nodes.dtype, (*nodes.shape[:2], ((1 << steps) - 1) * positions))
    blocks = TensorType(signed, (ceil_divide(rows, ROWS), width, ROWS))
    plain = [TensorType(I32, column.shape), TensorType(signed, border.shape)]
    start = TensorType(initial.dtype, (blocks.shape[0], *column.shape[:1], ROWS))
    (total,) = ranked_trees.infer([blocks, *plain, *others, start], {**attributes, "shape": "nodes"})
    result = TensorType(total.dtype, (rows, total.shape[1]))
    if initial != result:
        raise InferenceError("shape-mismatch", f"`initial` of `ranked_rows` is {result}, not {initial}", operand=6)
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
    steps: int,
) -> Numbers:
    rows, signed = len(ranks), SIGNED[dtype_of(ranks)]
    scaled = column.astype(np.int64) * ROWS
    if nodes.ndim == 3 and steps:
        nodes = _by_levels(nodes, steps)
    tables = (scaled, _biased(border, signed), first, nodes, values, _in_blocks(initial))
    blocks = _in_blocks(_biased(ranks, signed))
    return in_rows(ranked_trees.reference(blocks, *tables, shape="nodes", steps=steps), rows)


def by_subtrees(words: Numbers, steps: int) -> Numbers:
    """Returns the words [..., positions << steps] of subtrees, of those of `ranked_trees`, level after level."""
    if not steps:
        return words
    positions = words.shape[-1] // ((1 << steps) - 1)
    made = np.zeros((*words.shape[:-1], positions, 1 << steps), words.dtype)
    for step in range(steps):
        start, stop = 1 << step, 2 << step
        level = words[..., (start - 1) * positions : (stop - 1) * positions]
        made[..., start:stop] = level.reshape(*words.shape[:-1], positions, start)
    return made.reshape(*words.shape[:-1], positions << steps)


def _by_levels(words: Numbers, steps: int) -> Numbers:
    positions = words.shape[-1] >> steps
    each = words.reshape(*words.shape[:-1], positions, 1 << steps)
    levels = [each[..., 1 << s : 2 << s].reshape(*words.shape[:-1], positions << s) for s in range(steps)]
    return np.concatenate(levels, -1)


def _biased(ranks: Numbers, signed: DType) -> Numbers:
    return (ranks.astype(np.int64) + least_rank(signed)).astype(signed.numpy)


class _Walk:
    """Writes the sum of one row and one group."""

    def __init__(self, s: SequenceEmitter, operands: Sequence[Tensor], attributes: Attributes) -> None:
        self.ranks, self.column, self.border, self.first, self.nodes, self.values, self.initial = operands
        self.s, self.steps = s, int(attributes["steps"])
        self.count, self.width, self.size = (
            static_size(n) for n in (self.column.type.shape[2], self.ranks.type.shape[1], self.values.type.shape[0])
        )
        self.is_inside = self.column.type.dtype == U8 and self.width >= LEAST_WIDTH

    def sum(self, row: Scalar, group: Scalar, target: Tensor) -> Tensor:
        s, trees = self.s, self.first.type.shape[1]
        together = PATHS_OF_DEEP_TREES if self.steps else PATHS
        paths = s.constant(together, I64)
        blocks = s.binary("div", s.size(trees), paths)
        whole = s.binary("mul", blocks, paths)

        def follow(start: Scalar, count: int, total: Scalar) -> Sequence[Scalar]:
            numbers = [s.binary("add", start, s.constant(i, I64)) for i in range(count)]
            for value in self._find(row, group, numbers):
                total = s.binary("add", total, value)
            return [total]

        state: Turn = ([target], [s.load(self.initial, [row, group])])
        state = s.repeat(blocks, *state, lambda i, t, c: (t, follow(s.binary("mul", i, paths), together, c[0])))
        rest = s.binary("sub", s.size(trees), whole)
        (done,), (total,) = s.repeat(rest, *state, lambda i, t, c: (t, follow(s.binary("add", whole, i), 1, c[0])))
        return s.store(done, [row, group], total)

    def _find(self, row: Scalar, group: Scalar, trees: Sequence[Scalar]) -> list[Scalar]:
        s = self.s
        positions = [s.constant(0, I64) for _ in trees]
        for _ in range((self.count + 1).bit_length() - 1):
            bits = [self._is_right(row, [group, t, p]) for t, p in zip(trees, positions, strict=True)]
            one = s.constant(1, I64)
            positions = [
                s.binary("add", s.binary("add", s.binary("add", p, p), one), b)
                for p, b in zip(positions, bits, strict=True)
            ]
        positions = [s.binary("sub", p, s.constant(self.count, I64)) for p in positions]
        is_complete, per_tree = self.nodes.type.dtype == U32, self.count + 1
        if is_complete:
            size = s.constant(1 << self.steps, I64)
            begins, within = [s.binary("mul", p, size) for p in positions], [s.constant(1, I64) for _ in positions]
            for _ in range(self.steps):
                words = [
                    s.load(self.nodes, [group, t, s.binary("add", b, n)])
                    for t, b, n in zip(trees, begins, within, strict=True)
                ]
                bits = [self._passes(row, s.cast(word, I64)) for word in words]
                within = [s.binary("add", s.binary("add", n, n), bit) for n, bit in zip(within, bits, strict=True)]
            positions = [s.binary("add", b, s.binary("sub", n, size)) for b, n in zip(begins, within, strict=True)]
            per_tree <<= self.steps
        most = self.size - per_tree
        starts = [s.cast(s.load(self.first, [group, tree]), I64) for tree in trees]
        starts = [s.binary("max", s.binary("min", b, s.constant(most, I64)), s.constant(0, I64)) for b in starts]
        found = [s.binary("add", b, p) for b, p in zip(starts, positions, strict=True)]
        for _ in range(0 if is_complete else self.steps):
            found = [self._step(row, node) for node in found]
        return [s.load(self.values, [node]) for node in found]

    def _is_right(self, row: Scalar, at: Sequence[Scalar]) -> Scalar:
        s = self.s
        column = s.cast(s.load(self.column, at), I64)
        if not self.is_inside:
            column = s.binary("and", column, s.constant(self.width - 1, I64))
        rank = s.load(self.ranks, [row, column])
        return s.cast(s.compare("ge", rank, s.load(self.border, at)), I64)

    def _step(self, row: Scalar, node: Scalar) -> Scalar:
        s = self.s
        word = s.load(self.nodes, [node])
        child = s.binary("add", s.binary("shr", word, s.constant(32, I64)), self._passes(row, word))
        # As unsigned numbers, negative ones are the greatest.
        return s.cast(s.binary("min", s.cast(child, U64), s.constant(self.size - 1, U64)), I64)

    def _passes(self, row: Scalar, word: Scalar) -> Scalar:
        """Returns 1 if the row goes to the right of a node, else 0."""
        s = self.s
        scaled = s.binary("and", s.binary("shr", word, s.constant(16, I64)), s.constant((self.width - 1) * ROWS, I64))
        column = s.binary("shr", scaled, s.constant(ROWS.bit_length() - 1, I64))
        # The borders of words are signed.
        rank = s.cast(s.load(self.ranks, [row, column]), I32)
        dtype = SIGNED[self.ranks.type.dtype]
        signed = s.binary("add", rank, s.constant(least_rank(dtype), I32))
        border = s.cast(s.cast(word, dtype if self.nodes.type.dtype == U32 else I16), I32)
        return s.cast(s.compare("ge", signed, border), I64)


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (result,) = types

    def write(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return [_Walk(s, operands, attributes).sum(indices[0], indices[1], tensors[0])]

    return e.scan(result.shape, [e.full(result, 0)], write)


def _differentiate(b: Builder, use: Use) -> Sequence[Value | None]:
    """Gradients go to the values. With the numbers of the leaves as values and a group for each tree, the sums are the
    leaves that are reached."""
    ranks, column, border, first, nodes, values, _ = use.inputs
    groups, trees, count = column.type.shape
    rows, each = ranks.type.shape[0], product((groups, trees))
    apart = (each, 1, count)
    tables = b.reshape(column, shape=apart), b.reshape(border, shape=apart), b.reshape(first, shape=(each, 1))
    if nodes.type.rank == 3:
        nodes = b.reshape(nodes, shape=(each, 1, nodes.type.shape[2]))
    numbers, zeros = b.iota(shape=values.type.shape, dtype=F64), b.full(shape=(rows, each), value=0.0, dtype=F64)
    leaves = b.ranked_rows(ranks, *tables, nodes, numbers, zeros, **use.attributes)
    given = b.reshape(use.gradient, shape=(rows, groups, 1))
    spread = b.broadcast_to(given, shape=(rows, groups, trees))
    number = product((rows, each))
    positions = b.reshape(b.cast(leaves, dtype=I64), shape=(number,))
    added = b.scatter_add(zeros_like(b, values), positions, b.reshape(spread, shape=(number,)), axis=0)
    return [None, None, None, None, None, added, use.gradient]


def _cases() -> tuple[Case, ...]:
    made = []
    own = [case for case in ranked_trees.cases if case.attributes["shape"] == "nodes"]
    for number, case in enumerate(own):
        blocks, column, border, first, nodes, values, initial = (case.arrays[i] for i in range(7))
        rows, kind = min(len(blocks) * ROWS, 7), {"b": np.uint8, "h": np.uint16}[blocks.dtype.char]
        ranks, least = in_rows(blocks, rows).astype(np.int64), -(1 << 8 * blocks.dtype.itemsize - 1)
        is_narrow = number % 2 == 1
        width = LEAST_WIDTH if is_narrow else 4
        numbers = (column // ROWS).astype(np.uint8 if is_narrow else np.int32)
        padded = np.pad(ranks - least, ((0, 0), (0, width - ranks.shape[1]))).astype(kind)
        if nodes.ndim == 3:
            nodes = by_subtrees(nodes, case.attributes["steps"])
        tables = (numbers, (border.astype(np.int64) - least).astype(kind), first, nodes, values)
        arrays = dict(enumerate((padded, *tables, in_rows(initial, rows))))
        steps = {"steps": case.attributes["steps"]}
        made.append(replace(case, shapes=tuple(a.shape for a in arrays.values()), attributes=steps, arrays=arrays))
    return tuple(made)


ranked_rows = Operator(
    name="ranked_rows",
    summary="initial + the values [rows, groups] of the leaves that rows of ranks reach in trees, in their order",
    operands=(
        Operand("ranks", (U8, U16), "R"),
        Operand("column", (U8, I32), "C"),
        Operand("border", (U8, U16), "R"),
        *ranked_trees.operands[3:],
    ),
    attributes=(AttributeSpec("steps", "int", 0),),
    infer=_infer,
    reference=_reference,
    gradient=_differentiate,
    lower=_lower,
    cases=LateCases(lambda: _cases()),
    properties=frozenset({"costly", "summing", "sequential"}),
)

OPERATORS = (ranked_rows,)
