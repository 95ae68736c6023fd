"""`split-sums`: splits the long sums of a product with few results among several blocks of threads.

    y[m, n] = sum x[m, k] * w[k, n]    becomes    p[s, m, n] = sum x[m, s, k] * w[s, k, n]    over a part of k each
                                                  y[m, n] = sum p[s, m, n]

With x of 8 rows and w of 4096 x 4096 in f16, 64 blocks of 64 columns become 256 blocks. `split_model` estimates the
time of each number of parts.

A convolution of few positions becomes one with a group for each part of its input channels:

    y[p, o] = sum x[p + k, c] * w[k, c, o]    becomes    p[p, s, o] = sum x[p + k, (s, c)] * w[k, c, (s, o)]
                                                         y[p, o] = sum p[p, s, o]

With 7 x 7 positions, 512 channels and windows of 3 x 3 in bf16, 8 blocks of 64 x 64 results become 128 blocks.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from ...dialect.dims import Size, bounds, product
from ...dialect.graph import Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.ops.support.layouts import LAST
from ...dialect.types import F32, I32
from ..analysis.known_values import KnownValues
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter
from .split_model import LEAST_GAIN, TILE, Product


@dataclass(frozen=True)
class SplitSums(Pass):
    """Rewrites a product with a matrix as partial sums and their sum, where a model of an H100 says that it is faster.

    The matrix must be a parameter or an argument as it is stored, and its sizes static. The number of parts is a power
    of two, at most `parts`, and each part has at least `depth` terms: the number with the least time, which is that of
    the memory traffic or of the products with as many blocks, and of the launch that adds the parts. A symbolic number
    of rows counts with its greatest value. The context receives a remark with the times. Partial sums are f32 or i32,
    in the workspace, and are added in a fixed order, so that a call always returns the same bits. The pass only
    reassociates sums.

    A convolution must have known weights, one group and its channels as the last axis, `channels` of them in each part.
    It has at least eight parts, which save more than the launches that pad the image and add the parts take, and as
    few as give `blocks` blocks.
    """

    name: ClassVar[str] = "split-sums"
    blocks: int = 128
    depth: int = 256
    parts: int = 16
    channels: int = 16

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Rewriter(function, module, context, self).run())

    def parts_of(self, product: Product) -> int:
        """Returns the number of parts of a sum."""
        depth = product.depth
        allowed = [1]
        while allowed[-1] < self.parts and depth % (2 * allowed[-1]) == 0 and depth // (2 * allowed[-1]) >= self.depth:
            allowed.append(2 * allowed[-1])
        best = min(allowed, key=product.seconds)
        return best if product.seconds(best) * LEAST_GAIN < product.seconds(1) else 1

    def parts_of_convolution(self, positions: int, columns: int, channels: int, window: int) -> int:
        """Returns the number of parts of a sum over a window and its channels, for tiles of 64 x 64."""
        blocks = -(-positions // TILE) * -(-columns // TILE)
        parts = self.divide(blocks, self.blocks, channels * window, channels // self.channels)
        return parts if parts >= _FEWEST_PARTS and channels % self.channels == 0 else 1

    def divide(self, blocks: int, wanted: int, depth: int, units: int) -> int:
        """Returns the number of parts of a sum of `depth` terms with which there are as many blocks as `wanted`. It
        divides the `units` of the sum."""
        parts = 1
        while blocks * parts < wanted and parts < self.parts:
            if units % (2 * parts) or depth // (2 * parts) < self.depth:
                break
            parts *= 2
        return parts


_FEWEST_PARTS = 8
"""The parts of a convolution."""


class _Rewriter(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context, options: SplitSums) -> None:
        super().__init__(function)
        self.context, self.options = context, options
        self.known = KnownValues(self.definitions, module.parameter_index)

    def visit(self, node: Node) -> Replacement | None:
        if OPERATORS[node.op].has("convolution"):
            return self.split_convolution(node)
        parts = self.parts_of(node)
        if parts < 2 or not self.context.allow("split", node):
            return None
        b = NodeBuilder(self.names, node)
        (x, w), out = node.inputs, node.output.type
        (*rows, depth), columns = x.type.shape, w.type.shape[1]
        assert isinstance(depth, int), node
        flat = b.reshape(x, shape=(product(rows), parts, depth // parts))
        matrices = b.reshape(w, shape=(parts, depth // parts, columns))
        sums = I32 if out.dtype is I32 else F32
        into: dict[str, Any] = {} if x.type.dtype is w.type.dtype is sums else {"into": sums}
        (parts_of_sums,) = b.apply("einsum", [flat, matrices], {"equation": "msk,skn->smn", **into})
        partial = parts_of_sums
        # A view of the partial sums costs nothing; one of the total would keep the nodes after it out of its launch.
        if (shape := (parts, *out.shape)) != partial.type.shape:
            partial = b.reshape(partial, shape=shape)
        total = b.sum(partial, axis=(0,))
        work = self.product_of(node)
        assert work is not None, node
        times = f"{1e6 * work.seconds(parts):.1f} µs instead of {1e6 * work.seconds(1):.1f} µs"
        text = f"adds {parts} parts of each sum: {times} by a model of an H100"
        self.context.remark(self.function.name, parts_of_sums.name, total.name, text)
        if out.dtype is not sums:
            total = b.cast(total, dtype=out.dtype)
        return Replacement(tuple(b.nodes), (total,))

    def split_convolution(self, node: Node) -> Replacement | None:
        (x, w, *bias), out, given = node.inputs, node.output.type, dict(node.attributes)
        sizes = [size for size in w.type.shape if isinstance(size, int)]
        if given["layout"] != LAST or given["groups"] != 1 or len(sizes) < w.type.rank or self.known.find(w) is None:
            return None
        if any(type.dtype.bits > 32 for type in (x.type, w.type, out)) or not (out.dtype.is_float or out.dtype is I32):
            return None
        *window, channels, columns = sizes
        most = bounds(product(out.shape[:-1]))[1]
        parts = self.options.parts_of_convolution(max(most, 1), columns, channels, prod(window))
        if parts < 2 or not self.context.allow("split", node):
            return None
        b = NodeBuilder(self.names, node)
        count = len(window)
        grouped = b.reshape(w, shape=(*window, parts, channels // parts, columns))
        grouped = b.transpose(grouped, axes=(*range(count), count + 1, count, count + 2))
        grouped = b.reshape(grouped, shape=(*window, channels // parts, parts * columns))
        sums = I32 if out.dtype is I32 else F32
        given["groups"] = parts
        if x.type.dtype is not sums:
            given["into"] = sums
        (partial,) = b.apply(node.op, [x, grouped], given)
        total = b.sum(b.reshape(partial, shape=(*out.shape[:-1], parts, columns)), axis=(out.rank - 1,))
        for value in bias:
            total = b.add(total, value if value.type.dtype is sums else b.cast(value, dtype=sums))
        if out.dtype is not sums:
            total = b.cast(total, dtype=out.dtype)
        return Replacement(tuple(b.nodes), (total,))

    def parts_of(self, node: Node) -> int:
        work = self.product_of(node)
        return 1 if work is None else self.options.parts_of(work)

    def product_of(self, node: Node) -> Product | None:
        """Returns the sizes of a product that may be split."""
        if node.op != "matmul" or len(node.inputs) != 2 or not self.is_stored(node.inputs[1]):
            return None
        x, w = (value.type for value in node.inputs)
        dtypes = (x.dtype, w.dtype)
        if x.rank < 2 or w.rank != 2 or any(dtype.bits > 32 for dtype in (*dtypes, node.output.type.dtype)):
            return None
        if not (node.output.type.dtype.is_float or node.output.type.dtype is I32):
            return None
        rows: Size = product(x.shape[:-1])
        depth, columns = w.shape
        if not isinstance(depth, int) or not isinstance(columns, int):
            return None
        return Product(max(bounds(rows)[1], 1), columns, depth, w.dtype.bits // 8)

    def is_stored(self, value: Value) -> bool:
        """Returns whether a matrix is in memory in this order."""
        return value.name not in self.definitions or self.known.find(value) is not None
