"""Ensembles of decision trees: the sum of the leaves of each row, and the numbers of these leaves.

The tables are described in `support/trees.py`. Trees belong to groups; the sum of a group runs over its trees in their
order and begins with `initial`, so that it is rounded as in the library that the trees come from. The tables are data,
and a wrong child would lead outside of them, so each operator decomposes into a check of its tables (`tree_checks.py`)
and a traversal without checks (`tree_walks.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dims import Shape, Size, product
from ..graph import Value
from ..operator import (
    Attributes,
    AttributeSpec,
    Builder,
    InferenceError,
    InvalidOperandsError,
    LateCases,
    Operand,
    Operator,
    Use,
)
from ..types import F32, F64, I32, TensorType
from .indexing import zeros_like
from .support.accumulate import Numbers
from .support.tree_cases import tree_cases
from .support.tree_errors import find_error
from .support.trees import TABLES, Tables, find_leaves_array

_FLOATS = (F32, F64)
_RANKS = {"feature": 1, "threshold": 1, "children": 2, "flags": 1, "sets": 1, "bounds": 1, "roots": 2, "depths": 2}
_MOST_LEAVES = 1 << 31
"""The leaves that a child in i32 can number."""
TABLE_OPERANDS = tuple(
    Operand(name, _FLOATS if name == "threshold" else (I32,), "T" if name == "threshold" else "I") for name in TABLES
)
OPERANDS = (Operand("x", _FLOATS), *TABLE_OPERANDS)
SUMMED = (*OPERANDS, Operand("values", _FLOATS, "V"), Operand("initial", _FLOATS, "V"))
COMPARE = AttributeSpec("compare", "str", "le", ("le", "lt"))
ROUTING = AttributeSpec("routing", "str", "compare", ("compare", "missing", "categories"))


def check_types(name: str, types: Sequence[TensorType]) -> tuple[Size, Size]:
    """Checks the tables; returns the number of groups and the number of trees of a group."""
    tables = dict(zip(TABLES, types, strict=False))
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
    return groups, trees


def _check_all(name: str, types: Sequence[TensorType]) -> tuple[Shape, Size, Size]:
    """Returns the leading axes of x, the number of groups and the number of trees of a group."""
    x, *tables = types
    if x.rank < 1:
        raise InferenceError("rank-mismatch", f"`x` of `{name}` needs an axis of features, not {x}", operand=0)
    return x.shape[:-1], *check_types(name, tables)


def infer_ensemble(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    rows, groups, _ = _check_all("tree_ensemble", types)
    values, initial = types[len(OPERANDS) : len(SUMMED)]
    if values.rank != 2 or initial.shape != (groups, values.shape[-1]):
        message = (
            f"`tree_ensemble` needs `values` [leaves, width] and `initial` [groups, width], not {values}, {initial}"
        )
        raise InferenceError("shape-mismatch", message, operand=len(SUMMED) - 1)
    return (TensorType(values.dtype, (*rows, *initial.shape)),)


def infer_leaves(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    rows, groups, trees = _check_all("tree_leaves", types)
    return (TensorType(I32, (*rows, groups, trees)),)


def _tables_of(arrays: Sequence[Numbers]) -> tuple[Tables, tuple[int, ...]]:
    x, *tables = arrays[: len(OPERANDS)]
    return Tables(x.reshape(int(np.prod(x.shape[:-1])), x.shape[-1]), *tables), x.shape[:-1]


def walk_leaves_array(*arrays: Numbers, compare: str, routing: str) -> Numbers:
    """Computes `tree_leaves` of correct tables."""
    tables, rows = _tables_of(arrays)
    leaves = find_leaves_array(tables, compare, routing)
    return leaves.reshape(*rows, *leaves.shape[1:])


def walk_ensemble_array(*arrays: Numbers, compare: str, routing: str) -> Numbers:
    """Computes `tree_ensemble` of correct tables."""
    tables, rows = _tables_of(arrays)
    values, initial = arrays[len(OPERANDS) : len(SUMMED)]
    leaves = find_leaves_array(tables, compare, routing)
    total = np.broadcast_to(initial, (leaves.shape[0], *initial.shape)).copy()
    for tree in range(leaves.shape[2]):
        total = (total + values[leaves[:, :, tree]]).astype(values.dtype)
    return total.reshape(*rows, *initial.shape)


def _require_tables(name: str, arrays: Sequence[Numbers], leaves: int, routing: str) -> None:
    x, *tables = arrays[: len(OPERANDS)]
    record = find_error(*tables, features=x.shape[-1], leaves=leaves, routing=routing)
    if record[0] >= 0:
        raise InvalidOperandsError(name, record.tolist())


def _reference_leaves(*arrays: Numbers, compare: str = "le", routing: str = "compare") -> Numbers:
    _require_tables("tree_leaves", arrays, _MOST_LEAVES, routing)
    return walk_leaves_array(*arrays, compare=compare, routing=routing)


def _reference_ensemble(*arrays: Numbers, compare: str = "le", routing: str = "compare") -> Numbers:
    _require_tables("tree_ensemble", arrays, len(arrays[-2]), routing)
    return walk_ensemble_array(*arrays, compare=compare, routing=routing)


def _check(b: Builder, operands: Sequence[Value], attributes: Attributes, name: str, leaves: Size) -> Value:
    x, *tables = operands[: len(OPERANDS)]
    return b.check_trees(
        *tables, features=x.type.shape[-1], leaves=leaves, routing=attributes["routing"], operator=name
    )


def _decompose_ensemble(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    record = _check(b, operands, attributes, "tree_ensemble", operands[-2].type.shape[0])
    return [b.walk_ensemble(*operands, record, **attributes)]


def _decompose_leaves(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    record = _check(b, operands, attributes, "tree_leaves", _MOST_LEAVES)
    return [b.walk_leaves(*operands, record, **attributes)]


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


tree_ensemble = Operator(
    name="tree_ensemble",
    summary="initial + the values of the leaves that rows of features reach in decision trees, in their order",
    operands=SUMMED,
    attributes=(COMPARE, ROUTING),
    infer=infer_ensemble,
    reference=_reference_ensemble,
    gradient=_differentiate,
    decompose=_decompose_ensemble,
    cases=LateCases(lambda: tree_cases(leaves=False)),
    properties=frozenset({"composite", "sequential", "summing"}),
)

tree_leaves = Operator(
    name="tree_leaves",
    summary="the leaves, as rows of `values` of tree_ensemble, that rows of features reach in decision trees",
    operands=OPERANDS,
    attributes=(COMPARE, ROUTING),
    infer=infer_leaves,
    reference=_reference_leaves,
    gradient=None,
    decompose=_decompose_leaves,
    cases=LateCases(lambda: tree_cases(leaves=True)),
    properties=frozenset({"composite", "sequential"}),
)

OPERATORS = (tree_ensemble, tree_leaves)
