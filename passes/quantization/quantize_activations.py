"""`quantize-activations`: rounds activations of contractions to a shorter type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...dialect.graph import Function, Module, Node, Region, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Axes
from ...dialect.ops import OPERATORS, axis_order
from ...dialect.ops.support.accumulate import ROUNDED, may_round, rounded_to
from ...dialect.types import BF16, F16, F32, I16
from ..analysis.factors import (
    NOT_TRAINED,
    Factor,
    Origins,
    factors_of,
    occurrence_of,
    trained_parameters,
    trained_products,
)
from ..analysis.joins import find_joins
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter
from ..selection import is_selected
from .codecs import CASTS, Codec, Dynamic, Static

_HALVES = {dtype.name: dtype for dtype in (BF16, F16)}


@dataclass(frozen=True)
class QuantizeActivations(Pass):
    """Quantizes the activations of contractions in f32: `contraction(x, w)` becomes
    `contraction(dequantize(quantize(x)), w)`.

    Only contractions with a weight are rewritten; products of two activations, as in attention, stay in f32. `to` is
    `bf16` or `f16`, with a cast to it and back, `i8`, quantized to u8 and dequantized, or `i16`. Beside activations in
    bf16 or f16, a weight in blocks of quantized values is dequantized to their dtype. With `ranges`, written
    `name:low:high`, the scale of i8 follows from the range of the value, and values without a range are not rewritten.
    Without ranges, the scale is computed from the values: for each row of a matrix product, or each sample of a
    convolution. With ranges, values added to the result of a convolution are quantized as well, so that residuals are
    stored as integers.
    With `i16`, no value is stored in another dtype: the attribute `factors` of a matrix product permits code to round
    the factors of the product to integers, in registers.
    `only` and `but` select by the path of the weight, by the scope, and by the operator.

    If a parameter is a state, because a training step changes it, `bf16` and `f16` also round the operands of the
    products that compute its gradient. `only` and `but` select them together with that product.

    Changes results.
    """

    name: ClassVar[str] = "quantize-activations"
    to: str = "i8"
    ranges: tuple[str, ...] = ()
    only: tuple[str, ...] = ('"*"',)
    but: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.to not in ("i8", I16.name, *CASTS):
            raise ValueError(f"one of i8, i16, {', '.join(CASTS)} as `to`")
        self.codecs()

    def codecs(self) -> Mapping[str, Codec]:
        """Returns the codecs of values, by name. Raises ValueError for a range without bounds."""
        split = [text.rsplit(":", 2) for text in self.ranges]
        return {name: Static(float(low), float(high)) for name, low, high in split}

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Quantizer(function, module, context, self).run())


class _Quantizer(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context, options: QuantizeActivations) -> None:
        super().__init__(function)
        self.context, self.options, self.codecs = context, options, options.codecs()
        casts = options.to in CASTS
        trained = trained_parameters(function, module) if casts else NOT_TRAINED
        self.origins = Origins(self.definitions, module.parameter_index, trained)
        self.products = trained_products(function, module) if casts else {}
        self.joins = find_joins(function, module.parameter_index) if self.codecs else {}
        self.done: set[str] = set()
        self.stored: dict[tuple[str, Codec, Axes], tuple[Value, ...]] = {}
        """The stored tensors of each value, by value, codec and axes."""

    def walk_region(self, region: Region, node: Node) -> Region:
        outside, self.stored = self.stored, dict(self.stored)
        walked = super().walk_region(region, node)
        self.stored = outside
        return walked

    def visit(self, node: Node) -> Replacement | None:
        if not node.outputs or node.outputs[0].name in self.done:
            return None
        if self.options.to == I16.name:
            return self.permit(node)
        taken = [(factor, codec) for factor in self.factors(node) if (codec := self.codec(factor)) is not None]
        if not taken or not self.context.allow(node.op, node):
            return None
        self.done.add(node.outputs[0].name)
        builder, inputs = NodeBuilder(self.names, node), list(node.inputs)
        for factor, codec in taken:
            inputs[factor.number] = codec.restore(builder, self.store(builder, factor, codec))
        if self.options.to in CASTS:
            for factor in self.factors(node):
                rounded = self.dequantized(builder, factor.value) if factor.is_weight else None
                if rounded is not None:
                    inputs[factor.number] = builder.cast(rounded, dtype=F32)
        results = builder.apply(node.op, inputs, dict(node.attributes))
        return Replacement(tuple(builder.nodes), results)

    def permit(self, node: Node) -> Replacement | None:
        """Returns the node with the permission to round its factors, if it is a product with a weight in f32."""
        if not may_round(OPERATORS[node.op]) or node.output.type.dtype is not F32 or rounded_to(node) is not None:
            return None
        if not self.factors(node) or not self.context.allow(node.op, node):
            return None
        builder = NodeBuilder(self.names, node)
        results = builder.apply(node.op, list(node.inputs), {**dict(node.attributes), ROUNDED.name: I16})
        return Replacement(tuple(builder.nodes), results)

    def factors(self, node: Node) -> tuple[Factor, ...]:
        """Returns the operands to quantize, if the node is selected."""
        join = self.joins.get(node.outputs[0].name)
        if join is not None:
            read = tuple(Factor(number, node.inputs[number], (), None) for number in join.others)
            return read if self.selects(join.convolution, join.weight) else ()
        factors = factors_of(node, self.origins)
        weight = next((factor.parameter for factor in factors if factor.parameter is not None), None)
        occurrence = occurrence_of(node)
        if weight is None and occurrence in self.products and OPERATORS[node.op].has("contraction"):
            # The gradient of a convolution's weight is a contraction with an operator of its own.
            weight = self.products[occurrence]
            factors = tuple(Factor(number, value, (), None) for number, value in enumerate(node.inputs[:2]))
        return factors if weight is not None and self.selects(node, weight) else ()

    def selects(self, node: Node, weight: str) -> bool:
        return is_selected(node.op, (node.scope, weight), self.options.only, self.options.but)

    def codec(self, factor: Factor) -> Codec | None:
        if factor.parameter is not None or factor.value.type.dtype is not F32:
            return None
        if self.options.to in CASTS:
            return CASTS[self.options.to]
        return self.codecs.get(factor.value.name) if self.codecs else Dynamic()

    def dequantized(self, b: NodeBuilder, weight: Value) -> Value | None:
        """Returns a weight that is stored in blocks of quantized values, dequantized to the dtype of the activations;
        None for another weight."""
        node = self.definitions.get(weight.name)
        if node is None or weight.type.dtype is not F32:
            return None
        if node.op == "dequantize_blocks":
            return b.dequantize_blocks(node.inputs[0], dtype=_HALVES[self.options.to])
        if axis_order(node) is None:
            return None
        inner = self.dequantized(b, node.inputs[0])
        return None if inner is None else b.apply(node.op, (inner,), dict(node.attributes))[0]

    def store(self, b: NodeBuilder, factor: Factor, codec: Codec) -> tuple[Value, ...]:
        key = (factor.value.name, codec, () if self.codecs else factor.axes)
        if key not in self.stored:
            self.stored[key] = codec.store(b, factor.value, factor.axes)
        return self.stored[key]
