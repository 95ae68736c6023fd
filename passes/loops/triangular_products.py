"""`triangular-products`: marks products with a triangular matrix, such as the weights of causal attention.

%p = softmax(where(%mask, %s, -inf))        %p = softmax(where(%mask, %s, -inf))
%y = matmul(%p, %v)                   ->    %y = matmul(%p, %v) {x_diagonal = 0}
%z = matmul(%g, %p)                         %z = matmul(%g, %p) {y_diagonal = 0}
"""

from __future__ import annotations

from math import inf, isfinite
from typing import ClassVar

from ...dialect.dims import bounds
from ...dialect.graph import Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter, constant_array

_STEPS = 16
"""The most nodes between a mask and a product."""
_FEWEST = 64
"""The fewest steps of a sum that are worth a bound."""
_KEEPING = frozenset({"negate", "square", "sqrt", "abs", "relu"})
"""Operators of one operand that give 0 for 0."""


@dataclass(frozen=True)
class TriangularProducts(Pass):
    """Sets the attributes `x_diagonal` and `y_diagonal` of products with a matrix that is 0 above a diagonal.

    Such a matrix is the result of `tril`, is selected by a `triangular_mask`, or is the softmax of rows that -inf
    masks. It stays triangular in products with constant numbers.

    The kernel leaves out the steps of sums at which the matrix is 0, unless it multiplies them by an infinity or a NaN.
    """

    name: ClassVar[str] = "triangular-products"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Marker(function, context).run())


class _Marker(Rewriter):
    def __init__(self, function: Function, context: Context) -> None:
        super().__init__(function)
        self.context = context

    def visit(self, node: Node) -> Replacement | None:
        if node.op != "matmul" or node.attribute("x_diagonal") is not None or node.attribute("y_diagonal") is not None:
            return None
        if not node.output.type.dtype.is_float or node.attribute("into") is not None:
            return None
        return self._mark(node)

    def _mark(self, node: Node) -> Replacement | None:
        x, y = node.inputs
        for name, matrix in (("x_diagonal", x), ("y_diagonal", y)):
            diagonal = self._diagonal(matrix, _STEPS)
            if diagonal is not None and bounds(x.type.shape[-1])[1] >= _FEWEST and self.context.allow(name, node):
                b = NodeBuilder(self.names, node)
                values = b.apply("matmul", [x, y], {**dict(node.attributes), name: diagonal})
                return Replacement(tuple(b.nodes), tuple(values))
        return None

    # Analysis

    def _diagonal(self, value: Value, steps: int) -> int | None:
        """Returns the diagonal above which a matrix, or each of several, is 0."""
        node = self.definitions.get(value.name)
        if node is None or steps == 0 or value.type.rank < 2 or not value.type.dtype.is_float:
            return None
        if node.op == "where":
            return self._selected(node, 0.0)
        if node.op == "softmax":
            return self._softmax(node)
        if node.op == "tril":
            diagonal = node.attribute("diagonal")
            return diagonal if isinstance(diagonal, int) else None
        # A product of 0 and an unknown number may be NaN.
        if node.op in _KEEPING or (node.op in ("multiply", "divide") and self._is_nonzero(node.inputs[1])):
            return self._diagonal(node.inputs[0], steps - 1)
        return None

    def _number(self, value: Value) -> float | None:
        """Returns the number that all elements of a value are, if it is a constant scalar."""
        array = constant_array(self.definitions.get(value.name))
        return None if array is None or array.ndim else float(array)

    def _is_nonzero(self, value: Value) -> bool:
        number = self._number(value)
        return number is not None and number != 0 and isfinite(number)

    def _softmax(self, node: Node) -> int | None:
        """Returns the diagonal of the softmax of rows that have a number each."""
        (x,) = node.inputs
        definition = self.definitions.get(x.name)
        if definition is None or definition.op != "where" or node.attribute("axis") not in (-1, x.type.rank - 1):
            return None
        diagonal = self._selected(definition, -inf)
        return diagonal if diagonal is not None and diagonal >= 0 else None

    def _selected(self, node: Node, other: float) -> int | None:
        """Returns the diagonal above which a selection gives the number `other`."""
        condition, _, otherwise = node.inputs
        return self._mask_diagonal(condition, node.output) if self._number(otherwise) == other else None

    def _mask_diagonal(self, condition: Value, masked: Value) -> int | None:
        """Returns the diagonal of a mask that selects elements of each matrix of a tensor."""
        node = self.definitions.get(condition.name)
        while node is not None and OPERATORS[node.op].has("view") and node.inputs[0].type.rank == 2:
            if node.inputs[0].type.shape != node.output.type.shape[-2:]:
                return None
            node = self.definitions.get(node.inputs[0].name)
        if node is None or node.op != "triangular_mask" or condition.type.shape[-2:] != masked.type.shape[-2:]:
            return None
        diagonal = node.attribute("diagonal")
        return diagonal if isinstance(diagonal, int) else None
