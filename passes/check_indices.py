"""`check-indices`: indices that may be out of range are checked by nodes of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

from ..dialect.dims import Size
from ..dialect.graph import Function, Module, Node, Value, walk
from ..dialect.operator import Addressing, Attributes, Builder
from ..dialect.ops import OPERATORS
from ..dialect.ops.common import size_as
from ..dialect.types import I64
from .manager import Context, Pass
from .rewrite import NodeBuilder, Replacement, Rewriter


@dataclass(frozen=True)
class CheckIndices(Pass):
    """Gives every node whose mode is `error` the mode `clamp`, and writes a `check_indices` before it.

        %y = gather(%x, %i) {mode = "error"}
        ->
        %c = check_indices(%i) {operator = "gather", sizes = (5,), window = 1}
        %y = gather(%x, %i) {mode = "clamp"}

    A read whose mode is `drop` becomes one with `clamp` and a `where` that puts zeros, so that every `movement` behind
    this pass copies elements and makes none. Writes keep that mode.

    Other passes assume that this one has run, since a check stays where the node that it checks for goes. So it
    rewrites all nodes, whatever the limit of rewrites.
    """

    name: ClassVar[str] = "check-indices"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Checker(function, context).run())


def has_unchecked_indices(nodes: Sequence[Node]) -> bool:
    """Does the mode of any node say `error`?"""
    return any(_mode(node) == "error" for node in walk(nodes))


def _mode(node: Node) -> object:
    return dict(node.attributes).get("mode") if OPERATORS[node.op].addresses is not None else None


def _is_inside(b: Builder, indices: Value, size: Size) -> Value:
    indices, zero, end = b.cast(indices, dtype=I64), b.scalar(0, I64), size_as(b, size, I64)
    from_start = b.where(b.less(indices, zero), b.add(indices, end), indices)
    return b.logical_and(b.greater_equal(from_start, zero), b.less(from_start, end))


def _slices(b: Builder, x: Value, indices: Value, axis: int) -> Value:
    inside = _is_inside(b, indices, x.type.shape[axis])
    return b.reshape(inside, shape=(*indices.type.shape, *(1,) * (x.type.rank - axis % x.type.rank - 1)))


def _rows(b: Builder, x: Value, indices: Value) -> Value:
    depth = indices.type.shape[-1]
    assert isinstance(depth, int), indices
    columns = (b.gather(indices, b.scalar(i, I64), axis=-1, mode="clamp") for i in range(depth))
    inside = reduce(b.logical_and, (_is_inside(b, c, n) for c, n in zip(columns, x.type.shape, strict=False)))
    return b.reshape(inside, shape=(*indices.type.shape[:-1], *(1,) * (x.type.rank - depth)))


_INSIDE: Mapping[str, Callable[[Builder, Value, Value, Attributes], Value]] = {
    "gather": lambda b, x, indices, attributes: _slices(b, x, indices, attributes["axis"]),
    "embedding": lambda b, x, indices, attributes: _slices(b, x, indices, 0),
    "take_along_axis": lambda b, x, indices, attributes: _is_inside(b, indices, x.type.shape[attributes["axis"]]),
    "gather_nd": lambda b, x, indices, attributes: _rows(b, x, indices),
}
"""Which elements of the result of a read come from inside of the tensor: a mask that broadcasts to the result."""


class _Checker(Rewriter):
    def __init__(self, function: Function, context: Context) -> None:
        super().__init__(function)
        self.context = context

    def visit(self, node: Node) -> Replacement | None:
        mode, addresses = _mode(node), OPERATORS[node.op].addresses
        is_read = node.op in _INSIDE
        if addresses is None or not (mode == "error" or (mode == "drop" and is_read)):
            return None
        self.context.count(str(mode), node)
        b = NodeBuilder(self.names, node)
        attributes = dict(node.attributes)
        if mode == "error":
            for use in addresses([v.type for v in node.inputs], attributes):
                _write_check(b, node, use)
        values = b.apply(node.op, node.inputs, attributes | {"mode": "clamp"})
        if mode == "drop":
            (value,) = values
            x, indices = node.inputs
            inside = _INSIDE[node.op](b, x, indices, attributes)
            values = (b.where(inside, value, b.like(0, value)),)
        return Replacement(tuple(b.nodes), values)


def _write_check(b: Builder, node: Node, use: Addressing) -> None:
    b.check_indices(node.inputs[use.operand], sizes=use.sizes, window=use.window, operator=node.op)
