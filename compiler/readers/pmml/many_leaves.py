"""Trees whose missing values lead to several leaves: the strategies `weightedConfidence` and `aggregateNodes`.

A row reaches a node with a weight. At a node whose children are tried in order, an unknown predicate lets a row go on
to several children; otherwise it goes to the first child whose predicate is true, as in other trees:

    aggregateNodes        every child that is not false, up to the first that is true; the counts of classes are added
    weightedConfidence    every child that is not false; shares are weighted by the `recordCount` of the children

    children      a: unknown, 30 records    b: false, 20    c: true, 10
    aggregateNodes          a 1      b 0    c 1       counts of the leaves below a and c, divided by their sum
    weightedConfidence      a 3/4    b 0    c 1/4     shares of classes below a and c

The weights of all leaves are computed, and a product with the table of their classes gives the result, so such trees
are limited to MOST_NODES nodes. A row that met no unknown predicate has the class that its leaf names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ....dialect.types import BOOL, F64
from ..trees.tree import Numbers
from ..writing.tensors import Tensor, known
from .markup import Element
from .predicates import PREDICATES, Predicates
from .results import Result
from .scores import Classes, Distribution

STRATEGIES = ("weightedConfidence", "aggregateNodes")
MOST_NODES = 512


def has_many_leaves(model: Element) -> bool:
    """Returns whether a model is a tree whose missing values lead to several leaves."""
    return model.name == "TreeModel" and model.attributes.get("missingValueStrategy") in STRATEGIES


@dataclass
class ManyLeaves:
    """Writes the result of one tree. `leaves` are the weights f64[B] and nodes of its leaves."""

    model: Element
    predicates: Predicates
    classes: Classes
    label: str
    rows: Tensor
    leaves: list[tuple[Tensor, Element]] = field(default_factory=list)
    nodes: int = 0

    def write(self) -> Result:
        g, model = self.predicates.scope.g, self.model
        if model.attributes.get("isScorable", "true") == "false":
            model.fail("the tree has `isScorable` = `false`", code="unsupported-trees")
        self.is_weighted = model.attributes["missingValueStrategy"] == "weightedConfidence"
        last = model.choice("noTrueChildStrategy", "returnNullPrediction", "returnLastPrediction")
        self.keeps_last = last == "returnLastPrediction"
        root = model.required("Node")
        self.is_mixed: Tensor = known(False, BOOL)
        true, _ = self.predicates.write(self._predicate(root))
        start = g.where(true, known(1.0, F64), known(0.0, F64))
        pending = [(root, g.broadcast_to(start, shape=self.rows.shape))]
        while pending:
            pending += self._follow(*pending.pop())
        weights = g.stack(*(weight for weight, _ in self.leaves), axis=1)
        shares, mixed, chosen = self._tables()
        has_score, is_reached = np.isfinite(chosen), g.greater(weights, known(0.0, F64))
        found, lost = (g.any(g.logical_and(is_reached, known(has)), axis=(1,)) for has in (has_score, ~has_score))
        is_known = g.logical_and(found, g.logical_not(lost))
        total = g.matmul(weights, known(np.nan_to_num(mixed)))
        total = g.divide(total, g.sum(total, axis=(1,), keepdims=True))
        is_mixed = g.broadcast_to(self.is_mixed, shape=self.rows.shape)
        single = g.sum(g.multiply(weights, known(np.nan_to_num(chosen))), axis=(1,))
        position = g.where(is_mixed, g.cast(g.argmax(total, axis=1), dtype=F64), single)
        total = g.where(g.unsqueeze(is_mixed, axes=(1,)), total, g.matmul(weights, known(np.nan_to_num(shares))))
        nothing = known(np.nan, F64)
        shown = g.where(g.unsqueeze(is_known, axes=(1,)), total, nothing)
        return Result(g.where(is_known, position, nothing), shown, self.classes.names)

    def _predicate(self, node: Element) -> Element:
        found = [child for child in node.children if child.name in PREDICATES]
        if len(found) != 1:
            node.fail(f"{self._name_of(node)} it has {len(found)} predicates, expected 1")
        return found[0]

    def _name_of(self, node: Element) -> str:
        return f"{self.label}, node {node.attributes.get('id', f'of line {node.span.line}')}:"

    def _follow(self, node: Element, weight: Tensor) -> list[tuple[Element, Tensor]]:
        """Returns the children of a node with their weights, or adds a leaf."""
        g = self.predicates.scope.g
        self.nodes += 1
        if self.nodes > MOST_NODES:
            message = f"a tree with `{self.model.attributes['missingValueStrategy']}` has more than {MOST_NODES} nodes"
            self.model.fail(message, code="too-large")
        children = list(node.all("Node"))
        if node.first("EmbeddedModel") is not None:
            node.fail(f"{self._name_of(node)} it has an embedded model", code="unsupported-trees")
        if not children:
            self.leaves.append((weight, node))
            return []
        is_open: Tensor = known(True, BOOL)
        is_unknown: Tensor = known(False, BOOL)
        first, reached, possible = list[Tensor](), list[Tensor](), list[Tensor]()
        for child in children:
            true, false = self.predicates.write(self._predicate(child))
            can_be = g.logical_not(false)
            first.append(g.logical_and(is_open, true))
            reached.append(g.logical_and(is_open, can_be))
            possible.append(can_be)
            is_unknown = g.logical_or(is_unknown, g.logical_and(is_open, g.logical_and(can_be, g.logical_not(true))))
            is_open = g.logical_and(is_open, g.logical_not(true))
        none: Tensor = known(True, BOOL)
        for each in reached:
            none = g.logical_and(none, g.logical_not(each))
        zero, one = known(0.0, F64), known(1.0, F64)
        self.is_mixed = g.logical_or(self.is_mixed, g.logical_and(is_unknown, g.greater(weight, zero)))
        if self.is_weighted:
            counts = [known(child.number("recordCount"), F64) for child in children]
            parts = [g.where(can_be, n, zero) for can_be, n in zip(possible, counts, strict=True)]
            total = parts[0]
            for part in parts[1:]:
                total = g.add(total, part)
            shares = [
                g.where(is_unknown, g.divide(part, total), g.where(is_first, one, zero))
                for part, is_first in zip(parts, first, strict=True)
            ]
        else:
            shares = [g.where(each, one, zero) for each in reached]
        if self.keeps_last:
            self.leaves.append((g.multiply(weight, g.where(none, one, zero)), node))
        return [(child, g.multiply(weight, share)) for child, share in zip(children, shares, strict=True)]

    def _tables(self) -> tuple[Numbers, Numbers, Numbers]:
        """Returns the shares of classes of each leaf, those or the counts that are added up, and its class."""
        shares, mixed, chosen = [], [], []
        for _, node in self.leaves:
            own, position = Distribution(self.classes).read(node)
            shares.append(own)
            listed = list(node.all("ScoreDistribution"))
            name = "confidence" if self.is_weighted else "recordCount"
            if listed and (not self.is_weighted or all(name in part.attributes for part in listed)):
                own = np.zeros(len(self.classes.names))
                for part in listed:
                    own[self.classes.index(part.attribute("value"), part)] = part.number(name)
            mixed.append(own)
            chosen.append(position)
        return np.stack(shares), np.stack(mixed), np.asarray(chosen)
