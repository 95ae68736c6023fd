"""The interface of one layer to its converter: the configuration, the weights in their order, the operands, and the
writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np

from .....dialect.diagnostics import Diagnostic, DiagnosticError
from ...writing.graph_writer import GraphWriter
from ...writing.tensors import Elements, Tensor, known

REQUIRED = object()


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """A call of a layer for its converter.

    kind, version: the class of the layer, and the major version of Keras.
    weights: the names and arrays of the weights, in order.
    keywords, flags: the tensor arguments by keyword, and the other keyword arguments.
    masks: the masks of the operands, by position or keyword: bool tensors [batch, steps], false for ignored steps.
    """

    kind: str
    name: str
    config: Mapping[str, Any]
    version: int
    g: GraphWriter
    inputs: tuple[Tensor, ...]
    weights: Sequence[tuple[str, Elements]]
    file: str
    keywords: Mapping[str, Tensor] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)
    masks: Mapping[int | str, Tensor] = field(default_factory=dict)

    def fail(self, message: str, *, code: str = "unsupported-attribute", help: str = "") -> NoReturn:
        raise DiagnosticError([Diagnostic(code, f"the layer `{self.name}` ({self.kind}) {message}", help=help)])

    @property
    def x(self) -> Tensor:
        if len(self.inputs) != 1:
            self.fail(f"gets {len(self.inputs)} tensors, expected 1", code="wrong-operands")
        return self.inputs[0]

    @property
    def first(self) -> Tensor:
        """The first operand. Any number of initial states may follow it."""
        if not self.inputs:
            self.fail("gets no tensors", code="wrong-operands")
        return self.inputs[0]

    # --- configuration ---

    def value(self, name: str, default: Any = REQUIRED) -> Any:
        if name not in self.config and default is REQUIRED:
            self.fail(f"has no `{name}` in its configuration", code="bad-keras")
        return self.config.get(name, default)

    def integer(self, name: str, default: Any = REQUIRED) -> int:
        found = self.value(name, default)
        if not isinstance(found, int) or isinstance(found, bool) or abs(found) >= 1 << 31:
            self.fail(f"has `{name}` = {found!r}, expected an integer", code="bad-keras")
        return found

    def number(self, name: str, default: Any = REQUIRED) -> float:
        found = self.value(name, default)
        if not isinstance(found, (int, float)) or isinstance(found, bool):
            self.fail(f"has `{name}` = {found!r}, expected a number", code="bad-keras")
        return float(found)

    def numbers(self, name: str, default: Any = REQUIRED) -> Elements:
        """Returns a number or numbers as an array."""
        found = self.value(name, default)
        try:
            return np.asarray(found, np.float32)
        except (TypeError, ValueError):
            self.fail(f"has `{name}` = {found!r}, expected numbers", code="bad-keras")

    def word(self, name: str, default: Any = REQUIRED) -> str:
        found = self.value(name, default)
        if not isinstance(found, str):
            self.fail(f"has `{name}` = {found!r}, expected a string", code="bad-keras")
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.value(name, default))

    def integers(self, name: str, rank: int, default: Any = REQUIRED) -> tuple[int, ...]:
        """Returns a list of as many integers as there are spatial axes; one integer applies to all."""
        found = self.value(name, default)
        listed = (found,) * rank if isinstance(found, int) else found
        if not isinstance(listed, (list, tuple)) or len(listed) != rank or not all(type(x) is int for x in listed):
            self.fail(f"has `{name}` = {found!r}, expected {rank} integers", code="bad-keras")
        return tuple(listed)

    @property
    def channels_last(self) -> bool:
        found = self.value("data_format", None) or "channels_last"
        if found not in ("channels_last", "channels_first"):
            self.fail(f"has `data_format` = {found!r}", code="bad-keras")
        return bool(found == "channels_last")

    # --- weights ---

    def array(self, index: int, rank: int) -> Elements:
        """Returns a weight by its index."""
        if index >= len(self.weights):
            self.fail(f"has {len(self.weights)} weights, and needs more", code="missing-weight")
        found = self.weights[index][1]
        if found.ndim != rank:
            self.fail(f"has the weight `{self.weights[index][0]}` of shape {list(found.shape)}", code="shape-mismatch")
        if found.dtype.kind == "f":
            return found.astype(np.float32)
        return found

    def any_array(self, index: int) -> Elements:
        """Returns a weight by its index, a vector or a matrix."""
        rank = self.weights[index][1].ndim if index < len(self.weights) else 1
        return self.array(index, rank)

    def part(self, names: Sequence[str]) -> list[Elements]:
        """Returns the weights of a part of the layer, in their order. A file names the part by one of several names."""
        return [
            array.astype(np.float32) if array.dtype.kind == "f" else array
            for path, array in self.weights
            if not set(names).isdisjoint(path.split("/"))
        ]

    def tensor(self, array: Elements, word: str) -> Tensor:
        """Returns an array as a parameter of this layer."""
        return known(np.ascontiguousarray(array), label=f"{self.name}.{word}")

    def weight(self, index: int, rank: int, word: str) -> Tensor:
        return self.tensor(self.array(index, rank), word)


Convert: TypeAlias = Callable[[Use], Sequence[Tensor]]
Converters: TypeAlias = Mapping[str, Convert]
"""Converters by the class of a layer."""
