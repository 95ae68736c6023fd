"""Normalization and softmax."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.dims import product
from .....dialect.types import F32
from ...writing.tensors import Tensor
from ..writing.use import Convert, Converters, Use


def _softmax_of_matrix(name: str) -> Convert:
    """Returns the converter of versions before 13, which reduces over all axes from `axis` on together."""

    def convert(use: Use) -> Sequence[Tensor]:
        x, g = use.input(), use.g
        axis = use.axis(x.rank, 1)
        if axis == x.rank - 1:
            return g.apply(name, [x], {"axis": -1})
        flat = g.reshape(x, shape=(product(x.shape[:axis]), product(x.shape[axis:])))
        return [g.reshape(g.apply(name, [flat], {"axis": -1})[0], shape=x.shape)]

    return convert


def _softmax(name: str) -> Convert:
    return lambda use: use.g.apply(name, [use.input()], {"axis": use.integer("axis", -1)})


def _batch_norm(use: Use) -> Sequence[Tensor]:
    x, weight, bias, mean, variance = (use.input(i) for i in range(5))
    g, eps = use.g, use.number("epsilon", 1e-5)
    if not use.integer("training_mode", 0):
        if use.version < 9 and not use.integer("spatial", 1):
            use.fail("normalizes single activations (`spatial` = 0)")
        if x.rank < 2:
            x = g.unsqueeze(x, axes=(1,))
            return [g.squeeze(_applied(use, x, mean, variance, weight, bias, eps), axes=(1,))]
        return [_applied(use, x, mean, variance, weight, bias, eps)]
    axes = tuple(axis for axis in range(x.rank) if axis != 1)
    wide = g.cast(x, dtype=F32) if x.dtype.is_half else x
    now_mean = g.mean(wide, axis=axes)
    now_variance = g.variance(wide, axis=axes)
    momentum = use.number("momentum", 0.9)
    result = _applied(
        use, x, g.cast(now_mean, dtype=mean.dtype), g.cast(now_variance, dtype=mean.dtype), weight, bias, eps
    )

    def mixed(old: Tensor, new: Tensor) -> Tensor:
        new = g.cast(new, dtype=old.dtype)
        return g.add(g.multiply(old, g.like(momentum, old)), g.multiply(new, g.like(1 - momentum, new)))

    return [result, mixed(mean, now_mean), mixed(variance, now_variance)]


def _applied(use: Use, x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    g = use.g
    operands = [g.cast(each, dtype=x.dtype) for each in (mean, variance, weight, bias)]
    return g.batch_norm(x, *operands, axis=1, eps=eps)


def _instance_norm(use: Use) -> Sequence[Tensor]:
    return [use.g.instance_norm(*use.inputs, eps=use.number("epsilon", 1e-5))]


def _layer_norm(use: Use) -> Sequence[Tensor]:
    x, weight, bias, g = use.input(0), use.input(1), use.optional(2), use.g
    axis, eps = use.axis(x.rank, -1), use.number("epsilon", 1e-5)
    axes = tuple(range(axis, x.rank))
    if weight.shape == x.shape[axis:] and len(use.node.outputs) == 1 and (bias is None or bias.shape == weight.shape):
        operands = [x, weight] if bias is None else [x, weight, bias]
        return [g.layer_norm(*operands, axes=axes, eps=eps)]
    wide = g.cast(x, dtype=F32) if x.dtype.is_half else x
    mean = g.mean(wide, axis=axes, keepdims=True)
    variance = g.variance(wide, axis=axes, keepdims=True)
    inverse = g.rsqrt(g.add(variance, g.like(eps, variance)))
    normal = g.cast(g.multiply(g.subtract(wide, mean), inverse), dtype=x.dtype)
    result = g.multiply(normal, weight)
    return [result if bias is None else g.add(result, bias), mean, inverse]


def _rms_norm(use: Use) -> Sequence[Tensor]:
    x, weight, g = use.input(0), use.input(1), use.g
    axis, eps = use.axis(x.rank, -1), use.number("epsilon", 1e-5)
    if axis == x.rank - 1 and weight.shape == x.shape[axis:]:
        return [g.rms_norm(x, weight, eps=eps)]
    wide = g.cast(x, dtype=F32) if x.dtype.is_half else x
    mean = g.mean(g.square(wide), axis=tuple(range(axis, x.rank)), keepdims=True)
    normal = g.cast(g.multiply(wide, g.rsqrt(g.add(mean, g.like(eps, mean)))), dtype=x.dtype)
    return [g.multiply(normal, weight)]


def _group_norm(use: Use) -> Sequence[Tensor]:
    x, weight, bias, g = use.input(0), use.input(1), use.input(2), use.g
    groups = use.integer("num_groups")
    if groups < 1 or x.rank < 2:
        use.fail(f"has {groups} groups for {x.type}", code="bad-attribute")
    channels = x.shape[1]
    if use.version < 21:
        # One factor for each group.
        if not isinstance(channels, int) or channels % groups:
            use.fail(f"has {groups} groups for {channels} channels", code="shape-mismatch")
        weight, bias = (g.repeat_interleave(each, repeats=channels // groups) for each in (weight, bias))
    return [g.group_norm(x, weight, bias, groups=groups, eps=use.number("epsilon", 1e-5))]


def _lp_norm(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    size = g.norm(x, axis=use.axis(x.rank, -1), keepdims=True, order=use.integer("p", 2))
    # A row of zeros stays a row of zeros.
    return [g.divide(x, g.where(g.equal(size, g.like(0, size)), g.like(1, size), size))]


_MOST_TERMS = 1024
"""The maximum size of the window of channels in `LRN`; networks use 5."""


def _local_response(use: Use) -> Sequence[Tensor]:
    x, g, size = use.input(), use.g, use.integer("size")
    alpha, beta, bias = use.number("alpha", 1e-4), use.number("beta", 0.75), use.number("bias", 1.0)
    if size < 1 or x.rank < 2:
        use.fail(f"has windows of {size} channels, for {x.type}", code="bad-attribute")
    channels = x.shape[1]
    low, high = (size - 1) // 2, size // 2
    if isinstance(channels, int):
        # The part of a window outside of the channels contains only zeros.
        low, high = min(low, max(channels - 1, 0)), min(high, max(channels - 1, 0))
    if low + high >= _MOST_TERMS:
        use.fail(f"adds {low + high + 1} channels; up to {_MOST_TERMS} are supported")
    rest = tuple((0, 0) for _ in range(x.rank - 2))
    squares = g.pad(g.square(x), widths=((0, 0), (low, high), *rest))
    total: Tensor | None = None
    for start in range(low + high + 1):
        part = g.slice(squares, starts=(None, start), stops=(None, start + x.shape[1]))
        total = part if total is None else g.add(total, part)
    assert total is not None
    scale = g.add(g.multiply(total, g.like(alpha / size, x)), g.like(bias, x))
    return [g.divide(x, g.power(scale, g.like(beta, x)))]


CONVERTERS: Converters = {
    "Softmax": {1: _softmax_of_matrix("softmax"), 13: _softmax("softmax")},
    "LogSoftmax": {1: _softmax_of_matrix("log_softmax"), 13: _softmax("log_softmax")},
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "GroupNormalization": _group_norm,
    "LpNormalization": _lp_norm,
    "LRN": _local_response,
}
