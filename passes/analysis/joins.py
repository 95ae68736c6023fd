"""Finds activations that are stored in memory and combined with the result of a convolution, such as residuals.

The addition is computed inside the convolution's kernel, so its sums never leave the registers; the other operand has
to be read from memory. This module changes no graph.

    h = max_pool2d(x)
    c = conv2d(h, w)
    y = add(c, h)        a join of c: `others` is (1,), since h is read from memory
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ...dialect.graph import Function, Node, Parameter, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.types import F32
from ..rewrite import count_uses
from .factors import Origins, factors_of


@dataclass(frozen=True, slots=True)
class Join:
    """An elementwise node of several f32 activations. The `convolution` with the `weight` computes one of them, and
    that activation has no other reader. `others` are the indices of the operands that are read from memory."""

    node: Node
    convolution: Node
    weight: str
    others: tuple[int, ...]


def find_joins(function: Function, parameters: Mapping[str, Parameter]) -> Mapping[str, Join]:
    """Returns the joins outside of loops, by the names of their results."""
    finder = _Finder(count_uses(function.body, function.results), parameters)
    joins: dict[str, Join] = {}
    for node in function.body:
        join = finder.join(node)
        if join is not None:
            joins[node.output.name] = join
        finder.see(node)
    return joins


class _Finder:
    """The state of a walk over the nodes, up to the current one."""

    def __init__(self, uses: Counter[str], parameters: Mapping[str, Parameter]) -> None:
        self.uses = uses
        self.definitions: dict[str, Node] = {}
        self.origins = Origins(self.definitions, parameters)
        self.sources: dict[str, tuple[int, Node, str]] = {}
        """The position, the node and the weight of the convolution after each value, where the values between them
        have no other readers."""

    def see(self, node: Node) -> None:
        self.definitions.update((value.name, node) for value in node.outputs)
        if len(node.outputs) != 1:
            return
        weight = self.weight(node)
        if weight is not None:
            self.sources[node.output.name] = (len(self.definitions), node, weight)
        elif OPERATORS[node.op].has("elementwise"):
            known = [self.source(node.inputs[number]) for number in self.activations(node)]
            if len(known) == 1 and known[0] is not None:
                self.sources[node.output.name] = known[0]

    def weight(self, node: Node) -> str | None:
        """Returns the path of a convolution's weight."""
        if not OPERATORS[node.op].has("convolution"):
            return None
        return next((f.parameter for f in factors_of(node, self.origins) if f.parameter is not None), None)

    def source(self, value: Value) -> tuple[int, Node, str] | None:
        return self.sources.get(value.name) if self.uses[value.name] == 1 else None

    def activations(self, node: Node) -> list[int]:
        """Returns the indices of the operands that have the shape of the result and are computed in a call."""
        return [
            number
            for number, value in enumerate(node.inputs)
            if value.type == node.output.type and self.origins.parameter(value) is None
        ]

    def join(self, node: Node) -> Join | None:
        if len(node.outputs) != 1 or not OPERATORS[node.op].has("elementwise") or node.output.type.dtype is not F32:
            return None
        operands = self.activations(node)
        found = [(source, number) for number in operands if (source := self.source(node.inputs[number])) is not None]
        if len(operands) < 2 or not found:
            return None
        # `fuse` visits contractions in order, so the group of the first convolution takes the node.
        (_, convolution, weight), inner = min(found, key=lambda pair: pair[0][0])
        return Join(node, convolution, weight, tuple(number for number in operands if number != inner))
