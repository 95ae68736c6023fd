"""`nacre test --gradients`: compares the gradient of each node of a model with finite differences in float64.

The interpreter runs every entry on random inputs. At each differentiable node, it draws weights for the results and a
direction for the float operands, and computes the directional derivative of the weighted sum of the results twice: from
the gradient rule of the operator, and as a central difference of this node alone. An error is therefore located at an
operator and a line.

Nodes that differ only in the names of their values are checked once. The check leaves out `while`, which has no
gradient; kinks, where the differences on both sides disagree; and custom gradients of blocks that round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...dialect.differentiate import pull_back
from ...dialect.graph import Function, Module, Node, Value, read_values, walk
from ...dialect.interpreter import Interpreter, Load
from ...dialect.operator import Builder
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
        recorder.run(function, trial.arguments, trial.dims)
        found += recorder.outcomes()
    return found


test_gradients.__test__ = False  # type: ignore[attr-defined]  # pytest takes functions of this name for tests


@dataclass(frozen=True, slots=True)
class _Wrong:
    node: Node
    found: float
    expected: float


@dataclass
class _Tally:
    checked: int = 0
    kinks: int = 0
    wrong: list[_Wrong] = field(default_factory=list)


class _Recorder(Interpreter):
    """An interpreter in float64 that checks each node before the next one."""

    def __init__(self, module: Module, load: Load, function: Function) -> None:
        super().__init__(module, load, precision=F64, most_iterations=1000)
        self.function, self.names, self.tally = function, Names(function), _Tally()
        self.seen: set[object] = set()
        self.checking = False

    def _run_node(self, node: Node, values: Mapping[str, Array], dims: Mapping[str, int]) -> Sequence[Array]:
        results = super()._run_node(node, values, dims)
        if not self.checking and node.op not in ("parameter", "while"):
            key = node.op, node.attributes, tuple(v.type for v in node.inputs), node.regions
            if key not in self.seen:
                self.seen.add(key)
                self.checking = True
                self._check(node, values, results, dims)
                self.checking = False
        return results

    def _check(
        self, node: Node, values: Mapping[str, Array], results: Sequence[Array], dims: Mapping[str, int]
    ) -> None:
        operands = list(dict.fromkeys(read_values(node)))
        wanted = [v for v in operands if v.type.dtype.is_differentiable and values[v.name].size]
        weighed = [v for v in node.outputs if v.type.dtype.is_differentiable]
        if node.op == "custom" and any(inner.op in _STEPS for inner in walk([node])):
            self.tally.kinks += 1  # the slope is 0 between two steps, and its gradient passes straight through
            return
        if not wanted or not weighed or (not node.regions and OPERATORS[node.op].gradient is None):
            return
        if not all(np.isfinite(values[v.name]).all() for v in wanted) or not all(
            np.isfinite(r).all() for r in results if r.dtype.kind == "f"
        ):
            return
        rng = np.random.default_rng(len(self.seen))
        seeds = [rng.standard_normal(r.shape) for r, v in zip(results, node.outputs, strict=True) if v in weighed]
        function, count = self._derived(node, operands, wanted, weighed)
        given = [values[v.name] for v in operands]
        outputs = super().run(function, [*given, *seeds], dims)
        gradients = outputs[:count]
        direction = {v.name: rng.standard_normal(values[v.name].shape) for v in wanted}
        terms: list[Numbers] = [
            np.asarray(g, np.float64) * direction[v.name] for g, v in zip(gradients, wanted, strict=True)
        ]
        slope = float(sum(term.sum() for term in terms))

        def total(step: float) -> float:
            moved: list[Array] = [
                np.asarray(a, np.float64) + step * direction[v.name] if v in wanted else a
                for v, a in zip(operands, given, strict=True)
            ]
            found = Interpreter.run(self, function, [*moved, *seeds], dims)[count:]
            return float(sum((np.asarray(r, np.float64) * s).sum() for r, s in zip(found, seeds, strict=True)))

        middle = total(0.0)
        right, left = (total(STEP) - middle) / STEP, (middle - total(-STEP)) / STEP
        scale = max(1.0, abs(right), abs(left), float(np.sqrt(sum((t * t).sum() for t in terms))))
        self.tally.checked += 1
        if abs(right - left) > TOLERANCE * scale:
            self.tally.kinks += 1
        elif not abs(slope - (right + left) / 2) <= TOLERANCE * scale:
            self.tally.wrong.append(_Wrong(node, slope, (right + left) / 2))

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
            skipped = f", {self.tally.kinks} at kinks" if self.tally.kinks else ""
            detail = f"{self.tally.checked} kinds of nodes agree with finite differences{skipped}"
            found.append(Outcome(name, "gradients", "gradients", True, detail))
        return found


def _shown(node: Node) -> str:
    """Returns the name of an operator, or of a block with a custom gradient."""
    return str(node.attribute("name")) if node.op == "custom" else node.op
