"""Where what a convolution gives is put together with other activations, as a residual is: which of them lie in memory.

An addition is computed where the convolution is, so that its sums never leave the registers; what it is added to has to
be read. Nothing is changed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ..dialect.graph import Function, Node, Parameter, Value
from ..dialect.ops import OPERATORS
from ..dialect.types import F32
from .factors import Origins, factors_of
from .rewrite import count_uses
from .selection import CLASSES


@dataclass(frozen=True, slots=True)
class Join:
    """An elementwise node of several activations in f32, of which the `convolution` with the `weight` gives one, and
    nobody else reads that. `others` are the numbers of the operands that are read from memory."""

    node: Node
    convolution: Node
    weight: str
    others: tuple[int, ...]


def find_joins(function: Function, parameters: Mapping[str, Parameter]) -> Mapping[str, Join]:
    """By the names of what they give; outside of loops."""
    finder = _Finder(count_uses(function.body, function.results), parameters)
    joins: dict[str, Join] = {}
    for node in function.body:
        join = finder.join(node)
        if join is not None:
            joins[node.output.name] = join
        finder.see(node)
    return joins


class _Finder:
    """Has seen the nodes up to one."""

    def __init__(self, uses: Counter[str], parameters: Mapping[str, Parameter]) -> None:
        self.uses = uses
        self.definitions: dict[str, Node] = {}
        self.origins = Origins(self.definitions, parameters)
        self.sources: dict[str, tuple[int, Node, str]] = {}
        """The place, the node and the weight of the convolution that gives a value, where nobody reads what lies
        between."""

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
        """That of a convolution."""
        if node.op not in CLASSES["convolution"]:
            return None
        return next((f.parameter for f in factors_of(node, self.origins) if f.parameter is not None), None)

    def source(self, value: Value) -> tuple[int, Node, str] | None:
        return self.sources.get(value.name) if self.uses[value.name] == 1 else None

    def activations(self, node: Node) -> list[int]:
        """The operands with the shape of the result that are computed in a call."""
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
        # The group of the first one takes the node: `fuse` goes through contractions in order.
        (_, convolution, weight), inner = min(found, key=lambda pair: pair[0][0])
        return Join(node, convolution, weight, tuple(number for number in operands if number != inner))
