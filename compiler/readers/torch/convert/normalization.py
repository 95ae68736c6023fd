"""Normalization and softmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.dims import product
from .....dialect.types import F32, F64, DType
from ...writing.tensors import Tensor
from ..writing.use import Convert, Converters, Use


def _softmax(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, g = use.cast("self", use.dtype), use.g
        if not x.rank:
            return [g.reshape(g.apply(name, [g.reshape(x, shape=(1,))], {"axis": 0})[0], shape=())]
        return [g.apply(name, [x], {"axis": use.axis()})[0]]

    return convert


def _safe_softmax(use: Use) -> Sequence[Tensor]:
    """Returns the softmax; a row in which all elements are -infinity gives zeros."""
    x, g, axis = use.cast("self", use.dtype), use.g, use.axis()
    least = g.max(x, axis=(axis,), keepdims=True)
    masked = g.equal(least, g.like(float("-inf"), least))
    return [g.where(masked, g.like(0, x), g.softmax(g.where(masked, g.like(0, x), x), axis=axis))]


def _wide(use: Use, x: Tensor) -> Tensor:
    return use.to(x, F32) if x.dtype.is_half else x


def _layer_norm(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor("input"), use.g
    count = len(use.sizes("normalized_shape"))
    axes, eps = tuple(range(x.rank - count, x.rank)), float(use.number("eps"))
    operands = [x]
    if use.has("weight"):
        operands.append(use.cast("weight", x.dtype))
    if use.has("weight") and use.has("bias"):
        operands.append(use.cast("bias", x.dtype))
    result = g.layer_norm(*operands, axes=axes, eps=eps)
    if use.has("bias") and not use.has("weight"):
        result = g.add(result, use.cast("bias", x.dtype))
    if len(use.types) == 1:
        return [result]
    return [result, *_statistics(use, x, axes, eps)]


def _statistics(use: Use, x: Tensor, axes: tuple[int, ...], eps: float) -> list[Tensor]:
    """Returns the mean and the inverse of the standard deviation, in the dtypes of PyTorch's results."""
    g, wide = use.g, _wide(use, x)
    mean = g.mean(wide, axis=axes, keepdims=True)
    variance = g.mean(g.square(g.subtract(wide, mean)), axis=axes, keepdims=True)
    inverse = g.rsqrt(g.add(variance, g.like(eps, variance)))
    return [_as_result(use, each, number) for number, each in ((1, mean), (2, inverse))]


def _as_result(use: Use, x: Tensor, number: int) -> Tensor:
    type = use.types[number]
    assert type is not None, use.operator
    x = x if x.shape == type.shape else use.g.reshape(x, shape=type.shape)
    return use.to(x, type.dtype)


def _group_norm(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor("input"), use.g
    groups = int(use.number("num_groups") if use.has("num_groups") else use.number("group"))
    eps = float(use.number("eps"))
    parts = [use.cast(name, x.dtype) for name in ("weight", "bias") if use.has(name)]
    if len(parts) == 1 and use.has("bias"):
        result = g.group_norm(x, groups=groups, eps=eps)
        shape = (x.shape[1], *(1,) * (x.rank - 2))
        result = g.add(result, g.reshape(parts[0], shape=shape))
    else:
        result = g.group_norm(x, *parts, groups=groups, eps=eps)
    if len(use.types) == 1:
        return [result]
    split = g.reshape(x, shape=(x.shape[0], groups, product(x.shape[1:]) // groups))
    return [result, *_statistics(use, split, (2,), eps)]


def _instance_norm(use: Use) -> Sequence[Tensor]:
    if not use.flag("use_input_stats"):
        return [_normalized(use, use.tensor("input"), use.tensor("running_mean"), use.tensor("running_var"))]
    if use.has("running_mean"):
        use.fail("updates running statistics", help="call `eval()` on the module before it is read")
    parts = [use.tensor(name) for name in ("weight", "bias") if use.has(name)]
    return [use.g.instance_norm(use.tensor("input"), *parts, eps=float(use.number("eps")))]


def _normalized(use: Use, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Returns the operand normalized along axis 1 by given statistics."""
    g, dtype = use.g, x.dtype
    ones = g.broadcast_to(g.like(1, x), shape=mean.shape)
    weight = use.cast("weight", dtype) if use.has("weight") else ones
    bias = use.cast("bias", dtype) if use.has("bias") else g.broadcast_to(g.like(0, x), shape=mean.shape)
    operands = [use.to(mean, dtype), use.to(variance, dtype), weight, bias]
    return g.batch_norm(x, *operands, axis=1, eps=float(use.number("eps")))


def _batch_norm_inference(use: Use) -> Sequence[Tensor]:
    x = use.tensor("input")
    made = [_normalized(use, x, use.tensor("running_mean"), use.tensor("running_var"))]
    # Saved statistics are empty outside of training.
    return made + [_empty(use, number) for number in range(1, len(use.types))]


def _empty(use: Use, number: int) -> Tensor:
    type = use.types[number]
    assert type is not None, use.operator
    return use.g.broadcast_to(use.g.scalar(0, type.dtype), shape=type.shape)


def _batch_norm(use: Use) -> Sequence[Tensor]:
    if not use.flag("training") and use.has("running_mean"):
        return _batch_norm_inference(use)
    return _batch_norm_training(use)[: len(use.types)]


def _batch_norm_training(use: Use) -> list[Tensor]:
    """Normalizes by the statistics of the batch, and returns the new running statistics."""
    x, g, eps = use.tensor("input"), use.g, float(use.number("eps"))
    axes = tuple(axis for axis in range(x.rank) if axis != 1)
    wide = _wide(use, x)
    mean = g.mean(wide, axis=axes)
    shape = (x.shape[1], *(1,) * (x.rank - 2))
    variance = g.mean(g.square(g.subtract(wide, g.reshape(mean, shape=shape))), axis=axes)
    inverse = g.rsqrt(g.add(variance, g.like(eps, variance)))
    made = [use.to(_normalized(use, wide, mean, variance), x.dtype)]
    for number, each in ((1, mean), (2, inverse)):
        type = use.types[number] if number < len(use.types) else None
        made.append(each if type is None else _as_result(use, each, number))
    if not use.has("running_mean"):
        return made
    count = product(x.shape) // x.shape[1] if isinstance(x.shape[1], int) else product((x.shape[0], *x.shape[2:]))
    numbers = g.size(count, wide.dtype)
    unbiased = g.multiply(variance, g.divide(numbers, g.subtract(numbers, g.like(1, numbers))))
    for number, (name, new) in enumerate((("running_mean", mean), ("running_var", unbiased)), 3):
        old = use.tensor(name)
        made.append(use.to(_mixed(use, old, new), _dtype(use, number, old)))
    return made


def _dtype(use: Use, number: int, old: Tensor) -> DType:
    type = use.types[number] if number < len(use.types) else None
    return old.dtype if type is None else type.dtype


def _mixed(use: Use, old: Tensor, new: Tensor) -> Tensor:
    g, momentum = use.g, float(use.number("momentum"))
    old = use.to(old, new.dtype)
    return g.add(g.multiply(old, g.like(1 - momentum, old)), g.multiply(new, g.like(momentum, new)))


def _rms_norm(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor("input"), use.g
    count = len(use.sizes("normalized_shape"))
    # By default, eps is the epsilon of the dtype in which PyTorch computes: f32 for shorter floats.
    least = np.finfo(np.float64 if x.dtype == F64 else np.float32).eps
    eps = float(use.number("eps") if use.has("eps") else least)
    weight = use.optional("weight")
    if count == 1:
        operands = [x] if weight is None else [x, use.to(weight, x.dtype)]
        return [g.rms_norm(*operands, eps=eps)]
    wide = _wide(use, x)
    mean = g.mean(g.square(wide), axis=tuple(range(x.rank - count, x.rank)), keepdims=True)
    normal = g.multiply(wide, g.rsqrt(g.add(mean, g.like(eps, mean))))
    return [use.to(normal if weight is None else g.multiply(normal, use.to(weight, wide.dtype)), x.dtype)]


CONVERTERS: Converters = {
    **dict.fromkeys(("_softmax.default", "softmax.int"), _softmax("softmax")),
    **dict.fromkeys(("_log_softmax.default", "log_softmax.int"), _softmax("log_softmax")),
    "_safe_softmax.default": _safe_softmax,
    "layer_norm.default": _layer_norm,
    "native_layer_norm.default": _layer_norm,
    "group_norm.default": _group_norm,
    "native_group_norm.default": _group_norm,
    "instance_norm.default": _instance_norm,
    "rms_norm.default": _rms_norm,
    "_native_batch_norm_legit_no_training.default": _batch_norm_inference,
    "_native_batch_norm_legit.default": _batch_norm,
    "_native_batch_norm_legit.no_stats": _batch_norm,
    "_native_batch_norm_legit_functional.default": _batch_norm,
}
