"""`winograd`: rewrites 3x3 convolutions as products of transformed blocks, with a quarter of the multiplications.

A block of 4x4 results y depends on a block of 6x6 inputs x, for each pair of channels, with the 3x3 kernel w:

    y = A^T ((G w G^T) * (B^T x B)) A          `*` multiplies elements: 36 products instead of 16 * 9 = 144

    winograd_input     B^T x B for all blocks        [36, blocks, input channels]
    winograd_weight    G w G^T                       [36, input channels, output channels]
    matmul             36 products of matrices       [36, blocks, output channels]
    winograd_output    A^T ( ) A                     [images, height, width, output channels]
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ...dialect.dims import Size, bounds, ceil_divide, multiply, product, static_size
from ...dialect.graph import Constant, Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Builder
from ...dialect.ops.support.layouts import LAST
from ...dialect.ops.winograd import BLOCK, INPUT, OUTPUT, REACH, Matrix, matrix_array
from ...dialect.types import F32
from ..analysis.known_values import KnownValues, definitions_in
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter


@dataclass(frozen=True)
class Winograd(Pass):
    """Rewrites 3x3 convolutions in channels-last layout with f32 sums, stride 1 and no padding with Winograd's
    F(4x4, 3x3).

    The rewrite applies where it saves time: at least `channels` channels are read and computed, and at least `blocks`
    blocks of 4x4 results share the 36 matrices, which are four times as large as the weight. If the weight is known, a
    symbolic batch counts with its least size, symbolic heights and widths with the geometric mean of the fewest and the
    most blocks: sizes in 1..1024 are rewritten, sizes in 1..32 are not. In a training step, the mean of the fewest and
    the most blocks counts. Assumes that `channels-last` has turned the padding into nodes; zeros that fill the last
    blocks are added to these. Leaves the transform of the weight to `fold-parameters`.

    The transform of a weight in a short dtype is computed in each call, so that the artifact holds the short weight; so
    is that of a weight that changes from call to call. It takes about as long as the products of 16 blocks, so at least
    `shared-blocks` blocks must share it.

    With `most-bytes`, transforms of f32 weights are stored while they add no more than that to the weights. Weights
    shared by the most blocks come first, because they save most for their bytes. Other transforms are computed in each
    call in the same way.

    Results differ from those of a direct sum by up to 1e-5 of the largest. Models that need the rounding of a direct
    sum must omit this pass.
    """

    name: ClassVar[str] = "winograd"
    channels: int = 32
    blocks: int = 16
    shared_blocks: int = 48
    most_bytes: int | None = None

    def rewrite(self, module: Module, context: Context) -> Module:
        stored = None if self.most_bytes is None else self.choose(module, context, self.most_bytes)
        return module.map_functions(lambda f: _Rewriter(f, module, context, self, stored).run())

    def choose(self, module: Module, context: Context, most: int) -> frozenset[str]:
        """Selects the weights, by `_weight_key`, whose transforms are stored."""
        found: dict[str, tuple[int, int]] = {}
        for function in module.functions:
            rewriter = _Rewriter(function, module, context, self, None)
            rewriter.definitions |= definitions_in(function.body)
            for node in function.body:
                if node.op == "conv2d" and rewriter.is_stored(node) and rewriter.pays(node):
                    key, (blocks, _) = _weight_key(function, node), found.get(_weight_key(function, node), (0, 0))
                    found[key] = max(blocks, shared_blocks(node)), _added_bytes(node)
        chosen, left = [], most
        for key, (_, more) in sorted(found.items(), key=lambda item: -item[1][0]):
            if more <= left:
                chosen.append(key)
                left -= more
        return frozenset(chosen)


def shared_blocks(node: Node, *, changes: bool = False) -> int:
    """Returns the number of result blocks that share a transform in a call. An image of symbolic size counts with the
    geometric mean of its fewest and its most blocks, since images of one block are rare. A symbolic batch, which is
    often 1, counts with its least size. If the weight `changes` from call to call, as in a training step, the mean of
    the fewest and the most blocks counts."""
    batch, height, width, _ = node.output.type.shape
    image = product((ceil_divide(height, BLOCK), ceil_divide(width, BLOCK)))
    if changes:
        return sum(bounds(multiply(batch, image))) // 2
    fewest, most = bounds(image)
    return int(bounds(batch)[0]) * math.isqrt(max(fewest, 1) * most)


def _weight_key(function: Function, node: Node) -> str:
    return f"{function.name} {node.inputs[1].name}"


def _added_bytes(node: Node) -> int:
    """Returns the additional bytes of a stored transform compared with the weight, including padding of the last
    panel."""
    rows, columns, inputs, results = (static_size(size) for size in node.inputs[1].type.shape)
    return 4 * inputs * (REACH * REACH * -(-results // 16) * 16 - rows * columns * results)


class _Rewriter(Rewriter):
    def __init__(
        self, function: Function, module: Module, context: Context, options: Winograd, stored: frozenset[str] | None
    ) -> None:
        super().__init__(function)
        self.context, self.options, self.stored = context, options, stored
        self.known = KnownValues(self.definitions, module.parameter_index)

    def visit(self, node: Node) -> Replacement | None:
        if node.op != "conv2d" or not self.pays(node) or not self.context.allow("f4x4", node):
            return None
        b = NodeBuilder(self.names, node)
        value = self.rewritten(b, node)
        return Replacement(tuple(b.nodes), (value,))

    def pays(self, node: Node) -> bool:
        attributes = dict(node.attributes)
        x, weight = node.inputs[:2]
        plain = (
            attributes["layout"] == LAST
            and attributes["groups"] == 1
            and _all(attributes["padding"], 0)
            and _all(attributes["stride"], 1)
            and _all(attributes["dilation"], 1)
        )
        if not plain or len(node.inputs) > 2 or node.output.type.dtype != F32:
            return False
        results = node.output.type.shape[-1]
        least = min(bounds(size)[0] for size in (results, x.type.shape[-1]))
        blocks = self.options.blocks if self.is_stored(node) else self.options.shared_blocks
        shared = shared_blocks(node, changes=not self.known.is_known(weight))
        return weight.type.shape[:2] == (3, 3) and least >= self.options.channels and shared >= blocks

    def is_stored(self, node: Node) -> bool:
        """Returns whether the artifact holds the transform of the weight."""
        weight = node.inputs[1]
        chosen = self.stored is None or _weight_key(self.function, node) in self.stored
        return weight.type.dtype is F32 and chosen and self.known.find(weight) is not None

    def rewritten(self, b: Builder, node: Node) -> Value:
        x, weight = (b.cast(v, dtype=F32) if v.type.dtype is not F32 else v for v in node.inputs)
        batch, height, width, results = node.output.type.shape
        rows, columns = ceil_divide(height, BLOCK), ceil_divide(width, BLOCK)
        blocks = product((batch, rows, columns))
        filled = self.filled(b, x, rows * BLOCK - height, columns * BLOCK - width)
        before, after = (_constant(b, matrix) for matrix in (INPUT, OUTPUT))
        parts = b.reshape(b.winograd_input(filled, before), shape=(REACH * REACH, blocks, x.type.shape[-1]))
        products = b.matmul(parts, b.winograd_weight(weight, each_call=not self.is_stored(node)))
        y = b.winograd_output(b.reshape(products, shape=(REACH * REACH, batch, rows, columns, results)), after)
        if y.type == node.output.type:
            return y
        return b.slice(y, starts=(0,) * 4, stops=node.output.type.shape)

    def filled(self, b: Builder, x: Value, below: Size, right: Size) -> Value:
        """Returns the tensor with zeros below and on the right. They extend the existing padding, if the tensor has
        one."""
        if below == 0 and right == 0:
            return x
        widths: list[tuple[Size, Size]] = [(0, 0), (0, below), (0, right), (0, 0)]
        inner = self.definitions.get(x.name)
        if inner is not None and inner.op == "pad":
            given: dict[str, Any] = dict(inner.attributes)
            before = given["widths"]
            if given["mode"] == "constant" and given["value"] == 0 and isinstance(before, tuple) and len(before) == 4:
                # pad(pad(x, a), b) == pad(x, a + b)
                x = inner.inputs[0]
                widths = [(low + a, high + b) for (low, high), (a, b) in zip(widths, before, strict=True)]
        return b.pad(x, widths=tuple(widths))


def _constant(b: Builder, matrix: Matrix) -> Value:
    return b.apply("constant", (), {"value": Constant(matrix_array(matrix, F32))})[0]


def _all(value: object, number: int) -> bool:
    return all(_all(v, number) for v in value) if isinstance(value, tuple) else value == number
