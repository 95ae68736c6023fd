"""The nodes of a `TreeModel` as nodes with two children.

The children of a node are tried in order, and the first whose predicate is true is taken. A node with several children
becomes a chain of tests; the ends of a chain are children, or leaves: the score of the node itself, or no prediction.

    children  x < 1: a    x < 5: b    True: c          x < 1 ? a : (x < 5 ? b : c)

If a predicate is unknown, `missingValueStrategy` decides: the next child is tried, or the default child is taken, or
the score of the node, or there is no prediction. Where a test cannot lead a missing value there, a preceding node tests
whether the value is missing; below, it is known. Chains that read several columns and have a default child read a
column that holds the number of the child instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ....dialect.ops.support.trees import CATEGORICAL, DEFAULT_LEFT, NAN_IS_MISSING, WORD
from ....dialect.types import F64
from ..trees.tree import Numbers, Tree
from ..writing.tensors import Tensor, known
from .markup import Element
from .predicates import PREDICATES, Missing, Predicates, Test

Score = Callable[[Element | None], Numbers]
"""Returns the values of a leaf: those of a node, or those of no prediction."""
_STRATEGIES = ("none", "defaultChild", "lastPrediction", "nullPrediction")
_Known = frozenset[str]


@dataclass(frozen=True, slots=True)
class _Target:
    """The end of a test: a node of the file, or a leaf with the score of one, or with no prediction."""

    node: Element | None
    is_leaf: bool


@dataclass(frozen=True, slots=True)
class _Step:
    test: Test
    to: _Target


@dataclass(frozen=True, slots=True)
class _Open:
    """A branch of the tree that is not written: a target, and the parent's side that leads to it."""

    target: _Target
    parent: int
    side: int
    known: _Known


@dataclass
class TreeReader:
    """Reads the tree of a model. `columns` are the numbers of columns by their names, which grow."""

    model: Element
    predicates: Predicates
    columns: dict[str, int]
    score: Score
    label: str
    rows: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in ("feature", "cut", "flags")})
    sides: list[list[int]] = field(default_factory=list)
    values: list[Numbers] = field(default_factory=list)
    sets: list[Numbers] = field(default_factory=list)
    _leaves: dict[int, int] = field(default_factory=dict)

    def read(self) -> Tree:
        model = self.model
        if model.attributes.get("isScorable", "true") == "false":
            model.fail("the tree has `isScorable` = `false`", code="unsupported-trees")
        self.strategy = model.choice("missingValueStrategy", *_STRATEGIES)
        last = model.choice("noTrueChildStrategy", "returnNullPrediction", "returnLastPrediction")
        self.keeps_last = last == "returnLastPrediction"
        root = model.required("Node")
        nothing = _Target(None, True)
        pending: list[_Open] = []
        start = self._test_of(root)
        if start is True:
            pending.append(_Open(_Target(root, False), -1, 0, frozenset()))
        else:
            steps = [] if start is False else [_Step(start, _Target(root, False))]
            self._chain(steps, nothing, nothing, _Open(nothing, -1, 0, frozenset()), pending)
        while pending:
            self._expand(pending.pop(), pending)
        return Tree(
            np.asarray(self.rows["feature"], np.int64),
            np.asarray(self.rows["cut"], np.float64),
            np.asarray([side[0] for side in self.sides], np.int64),
            np.asarray([side[1] for side in self.sides], np.int64),
            np.asarray(self.rows["flags"], np.int64),
            np.stack(self.values) if self.values else np.stack([self.score(None)]),
            self.sets,
        )

    def _test_of(self, node: Element) -> Test | bool:
        found = [child for child in node.children if child.name in PREDICATES]
        if len(found) != 1:
            node.fail(f"{self.name_of(node)} it has {len(found)} predicates, expected 1")
        return self.predicates.read(found[0])

    def name_of(self, node: Element) -> str:
        return f"{self.label}, node {node.attributes.get('id', f'of line {node.span.line}')}:"

    def _expand(self, branch: _Open, pending: list[_Open]) -> None:
        node = branch.target.node
        if branch.target.is_leaf or node is None or not any(node.all("Node")):
            self._connect(branch, -1 - self._leaf(node))
            return
        children = list(node.all("Node"))
        if node.first("EmbeddedModel") is not None:
            node.fail(f"{self.name_of(node)} it has an embedded model", code="unsupported-trees")
        own, nothing = _Target(node, True), _Target(None, True)
        end = own if self.keeps_last else nothing
        unknown = {"lastPrediction": own, "nullPrediction": nothing}.get(self.strategy)
        steps = []
        for child in children:
            test = self._test_of(child)
            if test is True:
                end = _Target(child, False)
                break
            if test is not False:
                steps.append(_Step(test, _Target(child, False)))
        can_miss = any(self._may_be_unknown(step.test, branch.known) for step in steps)
        if self.strategy == "defaultChild" and can_miss:
            default = self._default_child(node, children)
            if not self._lead_to_child(steps, end, default, branch, pending):
                self._select(node, children, default, branch, pending)
            return
        # Without a strategy, the next child is tried, so a missing value takes the way of a false test.
        self._chain(steps, end, unknown if self.strategy != "none" else None, branch, pending)

    def _may_be_unknown(self, test: Test, known_columns: _Known) -> bool:
        return (
            test.missing is Missing.UNKNOWN
            and test.column not in known_columns
            and (test.column.startswith(" ") or self.predicates.scope.columns[test.column].has_missing)
        )

    def _default_child(self, node: Element, children: Sequence[Element]) -> Element:
        name = node.attributes.get("defaultChild")
        if name is None:
            node.fail(f"{self.name_of(node)} it has no `defaultChild`, which `missingValueStrategy` asks for")
        for child in children:
            if child.attributes.get("id") == name:
                return child
        node.fail(f"{self.name_of(node)} its default child {name} does not exist")

    # Chains

    def _chain(
        self, steps: Sequence[_Step], end: _Target, unknown: _Target | None, branch: _Open, pending: list[_Open]
    ) -> None:
        """Writes tests one after another; a missing value leads to the leaf `unknown`, or the way of a false test."""
        steps, falls_to = list(steps), end
        if unknown is None and self._is_pair(steps):
            # The second test of two opposite ones is true wherever the first is false, but not where both are unknown.
            unknown, end = (falls_to, steps[1].to) if falls_to.is_leaf else (None, falls_to)
            steps = steps[:1] if unknown is not None else steps
        elif unknown is not None and self._is_pair(steps):
            steps, end = steps[:1], steps[1].to
        for step in steps:
            if unknown is not None and self._may_be_unknown(step.test, branch.known):
                if unknown == end and step is steps[-1]:
                    branch = self._node(step.test, Missing.FALSE, step.to, branch, pending)
                    continue
                branch = self._ask(step.test.column, unknown, branch, pending)
            missing = step.test.missing if step.test.missing is not Missing.UNKNOWN else Missing.FALSE
            branch = self._node(step.test, missing, step.to, branch, pending)
        pending.append(replace(branch, target=end))

    def _is_pair(self, steps: Sequence[_Step]) -> bool:
        """Whether the second of two tests is true exactly where the first is false."""
        if len(steps) != 2:
            return False
        first, second = (step.test for step in steps)
        if first.members is None or second.members is None:
            return second.is_complement_of(first)
        column = self.predicates.scope.columns[first.column]
        every = set(range(len(column.field.values)))
        a, b = (every - t.members if t.is_reversed else t.members for t in (first, second) if t.members is not None)
        same = first.column == second.column and first.missing is second.missing
        return same and not column.has_others and not a & b and a | b == every

    def _lead_to_child(
        self, steps: Sequence[_Step], end: _Target, default: Element, branch: _Open, pending: list[_Open]
    ) -> bool:
        """Writes a chain that reads one column, so that missing values lead to the default child; returns whether it
        could."""
        if len({step.test.column for step in steps}) != 1 or any(
            step.test.missing is not Missing.UNKNOWN for step in steps
        ):
            return False
        if self._is_pair(steps):
            steps, end = steps[:1], steps[1].to
        if end.node is not default and not any(step.to.node is default for step in steps):
            return False
        for step in steps:
            missing = Missing.TRUE if step.to.node is default else Missing.FALSE
            branch = self._node(step.test, missing, step.to, branch, pending)
        pending.append(replace(branch, target=end))
        return True

    def _ask(self, column: str, unknown: _Target, branch: _Open, pending: list[_Open]) -> _Open:
        """Writes a node that leads missing values to a leaf; below, the column is known."""
        is_missing = Test(column, -np.inf, missing=Missing.TRUE)
        return self._node(is_missing, Missing.TRUE, unknown, branch, pending)

    def _select(
        self, node: Element, children: Sequence[Element], default: Element, branch: _Open, pending: list[_Open]
    ) -> None:
        """Writes a chain over a column that holds the number of the child, or the number of children for none."""
        p = self.predicates
        g, count = p.scope.g, float(len(children))
        chosen: Tensor = known(count, F64)
        for number in reversed(range(len(children))):
            predicate = next(c for c in children[number].children if c.name in PREDICATES)
            true, false = p.write(predicate)
            otherwise = g.where(false, chosen, known(float(children.index(default)), F64))
            chosen = g.where(true, known(float(number), F64), otherwise)
        name = p.column_test(chosen).column
        for number, child in enumerate(children):
            test = Test(name, number + 0.5, missing=Missing.FALSE)
            branch = self._node(test, Missing.FALSE, _Target(child, False), branch, pending)
        pending.append(replace(branch, target=_Target(node if self.keeps_last else None, True)))

    # Tables

    def _node(self, test: Test, missing: Missing, to: _Target, branch: _Open, pending: list[_Open]) -> _Open:
        """Writes a test; returns the branch where it is false."""
        number = len(self.sides)
        self._connect(branch, number)
        true_side = 1 if test.is_reversed else 0
        missing_side = true_side if missing is Missing.TRUE else 1 - true_side
        flags = NAN_IS_MISSING | (DEFAULT_LEFT if missing_side == 0 else 0)
        cut = test.threshold
        if test.members is not None:
            flags, cut = flags | CATEGORICAL, float(len(self.sets))
            words = np.zeros(max(test.members, default=-1) // WORD + 1, np.uint32)
            for member in test.members:
                words[member // WORD] |= np.uint32(1 << member % WORD)
            self.sets.append(words)
        self.rows["feature"].append(self.columns.setdefault(test.column, len(self.columns)))
        self.rows["cut"].append(cut)
        self.rows["flags"].append(flags)
        self.sides.append([0, 0])
        # The column is known on the side where missing values do not go.
        known_there = branch.known | {test.column}
        pending.append(_Open(to, number, true_side, branch.known if missing is Missing.TRUE else known_there))
        return _Open(to, number, 1 - true_side, known_there if missing is Missing.TRUE else branch.known)

    def _connect(self, branch: _Open, child: int) -> None:
        if branch.parent >= 0:
            self.sides[branch.parent][branch.side] = child

    def _leaf(self, node: Element | None) -> int:
        """Returns the number of the leaf that has the score of a node."""
        key = id(node)
        if key not in self._leaves:
            self._leaves[key] = len(self.values)
            self.values.append(self.score(node))
        return self._leaves[key]
