"""Products of matrices: fully connected layers, and products over the last two axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Size, product
from .....dialect.types import I8, I32, U8
from ...writing.tensors import Elements, Tensor, known
from ..writing.fixed_point import narrowed, scaled
from ..writing.fixed_point import shifted as without_zero
from ..writing.records import Quantization
from ..writing.use import Converters, Use


def weight_factors(use: Use, x: Quantization, weight: Quantization) -> float | Sequence[float]:
    """Returns the factor from sums of products to quantized results, or one for each result channel."""
    to = use.quantized_result.scale
    if use.input(0).dtype == U8:
        return float(x.scale * weight.scale) / float(to)
    if weight.scales.size == 1:
        return float(x.scale) * float(weight.scale) / float(to)
    return [float(x.scale) * float(scale) / float(to) for scale in weight.scales]


def centred(array: Elements, weight: Quantization) -> Elements | None:
    """Returns weights minus their zero point in i8, None if they do not fit."""
    wide = array.astype(np.int64) - weight.zero
    return wide.astype(np.int8) if wide.size == 0 or -128 <= wide.min() <= wide.max() <= 127 else None


def corrected_bias(bias: Tensor | None, sums: Elements, zero: int) -> Tensor | None:
    """Returns a bias minus the products of a zero point and the sums of the weights: then the zero point need not be
    subtracted from each operand."""
    if bias is not None and bias.array is None:
        return None
    total = -zero * sums.astype(np.int64)
    if bias is not None:
        total = total + np.asarray(bias.array).reshape(-1).astype(np.int64)
    return known(total.astype(np.int32), label=bias.label if bias is not None else "")


def require_bytes(use: Use, *operands: Tensor) -> None:
    for x in operands:
        if x.dtype not in (I8, U8):
            use.fail(f"takes quantized {x.dtype}; i8 and u8 are supported", code="unsupported-dtype")


def float_weight(use: Use, weight: Tensor, index: int = 1) -> Tensor:
    """Returns a weight as floats, dequantized if it is quantized."""
    if weight.dtype.is_float or weight.array is None:
        return weight
    found = use.quantized(index)
    shape = [1] * weight.rank
    if found.scales.size > 1:
        shape[found.axis] = found.scales.size
    steps = weight.array.astype(np.float32) - found.zeros.astype(np.float32).reshape(
        shape if found.scales.size > 1 else ()
    )
    scales = found.scales.reshape(shape) if found.scales.size > 1 else found.scale
    return known((steps * scales).astype(np.float32), label=weight.label)


def transposed(use: Use, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Returns a transposed tensor; a constant is transposed while the file is read."""
    if x.array is not None:
        return known(np.ascontiguousarray(x.array.transpose(axes)), label=x.label)
    return use.g.transpose(x, axes=axes)


def _fully_connected(use: Use) -> Sequence[Tensor]:
    x, weight, bias, g = use.input(0), use.input(1), use.optional(2), use.g
    if use.integer("weights_format"):
        use.fail("has weights in a shuffled format")
    if weight.rank != 2 or not x.rank:
        use.fail(f"takes tensors of rank {x.rank} and {weight.rank}", code="unsupported-rank")
    inputs, outputs = weight.shape[1], weight.shape[0]
    if use.flag("keep_num_dims"):
        shape: tuple[Size, ...] = (*x.shape[:-1], outputs)
    else:
        rows = product(x.shape[:-1]) if x.shape[-1] == inputs else _quotient(use, product(x.shape), inputs)
        shape = (rows, outputs)
    flat = (product(shape[:-1]), inputs)
    if x.shape != flat:
        x = g.reshape(x, shape=flat)
    if not use.is_quantized:
        weight = float_weight(use, weight)
        total = g.matmul(x, transposed(use, weight, (1, 0)))
        if bias is not None:
            total = g.add(total, bias)
        made = use.activated(total)
        return [made if made.shape == shape else g.reshape(made, shape=shape)]
    require_bytes(use, x, weight)
    from_, by, to = use.quantized(0), use.quantized(1), use.quantized_result
    small = None if weight.array is None else centred(weight.array, by)
    offset = None if small is None else corrected_bias(bias, small.sum(axis=1, dtype=np.int64), from_.zero)
    if small is not None and offset is not None:
        total = g.matmul(x, known(np.ascontiguousarray(small.T), label=weight.label), into=I32)
        total = g.add(total, offset)
    else:
        total = g.matmul(without_zero(use, x, from_.zero), g.transpose(without_zero(use, weight, by.zero), axes=(1, 0)))
        if bias is not None:
            total = g.add(total, bias)
    factors = [float(from_.scale) * float(scale) / float(to.scale) for scale in by.scales]
    made = narrowed(use, scaled(use, total, factors if len(factors) > 1 else factors[0], "once"), to.zero, use.limits())
    return [made if made.shape == shape else g.reshape(made, shape=shape)]


def _quotient(use: Use, total: Size, parts: Size) -> Size:
    if isinstance(total, int) and isinstance(parts, int) and (parts == 0 or total % parts):
        use.fail(f"has {total} elements for rows of {parts}", code="shape-mismatch")
    return total // parts


def _batch_matmul(use: Use) -> Sequence[Tensor]:
    x, y, g = use.input(0), use.input(1), use.g
    if min(x.rank, y.rank) < 2:
        use.fail(f"takes tensors of rank {x.rank} and {y.rank}", code="unsupported-rank")
    x = g.matrix_transpose(x) if use.flag("adj_x") else x
    if not use.is_quantized:
        y = float_weight(use, y)
        return [g.matmul(x, g.matrix_transpose(y) if use.flag("adj_y") else y)]
    y = g.matrix_transpose(y) if use.flag("adj_y") else y
    require_bytes(use, x, y)
    a, b, to = use.quantized(0), use.quantized(1), use.quantized_result
    total = g.matmul(without_zero(use, x, a.zero), without_zero(use, y, b.zero))
    factor = float(a.scale * b.scale) / float(to.scale)
    return [narrowed(use, scaled(use, total, factor), to.zero)]


CONVERTERS: Converters = {"FULLY_CONNECTED": _fully_connected, "BATCH_MATMUL": _batch_matmul}
