"""`depth-last`: stores known matrices of 8-bit integers so that the terms of a sum are neighbours in memory.

y[m, n] = sum x[m, k] * w[k, n]    becomes    y[m, n] = sum x[m, k] * v[n, k]    with v = transpose(w)
"""

from __future__ import annotations

from string import ascii_lowercase
from typing import ClassVar

from ...dialect.graph import Function, Module, Node
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import I32
from ..analysis.known_values import KnownValues
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter


@dataclass(frozen=True)
class DepthLast(Pass):
    """Transposes the known matrices of products of 8-bit integers.

    An instruction of tensor cores reads four consecutive terms of a sum, and the instruction that loads its operands
    can transpose 16-bit elements only. Products of few rows read the same transposed copy, so that several models of a
    file share it. The results are the same. Leaves the transposition to `fold-parameters`.
    """

    name: ClassVar[str] = "depth-last"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Rewriter(function, module, context).run())


class _Rewriter(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context) -> None:
        super().__init__(function)
        self.context = context
        self.known = KnownValues(self.definitions, module.parameter_index)

    def visit(self, node: Node) -> Replacement | None:
        if not self.pays(node) or not self.context.allow("matmul", node):
            return None
        b = NodeBuilder(self.names, node)
        x, w = node.inputs
        *rows, depth, column = list(ascii_lowercase[: x.type.rank + 1])
        outer = "".join(rows)
        turned = b.transpose(w, axes=(1, 0))
        equation = f"{outer}{depth},{column}{depth}->{outer}{column}"
        results = b.apply("einsum", [x, turned], {"equation": equation, "into": I32})
        return Replacement(tuple(b.nodes), results)

    def pays(self, node: Node) -> bool:
        if node.op != "matmul" or len(node.inputs) != 2 or node.attribute("into") is not I32:
            return False
        x, w = (value.type for value in node.inputs)
        if x.dtype.bits != 8 or w.dtype.bits != 8 or x.rank < 2 or w.rank != 2:
            return False
        return self.known.find(node.inputs[1]) is not None
