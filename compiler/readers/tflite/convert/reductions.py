"""Reductions and cumulative sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.dims import product
from .....dialect.types import I32
from ...writing.tensors import Tensor, known
from ...writing.truncated import divide_truncated
from ..writing.fixed_point import encode_factor, narrowed, shifted
from ..writing.use import Convert, Converters, Use


def _axes(use: Use) -> tuple[int, ...]:
    rank = use.input().rank
    return tuple(sorted({use.axis(axis, rank) for axis in use.integers(1, "axes")}))


def _reduction(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        if use.is_quantized and not (name in ("max", "min") and use.same_quantization()):
            use.fail("reduces quantized values, which is not supported", code="unsupported-dtype")
        return [use.g.apply(name, [use.input()], {"axis": _axes(use), "keepdims": use.flag("keepdims")})[0]]

    return convert


def _mean(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    attributes = {"axis": _axes(use), "keepdims": use.flag("keepdims")}
    if not use.is_quantized:
        if x.dtype.is_float:
            return [g.apply("mean", [x], attributes)[0]]
        total = g.apply("sum", [x], attributes)[0]
        divisor = g.size(product([x.shape[axis] for axis in _axes(use)]), x.dtype)
        return [divide_truncated(g, total, divisor)]
    count = product([x.shape[axis] for axis in _axes(use)])
    if not isinstance(count, int) or count < 1:
        use.fail("averages quantized values along a size that differs between calls", code="data-dependent")
    from_, to = use.quantized(0), use.quantized_result
    multiplier, exponent = encode_factor(float(from_.scale) / float(to.scale))
    bits = min(count.bit_length() - 1, 32, 31 + exponent)
    multiplier = (multiplier << bits) // count
    total = g.apply("sum", [shifted(use, x, from_.zero)], attributes)[0]
    mean = g.fixed_point_multiply(total, known(np.int32(multiplier)), known(np.int32(exponent - bits)))
    return [narrowed(use, mean, to.zero)]


def _arg(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, g = use.input(), use.g
        axes = use.integers(1, "axes")
        if len(axes) != 1:
            use.fail(f"has {len(axes)} axes, expected 1", code="wrong-operands")
        found = g.apply(name, [x], {"axis": use.axis(axes[0], x.rank), "keepdims": False})[0]
        return [g.cast(found, dtype=use.dtype)]

    return convert


def _cumsum(use: Use) -> Sequence[Tensor]:
    x = use.input()
    axes = use.integers(1, "axes")
    if len(axes) != 1 or use.is_quantized:
        use.fail("takes quantized values, or several axes", code="wrong-operands")
    axis = use.axis(axes[0], x.rank)
    return [use.g.cumsum(x, axis=axis, exclusive=use.flag("exclusive"), reverse=use.flag("reverse"))]


def _top_k(use: Use) -> Sequence[Tensor]:
    g = use.g
    count = use.integers(1, "a number of elements")
    if len(count) != 1:
        use.fail("has several numbers of elements", code="wrong-operands")
    values, indices = g.apply("top_k", [use.input()], {"k": count[0]})
    return [values, g.cast(indices, dtype=I32)]


CONVERTERS: Converters = {
    "MEAN": _mean,
    "SUM": _reduction("sum"),
    "REDUCE_PROD": _reduction("prod"),
    "REDUCE_MAX": _reduction("max"),
    "REDUCE_MIN": _reduction("min"),
    "REDUCE_ANY": _reduction("any"),
    "REDUCE_ALL": _reduction("all"),
    "ARG_MAX": _arg("argmax"),
    "ARG_MIN": _arg("argmin"),
    "CUMSUM": _cumsum,
    "TOPK_V2": _top_k,
}
