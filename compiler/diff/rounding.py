"""How far rounding may have carried a call from the exact numbers, kernel by kernel, by what an artifact tells of it.

The units are those of `checking/tolerance.py`, of the operators and the dtypes at hand. There is no graph to try errors
out with: they are taken to add up as a random walk does, and to be neither amplified nor damped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod, sqrt

from ...dialect.ops import OPERATORS
from ...dialect.types import DTYPES, F32
from ...runtime.observe import Call, Operation, evaluate
from ..checking.judge import FACTOR
from ..checking.tolerance import BLOCKS_ERROR, relative_units

_IN_BLOCKS = "winograd_input"
"""The operation that only a convolution in blocks has."""
_STEP = 2.0**-7
"""Between numbers of 8 significant bits, near the largest: those of bf16, and codes of i8."""


@dataclass
class Rounding:
    """What has been computed so far. `lower`: in lower precision, where an error may make a whole step."""

    lower: bool = False
    _squares: float = 0.0
    _blocks: float = 0.0

    def add(self, call: Call, dims: Mapping[str, int]) -> None:
        """A kernel that has run."""
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
            return 3 * epsilon  # of a later version: as any function
        if operator.has("stepped"):
            return _STEP if self.lower else epsilon
        # A product and a sum for each term.
        return relative_units(operator, max(1.0, evaluate(operation.flops, dims) / 2 / elements)) * epsilon

    @property
    def share(self) -> float:
        """The error that is explained, as a share of the largest number of a tensor."""
        return FACTOR * sqrt(self._squares) + self._blocks
