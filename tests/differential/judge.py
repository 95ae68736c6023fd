"""What the results of a graph may be: exact ones, and how far rounding may carry any correct program from them.

The exact results are those of the reference interpreter in float64. Rounding is tried out: the decomposed graph runs in
float64 again, a few times, with noise of the size of a rounding error added to whatever a node computes; what comes out
differs as correct programs differ, whatever cancels or is amplified on the way. NaN and infinities are looked at by
place: they must be where some run of the reference in the dtypes of the graph has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from nacre.dialect.graph import Module, Node
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F64, Array, DType, dtype_of
from nacre.passes.decompose import Decompose

from .inputs import argument_arrays, parameter_array
from .maker import Binding, Graph

SAMPLES = 3
BLOCKS_ERROR = 5e-6
"""Of the largest result: the rounding error of a convolution that is computed in blocks (`passes/winograd.py`)."""
MORE_SAMPLES = 40
"""Taken before a difference is believed: the noise may have missed what a comparison makes of a rounding error."""
FACTOR = 2.0
"""How many times the spread of the samples is allowed; correct programs reach about half of that."""
# fmt: off
_EXACT = frozenset({
    "maximum", "minimum", "abs", "negate", "where", "sign", "floor", "ceil", "round", "trunc", "max", "min", "clip",
    "relu", "constant", "parameter", "full", "iota", "sort", "top_k", "tril", "triu", "one_hot",
})
_ROUNDED_ONCE = frozenset({"add", "subtract", "multiply", "divide", "sqrt", "square", "reciprocal"})
_SUMS = frozenset({"sum", "cumsum", "avg_pool1d", "avg_pool2d", "avg_pool3d", "scatter_add"})
# fmt: on


def _noise_scale(node: Node, inputs: Sequence[Array], result: Array, attributes: Mapping[str, object]) -> Array:
    """By how many units of its dtype's epsilon a result of a node may be off, as an absolute number of each element."""
    operator = OPERATORS[node.op]
    if node.op in _EXACT or operator.has("movement"):
        return np.zeros(())
    if node.op == "cast":
        source, target = node.inputs[0].type.dtype, node.output.type.dtype
        return np.abs(result) if source.epsilon < target.epsilon or not source.is_float else np.zeros(())
    if operator.has("contraction") or node.op in _SUMS:
        # A sum of n terms is off by about sqrt(n) roundings of its greatest partial sum.
        absolute = [np.abs(x) if dtype_of(x).is_float else x for x in inputs]
        total = operator.reference(*absolute, **attributes)
        terms = max(1.0, max((x.size for x in inputs), default=1) / max(1, result.size))
        if operator.has("contraction"):
            terms = max(terms, float(min(x.size for x in inputs[:2])) ** 0.5)
        return np.asarray(total) * (1 + 0.3 * terms**0.5)
    return np.abs(result) * (0.6 if node.op in _ROUNDED_ONCE else 3)


class NoisyInterpreter(Interpreter):
    """Adds noise of the size of a rounding error to whatever is computed; what a dtype cannot hold is infinite."""

    def __init__(
        self, module: Module, rng: np.random.Generator, precision: DType | None, amplitude: float, in_blocks: bool
    ) -> None:
        super().__init__(module, parameter_array, precision=precision)
        self.rng, self.amplitude, self.in_blocks = rng, amplitude, in_blocks

    def _run_node(self, node: Node, values: Mapping[str, Array], dims: Mapping[str, int]) -> Sequence[Array]:
        results = super()._run_node(node, values, dims)
        if node.op in ("parameter", "constant"):
            return results
        with np.errstate(all="ignore"):
            return [
                self._disturb(node, values, dims, r, v.type.dtype) if v.type.dtype.is_float else r
                for r, v in zip(results, node.outputs, strict=True)
            ]

    def _disturb(
        self, node: Node, values: Mapping[str, Array], dims: Mapping[str, int], result: Array, dtype: DType
    ) -> Array:
        attributes = {name: self._concrete(value, dims) for name, value in node.attributes}
        inputs = [values[v.name] for v in node.inputs]
        wide = result.astype(np.float64)
        units = _noise_scale(node, inputs, wide, attributes)
        scale = units * dtype.epsilon
        if self.in_blocks and node.op == "conv2d":
            scale = np.maximum(scale, BLOCKS_ERROR * np.max(np.abs(wide), initial=0))
        if np.any(scale > 0):
            least = float(np.finfo(dtype.numpy).smallest_subnormal)
            noise = self.rng.uniform(-1, 1, wide.shape) * (scale + least) * self.amplitude
            wide = np.where(np.isfinite(noise), wide + noise, wide)
        elif node.op in ("maximum", "minimum", "max", "min"):
            # Which of two zeros of other signs is the greater one is not said.
            wide = np.where(wide == 0, np.copysign(0.0, self.rng.uniform(-1, 1, wide.shape)), wide)
        most = float(np.finfo(dtype.numpy).max)
        if OPERATORS[node.op].has("contraction") or node.op in _SUMS:
            # Whether terms that overflow either way leave NaN or an infinity is a matter of their order.
            anything = self.rng.choice([np.nan, np.inf, -np.inf], wide.shape)
            wide = np.where((units > most) & ~np.isnan(wide), anything, wide)
        wide = np.where(np.abs(wide) > most, np.copysign(np.inf, wide), wide)
        return wide.astype(result.dtype)


def _classes(array: Array) -> Array:
    """1 for NaN, 2 and 4 for infinities, 8 for numbers: bits, so that sets of them are sums."""
    wide = array.astype(np.float64)
    bits = np.where(wide > 0, 2, 4)
    return np.where(np.isnan(wide), 1, np.where(np.isinf(wide), bits, 8)).astype(np.uint8)


def _widened(array: Array) -> Array:
    """Along the last axes together the greatest of at least 16 elements: one element's luck is not a bound."""
    if array.size == 0 or array.ndim == 0:
        return array
    split = array.ndim
    while split > 0 and np.prod(array.shape[split:]) < 16:
        split -= 1
    axes = tuple(range(split, array.ndim))
    return np.broadcast_to(array.max(axis=axes, keepdims=True), array.shape)


@dataclass
class Expectation:
    """One result: its exact value, the spread of the samples around it, and the classes that have been seen."""

    dtype: DType
    exact: Array
    spread: Array
    classes: Array

    def add(self, sample: Array, *, sees_range: bool) -> None:
        if not self.dtype.is_float:
            self.spread = np.maximum(self.spread, _distance(sample, self.exact))
            return
        if sees_range:
            self.classes |= _classes(sample)
        with np.errstate(all="ignore"):
            off = np.abs(sample.astype(np.float64) - self.exact)
        self.spread = np.maximum(self.spread, np.where(np.isfinite(off), off, 0))

    def difference(self, actual: Array) -> str | None:
        """How an array differs from what it may be."""
        if actual.shape != self.exact.shape or actual.dtype != self.dtype.numpy:
            return f"{actual.dtype}{actual.shape}, expected {self.dtype}{self.exact.shape}"
        if not self.dtype.is_float:
            off = _distance(actual, self.exact)
            return _first(off > self.spread, actual, self.exact, self.spread)
        least = float(np.finfo(self.dtype.numpy).smallest_subnormal)
        own = 0.6 * self.dtype.epsilon * np.where(np.isfinite(self.exact), np.abs(self.exact), 0)
        allowed = FACTOR * _widened(self.spread) + own + 4 * least
        classes = _classes(actual)
        with np.errstate(all="ignore"):
            off = np.abs(actual.astype(np.float64) - self.exact)
        # Where the graph overflows in its dtypes, float64 is no measure: the class is all that is compared.
        wrong = np.where((classes == 8) & np.isfinite(self.exact) & (self.classes == 8), off > allowed, False)
        wrong |= (classes & self.classes) == 0
        return _first(wrong, actual, self.exact, allowed)


def _distance(left: Array, right: Array) -> Array:
    """Between integers or truth values, of any size."""
    apart = np.abs(left.astype(np.float64) - right.astype(np.float64))
    return np.where(left == right, 0.0, np.maximum(apart, 1.0))


def _first(wrong: Array, actual: Array, exact: Array, allowed: Array) -> str | None:
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{actual[place]!r} at {place} of {actual.shape}, expected {exact[place]!r} within {allowed[place]:.3g}"
        f" ({int(wrong.sum())} of {wrong.size} differ)"
    )


class Judge:
    """What one run of a graph may give; more samples are drawn before a difference is believed. `in_blocks`: its
    convolutions may be computed in blocks."""

    def __init__(self, graph: Graph, binding: Binding, kind: str, *, in_blocks: bool = False) -> None:
        self.graph, self.in_blocks = graph, in_blocks
        self.arguments = argument_arrays(graph, binding, kind)
        self.rng = np.random.default_rng(graph.seed)
        self.decomposed = Decompose().run(graph.module)
        self.expected: list[Expectation] = []
        exact = Interpreter(graph.module, parameter_array, precision=F64).run(graph.name, self.arguments)
        plain = Interpreter(graph.module, parameter_array).run(graph.name, self.arguments)
        for value, wide, narrow in zip(graph.function.results, exact, plain, strict=True):
            zero = np.zeros(wide.shape)
            expectation = Expectation(value.type.dtype, wide, zero, np.zeros(wide.shape, np.uint8))
            expectation.add(narrow, sees_range=True)
            self.expected.append(expectation)
        self._sample(SAMPLES, 1.0)
        self._sampled_more = False

    def _sample(self, count: int, amplitude: float) -> None:
        for number in range(count):
            # Every other one in the dtypes of the graph, where sums overflow as they will.
            precision = F64 if number % 2 == 0 else None
            interpreter = NoisyInterpreter(self.decomposed, self.rng, precision, amplitude, self.in_blocks)
            for expectation, array in zip(self.expected, interpreter.run(self.graph.name, self.arguments), strict=True):
                expectation.add(array, sees_range=True)

    def difference(self, results: Sequence[Array]) -> str | None:
        """How results differ from what they may be, and which of them does."""
        message = self._difference(results)
        if message is not None and not self._sampled_more:
            self._sampled_more = True
            self._sample(MORE_SAMPLES, 2.0)
            message = self._difference(results)
        return message

    def _difference(self, results: Sequence[Array]) -> str | None:
        for number, (expectation, actual) in enumerate(zip(self.expected, results, strict=True)):
            message = expectation.difference(actual)
            if message is not None:
                return f"result {number}: {message}"
        return None
