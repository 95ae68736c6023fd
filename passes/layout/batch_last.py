"""`batch-last`: computes convolutions of few channels and short rows with the images as the last axis.

    x [N, C, H, W] -> transpose [C, H, W, N] -> conv3d, windows of 1 along N -> transpose -> y [N, D, H, W]

The vectors of a convolution whose channels are first run along rows of the image. Twelve results of a row fill three
quarters of a vector of 16 lanes; 64 images fill four vectors. Few channels fill no vector either.
"""

from __future__ import annotations

from math import prod
from typing import ClassVar

from ...dialect.dims import Shape, static_size
from ...dialect.graph import Function, Module, Node
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.ops.support.layouts import FIRST
from ...dialect.ops.support.windows import conv_geometry
from ...dialect.types import F32
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter

_MOST_AXES = 4
"""The axes of the tensors of `conv2d`; a convolution of more has no operator with another axis."""


@dataclass(frozen=True)
class BatchLast(Pass):
    """Rewrites convolutions in f32 of known size, with fewer than `channels` results at each position.

    Images fill at least `gain` percent of the part of a vector's `lanes` that rows fill, and a convolution has at
    least `work` operations for each element that the transpositions move. Leaves the transposes of known values to
    `fold-parameters`. The sums are the same, in another order.
    """

    name: ClassVar[str] = "batch-last"
    channels: int = 8
    lanes: int = 16
    gain: int = 125
    work: int = 128

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Rewriter(function, context, self).run())

    def filled(self, size: int) -> float:
        """Returns the part of the lanes of whole vectors that hold results."""
        return size / (-(-size // self.lanes) * self.lanes)

    def pays(self, x: Shape, weight: Shape, result: Shape) -> bool:
        """Returns whether a convolution of these shapes is faster with the images last."""
        if not all(isinstance(size, int) and size for size in (*x, *weight, *result)):
            return False
        read, window, made = (tuple(map(static_size, shape)) for shape in (x, weight, result))
        images, channels, *_, row = made
        if images == 1 or channels >= self.channels or 100 * self.filled(images) < self.gain * self.filled(row):
            return False
        return 2 * prod(made) * prod(window[1:]) >= self.work * (prod(read) + prod(made))


class _Rewriter(Rewriter):
    def __init__(self, function: Function, context: Context, options: BatchLast) -> None:
        super().__init__(function)
        self.context, self.options = context, options

    def visit(self, node: Node) -> Replacement | None:
        if not self.applies(node) or not self.context.allow(node.op, node):
            return None
        b = NodeBuilder(self.names, node)
        x, weight, *bias = node.inputs
        rank = x.type.rank
        turned = b.unsqueeze(b.transpose(x, axes=(*range(1, rank), 0)), axes=(0,))
        widened = b.unsqueeze(weight, axes=(rank,))
        w = conv_geometry(node.op, x.type.shape[2:], weight.type.shape[2:], dict(node.attributes))
        attributes = {
            "stride": (*w.stride, 1),
            "dilation": (*w.dilation, 1),
            "padding": (*zip(w.low, w.high, strict=True), (0, 0)),
            "groups": node.attribute("groups"),
        }
        (value,) = b.apply(f"conv{rank - 1}d", [turned, widened, *bias], attributes)
        result = b.transpose(b.squeeze(value, axes=(0,)), axes=(rank - 1, *range(rank - 1)))
        return Replacement(tuple(b.nodes), (result,))

    def applies(self, node: Node) -> bool:
        """Returns whether the node is a convolution whose vectors are better filled by images."""
        if not OPERATORS[node.op].has("convolution") or node.inputs[0].type.rank > _MOST_AXES:
            return False
        values = (*node.inputs, node.output)
        if dict(node.attributes).get("layout") != FIRST or any(v.type.dtype is not F32 for v in values):
            return False
        x, weight = node.inputs[:2]
        return self.options.pays(x.type.shape, weight.type.shape, node.output.type.shape)
