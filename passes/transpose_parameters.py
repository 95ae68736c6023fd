"""`transpose-parameters`: a parameter that is only read transposed is stored that way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..dialect.graph import Function, Module, Node, Parameter
from .manager import Context, Pass
from .rewrite import Replacement, Rewriter


@dataclass(frozen=True)
class TransposeParameters(Pass):
    """Replaces a transpose of a parameter by a parameter that is transposed when it is read from the checkpoint.

    Leaves a second parameter under the name of the first and its axes, `weight.transposed_1_0`; the first one goes in
    `dce` if nothing else uses it. No call then pays for what the compiler can do once.
    """

    name: ClassVar[str] = "transpose-parameters"

    def rewrite(self, module: Module, context: Context) -> Module:
        added: dict[str, Parameter] = {}
        changed = module.map_functions(lambda f: _Transposer(f, module, context, added).run())
        return replace(changed, parameters=(*changed.parameters, *added.values()))


class _Transposer(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context, added: dict[str, Parameter]) -> None:
        super().__init__(function)
        self.module, self.context, self.added = module, context, added

    def visit(self, node: Node) -> Replacement | None:
        axes = _axes(node)
        source = self.definitions.get(node.inputs[0].name) if axes is not None else None
        if axes is None or source is None or source.op != "parameter":
            return None
        name = str(source.attribute("name"))
        transposed = _transposed(self.added.get(name) or self.module.parameter_index[name], axes)
        if not self.context.allow("store-transposed", node):
            return None
        self.added[transposed.name] = transposed
        read = replace(
            source, outputs=node.outputs, attributes=(("name", transposed.name),), scope=node.scope, span=node.span
        )
        return Replacement((read,), node.outputs)


def _axes(node: Node) -> tuple[int, ...] | None:
    """The permutation that a node applies to all axes, or None if it is no transpose."""
    if node.op == "matrix_transpose":
        rank = node.output.type.rank
        return (*range(rank - 2), rank - 1, rank - 2)
    if node.op != "transpose":
        return None
    axes = node.attribute("axes")
    rank = node.output.type.rank
    if axes is None:
        return tuple(reversed(range(rank)))
    assert isinstance(axes, tuple), node
    return tuple(axis % rank for axis in axes if isinstance(axis, int))


def _transposed(parameter: Parameter, axes: tuple[int, ...]) -> Parameter:
    # transpose(transpose(x, before), axes) == transpose(x, before[axes])
    before = parameter.transpose or tuple(range(len(axes)))
    return replace(
        parameter,
        name=f"{parameter.name}.transposed_{'_'.join(map(str, axes))}",
        type=parameter.type.with_shape(parameter.type.shape[axis] for axis in axes),
        source=parameter.key,
        transpose=tuple(before[axis] for axis in axes),
    )
