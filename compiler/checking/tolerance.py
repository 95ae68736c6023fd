"""How far rounding may carry a correct program: tried out, by adding noise to whatever a node computes.

The noise has the size of the rounding error of that node in the dtypes of the graph. What comes out differs as correct
programs differ, whatever cancels or is amplified on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ...dialect.graph import Module, Node
from ...dialect.interpreter import Interpreter, Load
from ...dialect.ops import OPERATORS
from ...dialect.types import Array, DType, dtype_of
from .compare import Numbers

BLOCKS_ERROR = 5e-6
"""Of the largest result: the rounding error of a convolution that is computed in blocks (`passes/winograd.py`)."""

# fmt: off
_EXACT = frozenset({
    "maximum", "minimum", "abs", "negate", "where", "sign", "floor", "ceil", "round", "trunc", "max", "min", "clip",
    "relu", "full", "iota", "sort", "top_k", "tril", "triu", "one_hot",
})
_ROUNDED_ONCE = frozenset({"add", "subtract", "multiply", "divide", "sqrt", "square", "reciprocal"})
_SUMS = frozenset({"sum", "cumsum", "avg_pool1d", "avg_pool2d", "avg_pool3d", "scatter_add"})
# fmt: on


def float_limits(dtype: DType) -> tuple[float, float]:
    """The least number above zero, denormal, and the greatest."""
    limits: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]  # the package has no types for it
    return float(limits.smallest_subnormal), float(limits.max)


def _rounding(node: Node, inputs: Sequence[Array], result: Numbers, attributes: Mapping[str, object]) -> Numbers:
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
        spread: Numbers = np.asarray(total, np.float64) * (1 + 0.3 * terms**0.5)
        return spread
    return np.abs(result) * (0.6 if node.op in _ROUNDED_ONCE else 3)


class NoisyInterpreter(Interpreter):
    """Adds noise of the size of a rounding error to whatever is computed; what a dtype cannot hold is infinite.

    `amplitude` is in rounding errors. `in_blocks`: convolutions may be computed in blocks, which rounds more.
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
    ) -> None:
        super().__init__(module, load, precision=precision)
        self.rng, self.amplitude, self.in_blocks = rng, amplitude, in_blocks

    def _run_node(self, node: Node, values: Mapping[str, Array], dims: Mapping[str, int]) -> Sequence[Array]:
        results = super()._run_node(node, values, dims)
        if OPERATORS[node.op].has("structure"):
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
        wide: Numbers = result.astype(np.float64)
        units = _rounding(node, inputs, wide, attributes)
        scale = units * dtype.epsilon
        least, most = float_limits(dtype)
        if self.in_blocks and node.op == "conv2d":
            scale = np.maximum(scale, BLOCKS_ERROR * np.max(np.abs(wide), initial=0))
        if np.any(scale > 0):
            noise = self.rng.uniform(-1, 1, wide.shape) * (scale + least) * self.amplitude
            wide = np.where(np.isfinite(noise), wide + noise, wide)
        elif node.op in ("maximum", "minimum", "max", "min"):
            # Which of two zeros of other signs is the greater one is not said.
            wide = np.where(wide == 0, np.copysign(0.0, self.rng.uniform(-1, 1, wide.shape)), wide)
        if OPERATORS[node.op].has("contraction") or node.op in _SUMS:
            # Whether terms that overflow either way leave NaN or an infinity is a matter of their order.
            anything = self.rng.choice([np.nan, np.inf, -np.inf], wide.shape)
            overflows = (units > most) & ~np.isnan(wide)
            if OPERATORS[node.op].operands[-1].variadic and len(inputs) > 2:
                # Products of many may be summed before the last factor: (inf + x) * y, or inf * y + x * y.
                overflows = ~(units <= most)
            wide = np.where(overflows, anything, wide)
        wide = np.where(np.abs(wide) > most, np.copysign(np.inf, wide), wide)
        return wide.astype(result.dtype)
