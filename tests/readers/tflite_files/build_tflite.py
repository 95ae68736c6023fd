"""Writes TFLite models of one or a few operators, with the package `flatbuffers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import ml_dtypes
import numpy as np
from nacre.compiler.readers.tflite.writing.schema import ELEMENTS, OPERATORS, OPTIONS

_TYPES = {"f4": "FLOAT32", "f2": "FLOAT16", "i4": "INT32", "u1": "UINT8", "i8": "INT64", "b1": "BOOL", "i2": "INT16",
          "i1": "INT8", "f8": "FLOAT64", "bfloat16": "BFLOAT16", "int4": "INT4"}  # fmt: skip
# The numbers of the kinds of options in the schema.
_UNION = {
    "CONV_2D": 1, "DEPTHWISE_CONV_2D": 2, "AVERAGE_POOL_2D": 5, "MAX_POOL_2D": 5, "FULLY_CONNECTED": 8, "SOFTMAX": 9,
    "CONCATENATION": 10, "ADD": 11, "L2_NORMALIZATION": 12, "LOCAL_RESPONSE_NORMALIZATION": 13,
    "RESIZE_BILINEAR": 15, "RESHAPE": 17, "SPACE_TO_DEPTH": 19, "MUL": 21, "PAD": 22, "GATHER": 23,
    "BATCH_TO_SPACE_ND": 24,
    "SPACE_TO_BATCH_ND": 25, "TRANSPOSE": 26, "MEAN": 27, "SUM": 27, "REDUCE_PROD": 27, "REDUCE_MAX": 27,
    "REDUCE_MIN": 27, "REDUCE_ANY": 27, "REDUCE_ALL": 27, "SUB": 28, "DIV": 29, "SQUEEZE": 30, "STRIDED_SLICE": 32,
    "SPLIT": 35, "CAST": 37, "ARG_MAX": 40, "TRANSPOSE_CONV": 49, "ARG_MIN": 57, "PACK": 59, "ONE_HOT": 61,
    "UNPACK": 64, "RESIZE_NEAREST_NEIGHBOR": 74, "LEAKY_RELU": 75, "MIRROR_PAD": 77, "SPLIT_V": 79, "SHAPE": 55,
    "IF": 92,
    "WHILE": 93, "DEPTH_TO_SPACE": 94, "BATCH_MATMUL": 101, "CUMSUM": 102, "GELU": 121,
}  # fmt: skip
_SLOTS = {"b": "Int8", "?": "Bool", "i": "Int32", "f": "Float32"}


@dataclass
class Tensor:
    """A tensor: a shape and a dtype, or the array of a constant; scales and zero points if it is quantized."""

    shape: tuple[int, ...]
    dtype: str
    array: Any = None
    scales: Sequence[float] = ()
    zeros: Sequence[int] = ()
    axis: int = 0
    signature: tuple[int, ...] = ()


@dataclass
class Operator:
    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Signature:
    """The names of tensors of a graph."""

    graph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass
class Graph:
    tensors: Sequence[Tensor]
    inputs: Sequence[int]
    outputs: Sequence[int]
    operators: Sequence[Operator]


def _vector(b: flatbuffers.Builder, numbers: Any, dtype: str) -> int:
    return int(b.CreateNumpyVector(np.asarray(numbers, dtype)))


def _offsets(b: flatbuffers.Builder, places: Sequence[int]) -> int:
    b.StartVector(4, len(places), 4)
    for place in reversed(places):
        b.PrependUOffsetTRelative(place)
    return int(b.EndVector())


def _table(b: flatbuffers.Builder, fields: Mapping[int, tuple[str, Any]]) -> int:
    """Writes a table: by the number of a field, the name of a slot and its value."""
    b.StartObject(1 + max(fields, default=0))
    for number, (slot, value) in fields.items():
        if slot == "offset":
            b.PrependUOffsetTRelativeSlot(number, value, 0)
        else:
            b.ForceDefaults(True)
            getattr(b, f"Prepend{slot}Slot")(number, value, 0)
            b.ForceDefaults(False)
    return int(b.EndObject())


def write_model(graphs: Sequence[Graph], signatures: Sequence[Signature] = ()) -> bytes:
    """Returns the bytes of a model."""
    b = flatbuffers.Builder(1024)
    arrays: list[Any] = [None]
    codes: list[str] = []
    made = [_graph(b, graph, arrays, codes) for graph in graphs]
    buffers = []
    for array in arrays:
        data = None if array is None else _vector(b, np.frombuffer(_stored(array), np.uint8), "u1")
        buffers.append(_table(b, {} if data is None else {0: ("offset", data)}))
    tables = []
    for name in codes:
        number = OPERATORS.index(name)
        tables.append(_table(b, {0: ("Int8", min(number, 127)), 2: ("Int32", 1), 3: ("Int32", number)}))
    named = _offsets(b, [_signature(b, each) for each in signatures])
    root = _table(
        b,
        {
            0: ("Uint32", 3),
            1: ("offset", _offsets(b, tables)),
            2: ("offset", _offsets(b, made)),
            4: ("offset", _offsets(b, buffers)),
            7: ("offset", named),
        },
    )
    b.Finish(root, file_identifier=b"TFL3")
    return bytes(b.Output())


def _signature(b: flatbuffers.Builder, signature: Signature) -> int:
    sides = [
        _offsets(b, [_table(b, {0: ("offset", b.CreateString(n)), 1: ("Uint32", t)}) for n, t in side.items()])
        for side in (signature.inputs, signature.outputs)
    ]
    return _table(b, {0: ("offset", sides[0]), 1: ("offset", sides[1]), 4: ("Uint32", signature.graph)})


def _stored(array: Any) -> bytes:
    """Returns the bytes of a constant: two integers of four bits are in one byte, the first in its lower half."""
    if array.dtype != ml_dtypes.int4:
        return bytes(array.tobytes())
    numbers = array.reshape(-1).astype(np.int8).view(np.uint8) & 15
    halves = np.pad(numbers, (0, array.size % 2)).reshape(-1, 2)
    return bytes((halves[:, 0] | halves[:, 1] << 4).tobytes())


def _graph(b: flatbuffers.Builder, graph: Graph, arrays: list[Any], codes: list[str]) -> int:
    tensors = [_tensor(b, tensor, number, arrays) for number, tensor in enumerate(graph.tensors)]
    operators = []
    for operator in graph.operators:
        if operator.name not in codes:
            codes.append(operator.name)
        fields: dict[int, tuple[str, Any]] = {
            0: ("Uint32", codes.index(operator.name)),
            1: ("offset", _vector(b, operator.inputs, "i4")),
            2: ("offset", _vector(b, operator.outputs, "i4")),
        }
        if operator.name in _UNION:
            known = OPTIONS.get(operator.name, {})
            given = {known[n].number: (_SLOTS[known[n].kind], v) for n, v in operator.options.items() if n in known}
            for number, value in operator.options.items():
                if isinstance(number, int):  # a list
                    given[number] = ("offset", _vector(b, value, "i4"))
            fields[3] = ("Uint8", _UNION[operator.name])
            fields[4] = ("offset", _table(b, given))
        operators.append(_table(b, fields))
    return _table(
        b,
        {
            0: ("offset", _offsets(b, tensors)),
            1: ("offset", _vector(b, graph.inputs, "i4")),
            2: ("offset", _vector(b, graph.outputs, "i4")),
            3: ("offset", _offsets(b, operators)),
        },
    )


def _tensor(b: flatbuffers.Builder, tensor: Tensor, number: int, arrays: list[Any]) -> int:
    buffer = 0
    if tensor.array is not None:
        buffer = len(arrays)
        arrays.append(np.asarray(tensor.array, tensor.dtype))
    fields: dict[int, tuple[str, Any]] = {
        0: ("offset", _vector(b, tensor.shape, "i4")),
        1: ("Int8", ELEMENTS.index(_TYPES[tensor.dtype])),
        2: ("Uint32", buffer),
        3: ("offset", b.CreateString(f"t{number}")),
    }
    if tensor.scales:
        zeros = tensor.zeros or [0] * len(tensor.scales)
        quantization = {
            2: ("offset", _vector(b, tensor.scales, "f4")),
            3: ("offset", _vector(b, zeros, "i8")),
            6: ("Int32", tensor.axis),
        }
        fields[4] = ("offset", _table(b, quantization))
    if tensor.signature:
        fields[7] = ("offset", _vector(b, tensor.signature, "i4"))
    return _table(b, fields)
