"""Expands constructs of passes that the language cannot express: fused groups and computed parameters.

The function computes the same bits afterwards. Operators that only passes create stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ....dialect.graph import (
    Attribute,
    Constant,
    Formula,
    Function,
    Module,
    Node,
    Parameter,
    Region,
    Value,
    parameters_read,
    substitute_values,
)
from ....dialect.interpreter import is_rounded_once
from ....dialect.operator import Builder
from ....dialect.ops import OPERATORS
from ....dialect.types import F64, DType


def expand_function(function: Function, module: Module) -> tuple[Function, dict[str, Parameter]]:
    """Returns the function without fusions and computed parameters, and every parameter that its nodes name."""
    expansion = _Expansion(module)
    body = expansion.nodes(function.body)
    results = tuple(expansion.values.get(v.name, v) for v in function.results)
    return replace(function, body=body, results=results), expansion.parameters


@dataclass(slots=True)
class _Expansion:
    module: Module
    parameters: dict[str, Parameter] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    """The replacements for results of removed nodes."""

    def nodes(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        result: list[Node] = []
        for old in nodes:
            node = replace(old, inputs=tuple(self.values.get(v.name, v) for v in old.inputs))
            if OPERATORS[node.op].has("group"):
                result += self.fusion(node)
            elif node.op == "parameter":
                result += self.parameter(node)
            else:
                result.append(replace(node, regions=tuple(map(self.region, node.regions))))
        return tuple(result)

    def region(self, region: Region) -> Region:
        body = self.nodes(region.body)
        return Region(region.arguments, body, tuple(self.values.get(v.name, v) for v in region.results))

    def fusion(self, node: Node) -> tuple[Node, ...]:
        (region,) = node.regions
        self.values |= {a.name: v for a, v in zip(region.arguments, node.inputs, strict=True)}
        inner = self.region(region)
        self.values |= {o.name: v for o, v in zip(node.outputs, inner.results, strict=True)}
        return inner.body

    def parameter(self, node: Node) -> list[Node]:
        parameter = self.module.parameter_index[str(node.attribute("name"))]
        if parameter.formula is None:
            self.parameters[parameter.name] = parameter
            return [node]
        nodes, self.values[node.output.name] = _computed(parameter.formula, node)
        stored = parameter.formula.module.parameter_index
        for name in parameters_read(nodes):
            self.parameters[name] = stored[name]
        return nodes


def _computed(formula: Formula, node: Node) -> tuple[list[Node], Value]:
    """Returns a formula as nodes: in float64, if it is rounded once."""
    wide = is_rounded_once(formula)
    b = Builder(OPERATORS, f"{node.output.name}.", scope=node.scope, span=node.span)
    values: dict[str, Value] = {}
    for inner in formula.body:
        if not wide or inner.op == "parameter":
            outputs = tuple(b.fresh(v.type) for v in inner.outputs)
            b.nodes.append(replace(substitute_values(inner, values), outputs=outputs, scope=node.scope))
        else:
            attributes = {name: _widened(value) for name, value in inner.attributes}
            outputs = b.apply(inner.op, [values[v.name] for v in inner.inputs], attributes)
        if wide and inner.op == "parameter" and outputs[0].type.dtype.is_float:
            outputs = (b.cast(outputs[0], dtype=F64),)
        values |= {v.name: output for v, output in zip(inner.outputs, outputs, strict=True)}
    result = values[formula.result.name]
    if result.type.dtype != formula.result.type.dtype:
        result = b.cast(result, dtype=formula.result.type.dtype)
    return b.nodes, result


def _widened(value: Attribute) -> Attribute:
    if isinstance(value, DType) and value.is_float:
        return F64
    if isinstance(value, Constant) and value.type.dtype.is_float:
        return Constant(value.data.astype(F64.numpy))
    return value
