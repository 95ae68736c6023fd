"""Arguments whose values or shapes the caller states as settings: `shape=[2, 3]`, `images=[[3, 8], [3]]`.

A tensor has the stated value in every call, which the artifact checks: axes and shapes among the arguments are then
known while the file is read. A sequence is stated by the shapes of its tensors, each a separate argument. An
optional value is stated as its content, or as `none` if it is empty. A setting with the name of a size in the types of
the arguments states this size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.graph import Value
from ....dialect.types import TensorType
from ..writing.graph_writer import GraphWriter
from ..writing.tensors import Held, Strings, Tensor, TensorSequence
from .inputs import Dims, sizes_of, tensor_type
from .writing.narrow import ELEMENTS, NARROW
from .writing.records import ValueRecord, ValueType
from .writing.use import require_true

NewArgument = Callable[[str, TensorType], Value]
"""Adds an argument of the entry under a name."""


def _fail(message: str, help: str = "") -> NoReturn:
    raise DiagnosticError([Diagnostic("bad-setting", message, help=help)])


@dataclass(frozen=True, slots=True)
class Statement:
    """The setting of one argument."""

    value: Any


def read_argument(
    record: ValueRecord, statement: Statement | None, dims: Dims, g: GraphWriter, new: NewArgument
) -> Held | None:
    """Returns the value of an input; None for an empty optional value. Raises DiagnosticError."""
    type = record.type
    if type is not None and type.kind == "optional" and statement is not None:
        if statement.value is None:
            return None
        return read_argument(ValueRecord(record.name, type.inner), _content(type, statement), dims, g, new)
    if type is not None and type.kind == "sequence" and statement is not None:
        return TensorSequence(tuple(_items(record.name, type, statement.value, dims, new)))
    checked = tensor_type(record, dims)
    assert type is not None, record
    if type.element == "STRING":
        if statement is not None:
            _fail(f"`{record.name}` is a tensor of strings, whose value cannot be stated")
        return Strings(Tensor(checked, new(record.name, checked)))
    argument = Tensor(checked, new(record.name, checked), element=type.element if type.element in NARROW else "")
    return argument if statement is None else _stated(record.name, argument, statement.value, g)


def _content(type: ValueType, statement: Statement) -> Statement | None:
    """Returns the statement about the content of an optional value. A tensor in it has no stated value."""
    return None if type.inner is not None and type.inner.kind == "tensor" else statement


def _items(name: str, type: ValueType, shapes: Any, dims: Dims, new: NewArgument) -> Sequence[Tensor]:
    element = type.inner.element if type.inner is not None else ""
    if element not in ELEMENTS:
        _fail(f"the sequence `{name}` has elements of type {element or 'unknown'}, which is not supported")
    if not isinstance(shapes, (list, tuple)) or not all(_is_shape(shape) for shape in shapes):
        help_text = "state the shape of each tensor, as in `[[3, 8], [3, 9]]`"
        _fail(f"the sequence `{name}` is stated as {shapes!r}", help_text)
    assert type.inner is not None
    if type.inner.shape is not None:
        for shape in shapes:
            declared = sizes_of(name, type.inner.shape, dims)
            fits = [not isinstance(size, int) or size == given for size, given in zip(declared, shape, strict=False)]
            if len(declared) != len(shape) or not all(fits):
                _fail(f"the sequence `{name}` has tensors {list(type.inner.shape)}, and {shape!r} is stated")
    types = [TensorType(ELEMENTS[element], tuple(shape)) for shape in shapes]
    return [Tensor(each, new(f"{name}_{number}", each)) for number, each in enumerate(types)]


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, (list, tuple)) and all(isinstance(size, int) and size >= 0 for size in shape)


def _stated(name: str, argument: Tensor, value: Any, g: GraphWriter) -> Tensor:
    """Returns the known tensor; the call compares the argument with it."""
    dtype = argument.dtype
    try:
        given = np.asarray(value)
        array = given.astype(dtype.numpy)
    except (TypeError, ValueError):
        _fail(f"`{name}` is {argument.type}, and is stated as {value!r}")
    if array.shape != argument.shape or not np.array_equal(array.astype(given.dtype), given):
        _fail(f"`{name}` is {argument.type}, and is stated as {value!r}")
    known = Tensor(argument.type, None, array)
    same = g.equal(argument, known)
    require_true(g, g.all(same) if argument.rank else same)
    return known
