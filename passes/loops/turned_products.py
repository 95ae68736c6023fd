"""`turned-products`: moves the smaller tensors of a product with the transpose of a matrix.

%t = transpose(%w)                          %a = transpose(%x)
%y = matmul(%t, %x)                   ->    %b = matmul(%a, %w)
                                            %y = transpose(%b)
"""

from __future__ import annotations

from typing import ClassVar

from ...dialect.dims import Size, add, product
from ...dialect.graph import Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import axis_order
from ...dialect.ops.movement import matrix_order
from ..analysis.compare_sizes import never_less
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter, count_uses


@dataclass(frozen=True)
class TurnedProducts(Pass):
    """Rewrites a product of a transposed matrix as the transpose of a product with the matrix itself, where the
    transposes of the other operand and of the result never move more elements than that of the matrix, and nothing
    else reads the latter. A vector is reshaped, which moves none.

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
        matrix_elements, moved = product(x.type.shape), add(_moved(y), _moved(node.output))
        if matrix_elements == moved or not never_less(matrix_elements, moved) or not self.context.allow("turn", node):
            return None
        b, (matrix,), attributes = NodeBuilder(self.names, node), definition.inputs, dict(node.attributes)
        (turned,) = b.apply("matmul", [_transpose(b, y), matrix], attributes)
        value = _transpose(b, turned)
        return Replacement(tuple(b.nodes), (value,))


def _is_vector(value: Value) -> bool:
    return 1 in value.type.shape[-2:]


def _moved(value: Value) -> Size:
    """Returns the number of elements that the transpose moves."""
    return 0 if _is_vector(value) else product(value.type.shape)


def _transpose(b: NodeBuilder, value: Value) -> Value:
    """Returns the transpose of matrices; that of a vector is the vector in another shape."""
    *outer, rows, columns = value.type.shape
    return b.reshape(value, shape=(*outer, columns, rows)) if _is_vector(value) else b.matrix_transpose(value)
