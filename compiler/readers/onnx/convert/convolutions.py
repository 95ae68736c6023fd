"""Convolutions, also transposed, with the paddings of the standard."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.dims import Size, ceil_divide, maximum
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use

Pairs = tuple[tuple[Size, Size], ...]


def window_padding(
    use: Use, sizes: Sequence[Size], kernel: Sequence[Size], strides: Sequence[int], dilations: Sequence[int]
) -> Pairs:
    """Returns the padding before and after each spatial axis."""
    mode = use.string("auto_pad", "NOTSET")
    rank = len(sizes)
    if mode == "VALID":
        return ((0, 0),) * rank
    if mode in ("NOTSET", ""):
        pads = use.ints_of("pads", (0,) * (2 * rank))
        if len(pads) != 2 * rank:
            use.fail(f"has {len(pads)} numbers as `pads` for {rank} spatial axes", code="bad-attribute")
        return tuple(zip(pads[:rank], pads[rank:], strict=True))
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        use.fail(f"has the attribute `auto_pad` = {mode!r}", code="bad-attribute")
    pairs: list[tuple[Size, Size]] = []
    for size, window, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        extent = dilation * (window - 1) + 1
        total = maximum((ceil_divide(size, stride) - 1) * stride + extent - size, 0)
        small = total // 2
        pairs.append((small, total - small) if mode == "SAME_UPPER" else (total - small, small))
    return tuple(pairs)


def window_attributes(use: Use, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns strides and dilations, which are positive."""
    strides, dilations = per_axis(use, "strides", rank, 1), per_axis(use, "dilations", rank, 1)
    for name, found in (("strides", strides), ("dilations", dilations)):
        if min(found, default=1) < 1:
            use.fail(f"has `{name}` = {list(found)}, expected positive numbers", code="bad-attribute")
    return strides, dilations


def per_axis(use: Use, name: str, rank: int, default: int) -> tuple[int, ...]:
    """Returns an attribute that has a number for each spatial axis."""
    found = tuple(use.ints_of(name, (default,) * rank))
    if len(found) != rank:
        use.fail(f"has {len(found)} numbers as `{name}` for {rank} spatial axes", code="bad-attribute")
    return found


def _spatial_rank(use: Use, x: Tensor, weight: Tensor) -> int:
    rank = x.rank - 2
    if rank not in (1, 2, 3) or weight.rank != x.rank:
        use.fail(
            f"takes tensors of rank {x.rank} and {weight.rank}; ranks 3 to 5 are supported", code="unsupported-rank"
        )
    kernel = use.ints_of("kernel_shape")
    known = [size if isinstance(size, int) else None for size in weight.shape[2:]]
    if kernel is not None and (
        len(kernel) != rank or any(size not in (None, k) for size, k in zip(known, kernel, strict=True))
    ):
        sizes = ", ".join(map(str, weight.shape[2:]))
        use.fail(f"has `kernel_shape` = {list(kernel)}, but weights of [{sizes}]", code="bad-attribute")
    return rank


def _conv(use: Use) -> Sequence[Tensor]:
    return [convolved(use, use.input(0), use.input(1), use.optional(2))]


def convolved(use: Use, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rank = _spatial_rank(use, x, weight)
    strides, dilations = window_attributes(use, rank)
    padding = window_padding(use, x.shape[2:], weight.shape[2:], strides, dilations)
    attributes = {"stride": strides, "padding": padding, "dilation": dilations, "groups": use.integer("group", 1)}
    operands = [x, weight] if bias is None else [x, weight, bias]
    return use.g.apply(f"conv{rank}d", operands, attributes)[0]


def _conv_transpose(use: Use) -> Sequence[Tensor]:
    x, weight, bias = use.input(0), use.input(1), use.optional(2)
    rank = _spatial_rank(use, x, weight)
    strides, dilations = window_attributes(use, rank)
    extra = per_axis(use, "output_padding", rank, 0)
    given = use.ints_of("output_shape")
    if min(extra, default=0) < 0:
        use.fail(f"has `output_padding` = {list(extra)}", code="bad-attribute")
    if given is not None and len(given) not in (rank, rank + 2):
        use.fail(f"has {len(given)} numbers as `output_shape` for {rank} spatial axes", code="bad-attribute")
    extents = [d * (k - 1) + 1 for k, d in zip(weight.shape[2:], dilations, strict=True)]
    full = [(size - 1) * s + e for size, s, e in zip(x.shape[2:], strides, extents, strict=True)]
    mode = use.string("auto_pad", "NOTSET")
    if given is not None or mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted: Sequence[Size] = (
            given[-rank:] if given is not None else [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
        )
        totals = [f + o - w for f, o, w in zip(full, extra, wanted, strict=True)]
        pairs = [_halves(t, mode) for t in totals]
        if any(isinstance(v, int) and v < 0 for pair in pairs for v in pair):
            # A result larger than the full one is padded with zeros at its end.
            missing = [max(-t, 0) if isinstance(t, int) else 0 for t in totals]
            extra = tuple(o + m for o, m in zip(extra, missing, strict=True))
            pairs = [_halves(t + m, mode) for t, m in zip(totals, missing, strict=True)]
    else:
        pairs = list(window_padding(use, x.shape[2:], weight.shape[2:], strides, dilations))
    attributes = {
        "stride": strides,
        "padding": tuple(pairs),
        "dilation": dilations,
        "output_padding": extra,
        "groups": use.integer("group", 1),
    }
    operands = [x, weight] if bias is None else [x, weight, bias]
    return use.g.apply(f"conv_transpose{rank}d", operands, attributes)


def _halves(total: Size, mode: str) -> tuple[Size, Size]:
    small = total // 2
    return (small, total - small) if mode == "SAME_UPPER" else (total - small, small)


CONVERTERS: Converters = {"Conv": _conv, "ConvTranspose": _conv_transpose}
