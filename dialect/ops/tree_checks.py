"""`check_trees`: checks the tables of trees before rows follow them. The entry fails the call if they are wrong.

    feature [0, 9], children [[-1, 1], [-2, -3]], 3 features:  tree 0, node 1: feature 9 is out of range for 3 features

The result is a record, see `support/tree_errors.py`. Every child has a greater number than its parent, so one pass from
the last node to the first computes the length of the longest path from each node. The depth of a tree must be at least
that of its root.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..dims import Size
from ..emitter import Emitter, Scalar, SequenceEmitter, Tensor
from ..lazy_dataclass import dataclass
from ..operator import Attributes, AttributeSpec, Case, LateCases, Operator
from ..types import I32, I64, TensorType
from .index_checks import RECORD
from .support.accumulate import Numbers
from .support.arguments import read_size
from .support.tree_cases import broken_tables, tree_cases
from .support.tree_errors import BOUND, CHILD, DEPTH, FEATURE, LEAF, ORDER, PART, ROOT, SET, SHORT, find_error
from .support.trees import CATEGORICAL, Tables
from .tree_ensemble import ROUTING, TABLE_OPERANDS, check_types


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    check_types("check_trees", types)
    for name in ("features", "leaves"):
        read_size("check_trees", name, attributes[name])
    return (TensorType(I64, (RECORD,)),)


def _reference(*arrays: Numbers, features: int, leaves: int, routing: str = "compare", operator: str) -> Numbers:
    return find_error(*arrays, features=features, leaves=leaves, routing=routing)


@dataclass(frozen=True)
class _Check:
    """One check: whether it fails, and the fields of the record if it does."""

    fails: Scalar
    index: Scalar
    size: Scalar
    reason: int


class _Lowering:
    def __init__(self, e: Emitter, operands: Sequence[Tensor], attributes: Attributes) -> None:
        self.e, self.tables = e, Tables(None, *operands)
        self.nodes: Size = operands[0].type.shape[0]
        self.features: Size = attributes["features"]
        self.leaves: Size = attributes["leaves"]
        self.is_categorical = attributes["routing"] == "categories"

    def write(self, result: TensorType) -> Tensor:
        e = self.e
        heights = e.full(TensorType(I32, (self.nodes,)), 0)
        record = e.constant(result, [-1] + [0] * (RECORD - 1))
        heights, record = e.scan((self.nodes,), [heights, record], self._visit_node)
        best = e.constant(TensorType(I64, (1,)), [-1])
        return e.scan(self.tables.roots.type.shape, [record, best, heights], self._visit_tree)[0]

    def _visit_node(self, s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        heights, record = tensors
        one, zero, t = s.constant(1, I64), s.constant(0, I64), self.tables
        node = s.binary("sub", s.binary("sub", s.size(self.nodes), one), indices[0])
        feature = s.cast(s.load(t.feature, [node]), I64)
        features, nodes = s.size(self.features), s.size(self.nodes)
        below, above = s.compare("lt", feature, zero), s.compare("ge", feature, features)
        checks = [_Check(s.binary("or", below, above), feature, features, FEATURE)]
        height = s.constant(0, I32)
        for side in (0, 1):
            child = s.cast(s.load(t.children, [node, s.constant(side, I64)]), I64)
            is_early = s.binary("and", s.compare("ge", child, zero), s.compare("le", child, node))
            is_outside = s.compare("ge", child, nodes)
            checks += [_Check(is_outside, child, nodes, CHILD), _Check(is_early, child, nodes, ORDER)]
            checks.append(self._wrong_leaf(s, child))
            inside = s.binary("and", s.compare("gt", child, node), s.compare("lt", child, nodes))
            height = s.binary("max", height, s.load_if(inside, heights, [child]))
        if self.is_categorical:
            checks += self._wrong_sets(s, node)
        heights = s.store(heights, [node], s.binary("add", height, s.constant(1, I32)))
        found, values = self._first(s, checks)
        return [heights, self._write(s, record, found, [s.binary("add", node, one), *values])]

    def _visit_tree(self, s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        record, best, heights = tensors
        one, zero, t = s.constant(1, I64), s.constant(0, I64), self.tables
        tree = s.binary("add", s.binary("mul", indices[0], s.size(t.roots.type.shape[1])), indices[1])
        number = s.binary("shl", s.binary("add", tree, one), s.constant(PART, I64))
        root, depth = (s.cast(s.load(table, list(indices)), I64) for table in (t.roots, t.depths))
        nodes = s.size(self.nodes)
        inside = s.binary("and", s.compare("ge", root, zero), s.compare("lt", root, nodes))
        height = s.cast(s.load_if(inside, heights, [root]), I64)
        found, values = self._first(
            s,
            [
                self._wrong_leaf(s, root),
                _Check(s.compare("ge", root, nodes), root, nodes, ROOT),
                _Check(s.compare("lt", depth, height), depth, height, SHORT),
                _Check(s.compare("gt", depth, nodes), depth, nodes, DEPTH),
            ],
        )
        # The record of a node does not name its tree yet: it is the tree with the greatest root up to the node.
        known = s.load(record, [zero])
        failed = s.binary("and", known, s.constant((1 << PART) - 1, I64))
        is_node = s.binary("and", s.compare("gt", known, zero), s.compare("gt", failed, zero))
        greatest = s.load(best, [zero])
        is_nearer = s.binary("and", s.compare("gt", root, greatest), s.compare("lt", root, failed))
        takes = s.binary("and", is_node, is_nearer)
        best = s.store(best, [zero], s.select(takes, root, greatest))
        record = s.store(record, [zero], s.select(takes, s.binary("or", number, failed), known))
        is_first = s.binary("and", found, s.compare("lt", known, zero))
        return [self._write(s, record, is_first, [number, *values]), best, heights]

    def _wrong_leaf(self, s: SequenceEmitter, child: Scalar) -> _Check:
        leaf, leaves = s.unary("not", child), s.size(self.leaves)
        return _Check(s.compare("ge", leaf, leaves), leaf, leaves, LEAF)

    def _wrong_sets(self, s: SequenceEmitter, node: Scalar) -> Iterator[_Check]:
        one, zero, t = s.constant(1, I64), s.constant(0, I64), self.tables
        flags = s.binary("and", s.load(t.flags, [node]), s.constant(CATEGORICAL, I32))
        is_set = s.compare("ne", flags, s.constant(0, I32))
        least, most = s.constant(-1, I64), s.constant(1 << 40, I64)
        number = s.binary("min", s.binary("max", s.cast(s.load(t.threshold, [node]), I64), least), most)
        count = s.binary("max", s.binary("sub", s.size(t.bounds.type.shape[0]), one), zero)
        inside = s.binary("and", s.compare("ge", number, zero), s.compare("lt", number, count))
        yield _Check(s.binary("and", is_set, s.unary("not", inside)), number, count, SET)
        inside = s.binary("and", is_set, inside)
        words = s.size(t.sets.type.shape[0])
        first, end = (
            s.cast(s.load_if(inside, t.bounds, [s.binary("add", number, s.constant(i, I64))]), I64) for i in (0, 1)
        )
        yield _Check(s.compare("lt", first, zero), first, words, BOUND)
        yield _Check(s.compare("gt", end, words), end, words, BOUND)

    def _first(self, s: SequenceEmitter, checks: Sequence[_Check]) -> tuple[Scalar, Sequence[Scalar]]:
        """Returns whether any check fails, and the fields of the first one that does."""
        found = checks[-1].fails
        values = [checks[-1].index, checks[-1].size, s.constant(-1 - checks[-1].reason, I64)]
        for check in reversed(checks[:-1]):
            own = [check.index, check.size, s.constant(-1 - check.reason, I64)]
            values = [s.select(check.fails, a, b) for a, b in zip(own, values, strict=True)]
            found = s.binary("or", found, check.fails)
        return found, values

    def _write(self, s: SequenceEmitter, record: Tensor, found: Scalar, values: Sequence[Scalar]) -> Tensor:
        for i, value in enumerate(values):
            at = [s.constant(i, I64)]
            record = s.store(record, at, s.select(found, value, s.load(record, at)))
        return record


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    return [_Lowering(e, operands, attributes).write(types[0])]


def _cases() -> tuple[Case, ...]:
    made = []
    for case in tree_cases(leaves=False):
        arrays = {number - 1: case.arrays[number] for number in range(1, 9)}
        own = {"features": case.shapes[0][-1], "leaves": case.shapes[9][0], "routing": case.attributes["routing"]}
        shapes = tuple(np.shape(array) for array in arrays.values())
        made.append(Case(shapes, {**own, "operator": "tree_ensemble"}, arrays=arrays, dtypes=case.dtypes))
    for arrays, features, leaves in broken_tables():
        shapes = tuple(np.shape(array) for array in arrays.values())
        own = {"features": features, "leaves": leaves, "routing": "categories", "operator": "tree_ensemble"}
        made.append(Case(shapes, own, arrays=arrays))
    return tuple(made)


check_trees = Operator(
    name="check_trees",
    summary="checks the tables of trees, and fails the call if they lead outside of them",
    operands=TABLE_OPERANDS,
    attributes=(
        AttributeSpec("features", "size"),
        AttributeSpec("leaves", "size"),
        ROUTING,
        AttributeSpec("operator", "str"),
    ),
    infer=_infer,
    reference=_reference,
    gradient=None,
    lower=_lower,
    cases=LateCases(lambda: _cases()),
    properties=frozenset({"internal", "checking", "sequential", "exact"}),
)

OPERATORS = (check_trees,)
