"""`split-scans`: splits the running sums of few long rows, which a thread computes element by element.

    s = cumsum x[i, n]    becomes    p[i, k, m] = cumsum x[i, k, m] over m    within each of the parts k
                                     t[i, k] = sum x[i, k, m] over m          the total of each part
                                     s[i, k, m] = p[i, k, m] + (the totals of the parts before k)

Parts are split by the same rule. Running sums of 4 rows of 100,000 elements take 20 dependent steps within parts, 20
and 250 along their totals, in place of 100,000 steps by four threads.
"""

from __future__ import annotations

from math import isqrt
from typing import Any, ClassVar

from ...dialect.dims import bounds, product
from ...dialect.graph import Function, Module, Node
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import BF16, F16, F32
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter


@dataclass(frozen=True)
class SplitScans(Pass):
    """Rewrites `cumsum` along an axis of n elements, a static size, as running sums of parts and of their totals.

    It splits fewer than `rows` rows of at least `least` elements each. The number of parts divides n: it is the divisor
    for which the parts and their elements are the fewest in sum. Where that sum is more than half of n, as with a prime
    n, the operator stays as it is. It stays as it is along a symbolic size too: its kernel splits it in each call.
    Running sums of parts are split by the same rule. Symbolic numbers of rows count with their greatest value.

    Running sums of f16 and bf16 are f32 until the last step. The order of the elements is fixed, so that a call always
    returns the same bits. The pass only reassociates sums.
    """

    name: ClassVar[str] = "split-scans"
    rows: int = 4096
    least: int = 256

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Rewriter(function, context, self).run())

    def parts_of(self, rows: float, length: int) -> int:
        """Returns the number of parts of each of the rows."""
        if rows >= self.rows or length < self.least:
            return 1
        low = max(each for each in range(1, isqrt(length) + 1) if length % each == 0)
        return low if 2 * (low + length // low) <= length else 1


class _Rewriter(Rewriter):
    def __init__(self, function: Function, context: Context, options: SplitScans) -> None:
        super().__init__(function)
        self.context, self.options = context, options

    def visit(self, node: Node) -> Replacement | None:
        if node.op != "cumsum":
            return None
        (x,) = node.inputs
        given: dict[str, Any] = dict(node.attributes)
        axis = given["axis"] % x.type.rank
        length = x.type.shape[axis]
        before, after = product(x.type.shape[:axis]), product(x.type.shape[axis + 1 :])
        if not isinstance(length, int):
            return None
        parts = self.options.parts_of(bounds(product((before, after)))[1], length)
        if parts == 1 or not self.context.allow("split", node):
            return None
        b = NodeBuilder(self.names, node)
        elements = b.reshape(x, shape=(before, parts, length // parts, after))
        if x.type.dtype in (F16, BF16):
            elements = b.cast(elements, dtype=F32)
        within = b.cumsum(elements, axis=2, exclusive=given["exclusive"], reverse=given["reverse"])
        totals = b.sum(elements, axis=(2,), keepdims=True)
        earlier = b.cumsum(totals, axis=1, exclusive=True, reverse=given["reverse"])
        result = b.add(within, earlier)
        if result.type.dtype is not x.type.dtype:
            result = b.cast(result, dtype=x.type.dtype)
        result = b.reshape(result, shape=x.type.shape)
        return Replacement(tuple(b.nodes), (result,))
