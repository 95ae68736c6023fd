"""The interface of one node to its converter: operands, attributes, and the writer of the graph.

A converter takes a `Use` and returns the results. `fail` ends it with a diagnostic at the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np

from .....dialect.diagnostics import Diagnostic, DiagnosticError, Span
from .....dialect.dims import Size
from .....dialect.types import DType, TensorType
from .....runtime.library import ArgumentError
from .....runtime.strings import encode_strings
from ...writing.graph_writer import GraphWriter
from ...writing.tensors import DTYPES, BoundedTensor, Held, Strings, Tensor, TensorSequence, known
from .narrow import ELEMENTS, NARROW, held_array
from .records import GraphRecord, NodeRecord, StoredArray

RunGraph: TypeAlias = Callable[[GraphRecord, Sequence[Tensor]], list[Held]]
"""Converts the nodes of a graph inside a node, with values of the graph around it; returns the graph's outputs."""


LookUp: TypeAlias = Callable[[str], Held | None]
"""Returns the value that has a name in the file, if it is computed before the node; else None."""


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """`version` is that of the operator set; `declared` are the types that the file declares for the results, None
    where it declares none."""

    node: NodeRecord
    version: int
    g: GraphWriter
    operands: tuple[Held | None, ...]
    declared: tuple[TensorType | None, ...]
    span: Span
    run_graph: RunGraph
    look_up: LookUp

    def fail(self, message: str, *, code: str = "unsupported-attribute", help: str = "") -> NoReturn:
        name = f" of node `{self.node.name}`" if self.node.name else ""
        raise DiagnosticError([Diagnostic(code, f"`{self.node.op}`{name} {message}", self.span, help=help)])

    # --- operands ---

    def optional(self, index: int) -> Tensor | None:
        """Returns an operand, or None if it is omitted."""
        held = self.operands[index] if index < len(self.operands) else None
        if isinstance(held, TensorSequence):
            self.fail(f"has a sequence as operand {index}", code="unsupported-type")
        if isinstance(held, BoundedTensor):
            self.fail(f"has a tensor whose size depends on data as operand {index}", code="data-dependent")
        if isinstance(held, Strings):
            self.fail(f"has strings as operand {index}, which is not supported", code="unsupported-dtype")
        return held

    def input(self, index: int = 0) -> Tensor:
        held = self.optional(index)
        if held is None:
            self.fail(f"lacks operand {index}", code="wrong-operands")
        return held

    def ranked(self, index: int, *ranks: int) -> Tensor:
        """Returns an operand, which must have one of these ranks."""
        held = self.input(index)
        if held.rank not in ranks:
            expected = " or ".join(map(str, ranks))
            self.fail(f"takes operand {index} of rank {expected}, not {held.type}", code="rank-mismatch")
        return held

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """All operands; none may be omitted."""
        return tuple(self.input(index) for index in range(len(self.operands)))

    def inputs_given(self) -> tuple[Tensor, ...]:
        """Returns all operands that are not omitted."""
        return tuple(self.input(index) for index, held in enumerate(self.operands) if held is not None)

    def sequence(self, index: int = 0) -> TensorSequence:
        held = self.operands[index] if index < len(self.operands) else None
        if not isinstance(held, TensorSequence):
            self.fail(f"takes a sequence as operand {index}", code="unsupported-type")
        return held

    def strings(self, index: int = 0) -> Strings:
        held = self.operands[index] if index < len(self.operands) else None
        if not isinstance(held, Strings):
            self.fail(f"takes strings as operand {index}", code="wrong-operands")
        return held

    def sizes(self, index: int, what: str) -> tuple[Size, ...]:
        """Returns the elements of an integer operand, which must be known while the file is read."""
        tensor = self.input(index)
        if tensor.sizes is None:
            self.fail_unknown(what)
        return tensor.sizes

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        """Returns the elements of an operand that must not depend on dims either."""
        sizes = self.sizes(index, what)
        if not all(isinstance(size, int) for size in sizes):
            self.fail(f"has {what} that depend on dims: {', '.join(map(str, sizes))}", code="data-dependent")
        return tuple(size for size in sizes if isinstance(size, int))

    def fail_unknown(self, what: str) -> NoReturn:
        self.fail(
            f"has {what} that are computed in a call",
            code="data-dependent",
            help="the shapes of all tensors must follow from the shapes of the arguments, or from arguments whose "
            "values are stated as settings of the model",
        )

    def known_array(self, index: int, what: str) -> Any:
        array = self.input(index).array
        if array is None:
            self.fail_unknown(what)
        return array

    # --- attributes ---

    def _attribute(self, name: str, kind: str, default: Any) -> Any:
        found = self.node.attributes.get(name)
        if found is None:
            if default is REQUIRED:
                self.fail(f"lacks the attribute `{name}`", code="missing-attribute")
            return default
        if found.kind != kind:
            self.fail(f"has an attribute `{name}` of kind {found.kind}, not {kind}", code="bad-attribute")
        return found.value

    def has(self, name: str) -> bool:
        return name in self.node.attributes

    def integer(self, name: str, default: Any = None) -> Any:
        return self._attribute(name, "int", default)

    def ints_of(self, name: str, default: Any = None) -> Any:
        found = self.node.attributes.get(name)
        if found is not None and found.kind in ("floats", "strings", "tensors") and not found.value:
            return ()
        return self._attribute(name, "ints", default)

    def number(self, name: str, default: Any = None) -> Any:
        return self._attribute(name, "float", default)

    def floats_of(self, name: str, default: Any = None) -> Any:
        return self._attribute(name, "floats", default)

    def string(self, name: str, default: Any = None) -> Any:
        return self._attribute(name, "string", default)

    def strings_of(self, name: str, default: Any = None) -> Any:
        return self._attribute(name, "strings", default)

    def graph(self, name: str) -> GraphRecord:
        found = self._attribute(name, "graph", REQUIRED)
        assert isinstance(found, GraphRecord)
        return found

    def stored(self, name: str) -> StoredArray:
        found = self._attribute(name, "tensor", REQUIRED)
        assert isinstance(found, StoredArray)
        return found

    def axis(self, rank: int, default: Any, name: str = "axis") -> Any:
        """Returns the attribute as an axis counted from 0."""
        axis = self.integer(name, default)
        if not -rank <= axis < rank:
            self.fail(f"has no axis {axis}: the operand has rank {rank}", code="bad-axis")
        return axis % rank

    def axes_in(self, rank: int, axes: Sequence[int]) -> tuple[int, ...]:
        """Returns axes counted from 0. Fails if the operand lacks one, or if one occurs twice."""
        if any(not -rank <= axis < rank for axis in axes) or len({axis % rank for axis in axes}) != len(axes):
            self.fail(f"has the axes {list(axes)} for an operand of rank {rank}", code="bad-axis")
        return tuple(axis % rank for axis in axes)

    def element_type(self, name: str, default: DType | None = None) -> DType:
        """Returns the dtype that an attribute gives by its ONNX number."""
        number = self.integer(name)
        if number is None and default is not None:
            return default
        return self.dtype(number)

    def element_name(self, number: Any) -> str:
        """Returns the name of an element type by its ONNX number; tensors may have it."""
        name = ELEMENT_NAMES.get(number, str(number))
        if name not in ELEMENTS:
            self.fail(f"uses the element type {name}, which is not supported", code="unsupported-dtype")
        return name

    def dtype(self, number: Any) -> DType:
        name = ELEMENT_NAMES.get(number, str(number))
        if name not in DTYPES:
            self.fail(f"uses the element type {name}, which is not supported", code="unsupported-dtype")
        return DTYPES[name]

    def tensor_of(self, stored: StoredArray) -> Tensor:
        return tensor_of(stored, self.span)

    # --- conditions that a call checks ---

    def require(self, holds: Tensor) -> None:
        """Adds a check that fails the call if a boolean scalar is false: a read whose index is then out of range."""
        if holds.array is None:
            require_true(self.g, holds)
        elif not bool(holds.array):
            self.fail("has operands that contradict the declared type of its result", code="type-mismatch")

    def declared_shape(self, what: str, index: int = 0, *, rank: int | None = None) -> tuple[Size, ...]:
        """Returns the declared shape of a result, for operands that are computed in a call. Fails if the result must
        have another rank."""
        type = self.declared[index] if index < len(self.declared) else None
        if type is None:
            self.fail_unknown(what)
        if rank not in (None, type.rank):
            self.fail(f"has a result that is declared {type}, of rank {rank}", code="type-mismatch")
        return type.shape


def require_true(g: GraphWriter, holds: Tensor) -> None:
    """Lets the call fail unless a boolean scalar is true."""
    index = g.where(holds, known(np.int64(0)), known(np.int64(1)))
    g.gather(known(np.zeros(1, np.int64)), index, axis=0)


REQUIRED = object()

_IN_ORDER = (
    "UNDEFINED", "FLOAT", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "STRING", "BOOL", "FLOAT16", "DOUBLE",
    "UINT32", "UINT64", "COMPLEX64", "COMPLEX128", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2",
    "FLOAT8E5M2FNUZ", "UINT4", "INT4", "FLOAT4E2M1", "FLOAT8E8M0", "UINT2", "INT2",
)  # fmt: skip
ELEMENT_NAMES: Mapping[int, str] = dict(enumerate(_IN_ORDER))
ELEMENT_NUMBERS: Mapping[str, int] = {name: number for number, name in ELEMENT_NAMES.items()}


def held_of(stored: StoredArray, span: Span | None) -> Held:
    """Returns a tensor of the file, or a tensor of strings. Raises DiagnosticError if the graph has no such dtype."""
    return strings_of(stored.array) if stored.element == "STRING" else tensor_of(stored, span)


def strings_of(array: Any) -> Strings:
    """Returns known strings. Raises DiagnosticError if one cannot be encoded."""
    try:
        return Strings(known(encode_strings(array)))
    except ArgumentError as error:
        raise DiagnosticError([Diagnostic("bad-onnx", f"a tensor of strings cannot be read: {error}")]) from None


def tensor_of(stored: StoredArray, span: Span | None) -> Tensor:
    """Returns a tensor of the file. Raises DiagnosticError if the graph has no such dtype."""
    dtype = ELEMENTS.get(stored.element)
    if dtype is None:
        named = f"the tensor `{stored.name}`" if stored.name else "a tensor"
        message = f"{named} is {stored.element}, which is not supported"
        raise DiagnosticError([Diagnostic("unsupported-dtype", message, span)])
    array = held_array(stored.array, stored.element)
    element = stored.element if stored.element in NARROW else ""
    return Tensor(TensorType(dtype, array.shape), None, array, stored.name, element)


Convert: TypeAlias = Callable[[Use], Sequence[Held]]
Converters: TypeAlias = Mapping[str, Convert | Mapping[int, Convert]]
"""Converters by the name of an operator; where its meaning changed, by the version of the set that introduced it."""
