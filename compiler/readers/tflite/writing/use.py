"""The interface of one operator to its converter: operands with their quantization, options, and the writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np

from .....dialect.diagnostics import Diagnostic, DiagnosticError, Span
from .....dialect.dims import Size
from .....dialect.types import I8, I16, U8, DType
from ...writing.graph_writer import GraphWriter
from ...writing.tensors import Tensor, known
from .records import OperatorRecord, Quantization, TensorRecord
from .schema import ACTIVATIONS, OPTIONS

RunGraph: TypeAlias = Callable[[int, Sequence[Tensor]], list[Tensor]]
"""Converts the operators of a graph of the file, by its number, and returns its outputs."""


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """`records` and `results` are the operands and the results as the file declares them."""

    operator: OperatorRecord
    g: GraphWriter
    operands: tuple[Tensor | None, ...]
    records: tuple[TensorRecord | None, ...]
    results: tuple[TensorRecord, ...]
    span: Span
    run_graph: RunGraph

    def fail(self, message: str, *, code: str = "unsupported-attribute", help: str = "") -> NoReturn:
        raise DiagnosticError([Diagnostic(code, f"`{self.operator.name}` {message}", self.span, help=help)])

    # --- operands ---

    def optional(self, index: int) -> Tensor | None:
        return self.operands[index] if index < len(self.operands) else None

    def input(self, index: int = 0) -> Tensor:
        held = self.optional(index)
        if held is None:
            self.fail(f"lacks operand {index}", code="wrong-operands")
        return held

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(self.input(index) for index in range(len(self.operands)))

    @property
    def result(self) -> TensorRecord:
        if not self.results:
            self.fail("has no result", code="wrong-operands")
        return self.results[0]

    @property
    def dtype(self) -> DType:
        """The dtype of the first result."""
        found = self.result.dtype
        if found is None:
            self.fail(f"gives {self.result.element}, which is not supported", code="unsupported-dtype")
        return found

    def sizes(self, index: int, what: str) -> tuple[Size, ...]:
        """Returns the elements of an integer operand, which must be known while the file is read."""
        found = self.input(index).sizes
        if found is None:
            self.fail(f"has {what} that a call computes", code="data-dependent")
        return found

    def integers(self, index: int, what: str) -> tuple[int, ...]:
        """Returns the elements of an operand, which must be numbers that are known while the file is read."""
        found = self.sizes(index, what)
        if not all(isinstance(size, int) for size in found):
            self.fail(f"has {what} that differ between calls", code="data-dependent")
        return tuple(size for size in found if isinstance(size, int))

    def axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            self.fail(f"has no axis {axis}: the operand has rank {rank}", code="bad-axis")
        return axis % rank

    # --- quantization ---

    @property
    def is_quantized(self) -> bool:
        """Whether the first result is a tensor of quantized integers."""
        return self.dtype in (I8, U8, I16) and self.result.quantization is not None

    def quantized(self, index: int) -> Quantization:
        record = self.records[index] if index < len(self.records) else None
        return self._quantization(record, f"operand {index}")

    @property
    def quantized_result(self) -> Quantization:
        return self._quantization(self.result, "the result")

    def _quantization(self, record: TensorRecord | None, what: str) -> Quantization:
        if record is None or record.quantization is None:
            self.fail(f"has no scale for {what}", code="wrong-operands")
        return record.quantization

    def same_quantization(self, index: int = 0) -> bool:
        """Returns whether an operand and the first result have equal scales and zero points."""
        a, b = self.quantized(index), self.quantized_result
        return bool(a.scale == b.scale and a.zero == b.zero)

    # --- options ---

    def number(self, name: str) -> float:
        option = OPTIONS[self.operator.name][name]
        table = self.operator.options
        return option.default if table is None else table.number(option.number, option.kind, option.default)

    def integer(self, name: str) -> int:
        return int(self.number(name))

    def flag(self, name: str) -> bool:
        return bool(self.number(name))

    @property
    def activation(self) -> str:
        """The name of the activation that is part of the operator."""
        number = self.integer("activation")
        if not 0 <= number < len(ACTIVATIONS) or ACTIVATIONS[number] == "SIGN_BIT":
            self.fail(f"has the activation number {number}")
        return ACTIVATIONS[number]

    def activated(self, x: Tensor) -> Tensor:
        """Returns a tensor of floats, or of integers that are not quantized, after the activation of the operator."""
        g, name = self.g, self.activation
        if name == "TANH":
            return g.tanh(x)
        low, high = BOUNDS[name]
        if low is None:
            return x
        if high is None:
            return g.relu(x) if x.dtype.is_float else g.maximum(x, g.like(low, x))
        return g.clip(x, low=low, high=high)

    def limits(self) -> tuple[int, int]:
        """Returns the least and the greatest quantized value that the activation of the operator admits."""
        to, dtype = self.quantized_result, self.dtype
        least, greatest = dtype.integer_range
        name = self.activation
        if name == "TANH":
            self.fail("has the activation TANH on quantized values")
        low, high = BOUNDS[name]

        def code(value: float) -> int:
            return to.zero + round_away(np.float32(value) / to.scale)

        return (
            least if low is None else max(least, code(low)),
            greatest if high is None else min(greatest, code(high)),
        )


BOUNDS: Mapping[str, tuple[int | None, int | None]] = {
    "NONE": (None, None),
    "RELU": (0, None),
    "RELU6": (0, 6),
    "RELU_N1_TO_1": (-1, 1),
    "RELU_0_TO_1": (0, 1),
}
"""The least and the greatest value of activations."""


def round_away(value: float | np.floating) -> int:
    """Rounds to the nearest integer, halves away from zero."""
    exact = float(value)
    return int(np.floor(abs(exact) + 0.5)) * (1 if exact >= 0 else -1)


def integer(value: int, like: Tensor) -> Tensor:
    return known(np.asarray(value, like.dtype.numpy))


Convert: TypeAlias = Callable[[Use], Sequence[Tensor]]
Converters: TypeAlias = Mapping[str, Convert]
"""Converters by the name of an operator."""
