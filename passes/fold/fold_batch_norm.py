"""`fold-batch-norm`: folds per-channel scales and shifts after a contraction into its weight and one shift."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from ...dialect.dims import Shape
from ...dialect.graph import Function, Module, Node, Value, walk
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Builder, Channels
from ...dialect.ops import OPERATORS
from ..analysis.factors import Origins, table_of
from ..analysis.known_values import KnownValues, definitions_in
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter, count_uses


@dataclass(frozen=True)
class FoldBatchNorm(Pass):
    """Folds scales and shifts by parameters and constants into the weights and the bias of the preceding contraction.

    - `batch_norm(x)` with known statistics becomes `x * scale + shift`, for any x
    - `contraction(x, w, bias) * scale` becomes `contraction(x, w * scale, bias * scale)`, and likewise for `/`
    - `(x + shift) * scale` becomes `x * scale + shift * scale`, and `(x + a) + b` becomes `x + (a + b)`, where x is a
      contraction; shifts are added to its bias, if it has one

    The scale of a product with a table whose rows are also looked up stays, because the scaled table would be stored
    beside the table.

    Applies to floats only. The pass changes rounding: a scaled weight is rounded once more, and sums start from other
    values. It leaves expressions of parameters, which `fold-parameters` computes at compile time. Without that pass
    they would be computed in each call.
    """

    name: ClassVar[str] = "fold-batch-norm"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Folder(function, module, context).run())


def _find_channels(node: Node) -> Channels | None:
    find = OPERATORS[node.op].channels
    return None if find is None else find(dict(node.attributes))


def _channels_of(contraction: Node) -> Channels:
    channels = _find_channels(contraction)
    assert channels is not None, contraction
    return channels


class _Folder(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context) -> None:
        super().__init__(function)
        self.context = context
        self.known = KnownValues(self.definitions, module.parameter_index)
        self.uses = count_uses(function.body, function.results)
        self.origins = Origins(self.definitions, module.parameter_index)
        before = Origins(definitions_in(function.body), module.parameter_index)
        tables = (table_of(node, before) for node in walk(function.body))
        self.tables = {table.parameter for table in tables if table is not None}
        self.rules: Mapping[str, Callable[[Node, NodeBuilder], Value | None]] = {
            "batch_norm": self.open_norm,
            "multiply": self.scale,
            "divide": self.scale,
            "add": self.shift,
            "subtract": self.shift,
        }

    def visit(self, node: Node) -> Replacement | None:
        rule = self.rules.get(node.op)
        if rule is None or not node.output.type.dtype.is_float:
            return None
        builder = NodeBuilder(self.names, node)
        value = rule(node, builder)
        if value is None or value.type != node.output.type or not self.context.allow(node.op, node):
            return None
        return Replacement(tuple(builder.nodes), (value,))

    def open_norm(self, node: Node, b: NodeBuilder) -> Value | None:
        if not all(self.known.find(v) for v in node.inputs[1:]):
            return None
        decompose = OPERATORS[node.op].decompose
        assert decompose is not None
        return decompose(b, node.inputs, dict(node.attributes))[0]

    def scale(self, node: Node, b: NodeBuilder) -> Value | None:
        for x, scale in self.operands(node):
            inner = self.only_use(x, "add", "subtract")
            for y, shift in self.operands(inner) if inner is not None else ():
                if inner is not None and self.contraction(y) is not None:
                    # (y + shift) * scale == y * scale + shift * scale
                    scaled = b.apply(node.op, [y, scale])[0]
                    return _apply(b, inner.op, scaled, _merged(b, node.op, shift, scale))
            return self.scale_weight(node.op, x, scale, b)
        return None

    def scale_weight(self, op: str, x: Value, scale: Value, b: NodeBuilder) -> Value | None:
        """Returns `contraction(...) op scale` as a contraction with a scaled weight."""
        contraction = self.contraction(x)
        if contraction is None:
            return None
        if self.origins.parameter(contraction.inputs[1]) in self.tables:
            return None
        channels = _channels_of(contraction)
        vector = _per_channel(b, scale, x.type.shape, channels.result_axis)
        if vector is None:
            return None
        data, weight, *bias = contraction.inputs
        operands = [data, b.apply(op, [weight, _along(b, vector, weight.type.rank, channels.weight_axis)])[0]]
        operands += [b.apply(op, [v, vector])[0] for v in bias]
        return b.apply(contraction.op, operands, dict(contraction.attributes))[0]

    def shift(self, node: Node, b: NodeBuilder) -> Value | None:
        for x, second in self.operands(node):
            inner = self.only_use(x, "add", "subtract")
            for y, first in self.operands(inner) if inner is not None else ():
                if inner is not None and self.contraction(y) is not None:
                    # y + a - b == y + (a - b), y - a - b == y - (a + b)
                    merge = node.op if inner.op == "add" else _OPPOSITE[node.op]
                    return _apply(b, inner.op, y, _merged(b, merge, first, second))
            return self.shift_bias(node.op, x, second, b)
        return None

    def shift_bias(self, op: str, x: Value, shift: Value, b: NodeBuilder) -> Value | None:
        """Returns `contraction(x, w, bias) op shift` as a contraction with a shifted bias."""
        contraction = self.contraction(x)
        if contraction is None or len(contraction.inputs) < 3:
            return None
        data, weight, bias = contraction.inputs
        vector = _per_channel(b, shift, x.type.shape, _channels_of(contraction).result_axis)
        if vector is None:
            return None
        return b.apply(contraction.op, [data, weight, b.apply(op, [bias, vector])[0]], dict(contraction.attributes))[0]

    def operands(self, node: Node) -> list[tuple[Value, Value]]:
        """Returns the pairs of a computed and a known operand: at most one."""
        x, y = node.inputs
        pairs = [(x, y), (y, x)] if OPERATORS[node.op].has("commutative") else [(x, y)]
        return [(a, b) for a, b in pairs if self.known.find(b) and not self.known.find(a)]

    def only_use(self, value: Value, *ops: str) -> Node | None:
        node = self.definitions.get(value.name)
        # The counts omit values that this pass has created: each is created for exactly one use.
        fits = node is not None and (not ops or node.op in ops)
        return node if fits and self.uses[value.name] <= 1 else None

    def contraction(self, value: Value) -> Node | None:
        """Returns the contraction that computes the value, if its weight is known and the value has this one use."""
        node = self.only_use(value)
        if node is None or _find_channels(node) is None or not all(map(self.known.find, node.inputs[1:])):
            return None
        if node.attribute("into") is not None:
            # The scale has the dtype of the sums: the weight cannot hold the product.
            return None
        return node


_OPPOSITE = {"add": "subtract", "subtract": "add"}


def _apply(b: Builder, op: str, x: Value, y: Value | None) -> Value | None:
    return None if y is None else b.apply(op, [x, y])[0]


def _merged(b: Builder, op: str, x: Value, y: Value) -> Value | None:
    """Combines two values if the result is not larger than both of them."""
    value = b.apply(op, [x, y])[0]
    return value if value.type.elements in (x.type.elements, y.type.elements) else None


def _per_channel(b: Builder, value: Value, shape: Shape, axis: int) -> Value | None:
    """Returns the vector along one axis, or the scalar, that is broadcast to `shape`; None if it varies along other
    axes."""
    if value.type.elements == 1:
        return b.reshape(value, shape=()) if value.type.rank else value
    axis %= len(shape)
    offset = len(shape) - value.type.rank
    if any(size != 1 and offset + i != axis for i, size in enumerate(value.type.shape)):
        return None
    return b.reshape(value, shape=(shape[axis],)) if value.type.rank > 1 else value


def _along(b: Builder, vector: Value, rank: int, axis: int) -> Value:
    """Returns the vector with axes of size 1 after it, so that it is broadcast along the axis of a tensor."""
    if vector.type.rank == 0 or axis % rank == rank - 1:
        return vector
    return b.reshape(vector, shape=(*vector.type.shape, *(1,) * (rank - 1 - axis % rank)))
