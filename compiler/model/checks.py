"""Tests and budgets of a model, as records. This module runs and measures nothing.

The data of a test are in a file, which is read on demand, or are the result of a constant function, which the reference
interpreter computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...dialect.diagnostics import Diagnostic, DiagnosticError, Span
from ...dialect.graph import Function, Module, Parameter
from ...dialect.interpreter import Interpreter
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import Array, TensorType
from ..weights import open_checkpoint

METRICS: Mapping[str, str] = {
    "memory": "bytes",
    "states": "bytes",
    "weights": "bytes",
    "size": "bytes",
    "time": "seconds",
    "operations": "operations",
    "parameters": "count",
}
"""The metrics that a budget may limit, and the quantity of their units."""


@dataclass(frozen=True, slots=True)
class TestData:
    """One tensor of a test: in the file `path` (under `name` if that holds several), or the result of `function`."""

    name: str
    type: TensorType
    span: Span
    path: Path | None = None
    function: Function | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape, if it is known without reading a file."""
        if self.function is None:
            return None
        return self.function.results[0].type.concrete({})

    def load(self) -> Array:
        """Returns the tensor. Raises DiagnosticError if the file is damaged or holds another dtype or rank."""
        if self.function is not None:
            return Interpreter(Module("test", functions=(self.function,)), _no_parameter).run(self.function, [])[0]
        assert self.path is not None
        tensors = open_checkpoint(self.path)
        names = tensors.names()
        key = names[0] if len(names) == 1 else self.name
        array = tensors.read(key)
        dtype, shape = tensors.info(key)
        if dtype != self.type.dtype or len(shape) != self.type.rank:
            message = f"`{self.name}` is {self.type}, and `{self.path}` holds {tensors.stored_as(key)}{list(shape)}"
            raise DiagnosticError([Diagnostic("bad-test-data", message, self.span)])
        return array


def _no_parameter(parameter: Parameter) -> Array:
    raise AssertionError(parameter)


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected value of a result, with an absolute tolerance, 0 by default. With `signed`, zeros have the signs of
    the expected zeros."""

    data: TestData
    tolerance: float
    signed: bool = False


@dataclass(frozen=True, slots=True)
class ModelTest:
    """A test of one model. The inputs are keyed by the names of its arguments."""

    model: str
    title: str
    inputs: Mapping[str, TestData]
    expectations: tuple[Expectation, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class ModelBudget:
    """`metric(dims) comparison limit`, the limit in bytes, seconds, operations or as a count."""

    model: str
    metric: str
    dims: Mapping[str, int]
    comparison: str
    limit: float
    unit: str
    measure: str
    span: Span
