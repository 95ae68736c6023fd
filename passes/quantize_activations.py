"""`quantize-activations`: what is multiplied and computed in a call is rounded to a shorter type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..dialect.graph import Function, Module, Node
from ..dialect.types import BF16, F16, F32
from .codecs import Cast, Codec, Dynamic, Static
from .factors import Factor, Origins, factors_of
from .manager import Context, Pass
from .rewrite import NodeBuilder, Replacement, Rewriter
from .selection import is_selected

_CASTS: Mapping[str, Codec] = {"bf16": Cast(BF16), "f16": Cast(F16)}


@dataclass(frozen=True)
class QuantizeActivations(Pass):
    """Rounds what contractions multiply and parameters do not determine, in f32: `contraction(x, w)` becomes
    `contraction(restored(stored(x)), w)`.

    Only where the other operand is a weight: products of two activations, as in attention, stay in f32. `to` is `bf16`
    or `f16`, to which it is cast and from there back; or `i8`, quantized to u8 and dequantized. The scale of i8 is that
    of `ranges` where it has the value, as `name:low:high`; other values stay as they are. Without any ranges it is told
    by the numbers themselves: for each row of a product of matrices, for each sample of a convolution. `only` and `but`
    select by the path of the weight, by the scope, and by the operator.

    Changes what is computed.
    """

    name: ClassVar[str] = "quantize-activations"
    to: str = "i8"
    ranges: tuple[str, ...] = ()
    only: tuple[str, ...] = ('"*"',)
    but: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.to != "i8" and self.to not in _CASTS:
            raise ValueError(f"one of i8, {', '.join(_CASTS)} as `to`")
        self.codecs()

    def codecs(self) -> Mapping[str, Codec]:
        """Those of values, by name. Raises ValueError where a range has no bounds."""
        split = [text.rsplit(":", 2) for text in self.ranges]
        return {name: Static(float(low), float(high)) for name, low, high in split}

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Quantizer(function, module, context, self).run())


class _Quantizer(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context, options: QuantizeActivations) -> None:
        super().__init__(function)
        self.context, self.options, self.codecs = context, options, options.codecs()
        self.origins = Origins(self.definitions, module.parameter_index)
        self.done: set[str] = set()

    def visit(self, node: Node) -> Replacement | None:
        if not node.outputs or node.outputs[0].name in self.done:
            return None
        factors = factors_of(node, self.origins)
        weight = next((factor.parameter for factor in factors if factor.parameter is not None), None)
        if weight is None or not is_selected(node.op, (node.scope, weight), self.options.only, self.options.but):
            return None
        taken = [(factor, codec) for factor in factors if (codec := self.codec(factor)) is not None]
        if not taken or not self.context.allow(node.op, node):
            return None
        self.done.add(node.outputs[0].name)
        builder, inputs = NodeBuilder(self.names, node), list(node.inputs)
        for factor, codec in taken:
            inputs[factor.number] = codec.restore(builder, codec.store(builder, factor.value, factor.axes))
        results = builder.apply(node.op, inputs, dict(node.attributes))
        return Replacement(tuple(builder.nodes), results)

    def codec(self, factor: Factor) -> Codec | None:
        if factor.parameter is not None or factor.value.type.dtype is not F32:
            return None
        if self.options.to in _CASTS:
            return _CASTS[self.options.to]
        return self.codecs.get(factor.value.name) if self.codecs else Dynamic()
