"""The contents of a file as records: graphs, tensors with their quantization, and operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .....dialect.diagnostics import Diagnostic, DiagnosticError
from .....dialect.types import DType
from ...flatbuffer import FormatError, Table, root
from ...writing.tensors import Elements
from .schema import DTYPES, ELEMENTS, OPERATORS

_IDENTIFIER = b"TFL3"


@dataclass(frozen=True, slots=True, eq=False)
class Quantization:
    """`(q - zero) * scale`: one scale and zero point, or one of each for each index of `axis`."""

    scales: Elements
    zeros: Elements
    axis: int

    @property
    def scale(self) -> np.float32:
        return np.float32(self.scales[0])

    @property
    def zero(self) -> int:
        return int(self.zeros[0])


@dataclass(frozen=True, slots=True, eq=False)
class TensorRecord:
    """A tensor of a graph. A size is None where it differs between calls. `array` holds the elements of a constant."""

    name: str
    element: str
    shape: tuple[int | None, ...]
    quantization: Quantization | None
    array: Elements | None
    variable: bool

    @property
    def dtype(self) -> DType | None:
        return DTYPES.get(self.element)


@dataclass(frozen=True, slots=True, eq=False)
class OperatorRecord:
    """One use of an operator. Operands are numbers of tensors, -1 where one is omitted."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Table | None
    line: int


@dataclass(frozen=True, slots=True, eq=False)
class GraphRecord:
    name: str
    tensors: Sequence[TensorRecord]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: Sequence[OperatorRecord]


@dataclass(frozen=True, slots=True, eq=False)
class ModelRecord:
    """`names` are those of a signature for the inputs and outputs of the first graph, empty if there is none. `listing`
    is a text of the operators, to which spans refer by line."""

    graphs: Sequence[GraphRecord]
    names: tuple[Sequence[str], Sequence[str]]
    listing: str


def decode(data: bytes, file: str) -> ModelRecord:
    """Returns the records of a file. Raises DiagnosticError."""
    if data[4:8] != _IDENTIFIER:
        message = f"`{file}` is not a TFLite model: it lacks the identifier `{_IDENTIFIER.decode()}`"
        raise DiagnosticError([Diagnostic("bad-tflite", message)])
    try:
        return _model(root(data))
    except FormatError as error:
        raise DiagnosticError([Diagnostic("bad-tflite", f"`{file}` is damaged: {error}")]) from None


def _model(model: Table) -> ModelRecord:
    codes = [_operator_name(code) for code in model.tables(1)]
    buffers = model.tables(4)
    lines: list[str] = []
    graphs = [_graph(table, codes, buffers, lines) for table in model.tables(2)]
    if not graphs:
        raise FormatError("it has no graph")
    return ModelRecord(graphs, _signature(model, graphs[0]), "\n".join(lines))


def _operator_name(code: Table) -> str:
    custom = code.text(1)
    number = max(code.integer(0, "b"), code.integer(3, "i"))
    name = OPERATORS[number] if 0 <= number < len(OPERATORS) else f"operator number {number}"
    return custom if name == "CUSTOM" and custom else name


def _signature(model: Table, graph: GraphRecord) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the names that a signature of the first graph gives to its inputs and outputs."""
    for table in model.tables(7):
        if table.integer(4, "I"):
            continue
        inputs = {entry.integer(1, "I"): entry.text(0) for entry in table.tables(0)}
        outputs = {entry.integer(1, "I"): entry.text(0) for entry in table.tables(1)}
        if set(inputs) >= set(graph.inputs) and set(outputs) >= set(graph.outputs):
            return [inputs[number] for number in graph.inputs], [outputs[number] for number in graph.outputs]
    return (), ()


def _graph(graph: Table, codes: Sequence[str], buffers: Sequence[Table], lines: list[str]) -> GraphRecord:
    tensors = [_tensor(table, buffers) for table in graph.tables(0)]
    inputs, outputs = graph.integers(1), graph.integers(2)
    operators = []
    for table in graph.tables(3):
        index = table.integer(0, "I")
        if index >= len(codes):
            raise FormatError(f"an operator has the code {index} of {len(codes)}")
        given, made = table.integers(1), table.integers(2)
        _check(given, tensors, -1)
        _check(made, tensors, 0)
        lines.append(f"{codes[index]}({_shown(given, tensors)}) -> {_shown(made, tensors)}")
        operators.append(OperatorRecord(codes[index], given, made, table.table(4), len(lines)))
    _check((*inputs, *outputs), tensors, 0)
    return GraphRecord(graph.text(4), tensors, inputs, outputs, operators)


def _shown(numbers: Sequence[int], tensors: Sequence[TensorRecord]) -> str:
    names = ["-" if number < 0 else tensors[number].name[:80] for number in numbers[:8]]
    return ", ".join(names) + (", ..." if len(numbers) > 8 else "")


def _check(numbers: Sequence[int], tensors: Sequence[TensorRecord], least: int) -> None:
    for number in numbers:
        if not least <= number < len(tensors):
            raise FormatError(f"tensor {number} is used, and the graph has {len(tensors)}")


def _tensor(tensor: Table, buffers: Sequence[Table]) -> TensorRecord:
    number = tensor.integer(1, "b")
    element = ELEMENTS[number] if 0 <= number < len(ELEMENTS) else f"element type {number}"
    name = tensor.text(3)
    shape = tensor.integers(0)
    declared = tensor.integers(7)
    index = tensor.integer(2, "I")
    if index >= len(buffers) or len(shape) > 8 or any(size < 0 for size in shape):
        raise FormatError(f"the tensor `{name}` has buffer {index} of {len(buffers)} and shape {list(shape)}")
    if tensor.table(6) is not None:
        raise FormatError(f"the tensor `{name}` is sparse, which is not supported")
    data = buffers[index].array(0, "<u1")
    if buffers[index].integer(1, "Q") > 1:
        raise FormatError(f"the data of the tensor `{name}` follows the model in the file, which is not supported")
    array = None
    if index and data is not None and (data.size or 0 in shape):
        array = _elements(name, element, shape, data)
    sizes: tuple[int | None, ...] = shape
    if array is None and len(declared) == len(shape):
        sizes = tuple(None if wanted < 0 else size for size, wanted in zip(shape, declared, strict=True))
    return TensorRecord(name, element, sizes, _quantization(tensor.table(4), name, shape), array, tensor.flag(5))


def _elements(name: str, element: str, shape: Sequence[int], data: Elements) -> Elements | None:
    dtype = DTYPES.get(element)
    if dtype is None:
        return None  # an operator that reads it is refused
    count = 1
    for size in shape:
        count *= size
    if element == "INT4":
        wanted = (count + 1) // 2
        if data.size != wanted:
            raise FormatError(f"the tensor `{name}` of {count} elements has {data.size} bytes")
        # The lower half of a byte is the earlier element.
        pair = np.stack([data << 4, data], axis=-1).view(np.int8) >> 4
        return np.asarray(pair.reshape(-1)[:count].reshape(shape))
    wide = dtype.numpy
    if data.size != count * wide.itemsize:
        raise FormatError(f"the tensor `{name}` of {count} elements has {data.size} bytes")
    return np.asarray(data.view(wide).reshape(shape))


def _quantization(table: Table | None, name: str, shape: Sequence[int]) -> Quantization | None:
    if table is None:
        return None
    scales, zeros = table.array(2, "<f4"), table.array(3, "<i8")
    if scales is None or not scales.size:
        return None
    if zeros is None or not zeros.size:
        zeros = np.zeros(scales.size, np.int64)
    axis = table.integer(6)
    several = scales.size > 1
    if zeros.size not in (1, scales.size) or (several and not (0 <= axis < len(shape) and shape[axis] == scales.size)):
        raise FormatError(f"the tensor `{name}` of shape {list(shape)} has {scales.size} scales and {zeros.size} zeros")
    if not np.all(np.isfinite(scales) & (scales >= 0)) or np.any(np.abs(zeros) >= 1 << 31):
        raise FormatError(f"the tensor `{name}` has a negative or non-finite scale, or a zero out of range")
    return Quantization(scales, np.broadcast_to(zeros, scales.shape), axis)
