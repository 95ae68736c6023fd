"""An ONNX model as records: the content of the protobufs. Only their form is checked.

This module does not depend on operators. `proto` makes these records, every other module of the reader takes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .....dialect.types import Array

FLOAT, INTEGER, STRING, TENSOR, GRAPH = "float", "int", "string", "tensor", "graph"


@dataclass(frozen=True, slots=True)
class StoredArray:
    """A tensor of the file. `element` is the ONNX name of its dtype, such as `FLOAT`."""

    name: str
    element: str
    array: Array


@dataclass(frozen=True, slots=True)
class ValueType:
    """The declared type of a value. `kind` is `tensor`, `sequence`, `optional` or another one; the other fields are
    those of a tensor. `shape` is None if no rank is declared; a size is an integer, a name, or None. `inner` is the
    type in a sequence or an optional value."""

    kind: str
    element: str = ""
    shape: tuple[int | str | None, ...] | None = None
    inner: ValueType | None = None


@dataclass(frozen=True, slots=True)
class ValueRecord:
    name: str
    type: ValueType | None


@dataclass(frozen=True, slots=True, eq=False)
class AttributeRecord:
    """An attribute: a value, a list of values, or a reference to an attribute of the function around the node. `proto`
    is the message that it was made of."""

    name: str
    kind: str
    value: Any
    proto: Any
    reference: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class NodeRecord:
    """`line` is the line of the node in the listing of its file. `proto` is the message that the record was made of."""

    op: str
    domain: str
    name: str
    doc: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, AttributeRecord]
    proto: Any
    line: int = 0

    @property
    def full_name(self) -> str:
        return f"{self.domain}::{self.op}" if self.domain else self.op


@dataclass(frozen=True, slots=True, eq=False)
class GraphRecord:
    name: str
    nodes: tuple[NodeRecord, ...]
    inputs: tuple[ValueRecord, ...]
    outputs: tuple[ValueRecord, ...]
    initializers: Mapping[str, StoredArray]
    types: Mapping[str, ValueType]


@dataclass(frozen=True, slots=True, eq=False)
class FunctionRecord:
    """An operator that is defined by nodes. `defaults` are the attributes that a use may omit."""

    domain: str
    name: str
    nodes: tuple[NodeRecord, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opsets: Mapping[str, int]
    defaults: Mapping[str, AttributeRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class ModelRecord:
    """`listing` is a text with one line for each node, into which the spans of diagnostics point."""

    graph: GraphRecord
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], FunctionRecord]
    doc: str
    listing: str
