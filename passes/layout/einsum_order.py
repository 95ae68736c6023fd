"""`einsum-order`: `einsum` writes a matrix in the order in which its only reader would bring it.

%d = einsum(%x, %g) {equation = "rk,rn->kn"}    ->    %t = einsum(%x, %g) {equation = "rk,rn->nk"}
%t = transpose(%d)

Such a transposition stands behind the gradient of `w` in `x @ w.T`.
"""

from __future__ import annotations

from typing import ClassVar

from ...dialect.graph import Function, Module, Node
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import axis_order
from ...dialect.ops.einsum import format_equation, parse_equation
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter, count_uses


@dataclass(frozen=True)
class EinsumOrder(Pass):
    """Removes transpositions of matrices that `einsum` computes and nothing else reads.

    Kernels read the rows of either operand as they are stored, so that both orders of the result take the same time.
    The sums are the same, bit by bit. Results of more axes keep their order, since a kernel may need it for its tiles.
    """

    name: ClassVar[str] = "einsum-order"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Rewriter(function, context).run())


class _Rewriter(Rewriter):
    def __init__(self, function: Function, context: Context) -> None:
        super().__init__(function)
        self.context = context
        self.uses = count_uses(function.body, function.results)

    def visit(self, node: Node) -> Replacement | None:
        if axis_order(node) != (1, 0):
            return None
        (matrix,) = node.inputs
        inner = self.definitions.get(matrix.name)
        if inner is None or inner.op != "einsum" or self.uses[matrix.name] != 1 or not self.context.allow("turn", node):
            return None
        equation = inner.attribute("equation")
        assert isinstance(equation, str)
        labels = parse_equation(equation, [v.type.rank for v in inner.inputs])
        turned = format_equation(labels.operands, labels.result[::-1])
        b = NodeBuilder(self.names, node)
        values = b.apply("einsum", inner.inputs, {**dict(inner.attributes), "equation": turned})
        return Replacement(tuple(b.nodes), tuple(values))
