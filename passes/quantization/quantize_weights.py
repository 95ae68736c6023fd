"""`quantize-weights`: stores weights of contractions and tables in a shorter type."""

from __future__ import annotations

from typing import ClassVar

from ...dialect.graph import Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import axis_order
from ...dialect.types import F32
from ..analysis.factors import (
    NOT_TRAINED,
    Factor,
    Origins,
    factors_of,
    gathered_axis,
    table_of,
    trained_parameters,
)
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter
from ..selection import is_selected
from .codecs import CODECS, Cast


def can_hold(dtype: str, factor: Factor) -> bool:
    """Returns whether a weight can be stored in the dtype, written as in policies."""
    return CODECS[dtype].holds(factor.value.type, factor.axes)


@dataclass(frozen=True)
class QuantizeWeights(Pass):
    """Quantizes weights in f32.

    - `contraction(x, w)` becomes `contraction(x, dequantize(quantize(w)))`
    - `gather(table, ids)` becomes `dequantize(gather(quantize(table), ids))`

    A weight is a parameter-only operand. `to` is `bf16` or `f16`, with a cast to it and back; or `i8` or an 8-bit
    float, quantized with a scale for each channel of the result or row of a table, and dequantized; or a type in blocks
    such as `q4[block 32]`, where the axis that is summed over is one of the last two and holds whole blocks. `only` and
    `but` select by the path of the weight, by the scope, and by the operator.

    A parameter that is a state, because a training step changes it, is rounded to `bf16` or `f16` where it is
    multiplied, also in the products of gradients. The state itself stays in f32, and no other type applies to it.

    Changes results. The quantized values are computed in each call unless `fold-parameters` runs afterwards.
    """

    name: ClassVar[str] = "quantize-weights"
    to: str = "i8"
    only: tuple[str, ...] = ('"*"',)
    but: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.to not in CODECS:
            raise ValueError(f"one of {', '.join(CODECS)} as `to`")

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Quantizer(function, module, context, self).run())

    def takes(self, node: Node, factor: Factor) -> bool:
        return (
            factor.parameter is not None
            and factor.value.type.dtype is F32
            and can_hold(self.to, factor)
            and is_selected(node.op, (factor.parameter, node.scope), self.only, self.but)
        )


class _Quantizer(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context, options: QuantizeWeights) -> None:
        super().__init__(function)
        self.context, self.options = context, options
        self.codec = CODECS[options.to]
        self.trained = trained_parameters(function, module) if isinstance(self.codec, Cast) else NOT_TRAINED
        self.origins = Origins(self.definitions, module.parameter_index, self.trained)
        self.done: set[str] = set()

    def visit(self, node: Node) -> Replacement | None:
        result = node.outputs[0] if node.outputs else None
        # Parameter-only values are not computed in a call.
        if result is None or result.name in self.done or self.origins.is_known(node):
            return None
        table = table_of(node, self.origins)
        factors = [table] if table is not None else factors_of(node, self.origins)
        weights = [factor for factor in factors if self.options.takes(node, factor)]
        if not weights or not self.context.allow(node.op, node):
            return None
        builder = NodeBuilder(self.names, node)
        rewrite = self.read_table if table is not None else self.multiply
        value = rewrite(builder, node, weights[0])
        self.done |= {result.name, *(v.name for made in builder.nodes for v in made.outputs)}
        return Replacement(tuple(builder.nodes), (value,))

    def multiply(self, b: NodeBuilder, node: Node, weight: Factor) -> Value:
        inputs = list(node.inputs)
        inputs[weight.number] = self.rounded(b, weight)
        return b.apply(node.op, inputs, dict(node.attributes))[0]

    def rounded(self, b: NodeBuilder, weight: Factor) -> Value:
        made = self.definitions.get(weight.value.name)
        if not isinstance(self.codec, Cast) or made is None or axis_order(made) is None:
            return self.codec.round(b, weight.value, weight.axes)
        # The cast comes before the transpose, so that one rounded table serves look-ups of its rows as well.
        stored = self.codec.store(b, made.inputs[0], weight.axes)
        return self.codec.restore(b, b.apply(made.op, stored, dict(made.attributes)))

    def read_table(self, b: NodeBuilder, node: Node, table: Factor) -> Value:
        if table.parameter in self.trained.values():
            # A table that changes is not rounded as a whole in each call, but only the rows that are read.
            (rows,) = b.apply(node.op, node.inputs, dict(node.attributes))
            return self.codec.round(b, rows, table.axes)
        return self.codec.gather(
            b, table.value, table.axes, node.inputs[1], gathered_axis(node), str(node.attribute("mode"))
        )
