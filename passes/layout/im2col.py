"""`im2col`: rewrites convolutions of small images as products of patches with the weight as it is stored.

With the patches of all windows as rows p [windows, C * kernel], the weight as a matrix w [out, C * kernel], and the
gradient of the result as rows g [windows, out]:

    convolution            p @ w.T
    its transpose          col2im(g @ w)        sums the patches into the windows that they cover
    gradient of a weight   g.T @ p

Each product reads the weight once for all images. A convolution by windows reads it once for each row of each image,
and rows of fewer positions than registers of sums leave registers unused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from ...dialect.dims import Size, bounds, product
from ...dialect.graph import Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Builder
from ...dialect.ops import OPERATORS
from ...dialect.ops.conv_transpose import transposed_geometry
from ...dialect.ops.support.layouts import FIRST, first_order, last_order
from ...dialect.ops.support.windows import Windows, conv_geometry
from ...dialect.types import F32
from ..analysis.known_values import KnownValues
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter


@dataclass(frozen=True)
class Im2col(Pass):
    """Rewrites convolutions in f32 with weights that change from call to call, transposes of such convolutions, and
    gradients of weights, as matrix products, where a row of results has fewer than `row` elements.

    At least `channels` channels must be read and computed, so that the products take longer than the patches. Known
    weights stay: they are packed when the artifact is written. Assumes channels-first layout, and leaves transposes
    around the channels-last patches to `channels-last`. The pass only reassociates sums.
    """

    name: ClassVar[str] = "im2col"
    row: int = 8
    channels: int = 32

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda f: _Rewriter(f, module, context, self).run())


class _Rewriter(Rewriter):
    def __init__(self, function: Function, module: Module, context: Context, options: Im2col) -> None:
        super().__init__(function)
        self.context, self.options = context, options
        self.known = KnownValues(self.definitions, module.parameter_index)

    def visit(self, node: Node) -> Replacement | None:
        rule = _RULES.get(node.op)
        if rule is None or not self.pays(node) or not self.context.allow(node.op, node):
            return None
        b = NodeBuilder(self.names, node)
        value = rule(b, node)
        return Replacement(tuple(b.nodes), (value,))

    def pays(self, node: Node) -> bool:
        attributes = dict(node.attributes)
        if attributes["groups"] != 1 or attributes.get("layout", FIRST) != FIRST:
            return False
        if any(v.type.dtype is not F32 for v in (*node.inputs, node.output)):
            return False
        is_gradient = not OPERATORS[node.op].has("convolution")
        if not is_gradient and self.known.is_known(node.inputs[1]):
            return False
        weight = node.output if is_gradient else node.inputs[1]
        results, inputs, *kernel = weight.type.shape
        if not all(isinstance(size, int) for size in kernel):
            return False
        if min(bounds(size)[0] for size in (results, inputs)) < self.options.channels:
            return False
        w = _windows_of(node)
        return w.counts == _windows_shape(node) and bounds(w.counts[-1])[1] < self.options.row


def _windows_of(node: Node) -> Windows:
    """Returns the windows of the convolution that the node computes, transposes or differentiates."""
    attributes = dict(node.attributes)
    x, other = node.inputs[:2]
    if OPERATORS[node.op].has("transposed"):
        return transposed_geometry(node.op, x.type.shape[2:], other.type.shape[2:], attributes)
    weight = other if OPERATORS[node.op].has("convolution") else node.output
    return conv_geometry(node.op, x.type.shape[2:], weight.type.shape[2:], attributes)


def _windows_shape(node: Node) -> tuple[Size, ...]:
    """Returns the sizes of the tensor that has an element for each window."""
    if OPERATORS[node.op].has("transposed"):
        return node.inputs[0].type.shape[2:]
    value = node.output if OPERATORS[node.op].has("convolution") else node.inputs[1]
    return value.type.shape[2:]


def _attributes(w: Windows) -> dict[str, object]:
    padding = tuple(zip(w.low, w.high, strict=True))
    return {"kernel": w.kernel, "stride": w.stride, "padding": padding, "dilation": w.dilation}


def _rows(b: Builder, x: Value) -> Value:
    """Returns a channels-first tensor as rows of channels."""
    moved = b.transpose(x, axes=last_order(x.type.rank))
    *positions, channels = moved.type.shape
    return b.reshape(moved, shape=(product(positions), channels))


def _patches(b: Builder, x: Value, w: Windows) -> Value:
    """Returns the windows of a channels-first tensor as rows."""
    (patches,) = b.apply("im2col", [b.transpose(x, axes=last_order(x.type.rank))], _attributes(w))
    *positions, elements = patches.type.shape
    return b.reshape(patches, shape=(product(positions), elements))


def _matrix(b: Builder, weight: Value) -> Value:
    """Returns a weight as a matrix with a row for each index of its first axis."""
    first, *others = weight.type.shape
    return b.reshape(weight, shape=(first, product(others)))


def _convolution(b: Builder, node: Node) -> Value:
    x, weight, *bias = node.inputs
    w = _windows_of(node)
    rows = b.matmul(_patches(b, x, w), b.transpose(_matrix(b, weight), axes=(1, 0)))
    return _with_bias(b, b.reshape(rows, shape=(x.type.shape[0], *w.counts, weight.type.shape[0])), bias)


def _transposed(b: Builder, node: Node) -> Value:
    x, weight, *bias = node.inputs
    w = _windows_of(node)
    rows = b.matmul(_rows(b, x), _matrix(b, weight))
    patches = b.reshape(rows, shape=(x.type.shape[0], *w.counts, rows.type.shape[1]))
    (summed,) = b.apply("col2im", [patches], {"sizes": w.sizes, **_attributes(w)})
    return _with_bias(b, summed, bias)


def _with_bias(b: Builder, y: Value, bias: list[Value]) -> Value:
    """Returns the channels-last result channels first, with a bias."""
    for value in bias:
        y = b.add(y, value)
    return b.transpose(y, axes=first_order(y.type.rank))


def _weight_gradient(b: Builder, node: Node) -> Value:
    x, g = node.inputs
    gradient = b.matmul(b.transpose(_rows(b, g), axes=(1, 0)), _patches(b, x, _windows_of(node)))
    return b.reshape(gradient, shape=node.output.type.shape)


_RULES: Mapping[str, Callable[[Builder, Node], Value]] = {
    **{f"conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d": _transposed for rank in (1, 2, 3)},
    "conv_weight_gradient": _weight_gradient,
}
assert all(name in OPERATORS for name in _RULES), "a rule is for an unknown operator"
