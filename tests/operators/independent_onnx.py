"""Operators by the reference evaluator of ONNX, whose specification defines padding, windows and sampling by itself.

Float attributes of ONNX are f32, so that its results are compared in f32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from independent_elements import Function
from nacre.dialect.types import Array
from onnx import helper
from onnx.reference import ReferenceEvaluator

_OPSET = 23


def onnx_run(name: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """The results of one node. An input that is None is left out, as is an attribute."""
    given = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs) if x is not None}
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(name, names, made, **{k: v for k, v in attributes.items() if v is not None})
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in given.items()
    ]
    results = [helper.make_tensor_value_info(n, onnx.TensorProto.UNDEFINED, None) for n in made]
    graph = helper.make_graph([node], "g", values, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    found = ReferenceEvaluator(model).run(None, given)
    return found[0] if outputs == 1 else tuple(found)


def named(name: str, **fixed: Any) -> Function:
    """An operator of ONNX with the same operands; attributes of ours are those of ONNX where both have one name."""
    return lambda *xs, **attributes: onnx_run(name, *xs, **fixed, **attributes)


def renamed(name: str, **names: str) -> Function:
    return lambda *xs, **attributes: onnx_run(name, *xs, **{names[k]: v for k, v in attributes.items()})


# Windows


def _padding(padding: Any, rank: int) -> dict[str, Any]:
    if isinstance(padding, str):
        return {"auto_pad": {"same": "SAME_UPPER", "valid": "VALID"}[padding]}
    if not isinstance(padding, tuple):
        padding = (padding,) * rank
    if len(padding) == 2 * rank:
        padding = tuple(zip(padding[::2], padding[1::2], strict=True))
    pairs = [p if isinstance(p, tuple) else (p, p) for p in padding]
    return {"pads": [p[0] for p in pairs] + [p[1] for p in pairs]}


def _all(value: Any, rank: int) -> list[int]:
    return [value] * rank if isinstance(value, int) else list(value)


def _first(x: Array) -> Array:
    return np.moveaxis(x, -1, 1)


def _conv(
    x: Array, weight: Array, bias: Any = None, *, layout: str = "channels_first", into: Any = None, **a: Any
) -> Any:
    rank = x.ndim - 2
    x, weight = x.astype(np.float64), weight.astype(np.float64)
    bias = None if bias is None else bias.astype(np.float64)
    if layout != "channels_first":
        weight = np.moveaxis(np.moveaxis(weight, -1, 0), -1, 1)
    if layout == "channels_last":
        x = _first(x)
    result = onnx_run(
        "Conv", x, weight, bias, strides=_all(a["stride"], rank), dilations=_all(a["dilation"], rank),
        group=a["groups"], kernel_shape=weight.shape[2:], **_padding(a["padding"], rank),
    )  # fmt: skip
    return result if layout == "channels_first" else np.moveaxis(result, 1, -1)


def _conv_transpose(
    x: Array, weight: Array, bias: Any = None, *, into: Any = None, output_padding: Any, groups: int, **a: Any
) -> Any:
    """The adjoint of a convolution: of each element of the result, what the convolution makes of it alone, times x."""
    rank = x.ndim - 2
    steps, spread, spare = (_all(v, rank) for v in (a["stride"], a["dilation"], output_padding))
    pads = _padding(a["padding"], rank).get("pads", [0] * 2 * rank)
    shape = [
        (x.shape[2 + i] - 1) * steps[i]
        + spread[i] * (weight.shape[2 + i] - 1)
        + 1
        - pads[i]
        - pads[rank + i]
        + spare[i]
        for i in range(rank)
    ]
    result = np.zeros((x.shape[0], weight.shape[1] * groups, *shape))
    for place in np.ndindex(*result.shape[1:]):
        unit = np.zeros((1, *result.shape[1:]))
        unit[(0, *place)] = 1
        seen = _conv(unit, weight, groups=groups, **a)[(0, slice(None), *(slice(n) for n in x.shape[2:]))]
        result[(slice(None), *place)] = np.sum(x.astype(float) * seen, axis=tuple(range(1, x.ndim)))
    return result if bias is None else result + bias.reshape(-1, *[1] * rank)


def _weight_gradient(x: Array, gradient: Array, *, kernel: Any, groups: int, layout: str, **a: Any) -> Any:
    """The convolution is linear in its weight: of each element of it, the results' sum times their gradient."""
    rank = x.ndim - 2
    if layout == "channels_last":
        x, gradient = _first(x), _first(gradient)
    shape = (gradient.shape[1], x.shape[1] // groups, *_all(kernel, rank))
    result = np.zeros(shape)
    for place in np.ndindex(shape):
        unit = np.zeros(shape)
        unit[place] = 1
        result[place] = np.sum(_conv(x, unit, groups=groups, **a).astype(float) * gradient)
    return result if layout == "channels_first" else np.moveaxis(np.moveaxis(result, 1, -1), 0, -1)


def _pool(name: str, outputs: int = 1) -> Function:
    def computed(x: Array, *, kernel: Any, stride: Any, padding: Any, layout: str = "channels_first", **a: Any) -> Any:
        rank = x.ndim - 2
        x = _first(x) if layout == "channels_last" else x
        steps = _all(kernel if stride is None else stride, rank)
        dilation = {"dilations": _all(a["dilation"], rank)} if "dilation" in a else {}
        counted = {"count_include_pad": int(a["count_include_pad"])} if "count_include_pad" in a else {}
        result = onnx_run(
            name, x, outputs=outputs, kernel_shape=_all(kernel, rank), strides=steps, ceil_mode=int(a["ceil_mode"]),
            **dilation, **counted, **_padding(padding, rank),
        )  # fmt: skip
        return np.moveaxis(result, 1, -1) if layout == "channels_last" else result

    return computed


def _pool_indices(
    x: Array, *, kernel: Any, stride: Any, dilation: Any, padding: Any, ceil_mode: bool, layout: str
) -> Any:
    """ONNX says how many windows there are; each is searched in order, and the first of the largest is taken."""
    x = _first(x) if layout == "channels_last" else x
    pooled = _pool("MaxPool")(x, kernel=kernel, stride=stride, dilation=dilation, padding=padding, ceil_mode=ceil_mode)
    rank = x.ndim - 2
    sizes, spread = _all(kernel, rank), _all(dilation, rank)
    steps = sizes if stride is None else _all(stride, rank)
    low = _padding(padding, rank)["pads"]
    result = np.full(pooled.shape, -1)
    for place in np.ndindex(pooled.shape):
        best = None
        for offset in np.ndindex(*sizes):
            at = tuple(place[2 + i] * steps[i] - low[i] + offset[i] * spread[i] for i in range(rank))
            if all(0 <= p < n for p, n in zip(at, x.shape[2:], strict=True)):
                value = float(x[(*place[:2], *at)])
                # NaN is the greatest.
                if best is None or value > best or (value != value and best == best):
                    best, result[place] = value, np.ravel_multi_index(at, x.shape[2:])
    return np.moveaxis(result, 1, -1) if layout == "channels_last" else result


def _pool_gradient(gradient: Array, *, sizes: Sequence[int], **attributes: Any) -> Any:
    """The pooling is linear: of each element of a plane, the results' sum times their gradient."""
    result = np.zeros((*gradient.shape[:2], *sizes))
    for place in np.ndindex(*sizes):
        unit = np.zeros((1, 1, *sizes), np.float32)
        unit[(0, 0, *place)] = 1
        pooled = _pool("AveragePool")(unit, **attributes)
        result[(..., *place)] = np.sum(pooled * gradient.astype(float), axis=tuple(range(2, gradient.ndim)))
    return result


# Norms


def _rms(x: Array, weight: Any = None, *, eps: float) -> Any:
    scale = np.ones(x.shape[-1], x.dtype) if weight is None else weight
    return onnx_run("RMSNormalization", x, scale, axis=-1, epsilon=eps)


def _batch_norm(
    x: Array, mean: Array, variance: Array, weight: Any = None, bias: Any = None, *, axis: int, eps: float
) -> Any:
    weight = np.ones_like(mean) if weight is None else weight
    bias = np.zeros_like(mean) if bias is None else bias
    turned = np.moveaxis(x, axis, 1)
    return np.moveaxis(onnx_run("BatchNormalization", turned, weight, bias, mean, variance, epsilon=eps), 1, axis)


# Movement


def _space_to_depth(x: Array, block: int, mode: str) -> Any:
    """What `DepthToSpace` takes back: the places of numbered elements say where each of them goes."""
    shape = (x.shape[0], x.shape[1] * block * block, x.shape[2] // block, x.shape[3] // block)
    numbers = np.arange(x.size, dtype=np.int64).reshape(shape)
    order = {"blocks_first": "DCR", "channels_first": "CRD"}[mode]
    back = onnx_run("DepthToSpace", numbers, blocksize=block, mode=order)
    result = np.empty(x.size, x.dtype)
    result[back.ravel()] = x.ravel()
    return result.reshape(shape)


def _depth_to_space(x: Array, block: int, mode: str) -> Any:
    return onnx_run("DepthToSpace", x, blocksize=block, mode={"blocks_first": "DCR", "channels_first": "CRD"}[mode])


def _pad(x: Array, widths: Any, mode: str, value: float) -> Any:
    widths = (widths,) * (2 * x.ndim) if isinstance(widths, int) else widths
    widths = (
        widths if not widths or isinstance(widths[0], tuple) else tuple(zip(widths[::2], widths[1::2], strict=True))
    )
    if not widths:
        return x
    pads = np.asarray([low for low, _ in widths] + [high for _, high in widths], np.int64)
    return onnx_run("Pad", x, pads, np.asarray(value, x.dtype), mode=mode)


def _resize(x: Array, sizes: Any, scales: Any, mode: str, coordinates: str) -> Any:
    sizes = (sizes,) if isinstance(sizes, int) else sizes
    scales = (scales,) if isinstance(scales, int | float) else scales
    count = len(sizes if sizes is not None else scales)
    outer = x.ndim - count
    whole = None if sizes is None else np.asarray([*x.shape[:outer], *sizes], np.int64)
    factors = None if scales is None else np.asarray([1.0] * outer + list(scales), np.float32)
    nearest = {"half_pixel": "round_prefer_ceil", "align_corners": "round_prefer_ceil", "asymmetric": "floor"}
    return onnx_run(
        "Resize", x, None, factors, whole, mode=mode, coordinate_transformation_mode=coordinates,
        nearest_mode=nearest[coordinates],
    )  # fmt: skip


def _clip(x: Array, low: Any, high: Any) -> Any:
    return onnx_run("Clip", x, *(None if b is None else np.asarray(b, x.dtype) for b in (low, high)))


ONNX: Mapping[str, Function] = {
    "relu": named("Relu"),
    "relu6": lambda x: _clip(x, 0, 6),
    "leaky_relu": renamed("LeakyRelu", slope="alpha"),
    "prelu": named("PRelu"),
    "elu": named("Elu"),
    "selu": named("Selu"),
    "celu": named("Celu"),
    "gelu": named("Gelu"),
    "quick_gelu": lambda x: x * onnx_run("Sigmoid", np.float32(1.702) * x),
    "silu": lambda x: x * onnx_run("Sigmoid", x),
    "softplus": named("Softplus"),
    "mish": named("Mish"),
    "soft_shrink": lambda x, threshold: onnx_run("Shrink", x, bias=threshold, lambd=threshold),
    "hard_swish": named("HardSwish"),
    "hard_sigmoid": named("HardSigmoid", alpha=1 / 6, beta=0.5),
    "hard_tanh": _clip,
    "clip": _clip,
    "rms_norm": _rms,
    "batch_norm": _batch_norm,
    "conv1d": _conv,
    "conv2d": _conv,
    "conv3d": _conv,
    "conv_weight_gradient": _weight_gradient,
    "conv_transpose1d": _conv_transpose,
    "conv_transpose2d": _conv_transpose,
    "conv_transpose3d": _conv_transpose,
    "max_pool1d": _pool("MaxPool"),
    "max_pool2d": _pool("MaxPool"),
    "max_pool3d": _pool("MaxPool"),
    "max_pool_indices": _pool_indices,
    "avg_pool1d": _pool("AveragePool"),
    "avg_pool2d": _pool("AveragePool"),
    "avg_pool3d": _pool("AveragePool"),
    "avg_pool_gradient": _pool_gradient,
    "global_avg_pool": named("GlobalAveragePool"),
    "broadcast_to": lambda x, shape: onnx_run("Expand", x, np.asarray(shape, np.int64)),
    "tile": lambda x, repeats: onnx_run("Tile", x, np.asarray(repeats, np.int64)),
    "depth_to_space": _depth_to_space,
    "space_to_depth": _space_to_depth,
    "pad": _pad,
    "resize": _resize,
}
