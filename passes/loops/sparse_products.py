"""`sparse-products`: marks products of a matrix with a row of results of ReLU, where many elements are 0.

%h = relu(%g)                                %h = relu(%g)
%a = multiply(%h, %u)                  ->    %a = multiply(%h, %u)
%y = matmul(%a, %w)                          %y = matmul(%a, %w) {sparse = true}
"""

from __future__ import annotations

from typing import ClassVar

from ...dialect.dims import product
from ...dialect.graph import Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ..analysis.known_values import KnownValues
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter

_STEPS = 8
"""The most nodes between a ReLU and a product."""

_KEEPING = frozenset({"cast", "reshape", "square"})
"""Operators of one operand that give 0 for 0."""


@dataclass(frozen=True)
class SparseProducts(Pass):
    """Sets the attribute `sparse` of products of one row with a matrix of parameters where an element of the row is 0
    whenever an element of a ReLU is.

    Between the ReLU and the product may be multiplications, such as a gate or a square, casts and reshapes. The kernel
    leaves out the rows of the matrix that are multiplied by 0. Infinities and NaN in these rows do not reach the
    result.

    Assumes that parameters are folded, so that the matrix is in memory as it is multiplied.
    """

    name: ClassVar[str] = "sparse-products"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Marker(function, module, context).run())


class _Marker(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context) -> None:
        super().__init__(function)
        self.context = context
        self.known = KnownValues(self.definitions, module.parameter_index)

    def visit(self, node: Node) -> Replacement | None:
        if not any(spec.name == "sparse" for spec in OPERATORS[node.op].attributes) or node.attribute("sparse"):
            return None
        x, *matrices = node.inputs
        if product(node.output.type.shape[:-1]) != 1:
            return None
        if not all(self.known.is_known(matrix) for matrix in matrices) or not self._has_zeros(x, _STEPS):
            return None
        if not self.context.allow("sparse", node):
            return None
        b = NodeBuilder(self.names, node)
        values = b.apply(node.op, list(node.inputs), {**dict(node.attributes), "sparse": True})
        return Replacement(tuple(b.nodes), tuple(values))

    def _has_zeros(self, value: Value, steps: int) -> bool:
        """Returns whether an element is 0 whenever an element of a ReLU is."""
        node = self.definitions.get(value.name)
        if node is None or steps == 0:
            return False
        if node.op == "relu":
            return True
        if node.op == "multiply":
            return any(self._has_zeros(factor, steps - 1) for factor in node.inputs)
        return node.op in _KEEPING and self._has_zeros(node.inputs[0], steps - 1)
