"""Convolutions, also depthwise, separable and transposed ones. Kernels are [*kernel, in, out]."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.dims import Size
from ...writing.tensors import Elements, Tensor
from ...writing.windows import Pairs, same_padding
from ..writing.use import Convert, Converters, Use
from .activations import activated


def spatial(use: Use, x: Tensor, rank: int) -> tuple[Size, ...]:
    """Returns the sizes of the spatial axes."""
    if x.rank != rank + 2:
        use.fail(f"gets {x.type}, expected rank {rank + 2}", code="unsupported-rank")
    return x.shape[1:-1] if use.channels_last else x.shape[2:]


def padding(
    use: Use, sizes: Sequence[Size], kernel: Sequence[int], strides: Sequence[int], steps: Sequence[int]
) -> Pairs:
    if any(value < 1 for value in (*kernel, *strides, *steps)):
        use.fail(
            f"has windows {tuple(kernel)}, strides {tuple(strides)} and dilations {tuple(steps)}", code="bad-keras"
        )
    mode = use.word("padding", "valid")
    if mode == "valid":
        return ((0, 0),) * len(sizes)
    if mode == "same":
        return same_padding(sizes, kernel, strides, steps)
    if mode == "causal" and len(sizes) == 1:
        return (((kernel[0] - 1) * steps[0], 0),)
    use.fail(f"has `padding` = {mode!r}", code="bad-keras")


def convolved(use: Use, x: Tensor, kernel: Elements, groups: int, word: str, *, whole: bool = True) -> Tensor:
    """Returns a convolution. If it is the `whole` layer, it has the strides, dilations and padding of the layer; a
    pointwise part has none."""
    rank = kernel.ndim - 2
    size = kernel.shape[:rank]
    strides = use.integers("strides", rank, 1) if whole else (1,) * rank
    steps = use.integers("dilation_rate", rank, 1) if whole else (1,) * rank
    pads = padding(use, spatial(use, x, rank), size, strides, steps) if whole else ((0, 0),) * rank
    layout = "channels_last" if use.channels_last else "channels_first"
    if not use.channels_last:
        kernel = kernel.transpose(rank + 1, rank, *range(rank))
    attributes = {"stride": strides, "padding": pads, "dilation": steps, "groups": groups, "layout": layout}
    return use.g.apply(f"conv{rank}d", [x, use.tensor(kernel, word)], attributes)[0]


def _biased(use: Use, x: Tensor, index: int) -> Tensor:
    if not use.flag("use_bias", True):
        return x
    bias = use.array(index, 1)
    if not use.channels_last:
        bias = bias.reshape(-1, *(1,) * (x.rank - 2))
    return use.g.add(x, use.tensor(bias, "bias"))


def _conv(rank: int) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        made = convolved(use, use.x, use.array(0, rank + 2), use.integer("groups", 1), "kernel")
        return [activated(use, _biased(use, made, 1))]

    return convert


def _depthwise_kernel(use: Use, rank: int) -> tuple[Elements, int]:
    """Returns the kernel [*kernel, 1, channels * multiplier] and the number of channels."""
    kernel = use.array(0, rank + 2)
    channels = int(kernel.shape[rank])
    return kernel.reshape(*kernel.shape[:rank], 1, channels * kernel.shape[rank + 1]), channels


def _depthwise(rank: int) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        kernel, channels = _depthwise_kernel(use, rank)
        return [activated(use, _biased(use, convolved(use, use.x, kernel, channels, "kernel"), 1))]

    return convert


def _separable(rank: int) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        kernel, channels = _depthwise_kernel(use, rank)
        made = convolved(use, use.x, kernel, channels, "depthwise_kernel")
        made = convolved(use, made, use.array(1, rank + 2), 1, "pointwise_kernel", whole=False)
        return [activated(use, _biased(use, made, 2))]

    return convert


def _transposed(rank: int) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, g = use.x, use.g
        kernel = use.array(0, rank + 2)
        strides, steps = use.integers("strides", rank, 1), use.integers("dilation_rate", rank, 1)
        if use.value("output_padding", None) is not None or any(step != 1 for step in steps):
            use.fail("has an output padding or dilations")
        mode = use.word("padding", "valid")
        if mode not in ("valid", "same") or min(strides) < 1:
            use.fail(f"has `padding` = {mode!r} and strides {strides}", code="bad-keras")
        spatial(use, x, rank)
        # A result of `n * stride` elements, or of `n * stride + max(size - stride, 0)`.
        over = [size - stride for size, stride in zip(kernel.shape, strides, strict=False)]
        crops = [max(more, 0) if mode == "same" else 0 for more in over]
        extra = tuple(max(-more, 0) for more in over)
        pairs = tuple((crop // 2, crop - crop // 2) for crop in crops)
        if use.channels_last:
            x = g.transpose(x, axes=(0, rank + 1, *range(1, rank + 1)))
        weight = use.tensor(kernel.transpose(rank + 1, rank, *range(rank)), "kernel")
        attributes = {"stride": strides, "padding": pairs, "output_padding": extra}
        made = g.apply(f"conv_transpose{rank}d", [x, weight], attributes)[0]
        if use.channels_last:
            made = g.transpose(made, axes=(0, *range(2, rank + 2), 1))
        return [activated(use, _biased(use, made, 1))]

    return convert


CONVERTERS: Converters = {
    **{f"Conv{rank}D": _conv(rank) for rank in (1, 2, 3)},
    **{f"DepthwiseConv{rank}D": _depthwise(rank) for rank in (1, 2)},
    **{f"SeparableConv{rank}D": _separable(rank) for rank in (1, 2)},
    **{f"Conv{rank}DTranspose": _transposed(rank) for rank in (1, 2, 3)},
}
"""By the class of a layer."""
