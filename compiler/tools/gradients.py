"""`nacre test --gradients`: compares the gradient of each node of a model with finite differences in float64.

The interpreter runs every entry on random inputs. At each differentiable node, it draws weights for the results and a
direction for the float operands, and computes the directional derivative of the weighted sum of the results twice: from
the gradient rule of the operator, and as a central difference of this node alone. An error is therefore located at an
operator and a line.

Nodes that differ only in the names of their values are checked once. A node that has no derivative at its operands,
where the differences on both sides disagree or are not finite, is checked at random ones. The check leaves out `while`,
which has no gradient; nodes that have a derivative nowhere; and custom gradients of blocks that round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field

import numpy as np

from ...dialect.diagnostics import DiagnosticError
from ...dialect.differentiate import pull_back
from ...dialect.graph import Function, Module, Node, Value, read_values, walk
from ...dialect.interpreter import IndexRangeError, Interpreter, Load
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Builder, InvalidOperandsError
from ...dialect.ops import OPERATORS
from ...dialect.ops.support.accumulate import Numbers
from ...dialect.types import F64, Array
from ...passes.autodiff.differentiate import GradientBuilder
from ...passes.autodiff.region_gradients import RegionGradients
from ...passes.manager import Context
from ...passes.rewrite import Names
from ...passes.simplify.unroll_repeat import UnrollRepeat
from ..validate.inputs import random_dims, random_trial
from .model_tests import Outcome

STEP = 1e-6
TOLERANCE = 1e-4
"""The maximum difference of two derivatives, relative to the magnitude of the terms that they sum."""

_TRIES = 3
"""The number of attempts to check a node that has no derivative at its operands. A node in a loop is computed again."""
_RANGES = ((0.2, 0.8), (1.2, 1.8))
"""Where a node is checked that has no derivative at its operands in the model, such as a logarithm of 0."""
_STEPS = frozenset({"quantize", "round", "floor", "ceil", "trunc", "sign"})
"""Piecewise constant operators, whose derivative is 0 almost everywhere."""


def test_gradients(module: Module, load: Load) -> list[Outcome]:
    """Returns an outcome for each wrong gradient, and one for each entry without one."""
    module = UnrollRepeat().run(module, Context())
    found: list[Outcome] = []
    for function in module.functions:
        dims = random_dims(function.symbols())[0]
        trial = random_trial(function, dims)
        recorder = _Recorder(module, load, function)
        try:
            recorder.run(function, trial.arguments, trial.dims)
        except IndexRangeError:  # indices are computed from integers; 0 is mostly inside
            zeros = [np.zeros_like(a) if a.dtype.kind in "iu" else a for a in trial.arguments]
            recorder.checking = False
            recorder.run(function, zeros, trial.dims)
        found += recorder.outcomes()
    return found


test_gradients.__test__ = False  # type: ignore[attr-defined]  # pytest takes functions of this name for tests


@dataclass(frozen=True, slots=True)
class _Wrong:
    node: Node
    found: float
    expected: float


@dataclass(frozen=True, slots=True)
class _Slopes:
    """The slope of a node: by its gradient rule, and by the differences to the right and to the left."""

    rule: float
    right: float
    left: float
    scale: float

    @property
    def middle(self) -> float:
        return (self.right + self.left) / 2

    @property
    def is_smooth(self) -> bool:
        """Whether the differences of both sides are finite and agree."""
        return abs(self.right - self.left) <= TOLERANCE * self.scale < np.inf


@dataclass
class _Tally:
    checked: int = 0
    steps: int = 0
    wrong: list[_Wrong] = field(default_factory=list)


def _points(rng: np.random.Generator, given: Sequence[Array], wanted: Sequence[bool]) -> Iterator[list[Array]]:
    """Yields operands of a node: those of the model, then random numbers in ranges where most functions are smooth."""
    yield list(given)
    for least, greatest in _RANGES:
        yield [rng.uniform(least, greatest, a.shape) if w else a for a, w in zip(given, wanted, strict=True)]


class _Recorder(Interpreter):
    """An interpreter in float64 that checks each node before the next one."""

    def __init__(self, module: Module, load: Load, function: Function) -> None:
        super().__init__(module, load, precision=F64, most_iterations=1000)
        self.function, self.names, self.tally = function, Names(function), _Tally()
        self.seen: set[object] = set()
        self.kinks: dict[object, int] = {}
        """For each node, the number of times that it had no derivative at its operands."""
        self.checking = False

    def _run_node(self, node: Node, values: Mapping[str, Array], dims: Mapping[str, int]) -> Sequence[Array]:
        results = super()._run_node(node, values, dims)
        if not self.checking and node.op not in ("parameter", "while"):
            key = node.op, node.attributes, tuple(v.type for v in node.inputs), node.regions
            if key not in self.seen:
                self.checking = True
                is_done = self._check(node, values, results, dims)
                self.checking = False
                tries = self.kinks[key] = self.kinks.get(key, 0) + (not is_done)
                if is_done:
                    del self.kinks[key]
                if is_done or tries == _TRIES:
                    self.seen.add(key)
        return results

    def _check(
        self, node: Node, values: Mapping[str, Array], results: Sequence[Array], dims: Mapping[str, int]
    ) -> bool:
        """Checks a node, and returns whether other values need no check: False at values where it has no derivative."""
        operands = list(dict.fromkeys(read_values(node)))
        wanted = [v for v in operands if v.type.dtype.is_differentiable and values[v.name].size]
        weighed = [v for v in node.outputs if v.type.dtype.is_differentiable]
        if node.op == "custom" and any(inner.op in _STEPS for inner in walk([node])):
            self.tally.steps += 1  # the slope is 0 between two steps, and its gradient passes straight through
            return True
        if not wanted or not weighed or (not node.regions and OPERATORS[node.op].gradient is None):
            return True
        rng = np.random.default_rng(len(self.seen))
        seeds = [rng.standard_normal(r.shape) for r, v in zip(results, node.outputs, strict=True) if v in weighed]
        function, count = self._derived(node, operands, wanted, weighed)
        found = _Slopes(float("nan"), float("nan"), float("nan"), 1.0)
        for given in _points(rng, [values[v.name] for v in operands], [v in wanted for v in operands]):
            with suppress(DiagnosticError, InvalidOperandsError), np.errstate(all="ignore"):
                found = self._slopes(function, count, given, seeds, [v in wanted for v in operands], dims)
            if found.is_smooth:
                break
        if found.is_smooth:
            self.tally.checked += 1
            if not abs(found.rule - found.middle) <= TOLERANCE * found.scale:
                self.tally.wrong.append(_Wrong(node, found.rule, found.middle))
        return found.is_smooth

    def _slopes(
        self,
        function: Function,
        count: int,
        given: Sequence[Array],
        seeds: Sequence[Numbers],
        wanted: Sequence[bool],
        dims: Mapping[str, int],
    ) -> _Slopes:
        """Returns the slope of a node in a random direction, by its gradient and by differences on both sides."""
        rng = np.random.default_rng(len(self.seen))
        directions = [rng.standard_normal(a.shape) if w else None for a, w in zip(given, wanted, strict=True)]
        outputs = super().run(function, [*given, *seeds], dims)
        moving = [d for d in directions if d is not None]
        terms: list[Numbers] = [np.asarray(g, np.float64) * d for g, d in zip(outputs[:count], moving, strict=True)]

        def total(results: Sequence[Array]) -> float:
            return float(sum((np.asarray(r, np.float64) * s).sum() for r, s in zip(results, seeds, strict=True)))

        def moved(step: float) -> float:
            inputs: list[Array] = [
                a if d is None else np.asarray(a, np.float64) + step * d for a, d in zip(given, directions, strict=True)
            ]
            return total(Interpreter.run(self, function, [*inputs, *seeds], dims)[count:])

        here = total(outputs[count:])
        right, left = (moved(STEP) - here) / STEP, (here - moved(-STEP)) / STEP
        magnitude = float(np.sqrt(sum((t * t).sum() for t in terms)))
        scale = max(1.0, abs(right), abs(left), magnitude if np.isfinite(magnitude) else 0.0)
        return _Slopes(float(sum(term.sum() for term in terms)), right, left, scale)

    def _derived(
        self, node: Node, operands: Sequence[Value], wanted: Sequence[Value], weighed: Sequence[Value]
    ) -> tuple[Function, int]:
        """Returns a function of the operands and of the weights of the results. It computes `count` gradients, then the
        results."""
        b: Builder = GradientBuilder(self.names.fresh)
        regions = RegionGradients(b)
        nodes = regions.prepare([node])
        seeds = [b.fresh(v.type) for v in weighed]
        found = pull_back(b, nodes, dict(zip(weighed, seeds, strict=True)), wanted, regions.rules)
        gradients = [
            b.full(shape=v.type.shape, value=0.0, dtype=v.type.dtype) if g is None else g
            for g, v in zip(found, wanted, strict=True)
        ]
        body = (*nodes, *b.nodes)
        return Function("check", (*operands, *seeds), body, (*gradients, *weighed)), len(gradients)

    def outcomes(self) -> list[Outcome]:
        name = self.function.name
        found = [
            Outcome(
                name,
                f"gradient of `{_shown(wrong.node)}` at {wrong.node.span or 'an unknown line'}",
                "gradients",
                False,
                f"the slope is {wrong.found:.6g}, finite differences give {wrong.expected:.6g}",
            )
            for wrong in self.tally.wrong
        ]
        if not found:
            kinks = len(self.kinks) + self.tally.steps
            skipped = f", {kinks} without a derivative are not checked" if kinks else ""
            detail = f"{self.tally.checked} kinds of nodes agree with finite differences{skipped}"
            found.append(Outcome(name, "gradients", "gradients", True, detail))
        return found


def _shown(node: Node) -> str:
    """Returns the name of an operator, or of a block with a custom gradient."""
    return str(node.attribute("name")) if node.op == "custom" else node.op
