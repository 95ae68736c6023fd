"""`narrow-contractions`: multiplies the short operands of contractions without widening them first."""

from __future__ import annotations

from typing import ClassVar

from ...dialect.graph import Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import F32
from ..analysis.factors import Origins, factors_of, is_cast
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter


@dataclass(frozen=True)
class NarrowContractions(Pass):
    """`contraction(cast(x, f32), cast(w, f32))` becomes `contraction(x, w, into=f32)` where x and w are both bf16, or
    both f16.

    The product of two such values is exact in f32, so the pass only reassociates sums.
    """

    name: ClassVar[str] = "narrow-contractions"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Narrower(function, module, context).run())


class _Narrower(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context) -> None:
        super().__init__(function)
        self.context = context
        self.origins = Origins(self.definitions, module.parameter_index)

    def visit(self, node: Node) -> Replacement | None:
        factors = factors_of(node, self.origins)
        narrow = [self.widened(factor.value) for factor in factors]
        if not narrow or node.output.type.dtype is not F32:
            return None
        inputs = [value for value in narrow if value is not None]
        if len(inputs) < len(narrow) or len({value.type.dtype for value in inputs}) > 1:
            return None
        if not self.context.allow(node.op, node):
            return None
        builder = NodeBuilder(self.names, node)
        others = node.inputs[len(inputs) :]
        results = builder.apply(node.op, [*inputs, *others], {**dict(node.attributes), "into": F32})
        return Replacement(tuple(builder.nodes), results)

    def widened(self, value: Value) -> Value | None:
        """Returns the operand of a cast to f32."""
        node = self.definitions.get(value.name)
        if node is None or not is_cast(node) or not node.inputs[0].type.dtype.is_half:
            return None
        return node.inputs[0]
