"""The tree ensembles of an artifact: their tables, and the operators that evaluate them.

The stored graph of the artifact names the tables; the weights and constants of the artifact hold them. An ensemble that
is evaluated on ranks (`readers/trees/ranked.py`) has its thresholds in another form. Files of trees also have the entry
`leaves`, which keeps the original tables.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ...dialect.graph import Function, Module, Node, constant_of, parameter_of, walk
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.ops.support.tree_text import EnsembleText, find_differences
from ...dialect.ops.support.trees import TABLES
from ...dialect.parser import parse_text
from ...dialect.types import Array
from ..artifact.graphs import StoredGraphs, read_graphs
from ..model.parameters import open_parameters
from ..readers.table import read_file
from ..readers.trees.graph import plain_ensembles

_WITH_TABLES = ("tree_ensemble", "tree_leaves")
_STRATEGIES = frozenset(
    (*_WITH_TABLES, "linear_tree_sum", "oblivious_leaves", "tree_sum", "feature_ranks", "ranked_trees", "row_ranks",
     "ranked_rows", "leaf_indices_by_masks", "leaf_indices_by_borders", "add_leaf_values")
)  # fmt: skip
_MOST_SHOWN = 8
FILES = frozenset((".txt", ".json", ".ubj", ".cbm", ".pmml", ".skops"))
"""The suffixes of files of classic models."""


@dataclass(frozen=True, slots=True)
class StoredTrees:
    """The ensembles of an artifact in the order of its graph, and for each entry the tree operators of its one or two
    implementations: a call with few rows may use other operators than a larger one."""

    ensembles: Sequence[EnsembleText]
    operators: Mapping[str, Sequence[Sequence[str]]]

    def lines(self) -> Iterator[str]:
        """Yields the size of each ensemble, then the operators of each entry."""
        for ensemble in self.ensembles:
            yield f"trees: {ensemble.extent()}"
        for entry, ways in self.operators.items():
            names = ("few rows: ", "other calls: ") if len(ways) == 2 else ("",) * len(ways)
            shown = "; ".join(name + ", ".join(way) for name, way in zip(names, ways, strict=True))
            yield f"tree operators of {entry}: {shown}"


def read_trees(path: Path) -> StoredTrees:
    """Returns the ensembles of an artifact that carries its graph. Raises OSError and ArtifactError."""
    stored = read_graphs(path)
    if stored is None:
        return StoredTrees((), {})
    module = parse_text(stored.written, str(path)).module
    operators = {function.name: _ways(function) for function in module.functions}
    found = _find(module, lambda name: _stored_table(name, stored, path))
    return StoredTrees(found, {name: ways for name, ways in operators.items() if ways})


def read_trees_of_file(path: Path) -> Sequence[EnsembleText]:
    """Returns the ensembles of a model file, with the values of their leaves. Raises DiagnosticError."""
    with plain_ensembles(sys.maxsize):
        source = read_file(path)
    reader, parameters = open_parameters(source), source.module.parameter_index
    return _find(source.module, lambda name: np.asarray(reader(parameters[name])))


def _find(module: Module, read: Callable[[str], Array | None]) -> Sequence[EnsembleText]:
    found: dict[tuple[bytes, ...], EnsembleText] = {}
    for function in module.functions:
        known = {node.output.name: node for node in function.body if node.op in ("constant", "parameter")}
        for node in walk(function.body):
            if node.op not in _WITH_TABLES or not all(value.name in known for value in node.inputs[1:]):
                continue
            tables = [_table(known[value.name], read) for value in node.inputs[1:]]
            arrays = [table for table in tables if table is not None]
            if len(arrays) != len(tables):
                continue
            text = EnsembleText.of(arrays, node, OPERATORS[node.op])
            key = tuple(array.tobytes() for array in arrays[: len(TABLES)])
            if key not in found or text.values is not None:
                found[key] = text
    return tuple(found.values())


def compare_trees(a: Path, b: Path) -> Sequence[str]:
    """Returns lines about the ensembles of two artifacts or model files: the number of different trees, and the first
    different node of each. If one side is an artifact that evaluates trees on ranks, the values of leaves are not
    compared."""
    lines: list[str] = []
    sides = [read_trees_of_file(p) if p.suffix in FILES else read_trees(p).ensembles for p in (a, b)]
    if len(sides[0]) != len(sides[1]):
        lines.append(f"tree ensembles described: {len(sides[0])} in A, {len(sides[1])} in B")
    for first, second in zip(*sides, strict=False):
        found = find_differences(first, second)
        if found:
            lines.append(f"trees that differ: {len(found)} of {first.roots.size}")
            lines += [f"  {line}" for line in found[:_MOST_SHOWN]]
            lines += [f"  and {len(found) - _MOST_SHOWN} more"] * (len(found) > _MOST_SHOWN)
    return lines


def _table(node: Node, read: Callable[[str], Array | None]) -> Array | None:
    name, constant = parameter_of(node), constant_of(node)
    if name is not None:
        return read(name)
    return None if constant is None else constant.array


def _stored_table(name: str, stored: StoredGraphs, path: Path) -> Array | None:
    """Returns a weight of an artifact; None if it is not in the file."""
    found = (tensor for tensor in stored.tensors if tensor.name == name)
    return next((array for tensor in found if (array := stored.read(path, tensor)) is not None), None)


def _ways(function: Function) -> Sequence[Sequence[str]]:
    """Returns the tree operators of each implementation of a function: for few rows and for other calls, or a single
    one."""
    for node in function.body:
        if node.op == "if":
            ways = [_names(region.body) for region in node.regions]
            if any(ways):
                return ways
    names = _names(function.body)
    return [names] if names else []


def _names(nodes: Sequence[Node]) -> Sequence[str]:
    return list(dict.fromkeys(node.op for node in walk(nodes) if node.op in _STRATEGIES))
