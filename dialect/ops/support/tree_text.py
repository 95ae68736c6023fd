"""Tree ensembles as text: their extent, each tree as indented lines, and the first node where two ensembles differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...graph import Node
from ...lazy_dataclass import dataclass
from ...operator import Operator
from ...wrapping import counted
from .accumulate import Numbers
from .trees import CATEGORICAL, DEFAULT_LEFT, FLOOR, NAN_IS_MISSING, WORD, ZERO_IS_MISSING

_SHOWN_CATEGORIES = 12


@dataclass(frozen=True, slots=True)
class EnsembleText:
    """The tables of an ensemble, as `support/trees.py` describes them, with the attributes of its operator.

    values: [leaves, width], the values of leaves; None if they are not known.
    """

    feature: Numbers
    threshold: Numbers
    children: Numbers
    flags: Numbers
    sets: Numbers
    bounds: Numbers
    roots: Numbers
    depths: Numbers
    values: Numbers | None
    compare: str
    routing: str

    @staticmethod
    def of(tables: Sequence[Numbers], node: Node, operator: Operator) -> EnsembleText:
        """Returns the text of a node's tables in the order of its operands, with those of `values` if there are
        more."""
        feature, threshold, children, flags, sets, bounds, roots, depths, *more = tables
        given = {spec.name: str(spec.default) for spec in operator.attributes}
        given |= {name: str(value) for name, value in node.attributes}
        values, compare, routing = more[0] if more else None, given["compare"], given["routing"]
        return EnsembleText(feature, threshold, children, flags, sets, bounds, roots, depths, values, compare, routing)

    def extent(self) -> str:
        """Returns the numbers of trees, nodes and leaves, the depths, and the features that nodes read."""
        groups, trees = self.roots.shape
        of_outputs = f" for each of {groups} outputs" if groups > 1 else ""
        depths = self.depths.ravel().tolist() or [0]
        least, most = min(depths), max(depths)
        depth = f"depth {most}" if most == least else f"depths {least} to {most}"
        nodes, used = len(self.feature), len(np.unique(self.feature))
        leaves = counted(nodes + self.roots.size, "leaf", "leaves")
        return (
            f"{counted(trees, 'tree')}{of_outputs}, {counted(nodes, 'node')}, {leaves}, {depth}, "
            f"{counted(used, 'feature')} read"
        )

    def name(self, group: int, tree: int) -> str:
        return f"tree {tree}" + (f" of output {group}" if len(self.roots) > 1 else "")

    def lines(self) -> Iterator[str]:
        """Yields each tree: its name, then a line for each node and leaf, indented by its level."""
        groups, trees = self.roots.shape
        for tree in range(trees):
            for group in range(groups):
                yield self.name(group, tree)
                waiting = [(int(self.roots[group, tree]), 1, "")]
                while waiting:
                    child, level, side = waiting.pop()
                    yield f"{'  ' * level}{side}{self.child(child)}"
                    if child >= 0:
                        yes, no = self.children[child].tolist()
                        waiting += [(no, level + 1, "no: "), (yes, level + 1, "yes: ")]

    def child(self, child: int) -> str:
        return f"node {child}: {self.split(child)}" if child >= 0 else self.leaf(-1 - child)

    def leaf(self, leaf: int) -> str:
        if self.values is None:
            return f"leaf {leaf}"
        values = [repr(v) for v in self.values[leaf].tolist()]
        if self.values.dtype == np.float32:
            values = [str(v) for v in self.values[leaf]]
        shown = ", ".join(values)
        return f"leaf {leaf}: {shown}" if len(values) == 1 else f"leaf {leaf}: [{shown}]"

    def split(self, node: int) -> str:
        """Returns the condition of the first child, and the children of missing numbers."""
        flags, name, threshold = int(self.flags[node]), f"x{self.feature[node]}", self.threshold[node]
        if self.routing == "compare":
            return f"{name} {'<=' if self.compare == 'le' else '<'} {threshold}"
        if self.routing == "categories" and flags & CATEGORICAL:
            name = f"floor({name})" if flags & FLOOR else name
            text = f"{name} in {self._set(int(threshold))}"
        else:
            text = f"{name} {'<=' if self.compare == 'le' else '<'} {threshold}"
        side = "yes" if flags & DEFAULT_LEFT else "no"
        if flags & ZERO_IS_MISSING:
            return f"{text}; NaN and 0: {side}"
        return f"{text}; NaN: {side}" if flags & NAN_IS_MISSING else f"{text}; NaN as 0"

    def _set(self, number: int) -> str:
        words = self.sets[int(self.bounds[number]) : int(self.bounds[number + 1])].view(np.uint32)
        members = [WORD * i + bit for i, word in enumerate(words.tolist()) for bit in range(WORD) if word >> bit & 1]
        shown = [str(member) for member in members[:_SHOWN_CATEGORIES]]
        if len(members) > _SHOWN_CATEGORIES:
            shown.append(f"{len(members) - _SHOWN_CATEGORIES} more")
        return f"{{{', '.join(shown)}}}"

    def _key(self, node: int) -> tuple[Any, ...]:
        """Returns the decision of a node; equal decisions have equal keys."""
        flags = int(self.flags[node]) if self.routing != "compare" else NAN_IS_MISSING
        if self.routing == "categories" and flags & CATEGORICAL:
            number = int(self.threshold[node])
            decision: object = self.sets[int(self.bounds[number]) : int(self.bounds[number + 1])].tobytes()
        else:
            decision = float(self.threshold[node])
        return int(self.feature[node]), flags, decision

    def difference(self, other: EnsembleText, group: int, tree: int) -> str | None:
        """Returns the first node or leaf of a tree, from the root down, that differs in another ensemble; None if the
        trees are the same. Nodes are compared by their position in the tree, not by their numbers."""
        with_values = self.values is not None and other.values is not None
        waiting = [(int(self.roots[group, tree]), int(other.roots[group, tree]))]
        while waiting:
            a, b = waiting.pop()
            if a >= 0 and b >= 0:
                same = self._key(a) == other._key(b)
                waiting += reversed(list(zip(self.children[a].tolist(), other.children[b].tolist(), strict=True)))
            elif a < 0 and b < 0:
                same = not with_values or self._bits(-1 - a) == other._bits(-1 - b)
            else:
                same = False
            if not same:
                return f"{self.name(group, tree)}: A has {self.child(a)}, B has {other.child(b)}"
        return None

    def _bits(self, leaf: int) -> bytes:
        assert self.values is not None, self
        return bytes(self.values[leaf].tobytes())


def find_differences(a: EnsembleText, b: EnsembleText) -> Sequence[str]:
    """Returns the differences of two ensembles: the first one in each tree that differs."""
    found = []
    if a.roots.shape != b.roots.shape:
        found.append(f"A has {a.extent()}; B has {b.extent()}")
    if a.compare != b.compare:
        found.append(f"A compares by `{a.compare}`, B by `{b.compare}`")
    groups, trees = (min(sizes) for sizes in zip(a.roots.shape, b.roots.shape, strict=True))
    each = (a.difference(b, group, tree) for tree in range(trees) for group in range(groups))
    return found + [difference for difference in each if difference is not None]
