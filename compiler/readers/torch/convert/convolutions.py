"""Convolutions, also transposed, of images in a batch or alone."""

from __future__ import annotations

from collections.abc import Sequence

from ...writing.tensors import Tensor
from ..writing.use import Convert, Converters, Use


def _padding(use: Use, weight: Tensor, dilation: Sequence[int], rank: int) -> tuple[object, ...]:
    given = use.arguments.get("padding")
    if given == "valid":
        return ((0, 0),) * rank
    if given == "same":
        totals = [d * (k - 1) for k, d in zip(weight.shape[2:], dilation, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((width, width) for width in use.integers("padding", rank))


def _convolution(use: Use, *, transposed: bool = False) -> Sequence[Tensor]:
    x, weight, g = use.tensor("input"), use.tensor("weight"), use.g
    rank = weight.rank - 2
    if rank not in (1, 2, 3):
        use.fail(f"has a weight of rank {weight.rank}; ranks 3 to 5 are supported", code="unsupported-rank")
    alone = x.rank == rank + 1
    x = g.unsqueeze(x, axes=(0,)) if alone else x
    operands = [x, weight, use.tensor("bias")] if use.has("bias") else [x, weight]
    dilation = use.integers("dilation", rank)
    attributes = {
        "stride": use.integers("stride", rank),
        "padding": _padding(use, weight, dilation, rank),
        "dilation": dilation,
        "groups": use.number("groups"),
    }
    if transposed or use.flag("transposed"):
        attributes["output_padding"] = use.integers("output_padding", rank)
        made = g.apply(f"conv_transpose{rank}d", operands, attributes)[0]
    else:
        made = g.apply(f"conv{rank}d", operands, attributes)[0]
    return [g.squeeze(made, axes=(0,)) if alone else made]


def _transposed() -> Convert:
    return lambda use: _convolution(use, transposed=True)


CONVERTERS: Converters = {
    "convolution.default": _convolution,
    **{f"conv{rank}d.{form}": _convolution for rank in (1, 2, 3) for form in ("default", "padding")},
    "conv_transpose1d.default": _transposed(),
    "conv_transpose2d.input": _transposed(),
    "conv_transpose3d.input": _transposed(),
}
