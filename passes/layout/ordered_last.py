"""`ordered-last`: sorts along the last axis.

%y = sort(%x) {axis = 0}    becomes    %1 = transpose(%x), %2 = sort(%1) {axis = -1}, %y = transpose(%2)
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...dialect.graph import Function, Module, Node
from ...dialect.lazy_dataclass import dataclass
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter

_ORDERS = ("sort", "argsort", "top_k")


@dataclass(frozen=True)
class OrderedLast(Pass):
    """Exchanges the axis of `sort`, `argsort` and `top_k` with the last one.

    Ordering a row reads its elements several times. Along another axis, the elements are apart in memory: each lies in
    a cache line of its own, and vectors would have to be gathered. The transposes move each element once. The results
    are the same.
    """

    name: ClassVar[str] = "ordered-last"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Rewriter(function, context).run())


class _Rewriter(Rewriter):
    def __init__(self, function: Function, context: Context) -> None:
        super().__init__(function)
        self.context = context

    def visit(self, node: Node) -> Replacement | None:
        if node.op not in _ORDERS:
            return None
        (x,), given = node.inputs, dict[str, Any](node.attributes)
        rank = x.type.rank
        axis = given["axis"] % rank
        # Axes of one element after it do not part the elements.
        if all(size == 1 for size in x.type.shape[axis + 1 :]) or not self.context.allow(node.op, node):
            return None
        axes = list(range(rank))
        axes[axis], axes[-1] = axes[-1], axes[axis]
        b = NodeBuilder(self.names, node)
        results = b.apply(node.op, [b.transpose(x, axes=tuple(axes))], {**given, "axis": rank - 1})
        made = tuple(b.transpose(result, axes=tuple(axes)) for result in results)
        return Replacement(tuple(b.nodes), made)
