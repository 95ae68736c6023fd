"""The interface of one operation to its converter: operands, attributes, regions, and the writer of the graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np

from .....dialect.diagnostics import Diagnostic, DiagnosticError, Span
from .....dialect.dims import Size
from .....dialect.types import DType
from ...writing.graph_writer import GraphWriter
from ...writing.tensors import Tensor
from .items import Item, describe
from .records import ELEMENTS, BlockRecord, OperationRecord, decode_array

RunBlock: TypeAlias = Callable[[BlockRecord, Sequence[Item]], list[Item]]
"""Converts the operations of a block, with values of the blocks around it; returns its results."""


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """An operation for its converter. `around` has the values that its regions may read, by their numbers. `call`
    converts a function of the file, by name, and `body_of` returns its block. `run_elementwise` converts a block that
    computes single elements, and applies it to whole tensors."""

    record: OperationRecord
    g: GraphWriter
    items: tuple[Item, ...]
    span: Span | None
    around: Mapping[int, Item]
    run_block: RunBlock
    run_elementwise: RunBlock
    call: Callable[[str, Sequence[Item]], list[Item]]
    body_of: Callable[[str], BlockRecord]

    def fail(self, message: str, *, code: str = "unsupported-attribute", help: str = "") -> NoReturn:
        raise DiagnosticError([Diagnostic(code, f"`{self.record.name}` {message}", self.span, help=help)])

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The operands, which must be tensors of real numbers."""
        found = tuple(item for item in self.items if isinstance(item, Tensor))
        if len(found) < len(self.items):
            other = next(item for item in self.items if not isinstance(item, Tensor))
            self.fail(f"takes {describe(other)}, which is not supported", code="unsupported-dtype")
        return found

    @property
    def x(self) -> Tensor:
        return self.operands[0]

    @property
    def dtype(self) -> DType:
        """The dtype of the first result."""
        return ELEMENTS[self.record.results[0][1].element]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first result, if it is constant."""
        found = self.record.results[0][1].shape
        if any(size is None for size in found):
            self.fail("has a result of dynamic shape", code="data-dependent")
        return tuple(size for size in found if size is not None)

    def has(self, name: str) -> bool:
        return name in self.record.attributes

    def integers(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        found = self.record.attributes.get(name)
        return tuple(default) if found is None else tuple(int(each) for each in found)

    def integer(self, name: str, default: int = 0) -> int:
        return int(self.record.attributes.get(name, default))

    def flag(self, name: str) -> bool:
        return bool(self.record.attributes.get(name, False))

    def word(self, name: str) -> str:
        """Returns the word of an attribute such as `#stablehlo<comparison_direction LT>`."""
        return self.record.word(name)

    def lists(self, name: str) -> Mapping[str, tuple[int, ...]]:
        """Returns the named lists and numbers of an attribute such as `#stablehlo.dot<... = [0], ... = 1>`."""
        text = str(self.record.attributes.get(name, ""))
        found = {key: tuple(map(int, re.findall(r"-?\d+", value))) for key, value in _LIST.findall(text)}
        return found

    def pairs(self, name: str, rank: int) -> list[tuple[int, int]]:
        """Returns the rows of an attribute i64[rank, 2], such as the padding of each axis; zeros if it is absent."""
        found = self.record.attributes.get(name)
        rows = np.zeros((rank, 2)) if found is None else decode_array(found).reshape(rank, 2)
        return [(int(a), int(b)) for a, b in rows]

    def sizes(self, number: int, what: str) -> tuple[Size, ...]:
        """Returns the elements of an integer operand, which must be known while the file is read."""
        found = self.operands[number].sizes
        if found is None:
            self.fail(f"has {what} that are computed in a call", code="data-dependent")
        return found


_LIST = re.compile(r"(\w+) = (\[[^\]]*\]|-?\d+)")

Convert: TypeAlias = Callable[[Use], Sequence[Item]]
Converters: TypeAlias = Mapping[str, Convert]
"""Converters by the name of an operation."""
