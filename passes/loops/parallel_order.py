"""`parallel-order`: sorts by counting and merging, which many threads do together.

%y = argsort(%x) {axis = 0}    becomes    %y_1, %y = merged_order(%x) {axis = 0, k = 300, largest = false}
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...dialect.graph import Function, Module, Node
from ...dialect.lazy_dataclass import dataclass
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter


@dataclass(frozen=True)
class ParallelOrder(Pass):
    """Replaces `sort`, `argsort` and `top_k` by `merged_order`.

    It executes more operations than the sequential methods, about n log2(n)^2 / 2 for n elements, so it is faster only
    on devices with thousands of threads. The results are the same.
    """

    name: ClassVar[str] = "parallel-order"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Rewriter(function, context).run())


class _Rewriter(Rewriter):
    def __init__(self, function: Function, context: Context) -> None:
        super().__init__(function)
        self.context = context

    def visit(self, node: Node) -> Replacement | None:
        if node.op not in ("sort", "argsort", "top_k") or not self.context.allow("merge", node):
            return None
        given: dict[str, Any] = dict(node.attributes)
        (x,), axis = node.inputs, given["axis"]
        k, largest = (given["k"], given["largest"]) if node.op == "top_k" else (x.type.shape[axis], given["descending"])
        b = NodeBuilder(self.names, node)
        values, positions = b.apply("merged_order", [x], {"k": k, "axis": axis, "largest": largest})
        made = {"sort": (values,), "argsort": (positions,), "top_k": (values, positions)}[node.op]
        return Replacement(tuple(b.nodes), made)
