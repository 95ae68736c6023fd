"""The program as an ONNX model, with the operators that exporters write for these layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from nacre.dialect.dims import Size
from nacre.dialect.graph import Node, Value
from nacre.dialect.types import DType
from onnx import helper, numpy_helper

from .program import Program, pair

Array = npt.NDArray[Any]
OPSET, OPSET_WITH_ATTENTION = 17, 23


class Writer:
    """Writes nodes one after another. Values are known by their names in the graph; constants are written when used."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}
        self.names: dict[str, str] = {v.name: v.name for v in program.function.arguments}

    def constant(self, array: Array, name: str = "") -> str:
        name = name or f"c{len(self.weights)}"
        self.weights[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(np.shape(array)), name)
        return name

    def value(self, value: Value) -> str:
        if value.name not in self.names:
            self.names[value.name] = self.constant(self.program.constants[value.name], f"w_{value.name}")
        return self.names[value.name]

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def size(self, size: Size) -> str:
        """A scalar: a dim of an argument, as it is when the model is called."""
        for argument in self.program.function.arguments:
            for axis, other in enumerate(argument.type.shape):
                if other == size:
                    shape = self.node("Shape", argument.name, start=axis, end=axis + 1)
                    return self.node("Squeeze", shape, self.integers(0))
        raise NotImplementedError(f"the size {size} is none of an argument")


Emit = Callable[[Writer, Node, Sequence[str], Mapping[str, Any]], str]
"""`emit(writer, node, inputs, attributes) -> the result's name`; sizes among the attributes may be symbolic."""


def _same(op: str) -> Emit:
    return lambda w, node, inputs, a: w.node(op, *inputs)


def _axis(op: str) -> Emit:
    return lambda w, node, inputs, a: w.node(op, *inputs, axis=a["axis"])


def _reshape(w: Writer, node: Node, inputs: Sequence[str], a: Mapping[str, Any]) -> str:
    """Symbolic sizes are copied from the same place (0), or one is found from the others (-1)."""
    before, after = node.inputs[0].type.shape, node.output.type.shape
    target = []
    for axis, size in enumerate(after):
        copied = axis < len(before) and before[axis] == size
        target.append(size if isinstance(size, int) else 0 if copied else -1)
    assert target.count(-1) <= 1, (before, after)
    return w.node("Reshape", inputs[0], w.integers(*target))


def _reduce(op: str) -> Emit:
    """The axes are an attribute of some reductions and an operand of others, in this version of ONNX."""

    def emit(w: Writer, node: Node, inputs: Sequence[str], a: Mapping[str, Any]) -> str:
        assert a.get("order", 2) == 2
        axes = (a["axis"],) if isinstance(a["axis"], int) else tuple(a["axis"])
        if op == "ReduceSum":
            return w.node(op, inputs[0], w.integers(*axes), keepdims=int(a["keepdims"]))
        return w.node(op, inputs[0], axes=axes, keepdims=int(a["keepdims"]))

    return emit


def _axes(op: str) -> Emit:
    def emit(w: Writer, node: Node, inputs: Sequence[str], a: Mapping[str, Any]) -> str:
        axes = (a["axes"],) if isinstance(a["axes"], int) else a["axes"]
        return w.node(op, inputs[0], w.integers(*axes))

    return emit


def _window(a: Mapping[str, Any]) -> dict[str, Any]:
    padding = pair(a["padding"])
    return {"strides": pair(a["stride"]), "pads": (*padding, *padding), "dilations": pair(a["dilation"])}


def _conv2d(w: Writer, node: Node, inputs: Sequence[str], a: Mapping[str, Any]) -> str:
    return w.node("Conv", *inputs, kernel_shape=node.inputs[1].type.shape[2:], group=a["groups"], **_window(a))


def _max_pool2d(w: Writer, node: Node, inputs: Sequence[str], a: Mapping[str, Any]) -> str:
    kernel = pair(a["kernel"])
    window = _window(dict(a) | {"stride": a["stride"] or kernel})
    return w.node("MaxPool", *inputs, kernel_shape=kernel, ceil_mode=int(a["ceil_mode"]), **window)


def _batch_norm(w: Writer, node: Node, inputs: Sequence[str], a: Mapping[str, Any]) -> str:
    x, mean, variance, weight, bias = inputs
    assert a["axis"] == 1
    return w.node("BatchNormalization", x, weight, bias, mean, variance, epsilon=a["eps"])


def _layer_norm(w: Writer, node: Node, inputs: Sequence[str], a: Mapping[str, Any]) -> str:
    assert a["axes"] in (-1, (-1,))
    return w.node("LayerNormalization", *inputs, axis=-1, epsilon=a["eps"])


def _gelu(w: Writer, node: Node, inputs: Sequence[str], a: Mapping[str, Any]) -> str:
    """x / 2 * (1 + erf(x / sqrt 2)), which peers know as one operator."""
    assert a["approximate"] == "none"
    half, one, root = (w.constant(np.float32(v)) for v in (0.5, 1, 2**0.5))
    bent = w.node("Add", w.node("Erf", w.node("Div", inputs[0], root)), one)
    return w.node("Mul", w.node("Mul", inputs[0], bent), half)


def _relu6(w: Writer, node: Node, inputs: Sequence[str], a: Mapping[str, Any]) -> str:
    return w.node("Clip", inputs[0], w.constant(np.float32(0)), w.constant(np.float32(6)))


def _iota(w: Writer, node: Node, inputs: Sequence[str], a: Mapping[str, Any]) -> str:
    (size,) = a["shape"]
    start, step = (w.constant(np.array(v, a["dtype"].numpy)) for v in (0, 1))
    return w.node("Range", start, w.size(size), step)


def _attention(w: Writer, node: Node, inputs: Sequence[str], a: Mapping[str, Any]) -> str:
    assert len(inputs) == 3 and a["scale"] is None
    return w.node("Attention", *inputs, is_causal=int(a["causal"]))


EMIT: Mapping[str, Emit] = {
    "add": _same("Add"),
    "attention": _attention,
    "batch_norm": _batch_norm,
    "cast": lambda w, node, inputs, a: w.node("Cast", inputs[0], to=_element_type(a["dtype"])),
    "conv2d": _conv2d,
    "divide": _same("Div"),
    "embedding": lambda w, node, inputs, a: w.node("Gather", *inputs, axis=0),
    "flatten": _reshape,
    "gelu": _gelu,
    "global_avg_pool": _same("GlobalAveragePool"),
    "iota": _iota,
    "layer_norm": _layer_norm,
    "matmul": _same("MatMul"),
    "matrix_transpose": lambda w, node, inputs, a: w.node("Transpose", inputs[0], perm=_last_two(node)),
    "max_pool2d": _max_pool2d,
    "multiply": _same("Mul"),
    "norm": _reduce("ReduceL2"),
    "relu": _same("Relu"),
    "relu6": _relu6,
    "reshape": _reshape,
    "softmax": _axis("Softmax"),
    "subtract": _same("Sub"),
    "sum": _reduce("ReduceSum"),
    "tanh": _same("Tanh"),
    "transpose": lambda w, node, inputs, a: w.node("Transpose", inputs[0], perm=a["axes"]),
    "unsqueeze": _axes("Unsqueeze"),
    "where": _same("Where"),
}


def _last_two(node: Node) -> list[int]:
    rank = node.output.type.rank
    return [*range(rank - 2), rank - 1, rank - 2]


def _element_type(dtype: DType) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype.numpy))


def _info(name: str, value: Value) -> Any:
    shape = [size if isinstance(size, int) else str(size) for size in value.type.shape]
    return helper.make_tensor_value_info(name, _element_type(value.type.dtype), shape)


def write_onnx(program: Program) -> bytes:
    """The model as bytes. Raises KeyError for an operator that has no line above."""
    w = Writer(program)
    for node in program.body:
        inputs = [w.value(v) for v in node.inputs]
        w.names[node.output.name] = EMIT[node.op](w, node, inputs, dict(node.attributes))
    function = program.function
    results = [w.value(v) for v in function.results]
    graph = helper.make_graph(
        w.nodes,
        "twin",
        [_info(v.name, v) for v in function.arguments],
        [_info(name, v) for name, v in zip(results, function.results, strict=True)],
        list(w.weights.values()),
    )
    opset = OPSET_WITH_ATTENTION if any(n.op_type == "Attention" for n in w.nodes) else OPSET
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8 if opset == OPSET else 11
    )
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())
