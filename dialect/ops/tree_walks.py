"""The paths of rows through trees whose tables were checked: `walk_ensemble` and `walk_leaves`.

Both read the tables without a further check. The last operand, the record of `check_trees`, is not read; it makes the
paths depend on the check, so that no pass moves them before it.

PATHS paths are followed at the same time, since each load of a path depends on the load before it. For 19 rows, 10
trees and PATHS = 8:

    rows 0 .. 7, rows 8 .. 15    for each tree: the paths of the 8 rows
    rows 16, 17, 18              for each row: the paths of trees 0 .. 7, then those of trees 8 and 9 one by one

Either way, a row adds its leaves in the order of the trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..dims import Size, ceil_divide, product
from ..emitter import Emitter, Scalar, SequenceEmitter, Tensor
from ..operator import Attributes, Case, LateCases, Operand, Operator
from ..types import I32, I64, TensorType
from .index_checks import RECORD
from .support.accumulate import Numbers
from .support.tree_cases import tree_cases
from .support.trees import TABLES, Tables, Traversal
from .tree_ensemble import (
    COMPARE,
    OPERANDS,
    ROUTING,
    SUMMED,
    infer_ensemble,
    infer_leaves,
    walk_ensemble_array,
    walk_leaves_array,
)

PATHS = 8
"""The number of paths that are followed at the same time."""
_PASSED = np.asarray([-1] + [0] * (RECORD - 1), np.int64)
_RECORD = Operand("record", (I64,), "R")


Turn = tuple[Sequence[Tensor], Sequence[Scalar]]


class _Lowering:
    """Writes blocks of PATHS rows: tree after tree for a whole block, else PATHS trees at a time for each row."""

    def __init__(self, e: Emitter, operands: Sequence[Tensor], attributes: Attributes, result: TensorType) -> None:
        x, *tables = operands
        self.rows: Size = product(x.type.shape[:-1])
        self.groups, self.trees = tables[6].type.shape
        flat = e.reshape(x, (self.rows, x.type.shape[-1]))
        self.tables = Tables(flat, *tables[: len(TABLES)])
        self.values: Tensor | None = None
        self.initial: Tensor | None = None
        if len(tables) > len(TABLES) + 1:
            self.values, self.initial = tables[len(TABLES) : -1]
        self.attributes = attributes
        self.flat = result.with_shape((self.rows, *result.shape[-2:]))
        self.e, self.result = e, result

    def write(self) -> Tensor:
        (done,) = self.e.scan(
            (ceil_divide(self.rows, PATHS), self.groups), [self.e.full(self.flat, 0)], self._write_block
        )
        return self.e.reshape(done, self.result.shape)

    def _write_block(
        self, s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        block, group = indices
        one, paths = s.constant(1, I64), s.constant(PATHS, I64)
        first = s.binary("mul", block, paths)
        left = s.binary("sub", s.size(self.rows), first)
        whole = s.compare("ge", left, paths)
        (result,), _ = s.repeat(
            s.select(whole, one, s.constant(0, I64)),
            tensors,
            [],
            lambda _, t, __: ([self._write_rows(s, group, first, t[0])], []),
        )
        (result,), _ = s.repeat(
            s.select(whole, s.constant(0, I64), left),
            [result],
            [],
            lambda i, t, __: ([self._write_row(s, group, s.binary("add", first, i), t[0])], []),
        )
        return [result]

    def _write_rows(self, s: SequenceEmitter, group: Scalar, first: Scalar, result: Tensor) -> Tensor:
        """Writes PATHS rows."""
        rows = [s.binary("add", first, s.constant(i, I64)) for i in range(PATHS)]
        walk = Traversal(s, self.tables, **self.attributes)

        def follow(tree: Scalar, t: Sequence[Tensor], totals: Sequence[Scalar]) -> Turn:
            root, depth = (s.load(table, [group, tree]) for table in (self.tables.roots, self.tables.depths))
            leaves = walk.find(rows, [root] * PATHS, s.cast(depth, I64))
            return self._add(s, group, rows, [tree] * PATHS, leaves, t, totals)

        return self._sum(s, group, rows, s.size(self.trees), result, follow)

    def _write_row(self, s: SequenceEmitter, group: Scalar, row: Scalar, result: Tensor) -> Tensor:
        """Writes one row; the trees after the last PATHS follow one by one."""
        walk = Traversal(s, self.tables, **self.attributes)
        t = self.tables

        def follow_some(first: Scalar, count: int, tensors: Sequence[Tensor], totals: Sequence[Scalar]) -> Turn:
            trees = [s.binary("add", first, s.constant(i, I64)) for i in range(count)]
            roots = [s.load(t.roots, [group, tree]) for tree in trees]
            depths = [s.load(t.depths, [group, tree]) for tree in trees]
            most = depths[0]
            for depth in depths[1:]:
                most = s.binary("max", most, depth)
            leaves = walk.find([row] * count, roots, s.cast(most, I64))
            for tree, leaf in zip(trees, leaves, strict=True):
                tensors, totals = self._add(s, group, [row], [tree], [leaf], tensors, totals)
            return tensors, totals

        paths = s.constant(PATHS, I64)
        blocks = s.binary("div", s.size(self.trees), paths)
        whole = s.binary("mul", blocks, paths)
        carried = self._start(s, group, [row], result)
        carried = s.repeat(blocks, *carried, lambda i, a, b: follow_some(s.binary("mul", i, paths), PATHS, a, b))
        rest = s.binary("sub", s.size(self.trees), whole)
        carried = s.repeat(rest, *carried, lambda i, a, b: follow_some(s.binary("add", whole, i), 1, a, b))
        return self._finish(s, group, [row], *carried)

    # Sums: scalars if a leaf has one value, else elements of the result

    @property
    def _in_scalars(self) -> bool:
        return self.values is not None and self.values.type.shape[1] == 1

    def _sum(
        self, s: SequenceEmitter, group: Scalar, rows: Sequence[Scalar], count: Scalar, result: Tensor, follow: Any
    ) -> Tensor:
        return self._finish(s, group, rows, *s.repeat(count, *self._start(s, group, rows, result), follow))

    def _start(self, s: SequenceEmitter, group: Scalar, rows: Sequence[Scalar], result: Tensor) -> Turn:
        if self.initial is None:
            return [result], []
        if self._in_scalars:
            start = s.load(self.initial, [group, s.constant(0, I64)])
            return [result], [start for _ in rows]
        initial = self.initial

        def begin(w: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turn:
            target = t[0]
            for row in rows:
                target = s.store(target, [row, group, w], s.load(initial, [group, w]))
            return [target], []

        return s.repeat(s.size(initial.type.shape[1]), [result], [], begin)

    def _add(
        self,
        s: SequenceEmitter,
        group: Scalar,
        rows: Sequence[Scalar],
        trees: Sequence[Scalar],
        leaves: Sequence[Scalar],
        tensors: Sequence[Tensor],
        totals: Sequence[Scalar],
    ) -> Turn:
        values = self.values
        if values is None:
            target = tensors[0]
            for row, tree, leaf in zip(rows, trees, leaves, strict=True):
                target = s.store(target, [row, group, tree], s.cast(leaf, I32))
            return [target], []
        if self._in_scalars:
            added = [s.load(values, [leaf, s.constant(0, I64)]) for leaf in leaves]
            return tensors, [s.binary("add", total, value) for total, value in zip(totals, added, strict=True)]

        def accumulate(w: Scalar, t: Sequence[Tensor], _: Sequence[Scalar]) -> Turn:
            target = t[0]
            for row, leaf in zip(rows, leaves, strict=True):
                at = [row, group, w]
                target = s.store(target, at, s.binary("add", s.load(target, at), s.load(values, [leaf, w])))
            return [target], []

        return s.repeat(s.size(values.type.shape[1]), tensors, [], accumulate)

    def _finish(
        self,
        s: SequenceEmitter,
        group: Scalar,
        rows: Sequence[Scalar],
        tensors: Sequence[Tensor],
        totals: Sequence[Scalar],
    ) -> Tensor:
        (result,) = tensors
        for row, total in zip(rows, totals, strict=False):
            result = s.store(result, [row, group, s.constant(0, I64)], total)
        return result


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    return [_Lowering(e, operands, attributes, types[0]).write()]


def _with_record(cases: Sequence[Case]) -> tuple[Case, ...]:
    return tuple(
        replace(
            case, shapes=(*case.shapes, (RECORD,)), arrays={**case.arrays, len(case.shapes): _PASSED}, gradient=False
        )
        for case in cases
    )


def _reference_ensemble(*arrays: Numbers, compare: str = "le", routing: str = "compare") -> Numbers:
    return walk_ensemble_array(*arrays, compare=compare, routing=routing)


def _reference_leaves(*arrays: Numbers, compare: str = "le", routing: str = "compare") -> Numbers:
    return walk_leaves_array(*arrays, compare=compare, routing=routing)


walk_ensemble = Operator(
    name="walk_ensemble",
    summary="`tree_ensemble` for tables that a check has accepted",
    operands=(*SUMMED, _RECORD),
    attributes=(COMPARE, ROUTING),
    infer=infer_ensemble,
    reference=_reference_ensemble,
    gradient=None,
    lower=_lower,
    cases=LateCases(lambda: _with_record(tree_cases(leaves=False))),
    properties=frozenset({"internal", "sequential", "summing"}),
)

walk_leaves = Operator(
    name="walk_leaves",
    summary="`tree_leaves` for tables that a check has accepted",
    operands=(*OPERANDS, _RECORD),
    attributes=(COMPARE, ROUTING),
    infer=infer_leaves,
    reference=_reference_leaves,
    gradient=None,
    lower=_lower,
    cases=LateCases(lambda: _with_record(tree_cases(leaves=True))),
    properties=frozenset({"internal", "sequential"}),
)

OPERATORS = (walk_ensemble, walk_leaves)
