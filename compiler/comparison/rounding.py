"""Estimates the rounding error of a call, kernel by kernel, from the description of an artifact.

The units are those of `validate/tolerance.py`, for the operators and dtypes at hand. Without a graph, errors cannot be
simulated: they are assumed to accumulate as a random walk, without amplification or damping.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod, sqrt

from ...dialect.emitter import ROUNDED_LIMIT
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.types import DTYPES, F32, I16
from ...runtime.observe import Call, Operation, evaluate
from ..validate.judge import FACTOR
from ..validate.tolerance import BLOCKS_ERROR, relative_units

_IN_BLOCKS = "winograd_input"
"""An operation that occurs only in convolutions computed in blocks."""
_STEP = 2.0**-7
"""The relative step of numbers with 8 significant bits, near the largest: bf16 values, and quantized values of i8."""


@dataclass
class Rounding:
    """The accumulated error. `lower`: the model is in lower precision, where an error may be an entire step."""

    lower: bool = False
    _squares: float = 0.0
    _blocks: float = 0.0

    def add(self, call: Call, dims: Mapping[str, int]) -> None:
        """Adds a kernel that has run."""
        dtypes = [DTYPES[value.type.dtype] for value in call.values]
        epsilon = max((dtype.epsilon for dtype in dtypes if dtype.is_float), default=F32.epsilon)
        shapes = [[evaluate(size, dims) for size in value.type.shape] for value in call.values]
        elements = max(map(prod, shapes), default=1)
        for operation in call.operations:
            self._squares += self._error(operation, epsilon, max(1, elements), dims) ** 2
            if operation.op == _IN_BLOCKS:
                self._blocks = BLOCKS_ERROR

    def _error(self, operation: Operation, epsilon: float, elements: int, dims: Mapping[str, int]) -> float:
        operator = OPERATORS.get(operation.op)
        if operator is None:
            return 3 * epsilon  # of a later version: assume an ordinary function
        if operator.has("stepped"):
            return _STEP if self.lower else epsilon
        # A product and a sum for each term.
        usual = relative_units(operator, max(1.0, evaluate(operation.flops, dims) / 2 / elements)) * epsilon
        return max(usual, 1 / ROUNDED_LIMIT) if operation.factors == I16.name else usual

    @property
    def share(self) -> float:
        """The estimated error, as a share of the largest number of a tensor."""
        return FACTOR * sqrt(self._squares) + self._blocks
