"""The program as a PyTorch module that holds the weights; sizes are numbers, which suits its compiler best."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from nacre.dialect.types import BOOL, F32, I64, DType
from torch.nn import functional

from .program import Program, twin_attributes

DTYPES: Mapping[DType, torch.dtype] = {BOOL: torch.bool, F32: torch.float32, I64: torch.int64}


def _conv2d(x: Any, weight: Any, bias: Any = None, **a: Any) -> Any:
    return functional.conv2d(x, weight, bias, **a)


def _max_pool2d(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    return functional.max_pool2d(x, kernel, stride, padding, dilation, ceil_mode)


def _unsqueeze(x: Any, axes: Any) -> Any:
    for axis in sorted((axes,) if isinstance(axes, int) else axes):
        x = x.unsqueeze(axis)
    return x


TABLE: Mapping[str, Callable[..., Any]] = {
    "add": operator.add,
    "attention": lambda q, k, v, scale, causal: functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
    "batch_norm": lambda x, m, v, w, b, axis, eps: functional.batch_norm(x, m, v, w, b, eps=eps),
    "cast": lambda x, dtype: x.to(dtype),
    "conv2d": _conv2d,
    "divide": operator.truediv,
    "embedding": lambda table, ids: functional.embedding(ids, table),
    "flatten": lambda x, start, end: torch.flatten(x, start, end),
    "gelu": lambda x, approximate: functional.gelu(x, approximate=approximate),
    "global_avg_pool": lambda x: functional.adaptive_avg_pool2d(x, 1),
    "iota": lambda shape, axis, dtype: torch.arange(shape[0], dtype=dtype),
    "layer_norm": lambda x, w, b, axes, eps: functional.layer_norm(x, x.shape[-1:], w, b, eps),
    "matmul": torch.matmul,
    "matrix_transpose": lambda x: x.mT,
    "max_pool2d": _max_pool2d,
    "multiply": operator.mul,
    "norm": lambda x, axis, keepdims, order: torch.linalg.vector_norm(x, order, axis, keepdims),
    "relu": torch.relu,
    "relu6": functional.relu6,
    "reshape": lambda x, shape: x.reshape(shape),
    "softmax": lambda x, axis: torch.softmax(x, axis),
    "subtract": operator.sub,
    "sum": lambda x, axis, keepdims: torch.sum(x, axis, keepdims),
    "tanh": torch.tanh,
    "transpose": lambda x, axes: x.permute(axes),
    "unsqueeze": _unsqueeze,
    "where": torch.where,
}


def make_twin(program: Program, dims: Mapping[str, int]) -> torch.fx.GraphModule:
    """Takes the arguments in order and gives the results as a tuple. Scalars are numbers, as people write them."""
    root = torch.nn.Module()
    graph = torch.fx.Graph()
    values: dict[str, Any] = {
        v.name: graph.placeholder(f"x{number}") for number, v in enumerate(program.function.arguments)
    }
    used = {v.name for node in program.body for v in node.inputs}
    for number, name in enumerate(name for name in program.constants if name in used):
        if program.constants[name].ndim == 0:
            values[name] = program.constants[name].item()
            continue
        array = np.array(program.constants[name])  # a copy, since a checkpoint's memory is read-only
        root.register_buffer(f"p{number}", torch.from_numpy(array))
        values[name] = graph.get_attr(f"p{number}")
    for node in program.body:
        operands = tuple(values[v.name] for v in node.inputs)
        attributes = {
            name: DTYPES[value] if isinstance(value, DType) else value
            for name, value in twin_attributes(node, dims).items()
        }
        values[node.output.name] = graph.call_function(TABLE[node.op], operands, attributes)
    graph.output(tuple(values[v.name] for v in program.function.results))
    return torch.fx.GraphModule(root, graph).eval()
