"""The program as a function for JAX: of the weights, which stay on its device, and of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .program import Program, pair, twin_attributes

_LAYOUT = ("NCHW", "OIHW", "NCHW")


def _conv2d(x: Any, weight: Any, bias: Any = None, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    y = lax.conv_general_dilated(
        x,
        weight,
        pair(stride),
        [(p, p) for p in pair(padding)],
        rhs_dilation=pair(dilation),
        dimension_numbers=_LAYOUT,
        feature_group_count=groups,
    )
    return y if bias is None else y + bias[:, None, None]


def _max_pool2d(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    assert pair(dilation) == (1, 1) and not ceil_mode
    pads = [(0, 0), (0, 0), *((p, p) for p in pair(padding))]
    return lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 1, *pair(kernel)), (1, 1, *pair(kernel if stride is None else stride)), pads
    )


def _batch_norm(x: Any, mean: Any, variance: Any, weight: Any, bias: Any, *, axis: int, eps: float) -> Any:
    scale = weight * lax.rsqrt(variance + eps)
    return x * scale[:, None, None] + (bias - mean * scale)[:, None, None]


def _layer_norm(x: Any, weight: Any, bias: Any, *, axes: Any, eps: float) -> Any:
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    return centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + eps) * weight + bias


def _attention(q: Any, k: Any, v: Any, *, scale: Any, causal: bool) -> Any:
    q, k, v = (x.swapaxes(-2, -3) for x in (q, k, v))
    return jax.nn.dot_product_attention(q, k, v, is_causal=causal).swapaxes(-2, -3)


TABLE: Mapping[str, Callable[..., Any]] = {
    "add": jnp.add,
    "attention": _attention,
    "batch_norm": _batch_norm,
    "cast": lambda x, dtype: x.astype(dtype.numpy),
    "conv2d": _conv2d,
    "divide": jnp.divide,
    "embedding": lambda table, ids: table[ids],
    "flatten": lambda x, start, end: x.reshape(*x.shape[:start], -1),
    "gelu": lambda x, approximate: jax.nn.gelu(x, approximate=False),
    "global_avg_pool": lambda x: x.mean((-2, -1), keepdims=True),
    "iota": lambda shape, axis, dtype: jnp.arange(shape[0]),
    "layer_norm": _layer_norm,
    "matmul": jnp.matmul,
    "matrix_transpose": lambda x: x.swapaxes(-1, -2),
    "max_pool2d": _max_pool2d,
    "multiply": jnp.multiply,
    "norm": lambda x, axis, keepdims, order: jnp.linalg.norm(x, order, axis, keepdims),
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "reshape": lambda x, shape: x.reshape(shape),
    "softmax": lambda x, axis: jax.nn.softmax(x, axis),
    "subtract": jnp.subtract,
    "sum": lambda x, axis, keepdims: jnp.sum(x, axis, keepdims=keepdims),
    "tanh": jnp.tanh,
    "transpose": lambda x, axes: x.transpose(axes),
    "unsqueeze": lambda x, axes: jnp.expand_dims(x, axes),
    "where": jnp.where,
}


def make_twin(program: Program, dims: Mapping[str, int]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """`function(weights, *inputs)`, not yet compiled, and the weights."""
    used = {v.name for node in program.body for v in node.inputs}
    weights = {name: jnp.asarray(array) for name, array in program.constants.items() if name in used}
    arguments = [v.name for v in program.function.arguments]
    results = [v.name for v in program.function.results]
    steps = [(TABLE[n.op], [v.name for v in n.inputs], n.output.name, twin_attributes(n, dims)) for n in program.body]

    def twin(weights: dict[str, Any], *inputs: Any) -> tuple[Any, ...]:
        values = dict(weights) | dict(zip(arguments, inputs, strict=True))
        for operator, names, result, attributes in steps:
            values[result] = operator(*[values[name] for name in names], **attributes)
        return tuple(values[name] for name in results)

    return twin, weights
