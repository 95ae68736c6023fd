"""Estimates the rounding error of a correct program by adding noise to the results of nodes.

The noise has the size of the node's rounding error in the dtypes of the graph. The results then vary as those of
correct programs do, including cancellation and amplification.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod, sqrt
from typing import Any

import ml_dtypes
import numpy as np

from ...dialect.graph import Module, Node
from ...dialect.interpreter import Interpreter, Load
from ...dialect.operator import Operator
from ...dialect.ops import OPERATORS
from ...dialect.ops.support.accumulate import rounded_to
from ...dialect.remembered import KeptParameters
from ...dialect.types import BF16, Array, DType, dtype_of
from .array_errors import Numbers
from .rounded_factors import with_rounded_factors

BLOCKS_ERROR = 5e-6
"""The rounding error of Winograd convolutions (`passes/layout/winograd.py`), relative to the largest result."""


_LEAST_NORMAL = 2.0**-126
"""The least normal number of f32 and bf16. The instruction for products of bf16 treats smaller factors as zero, and
flushes smaller sums; see `docs/vector_math.md`."""


def float_limits(dtype: DType) -> tuple[float, float]:
    """Returns the least number above zero, denormal, and the greatest."""
    limits: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]  # the package has no types for it
    return float(limits.smallest_subnormal), float(limits.max)


def _sums(operator: Operator) -> bool:
    return operator.has("summing") or operator.has("contraction")


def relative_units(operator: Operator, terms: float = 1) -> float:
    """Returns the relative error of a result in multiples of epsilon; for a sum, relative to the sum of the magnitudes
    of its `terms` terms."""
    if any(map(operator.has, ("exact", "movement", "generator", "stepped"))):
        return 0.0
    if _sums(operator):
        # A sum of n terms has an error of about sqrt(n) roundings of its greatest partial sum.
        return 1 + 0.3 * sqrt(terms)
    return 0.6 if operator.has("rounded") else 3


def rounding_units(
    operator: Operator, inputs: Sequence[Array], result: Numbers, attributes: Mapping[str, object]
) -> Numbers:
    """Returns the absolute error of each element of a node's result, in multiples of its dtype's epsilon."""
    if _sums(operator):
        absolute = [np.abs(x) if dtype_of(x).is_float else x for x in inputs]
        total = (operator.magnitudes or operator.reference)(*absolute, **attributes)
        spread: Numbers = np.asarray(total, np.float64) * relative_units(operator, _terms(operator, inputs, result))
        return spread
    units = relative_units(operator)
    return np.abs(result) * units if units else np.zeros(())


def _terms(operator: Operator, inputs: Sequence[Array], result: Numbers) -> float:
    """Returns the approximate number of terms of a sum."""
    terms = max(1.0, max((x.size for x in inputs), default=1) / max(1, result.size))
    return max(terms, float(min(x.size for x in inputs[:2])) ** 0.5) if operator.has("contraction") else terms


def _multiplies_bfloats(node: Node) -> bool:
    return OPERATORS[node.op].has("contraction") and any(v.type.dtype is BF16 for v in node.inputs)


class NoisyInterpreter(Interpreter):
    """Adds noise of the size of a rounding error to every result; numbers beyond the range of a dtype become infinite.

    `amplitude` is in rounding errors. `in_blocks`: convolutions may be computed in blocks, which rounds more. `turn` is
    the number of the run: a sum whose terms overflow has each of its three results in one of three successive turns,
    since random ones would leave some out in large tensors. Without a turn, the result is random, as combinations of
    several sums need.
    """

    def __init__(
        self,
        module: Module,
        load: Load,
        rng: np.random.Generator,
        *,
        precision: DType | None,
        amplitude: float,
        in_blocks: bool,
        turn: int | None = None,
        most_iterations: int | None = None,
        kept: KeptParameters | None = None,
    ) -> None:
        super().__init__(module, load, precision=precision, most_iterations=most_iterations, kept=kept)
        self.rng, self.amplitude, self.in_blocks, self.turn = rng, amplitude, in_blocks, turn

    def _run_node(self, node: Node, values: Mapping[str, Array], dims: Mapping[str, int]) -> Sequence[Array]:
        operator = OPERATORS[node.op]
        if operator.has("stepped") and not operator.has("exact"):
            values = dict(values) | {v.name: self._rounded(values[v.name], v.type.dtype) for v in node.inputs}
        if operator.has("factoring"):
            values = dict(values) | {v.name: self._perturbed(values[v.name], v.type.dtype) for v in node.inputs}
        if _multiplies_bfloats(node) and self.rng.random() < 0.5:
            values = dict(values) | {v.name: _flushed(values[v.name]) for v in node.inputs if v.type.dtype is BF16}
        further: Numbers | None = None
        if rounded_to(node) is not None and self.rng.random() < 0.5:
            values, further = with_rounded_factors(node, values, self.rng, self.amplitude)
        results = super()._run_node(node, values, dims)
        if further is not None:
            results = [(result.astype(np.float64) + further).astype(result.dtype) for result in results]
        if operator.has("structure"):
            return results
        with np.errstate(all="ignore"):
            return [
                self._disturb(node, values, dims, r, v.type.dtype) if v.type.dtype.is_float else r
                for r, v in zip(results, node.outputs, strict=True)
            ]

    def _rounded(self, array: Array, dtype: DType) -> Array:
        """Adds to an operand of a step function the rounding errors of its producers."""
        if not dtype.is_float:
            return array
        with np.errstate(all="ignore"):
            factors = 1 + self.rng.uniform(-1, 1, array.shape) * self.amplitude * dtype.epsilon
            return np.asarray(array.astype(np.float64) * factors).astype(array.dtype)

    def _perturbed(self, matrix: Array, dtype: DType) -> Array:
        """Adds to the matrices of a factorization the errors for which its result is exact."""
        if not matrix.size:
            return matrix
        with np.errstate(all="ignore"):
            greatest = np.max(np.abs(matrix.astype(np.float64)), axis=(-1, -2), keepdims=True)
            scale = greatest * max(matrix.shape[-2:]) * self.amplitude * dtype.epsilon
            moved = matrix.astype(np.float64) + self.rng.uniform(-1, 1, matrix.shape) * scale
            return np.where(np.isfinite(moved), moved, matrix).astype(matrix.dtype)

    def _disturb(
        self, node: Node, values: Mapping[str, Array], dims: Mapping[str, int], result: Array, dtype: DType
    ) -> Array:
        operator = OPERATORS[node.op]
        attributes = self._attributes(node, dims)
        inputs = [values[v.name] for v in node.inputs]
        wide: Numbers = result.astype(np.float64)
        units = rounding_units(operator, inputs, wide, attributes)
        scale = units * dtype.epsilon
        least, most = float_limits(dtype)
        if _multiplies_bfloats(node):
            least = _LEAST_NORMAL * _terms(operator, inputs, wide)
        if self.in_blocks and node.op == "conv2d":
            scale = np.maximum(scale, BLOCKS_ERROR * np.max(np.abs(wide), initial=0))
        # The sign of a zero depends on the order of a sum, and of a maximum or minimum of zeros. The scale of a block
        # is such a maximum, and determines the sign of zeros in the block; transforms of weights are sums. Any other
        # zero keeps its sign.
        extremes = (operator.has("extreme") and operator.has("reduction")) or operator.has("blocked")
        reorders = _sums(operator) or extremes or operator.has("precomputed")
        if np.any(scale > 0):
            noise = self.rng.uniform(-1, 1, wide.shape) * (scale + least) * self.amplitude
            wide = np.where(np.isfinite(noise) & (reorders | (wide != 0)), wide + noise, wide)
        # Random numbers for all elements cost more than the tests of whether any element needs one.
        if reorders and np.any(zero := wide == 0):
            wide = np.where(zero, np.copysign(0.0, self.rng.uniform(-1, 1, wide.shape)), wide)
        if _sums(operator):
            # Terms that overflow in both directions give NaN or an infinity, depending on their order.
            overflows = (units > most) & ~np.isnan(wide)
            if operator.operands[-1].variadic and len(inputs) > 2:
                # Products of many factors may be summed before the last factor: (inf + x) * y, or inf * y + x * y.
                overflows = ~(units <= most)
            if np.any(overflows):
                wide = np.where(overflows, self._overflowed(wide.shape), wide)
        if np.any(beyond := np.abs(wide) > most):
            wide = np.where(beyond, np.copysign(np.inf, wide), wide)
        return wide.astype(result.dtype)

    def _overflowed(self, shape: tuple[int, ...]) -> Numbers:
        """Returns results of sums with terms beyond the range, in an order that is not known."""
        results = np.array([np.nan, np.inf, -np.inf])
        if self.turn is None:
            return self.rng.choice(results, shape)
        return results[(np.arange(prod(shape)).reshape(shape) + self.turn) % len(results)]


def _flushed(array: Array) -> Array:
    """Returns the array with signed zeros in place of denormal numbers."""
    return np.where(np.abs(array) < _LEAST_NORMAL, np.copysign(np.zeros((), array.dtype), array), array)
