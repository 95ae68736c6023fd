"""`check-indices`: inserts separate nodes that check indices which may be out of range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ...dialect.dims import add, at_least, multiply
from ...dialect.graph import Function, Module, Node, constant_of, walk
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.ops.support.index_modes import FAILING_MODES
from ..manager import Context, Pass
from ..rewrite import Names, NodeBuilder, Replacement, Rewriter


@dataclass(frozen=True)
class CheckIndices(Pass):
    """Replaces the modes `error` and `nonnegative` of index operators by `clamp`, and inserts a `check_indices`.

        %y = gather(%x, %i) {mode = "error"}
        ->
        %c = check_indices(%i) {operator = "gather", sizes = (5,), window = 1}
        %y = gather(%x, %i) {mode = "clamp"}

    An index that is constant, and inside for all values of the dims, needs no check.

    The result of a check is a record of four integers: the number of the first index out of range, or -1, its value,
    and the sizes of its axis and of the window. The entry reads it and fails the call.

    A read with the mode `drop` becomes a read with `clamp` and a `where` that inserts zeros, so that after this pass
    every `movement` only copies elements. Writes keep that mode.

    Other passes assume that this one has run, since they may remove a checked node without its check. It therefore
    rewrites all nodes, even while `nacre bisect` limits the number of rewrites.
    """

    name: ClassVar[str] = "check-indices"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Checker(function, context).run())


def has_unchecked_indices(nodes: Sequence[Node]) -> bool:
    """Returns whether an index out of range may fail any node."""
    return any(map(fails_outside, walk(nodes)))


def check_node(names: Names, node: Node, operator: str) -> tuple[Node, ...]:
    """Returns the checks of a node with a mode that fails, and the node, which clamps instead. The checks report
    `operator`: a node from a decomposition reports the operator that the model calls."""
    addresses = OPERATORS[node.op].addresses
    assert addresses is not None, node.op
    b = NodeBuilder(names, node)
    for use in addresses([v.type for v in node.inputs], dict(node.attributes)):
        indices = node.inputs[use.operand]
        if use.ignored is not None:
            counted = b.not_equal(indices, b.like(use.ignored, indices))
            indices = b.where(counted, indices, b.like(0, indices))
        b.check_indices(indices, sizes=use.sizes, window=use.window, operator=operator, from_end=use.from_end)
    attributes = tuple((name, "clamp" if name == "mode" else value) for name, value in node.attributes)
    return (*b.nodes, replace(node, attributes=attributes))


def fails_outside(node: Node) -> bool:
    """Returns whether a node fails the call if an index is out of range."""
    return _mode(node) in FAILING_MODES


def _mode(node: Node) -> object:
    return dict(node.attributes).get("mode") if OPERATORS[node.op].addresses is not None else None


class _Checker(Rewriter):
    def __init__(self, function: Function, context: Context) -> None:
        super().__init__(function)
        self.context = context

    def _holds(self, node: Node) -> bool:
        """Returns whether a node checks a constant scalar that is inside for all values of the dims."""
        if not OPERATORS[node.op].has("checking") or node.inputs[0].type.rank:
            return False
        definition = self.definitions.get(node.inputs[0].name)
        constant = None if definition is None else constant_of(definition)
        if constant is None or constant.array is None:
            return False
        attributes: Mapping[str, Any] = dict(node.attributes)
        index = int(constant.array)
        (size,) = attributes["sizes"]
        return index >= 0 and at_least(add(size, multiply(-1, attributes["window"])), index)

    def visit(self, node: Node) -> Replacement | None:
        mode, addresses = _mode(node), OPERATORS[node.op].addresses
        inside = OPERATORS[node.op].inside
        if addresses is None or not (fails_outside(node) or (mode == "drop" and inside is not None)):
            return None
        self.context.count(str(mode), node)
        if fails_outside(node):
            *checks, clamping = check_node(self.names, node, node.op)
            needed = [check for check in checks if not self._holds(check)]
            return Replacement((*needed, clamping), clamping.outputs)
        b = NodeBuilder(self.names, node)
        attributes = dict(node.attributes)
        values = b.apply(node.op, node.inputs, attributes | {"mode": "clamp"})
        assert inside is not None, node.op
        (value,) = values
        values = (b.where(inside(b, node.inputs, attributes), value, b.like(0, value)),)
        return Replacement(tuple(b.nodes), values)
