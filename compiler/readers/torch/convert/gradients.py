"""Operators of core ATen that compute gradients."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.dims import product, static_size
from .....dialect.types import F32, I64
from ...writing.tensors import Tensor, known
from ...writing.weighted_sums import weighted_sums
from ..writing.use import Converters, Use
from .pooling import shares_of_windows


def _wide(use: Use, x: Tensor) -> Tensor:
    return use.to(x, F32) if x.dtype.is_half else x


def _shaped(use: Use, x: Tensor, number: int) -> Tensor | None:
    """Returns a result in the type that PyTorch inferred; None if the caller does not request this gradient."""
    type = use.types[number]
    if type is None:
        return None
    x = x if x.shape == type.shape else use.g.reshape(x, shape=type.shape)
    return use.to(x, type.dtype)


def _layer_norm(use: Use) -> Sequence[Tensor | None]:
    g = use.g
    gradient, x = (_wide(use, use.tensor(name)) for name in ("grad_out", "input"))
    mean, inverse = (use.cast(name, x.dtype) for name in ("mean", "rstd"))
    count = len(use.sizes("normalized_shape"))
    inner, outer = tuple(range(x.rank - count, x.rank)), tuple(range(x.rank - count))
    normal = g.multiply(g.subtract(x, mean), inverse)
    scaled = g.multiply(gradient, use.cast("weight", x.dtype)) if use.has("weight") else gradient
    rest = g.subtract(scaled, g.mean(scaled, axis=inner, keepdims=True))
    rest = g.subtract(rest, g.multiply(normal, g.mean(g.multiply(scaled, normal), axis=inner, keepdims=True)))
    sums = [g.multiply(gradient, normal), gradient]
    sums = [g.sum(each, axis=outer) if outer else each for each in sums]
    return [_shaped(use, each, number) for number, each in enumerate([g.multiply(rest, inverse), *sums])]


def _group_norm(use: Use) -> Sequence[Tensor | None]:
    g = use.g
    gradient, x = (_wide(use, use.tensor(name)) for name in ("grad_out", "input"))
    groups, channels = use.number("group"), x.shape[1]
    assert isinstance(channels, int), x
    split = (x.shape[0], groups, channels // groups, product(x.shape[2:]))
    mean, inverse = (g.reshape(use.cast(n, x.dtype), shape=(x.shape[0], groups, 1, 1)) for n in ("mean", "rstd"))
    x, gradient = g.reshape(x, shape=split), g.reshape(gradient, shape=split)
    normal = g.multiply(g.subtract(x, mean), inverse)
    scaled = gradient
    if use.has("weight"):
        scaled = g.multiply(gradient, g.reshape(use.cast("weight", x.dtype), shape=(groups, channels // groups, 1)))
    rest = g.subtract(scaled, g.mean(scaled, axis=(2, 3), keepdims=True))
    rest = g.subtract(rest, g.multiply(normal, g.mean(g.multiply(scaled, normal), axis=(2, 3), keepdims=True)))
    sums = [g.sum(each, axis=(0, 3)) for each in (g.multiply(gradient, normal), gradient)]
    return [_shaped(use, each, number) for number, each in enumerate([g.multiply(rest, inverse), *sums])]


def _convolution(use: Use) -> Sequence[Tensor | None]:
    """Computes the gradients of a convolution: with respect to x a transposed convolution, with respect to the weight a
    correlation. Transposed convolutions are refused."""
    g = use.g
    gradient, x, weight = (use.tensor(name) for name in ("grad_output", "input", "weight"))
    rank = weight.rank - 2
    if use.flag("transposed") or rank not in (1, 2, 3):
        use.fail("is the gradient of a transposed convolution")
    stride, padding, dilation = (use.integers(name, rank) for name in ("stride", "padding", "dilation"))
    pairs, groups = tuple((width, width) for width in padding), use.number("groups")
    by_x: Tensor | None = None
    if use.types[0] is not None:
        extents = [d * (static_size(k) - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
        reached = [
            (n - 1) * s - 2 * p + e for n, s, p, e in zip(gradient.shape[2:], stride, padding, extents, strict=True)
        ]
        rest = tuple(n - r for n, r in zip(x.shape[2:], reached, strict=True))
        attributes = {"stride": stride, "padding": pairs, "dilation": dilation, "groups": groups}
        by_x = g.apply(f"conv_transpose{rank}d", [gradient, weight], {**attributes, "output_padding": rest})[0]
    by_weight: Tensor | None = None
    if use.types[1] is not None:
        by_weight = g.conv_weight_gradient(
            x, gradient, kernel=weight.shape[2:], stride=stride, padding=pairs, dilation=dilation, groups=groups
        )
    axes = (0, *range(2, gradient.rank))
    by_bias = g.sum(gradient, axis=axes) if use.types[2] is not None else None
    return [by_x, by_weight, by_bias]


def _average_pool(use: Use) -> Sequence[Tensor]:
    g, x, gradient = use.g, use.tensor(), use.tensor("grad_output")
    if use.has("divisor_override"):
        use.fail("has the argument `divisor_override`, which is not supported")
    alone = x.rank == 3
    gradient = g.unsqueeze(gradient, axes=(0,)) if alone else gradient
    kernel = use.integers("kernel_size", 2)
    made = g.avg_pool_gradient(
        gradient,
        sizes=x.shape[-2:],
        kernel=kernel,
        stride=use.integers("stride", 2) or kernel,
        padding=tuple((width, width) for width in use.integers("padding", 2)),
        ceil_mode=use.flag("ceil_mode"),
        count_include_pad=use.flag("count_include_pad"),
    )
    return [g.squeeze(made, axes=(0,)) if alone else made]


def _adaptive_average_pool(use: Use) -> Sequence[Tensor]:
    """Distributes the gradient of each window over its elements: a product with the transposed weights."""
    g, x, gradient = use.g, use.tensor(), use.tensor("grad_output")
    for axis in (x.rank - 2, x.rank - 1):
        size, count = x.shape[axis], gradient.shape[axis]
        if not isinstance(size, int) or not isinstance(count, int):
            use.fail("averages windows of a symbolic size", code="data-dependent")
        gradient = weighted_sums(g, gradient, axis, shares_of_windows(size, count).T)
    return [gradient]


def _max_pool(use: Use) -> Sequence[Tensor]:
    """Adds each gradient to the element that the maximum came from."""
    g, x, gradient = use.g, use.tensor(), use.tensor("grad_output")
    indices = use.to(use.tensor("indices"), I64)
    rows = product(x.shape[:-2])
    flat = [g.reshape(each, shape=(rows, product(each.shape[-2:]))) for each in (indices, gradient)]
    lines = g.broadcast_to(g.reshape(g.iota(shape=(rows,)), shape=(rows, 1)), shape=flat[0].shape)
    zeros = g.broadcast_to(g.like(0, gradient), shape=(rows, product(x.shape[-2:])))
    return [g.reshape(g.scatter_nd_add(zeros, g.stack(lines, flat[0], axis=-1), flat[1]), shape=x.shape)]


def _embedding(use: Use) -> Sequence[Tensor]:
    g, gradient, indices = use.g, use.tensor("grad_output"), use.to(use.tensor("indices"), I64)
    if use.flag("scale_grad_by_freq"):
        use.fail("scales gradients by the frequency of their rows")
    count, width = indices.type.elements, gradient.shape[-1]
    flat = g.reshape(indices, shape=(count,))
    rows = g.reshape(gradient, shape=(count, width))
    padding = use.number("padding_idx", -1)
    if padding >= 0:
        rows = g.where(g.reshape(g.equal(flat, known(padding)), shape=(count, 1)), g.like(0, rows), rows)
    zeros = g.broadcast_to(g.like(0, gradient), shape=(use.size("num_weights"), width))
    return [g.scatter_nd_add(zeros, g.reshape(flat, shape=(count, 1)), rows)]


CONVERTERS: Converters = {
    "native_layer_norm_backward.default": _layer_norm,
    "native_group_norm_backward.default": _group_norm,
    "convolution_backward.default": _convolution,
    "avg_pool2d_backward.default": _average_pool,
    "_adaptive_avg_pool2d_backward.default": _adaptive_average_pool,
    "max_pool2d_with_indices_backward.default": _max_pool,
    "embedding_dense_backward.default": _embedding,
}
