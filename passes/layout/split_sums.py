"""`split-sums`: splits the long sums of a product with few results among several blocks of threads.

    y[m, n] = sum x[m, k] * w[k, n]    becomes    p[s, m, n] = sum x[m, s, k] * w[s, k, n]    over a part of k each
                                                  y[m, n] = sum p[s, m, n]

With x of 8 rows and w of 4096 x 4096 in f16, 64 blocks of 64 columns become 512 blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...dialect.dims import Size, bounds, product
from ...dialect.graph import Function, Module, Node, Value
from ...dialect.types import F32, I32
from ..analysis.known_values import KnownValues
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter


@dataclass(frozen=True)
class SplitSums(Pass):
    """Rewrites a product with a matrix as partial sums and their sum, where it has fewer than `blocks` blocks.

    The matrix must be a parameter or an argument as it is stored, and its sizes static. The number of parts is a power
    of two, at most `parts`, and each part has at least `depth` terms. Partial sums are f32 or i32, in the workspace,
    and are added in a fixed order, so that a call always returns the same bits. The pass only reassociates sums.
    """

    name: ClassVar[str] = "split-sums"
    blocks: int = 128
    depth: int = 256
    parts: int = 16

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Rewriter(function, module, context, self).run())

    def parts_of(self, rows: int, columns: int, depth: int, bytes: int) -> int:
        """Returns the number of parts of a sum, for the schedules of products of few rows and of tiles of 64 x 64."""
        across = 8 * 16 // bytes if rows <= _FEW else _TILE
        blocks = -(-columns // across) * (1 if rows <= _FEW else -(-rows // _TILE))
        # More blocks than processors hide the latency of memory.
        wanted = 4 * self.blocks if blocks < self.blocks else 0
        parts = 1
        while blocks * parts < wanted and parts < self.parts:
            if depth % (2 * parts) or depth // (2 * parts) < self.depth:
                break
            parts *= 2
        return parts


_FEW = 16
"""The rows of the schedule for few rows."""
_TILE = 64


class _Rewriter(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context, options: SplitSums) -> None:
        super().__init__(function)
        self.context, self.options = context, options
        self.known = KnownValues(self.definitions, module.parameter_index)

    def visit(self, node: Node) -> Replacement | None:
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
        (partial,) = b.apply("einsum", [flat, matrices], {"equation": "msk,skn->smn", **into})
        total = b.sum(partial, axis=(0,))
        if out.dtype is not sums:
            total = b.cast(total, dtype=out.dtype)
        if total.type.shape != out.shape:
            total = b.reshape(total, shape=out.shape)
        return Replacement(tuple(b.nodes), (total,))

    def parts_of(self, node: Node) -> int:
        if node.op != "matmul" or len(node.inputs) != 2 or not self.is_stored(node.inputs[1]):
            return 1
        x, w = (value.type for value in node.inputs)
        dtypes = (x.dtype, w.dtype)
        if x.rank < 2 or w.rank != 2 or any(dtype.bits > 32 for dtype in (*dtypes, node.output.type.dtype)):
            return 1
        if not (node.output.type.dtype.is_float or node.output.type.dtype is I32):
            return 1
        rows: Size = product(x.shape[:-1])
        depth, columns = w.shape
        if not isinstance(depth, int) or not isinstance(columns, int):
            return 1
        return self.options.parts_of(max(bounds(rows)[1], 1), columns, depth, w.dtype.bits // 8)

    def is_stored(self, value: Value) -> bool:
        """Returns whether a matrix is in memory in this order."""
        return value.name not in self.definitions or self.known.find(value) is not None
