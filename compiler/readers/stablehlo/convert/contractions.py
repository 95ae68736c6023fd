"""Matrix products and convolutions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .....dialect.dims import product, static_size
from .....dialect.ops.support.accumulate import FACTORS
from .....dialect.types import F32, DType
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use


def _dot(use: Use) -> Sequence[Tensor]:
    """Returns a product of matrices or vectors: it sums over the last axis of the first operand and the first axis of
    the second."""
    x, y = use.operands
    return [_contracted(use, x, y, (), (), (x.rank - 1,), (0,))]


def _dot_general(use: Use) -> Sequence[Tensor]:
    lists = use.lists("dot_dimension_numbers")
    names = (
        "lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
    )  # fmt: skip
    x, y = use.operands
    x_batch, y_batch, x_inner, y_inner = (lists.get(name, ()) for name in names)
    return [_contracted(use, x, y, x_batch, y_batch, x_inner, y_inner)]


def _contracted(
    use: Use,
    x: Tensor,
    y: Tensor,
    x_batch: Sequence[int],
    y_batch: Sequence[int],
    x_inner: Sequence[int],
    y_inner: Sequence[int],
) -> Tensor:
    """Brings both operands to matrices [batch, rows, inner] and [batch, inner, columns], and multiplies them."""
    g = use.g
    x, y, into = _factors(use, x, y)
    rows = [axis for axis in range(x.rank) if axis not in (*x_batch, *x_inner)]
    columns = [axis for axis in range(y.rank) if axis not in (*y_batch, *y_inner)]
    batch = tuple(x.shape[axis] for axis in x_batch)
    inner = product(x.shape[axis] for axis in x_inner)
    free = [tuple(t.shape[axis] for axis in axes) for t, axes in ((x, rows), (y, columns))]
    left = _reordered(use, x, (*x_batch, *rows, *x_inner), (*batch, product(free[0]), inner))
    right = _reordered(use, y, (*y_batch, *y_inner, *columns), (*batch, inner, product(free[1])))
    total = g.matmul(left, right, into=into)
    shape = (*batch, *free[0], *free[1])
    total = total if total.shape == shape else g.reshape(total, shape=shape)
    return total if total.dtype == use.dtype else g.cast(total, dtype=use.dtype)


def _factors(use: Use, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, DType | None]:
    """Returns the operands of a contraction, and the dtype of its sums if it is not theirs. Sums are in the widest
    of the dtypes of the operands and of the result."""
    dtypes = (x.dtype, y.dtype, use.dtype)
    if len({*dtypes}) == 1 and not use.dtype.is_storage:
        return x, y, None
    is_direct = {x.dtype, y.dtype} <= {*FACTORS.get(use.dtype, ())}
    if is_direct and (x.dtype.is_float or y.dtype.is_float or not use.dtype.is_float):
        return x, y, use.dtype
    floats = {dtype for dtype in dtypes if dtype.is_float}
    wide = max(floats or dtypes, key=lambda dtype: (dtype.bits, dtype == use.dtype))
    if wide.is_storage or (wide.is_half and len(floats) > 1):
        wide = F32
    left, right = (each if each.dtype == wide else use.g.cast(each, dtype=wide) for each in (x, y))
    return left, right, None


def _reordered(use: Use, x: Tensor, order: tuple[int, ...], shape: tuple[object, ...]) -> Tensor:
    x = x if order == tuple(range(x.rank)) else use.g.transpose(x, axes=order)
    return x if x.shape == shape else use.g.reshape(x, shape=shape)


def _einsum(use: Use) -> Sequence[Tensor]:
    equation = str(use.record.attributes.get("einsum_config", "")).replace(" ", "")
    if len(use.operands) != 2:
        return [use.g.einsum(*use.operands, equation=equation)]
    x, y, into = _factors(use, *use.operands)
    total = use.g.einsum(x, y, equation=equation, into=into)
    return [total if total.dtype == use.dtype else use.g.cast(total, dtype=use.dtype)]


_LAYOUT = re.compile(r"\[([^\]]*)\]x\[([^\]]*)\]->\[([^\]]*)\]")


def _convolution(use: Use) -> Sequence[Tensor]:
    x, weight, into = _factors(use, *use.operands[:2])
    g, rank = use.g, x.rank - 2
    found = _LAYOUT.search(str(use.record.attributes.get("dimension_numbers", "")))
    if found is None or rank not in (1, 2, 3):
        use.fail(f"takes a tensor of rank {x.rank}; ranks 3 to 5 are supported", code="unsupported-rank")
    layouts = [[name.strip() for name in part.split(",")] for part in found.groups()]
    spatial = [str(number) for number in range(rank)]
    x = g.transpose(x, axes=tuple(layouts[0].index(name) for name in ("b", "f", *spatial)))
    weight = g.transpose(weight, axes=tuple(layouts[1].index(name) for name in ("o", "i", *spatial)))
    groups, batches = use.integer("feature_group_count", 1), use.integer("batch_group_count", 1)
    if batches != 1:
        # Each group of filters reads its own part of the batch: the parts become groups of channels.
        x, groups = _with_parts_as_channels(use, x, batches), batches
    reversal = [number for number, flag in enumerate(use.integers("window_reversal")) if flag]
    weight = g.flip(weight, axes=tuple(2 + number for number in reversal)) if reversal else weight
    ones = (1,) * rank
    padding = _pairs(use, rank)
    spread = use.integers("lhs_dilation", ones)
    if any(step != 1 for step in spread):
        x = _dilated(use, x, spread)
    # Negative widths remove elements before the convolution.
    cut = [(-min(a, 0), -min(b, 0)) for a, b in padding]
    if any(map(any, cut)):
        stops = tuple(None if not b else size - b for (_, b), size in zip(cut, x.shape[2:], strict=True))
        x = g.slice(x, starts=(0, 0, *(a for a, _ in cut)), stops=(None, None, *stops))
    attributes = {
        "stride": use.integers("window_strides", ones),
        "padding": tuple((max(a, 0), max(b, 0)) for a, b in padding),
        "dilation": use.integers("rhs_dilation", ones),
        "groups": groups,
        "into": into,
    }
    made = g.apply(f"conv{rank}d", [x, weight], attributes)[0]
    names = ["b", "f", *spatial]
    made = g.transpose(made, axes=tuple(names.index(name) for name in layouts[2]))
    return [made if made.dtype == use.dtype else g.cast(made, dtype=use.dtype)]


def _with_parts_as_channels(use: Use, x: Tensor, parts: int) -> Tensor:
    """Returns [parts * N, C, *spatial] as [N, parts * C, *spatial]."""
    g, (batch, channels, *spatial) = use.g, x.shape
    split = g.reshape(x, shape=(parts, batch // parts, channels, *spatial))
    turned = g.transpose(split, axes=(1, 0, *range(2, split.rank)))
    return g.reshape(turned, shape=(batch // parts, parts * channels, *spatial))


def _pairs(use: Use, rank: int) -> list[tuple[int, int]]:
    if len(use.operands) > 2:
        widths = use.sizes(2, "padding")
        if not all(isinstance(width, int) for width in widths):
            use.fail("has padding that depends on dims", code="data-dependent")
        return [(static_size(a), static_size(b)) for a, b in zip(widths[::2], widths[1::2], strict=True)]
    return use.pairs("padding", rank)


def _dilated(use: Use, x: Tensor, steps: Sequence[int]) -> Tensor:
    """Inserts zeros between neighbours along the spatial axes: a transposed convolution of each channel, whose weight
    is 1."""
    g, channels = use.g, x.shape[1]
    one = known([1.0], x.dtype)
    weight = g.broadcast_to(g.reshape(one, shape=(1,) * x.rank), shape=(channels, *(1,) * (x.rank - 1)))
    return g.apply(f"conv_transpose{x.rank - 2}d", [x, weight], {"stride": tuple(steps), "groups": channels})[0]


CONVERTERS: Converters = {
    "dot": _dot,
    "dot_general": _dot_general,
    "einsum": _einsum,
    "unary_einsum": _einsum,
    "convolution": _convolution,
    "dynamic_conv": _convolution,
}
