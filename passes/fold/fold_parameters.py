"""`fold-parameters`: moves parameter-only subgraphs to build time, where each is computed once."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from ...dialect.graph import Formula, Function, Module, Node, Parameter, Value, parameter_of
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ..analysis.known_values import KnownValues, definitions_in, last_known
from ..manager import Context, Pass
from ..rewrite import Replacement, Rewriter


@dataclass(frozen=True)
class FoldParameters(Pass):
    """Replaces parameter-only subgraphs by parameters with a formula.

    The pass computes no data. The data of such a parameter, named `weight.folded` or `weight.codes`, are computed when
    weights are written, in float64 with one rounding at the end, so the last bits of a folded value may differ from the
    result of a call. With `stepwise`, each node of a formula is rounded to its dtype, as in a call. With `moves-only`,
    only data movement is folded, which changes no bit. With `blocks-only`, only quantized values and scales are folded.
    A value that is larger than its operands, such as a broadcast, is folded only as part of a smaller one, such as a
    sum. A view at the end is not folded, because it costs nothing. `dce` removes unused parameters and nodes.
    """

    name: ClassVar[str] = "fold-parameters"
    stepwise: bool = False
    moves_only: bool = False
    blocks_only: bool = False

    def rewrite(self, module: Module, context: Context) -> Module:
        added = _Added(module)
        changed = module.map_functions(lambda f: _Folder(f, module, context, added, self).run())
        return replace(changed, parameters=(*changed.parameters, *added.parameters))


class _Added:
    """The new parameters. Equal formulas share one parameter."""

    def __init__(self, module: Module) -> None:
        self.parameters: list[Parameter] = []
        self._names = {p.name for p in module.parameters}
        self._found = {p.formula: p for p in module.parameters if p.formula is not None}

    def parameter(self, formula: Formula, suffix: str) -> Parameter:
        if formula not in self._found:
            # The name is derived from the largest parameter in the formula. Initial values read none.
            main = max(formula.parameters, key=_bytes, default=None)
            name = self._fresh(f"{'initial' if main is None else main.name}.{suffix}")
            made = Parameter(name, formula.result.type, span=None if main is None else main.span, formula=formula)
            self._found[formula] = made
            self.parameters.append(made)
        return self._found[formula]

    def _fresh(self, stem: str) -> str:
        name, number = stem, 1
        while name in self._names:
            number += 1
            name = f"{stem}_{number}"
        self._names.add(name)
        return name


class _Folder(Rewriter):
    def __init__(
        self, function: Function, module: Module, context: Context, added: _Added, options: FoldParameters
    ) -> None:
        super().__init__(function)
        self.context, self.added, self.stepwise = context, added, options.stepwise
        before = definitions_in(function.body)
        if options.moves_only:
            before = {name: node for name, node in before.items() if _is_moved(node)}
        self.known = KnownValues(before, module.parameter_index)
        if options.blocks_only:
            self.last = {name for name, node in before.items() if _is_plane(node) and self.known.find(node.output)}
        else:
            self.last = last_known(self.known, function.body, function.results, lambda known: known.has_parameter)

    def visit(self, node: Node) -> Replacement | None:
        if parameter_of(node) is not None or self.last.isdisjoint(v.name for v in node.outputs):
            return None
        if not self.context.allow("fold", node):
            return None
        reads = tuple(self._read(value, node) for value in node.outputs)
        return Replacement(reads, node.outputs)

    def _read(self, value: Value, node: Node) -> Node:
        made = self.known.definitions[value.name]
        suffix = made.op.rpartition("_")[-1] if _is_plane(made) or OPERATORS[made.op].has("packed") else "folded"
        parameter = self.added.parameter(self.known.formula(value, stepwise=self.stepwise), suffix)
        return Node("parameter", (), (value,), (("name", parameter.name),), (), node.scope, node.span)


def _bytes(parameter: Parameter) -> int:
    size = parameter.type.bytes
    assert isinstance(size, int), parameter
    return size


def _is_plane(node: Node) -> bool:
    """Returns whether the node reads a plane of a block-quantized tensor."""
    return OPERATORS[node.op].has("blocked") and not node.output.type.dtype.is_blocked


def _is_moved(node: Node) -> bool:
    return OPERATORS[node.op].has("stored") or OPERATORS[node.op].has("movement")
