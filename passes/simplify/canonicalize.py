"""`canonicalize`: rewrites equivalent expressions to one form.

The rules are in `arithmetic_rules` (numbers), `element_rules` (casts, choices, logic), `mask_rules` (triangles),
`movement_rules` (elements that are only moved), `structure_rules` (axes, loops) and `control_rules` (loops and branches
at call time). This file applies them; it compares no operator by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...dialect.graph import Function, Module, Node
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter
from . import arithmetic_rules, control_rules, element_rules, mask_rules, movement_rules, structure_rules
from .rules import Match, Rule, results_of

_TABLES = (structure_rules, control_rules, mask_rules, element_rules, arithmetic_rules, movement_rules)
GENERAL: tuple[Rule, ...] = tuple(rule for table in _TABLES for rule in table.GENERAL)
BY_NAME: dict[str, tuple[Rule, ...]] = {
    name: tuple(rule for table in _TABLES for rule in table.BY_NAME.get(name, ())) for name in OPERATORS
}
assert all(name in OPERATORS for table in _TABLES for name in table.BY_NAME), "a rule is for an unknown operator"


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Applies algebraic simplifications that hold for every value, including NaN, infinities, signed zeros and wrapping
    integers.

    For example, `x - 0.0` becomes `x`, but `x + 0.0` stays (it turns -0.0 into 0.0); `x * 0` becomes 0 for integers
    only. The one exception is rounding: `power(x, 2)` becomes `square(x)`, which is the better rounded of the two.
    After the pass, constants are the right operands of commutative operators, and axes count from 0. Leaves unused
    nodes to `dce`.
    """

    name: ClassVar[str] = "canonicalize"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Canonicalizer(function, context).run())


class _Canonicalizer(Rewriter):
    def __init__(self, function: Function, context: Context) -> None:
        super().__init__(function)
        self.context = context

    def rules(self, node: Node) -> Iterator[Rule]:
        yield from GENERAL
        yield from BY_NAME[node.op]

    def visit(self, node: Node) -> Replacement | None:
        builder = NodeBuilder(self.names, node)
        match = Match(node, builder, self.definitions)
        for rule in self.rules(node):
            if builder.nodes:
                # The rule before has written nodes, and found that it does not apply.
                builder = NodeBuilder(self.names, node)
                match = Match(node, builder, self.definitions)
            values = rule(match)
            if values is None:
                continue
            if not self.context.allow(rule.__name__.replace("_", "-"), node):
                return None
            return Replacement(tuple(builder.nodes), results_of(values))
        return None
