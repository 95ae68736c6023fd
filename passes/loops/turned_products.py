"""`turned-products`: moves the smaller tensors of a product with the transpose of a matrix.

%t = transpose(%w)                          %a = transpose(%x)
%y = matmul(%t, %x)                   ->    %b = matmul(%a, %w)
                                            %y = transpose(%b)
"""

from __future__ import annotations

from typing import ClassVar

from ...dialect.dims import bounds, product
from ...dialect.graph import Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import axis_order
from ...dialect.ops.movement import matrix_order
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter, count_uses


@dataclass(frozen=True)
class TurnedProducts(Pass):
    """Rewrites a product of a transposed matrix as the transpose of a product with the matrix itself, where the other
    operand and the result have fewer elements than the matrix, and nothing else reads the transpose. A vector is
    reshaped.

    Assumes that parameters are folded: the transpose of a parameter is in memory, and its products stay as they are.
    """

    name: ClassVar[str] = "turned-products"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Turner(function, context).run())


class _Turner(Rewriter):
    def __init__(self, function: Function, context: Context) -> None:
        super().__init__(function)
        self.context = context
        self.uses = count_uses(function.body, function.results)

    def visit(self, node: Node) -> Replacement | None:
        if node.op != "matmul" or node.attribute("sparse"):
            return None
        if any(node.attribute(name) is not None for name in ("x_diagonal", "y_diagonal")):
            return None
        x, y = node.inputs
        definition = self.definitions.get(x.name)
        if definition is None or axis_order(definition) != matrix_order(x.type.rank) or self.uses[x.name] > 1:
            return None
        moved = product(y.type.shape) + product(node.output.type.shape)
        if bounds(product(x.type.shape))[0] <= bounds(moved)[1] or not self.context.allow("turn", node):
            return None
        b, (matrix,), attributes = NodeBuilder(self.names, node), definition.inputs, dict(node.attributes)
        (turned,) = b.apply("matmul", [_transpose(b, y), matrix], attributes)
        value = _transpose(b, turned)
        return Replacement(tuple(b.nodes), (value,))


def _transpose(b: NodeBuilder, value: Value) -> Value:
    """Returns the transpose of matrices; that of a vector is the vector in another shape."""
    *outer, rows, columns = value.type.shape
    return b.reshape(value, shape=(*outer, columns, rows)) if 1 in (rows, columns) else b.matrix_transpose(value)
