"""Ensembles of decision trees: the sum of the leaves of each row, and the numbers of these leaves.

The tables are described in `support/trees.py`. Trees belong to groups; the sum of a group runs over its trees in their
order and begins with `initial`, so that it is rounded as in the library that the trees come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Shape, Size, ceil_divide, product
from ..emitter import Emitter, Scalar, SequenceEmitter, Tensor
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, Operand, Operator, Use
from ..types import F32, F64, I32, I64, TensorType
from .indexing import zeros_like
from .support.accumulate import Numbers
from .support.trees import Tables, Traversal, find_leaves_array

PATHS = 8
"""The number of paths that are followed at the same time."""
_FLOATS = (F32, F64)
_TABLES = ("feature", "threshold", "children", "flags", "sets", "bounds", "roots", "depths")
_RANKS = {"feature": 1, "threshold": 1, "children": 2, "flags": 1, "sets": 1, "bounds": 1, "roots": 2, "depths": 2}
_OPERANDS = (
    Operand("x", _FLOATS),
    *(
        Operand(name, _FLOATS if name == "threshold" else (I32,), "T" if name == "threshold" else "I")
        for name in _TABLES
    ),
)
_ATTRIBUTES = (
    AttributeSpec("compare", "str", "le", ("le", "lt")),
    AttributeSpec("routing", "str", "compare", ("compare", "missing", "categories")),
)


def _check_tables(name: str, types: Sequence[TensorType]) -> tuple[Shape, Size, Size]:
    """Returns the leading axes of x, the number of groups and the number of trees of a group."""
    x, tables = types[0], dict(zip(_TABLES, types[1:], strict=False))
    if x.rank < 1:
        raise InferenceError("rank-mismatch", f"`x` of `{name}` needs an axis of features, not {x}", operand=0)
    for number, (table, type) in enumerate(tables.items(), 1):
        if type.rank != _RANKS[table]:
            raise InferenceError(
                "rank-mismatch", f"`{table}` of `{name}` has {_RANKS[table]} axes, not {type.rank}", operand=number
            )
    nodes = tables["feature"].shape[0]
    wanted = {"threshold": (nodes,), "children": (nodes, 2), "flags": (nodes,), "depths": tables["roots"].shape}
    for number, (table, type) in enumerate(tables.items(), 1):
        if table in wanted and type.shape != wanted[table]:
            message = f"`{table}` of `{name}` is {type}, expected the shape {list(wanted[table])}"
            raise InferenceError("shape-mismatch", message, operand=number)
    groups, trees = tables["roots"].shape
    return x.shape[:-1], groups, trees


def _infer_ensemble(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    rows, groups, _ = _check_tables("tree_ensemble", types)
    values, initial = types[-2:]
    if values.rank != 2 or initial.shape != (groups, values.shape[-1]):
        message = (
            f"`tree_ensemble` needs `values` [leaves, width] and `initial` [groups, width], not {values}, {initial}"
        )
        raise InferenceError("shape-mismatch", message, operand=len(types) - 1)
    return (TensorType(values.dtype, (*rows, *initial.shape)),)


def _infer_leaves(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    rows, groups, trees = _check_tables("tree_leaves", types)
    return (TensorType(I32, (*rows, groups, trees)),)


def _tables_of(arrays: Sequence[Numbers]) -> tuple[Tables, tuple[int, ...]]:
    x, *tables = arrays
    return Tables(x.reshape(int(np.prod(x.shape[:-1])), x.shape[-1]), *tables), x.shape[:-1]


def _reference_leaves(*arrays: Numbers, compare: str = "le", routing: str = "compare") -> Numbers:
    tables, rows = _tables_of(arrays)
    leaves = find_leaves_array(tables, compare, routing)
    return leaves.reshape(*rows, *leaves.shape[1:])


def _reference_ensemble(*arrays: Numbers, compare: str = "le", routing: str = "compare") -> Numbers:
    *described, values, initial = arrays
    tables, rows = _tables_of(described)
    leaves = find_leaves_array(tables, compare, routing)
    total = np.broadcast_to(initial, (leaves.shape[0], *initial.shape)).copy()
    for tree in range(leaves.shape[2]):
        total = (total + values[leaves[:, :, tree]]).astype(values.dtype)
    return total.reshape(*rows, *initial.shape)


Turn = tuple[Sequence[Tensor], Sequence[Scalar]]


class _Lowering:
    """Writes blocks of PATHS rows: tree after tree for a whole block, else PATHS trees at a time for each row."""

    def __init__(self, e: Emitter, operands: Sequence[Tensor], attributes: Attributes, result: TensorType) -> None:
        x, *tables = operands
        self.rows: Size = product(x.type.shape[:-1])
        self.groups, self.trees = tables[6].type.shape
        flat = e.reshape(x, (self.rows, x.type.shape[-1]))
        self.tables = Tables(flat, *tables[: len(_TABLES)])
        self.values: Tensor | None = None
        self.initial: Tensor | None = None
        if len(tables) > len(_TABLES):
            self.values, self.initial = tables[-2:]
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


def _differentiate(b: Builder, use: Use) -> Sequence[Value | None]:
    """The features only choose leaves: gradients go to the values of the leaves and to the start of the sums."""
    *tables, values, initial = use.inputs
    leaves = b.tree_leaves(*tables, **use.attributes)
    groups, width = initial.type.shape
    rows, trees = product(leaves.type.shape[:-2]), leaves.type.shape[-1]
    given = b.reshape(use.gradient, shape=(rows, groups, width))
    each = b.broadcast_to(b.reshape(given, shape=(rows, groups, 1, width)), shape=(rows, groups, trees, width))
    count = product((rows, groups, trees))
    added = b.scatter_add(
        zeros_like(b, values), b.reshape(leaves, shape=(count, 1)), b.reshape(each, shape=(count, width)), axis=0
    )
    return [*(None for _ in tables), added, b.sum(given, axis=(0,))]


# Examples


def _example(
    rows: tuple[int, ...], features: int, routing: str, *, groups: int, trees: int, width: int
) -> dict[int, Any]:
    """Returns the tables of small random trees, by the number of the operand; the last two are values and initial."""
    rng = np.random.default_rng(features + trees)
    feature: list[int] = []
    threshold: list[float] = []
    children: list[list[int]] = []
    flags: list[int] = []
    roots: list[int] = []
    depths: list[int] = []
    leaves = 0
    for tree in range(groups * trees):
        depth = tree % 4
        if depth == 0:
            roots.append(-1 - leaves)
            leaves += 1
        else:
            # A chain: one child of each node is a leaf.
            roots.append(len(feature))
            for level in range(depth):
                last = level == depth - 1
                inner = [-1 - leaves, -2 - leaves] if last else [len(feature) + 1, -1 - leaves]
                leaves += 2 if last else 1
                children.append(inner if last or level % 2 else inner[::-1])
                feature.append(int(rng.integers(features)))
                flag = int(rng.integers(8)) if routing != "compare" else 0
                is_set = routing == "categories" and level % 2 == 0
                flags.append(flag | 8 | int(rng.integers(2)) * 16 if is_set else flag)
                threshold.append(float(rng.integers(2)) if is_set else float(rng.integers(-2, 3)) / 2)
        depths.append(depth)
    integers = {
        1: feature,
        3: np.reshape(children, (-1, 2)),
        4: flags,
        5: [5, 1 << 30, -7],
        6: [0, 1, 3],
        7: np.reshape(roots, (groups, trees)),
        8: np.reshape(depths, (groups, trees)),
    }
    arrays: dict[int, Any] = {number: np.asarray(table, np.int32) for number, table in integers.items()}
    arrays[2] = np.asarray(threshold)
    arrays[9] = rng.normal(size=(leaves, width))
    arrays[10] = rng.normal(size=(groups, width))
    values = rng.choice([0.0, -0.5, 0.5, 1.0, -1.0, 33.0, 1.5, np.nan, np.inf, -np.inf, 40.0], (*rows, features))
    arrays[0] = values
    return arrays


def _cases(*, leaves: bool) -> tuple[Case, ...]:
    made = []
    for number, (rows, features, routing, compare, groups, trees, width) in enumerate(
        (
            ((7,), 3, "compare", "le", 2, 5, 2),
            ((5,), 3, "compare", "le", 1, 4, 1),
            ((19,), 4, "missing", "lt", 2, 11, 1),
            ((3, 3), 5, "categories", "le", 1, 9, 3),
            ((), 2, "categories", "lt", 3, 3, 1),
            ((0,), 3, "compare", "lt", 1, 5, 1),
            ((8,), 1, "missing", "le", 1, 1, 2),
        )
    ):
        arrays = _example(rows, features, routing, groups=groups, trees=trees, width=width)
        if number == 0:
            # Finite differences need features between the thresholds, which are multiples of a half.
            arrays[0] = np.random.default_rng(7).integers(-3, 3, (*rows, features)) + 0.25
        for dtype in _FLOATS:
            kept = {n: a if a.dtype == np.int32 else a.astype(dtype.numpy) for n, a in arrays.items()}
            shapes = tuple(kept[n].shape for n in range(9 if leaves else 11))
            mixed = {9: F64, 10: F64}
            kept |= {n: arrays[n] for n in mixed}
            made.append(
                Case(
                    shapes,
                    {"compare": compare, "routing": routing},
                    arrays={n: a for n, a in kept.items() if n < len(shapes)},
                    dtypes=(dtype,),
                    mixed={} if leaves else mixed,
                    gradient=not leaves and number == 0,
                    terms=trees,
                )
            )
    return tuple(made)


tree_ensemble = Operator(
    name="tree_ensemble",
    summary="initial + the values of the leaves that rows of features reach in decision trees, in their order",
    operands=(*_OPERANDS, Operand("values", _FLOATS, "V"), Operand("initial", _FLOATS, "V")),
    attributes=_ATTRIBUTES,
    infer=_infer_ensemble,
    reference=_reference_ensemble,
    gradient=_differentiate,
    lower=_lower,
    cases=_cases(leaves=False),
    properties=frozenset({"sequential", "summing"}),
)

tree_leaves = Operator(
    name="tree_leaves",
    summary="the leaves, as rows of `values` of tree_ensemble, that rows of features reach in decision trees",
    operands=_OPERANDS,
    attributes=_ATTRIBUTES,
    infer=_infer_leaves,
    reference=_reference_leaves,
    gradient=None,
    lower=_lower,
    cases=_cases(leaves=True),
    properties=frozenset({"sequential"}),
)

OPERATORS = (tree_ensemble, tree_leaves)
