"""Rules of `channels-last`: the computation of each kind of node in channels-last layout.

A rule receives a node whose operands may exist in channels-last layout, [N, *spatial, C], in channels-first layout, or
in both. It writes the node in the new layout and returns the results, or None if the node should stay as it is.

Rules renumber axes: with [N, C, H, W] as 0 1 2 3, the new layout has them in the order 0 2 3 1. So `concat` along axis
1 becomes `concat` along axis 3, and `mean` over the axes (2, 3) becomes `mean` over (1, 2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from ...dialect.dims import DimError, Shape, Size, bounds, product
from ...dialect.graph import Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import InferenceError
from ...dialect.ops import OPERATORS, axis_order
from ...dialect.ops.pooling import pool_geometry
from ...dialect.ops.support.common import is_half, lowest
from ...dialect.ops.support.layouts import (
    FIRST,
    FIRST_TO_LAST,
    LAST,
    first_order,
    kernel_first_order,
    kernel_last_order,
    last_order,
    pick,
)
from ...dialect.ops.support.windows import Windows, conv_geometry
from ..analysis.known_values import KnownValues
from ..rewrite import NodeBuilder

MANY_POSITIONS = 400
"""The number of positions of an image that fills the vectors of a matrix product over them well."""
MOVING_POSITIONS = 64
"""The number of positions of all images from which a weight that changes from call to call is transposed: the products
then take longer than the transpose, and several times as long with channels first."""
LONG_ROW = 8
"""The number of positions in a row of an image that fills a vector well enough."""


@dataclass
class Layouts:
    """The available layouts of values, by name."""

    known: KnownValues
    channels: int
    direct: int
    pads: bool = True
    """Whether padding becomes a node."""
    mean: bool = True
    """Whether the mean of a symbolic number of positions counts, rather than the least one."""
    stays: bool = False
    """Whether all convolutions keep their channels first."""
    last: dict[str, Value] = field(default_factory=dict)
    """The values that exist in channels-last layout."""
    only_last: dict[str, Node] = field(default_factory=dict)
    """The values that exist only in channels-last layout, with the node that each comes from."""
    definitions: dict[str, Node] = field(default_factory=dict)

    def is_reason(self, node: Node) -> bool:
        """Returns whether the node is a channels-first convolution that saves more time than transposes around it
        take."""
        if not OPERATORS[node.op].has("convolution") or dict(node.attributes).get("layout") != FIRST:
            return False
        return bounds(node.inputs[1].type.shape[0])[0] >= self.channels and self.is_movable(node)

    def is_weight_reason(self, node: Node) -> bool:
        """Returns whether the node is the channels-first gradient of a weight with enough results for vectors of
        them."""
        if _BY_NAME.get(node.op) is not _weight_gradient or node.attribute("layout") != FIRST:
            return False
        results, groups = node.output.type.shape[0], node.attribute("groups")
        return isinstance(groups, int) and bounds(results)[0] >= groups * self.channels

    def is_small_reason(self, node: Node) -> bool:
        """Returns whether the node is a convolution that runs equally well channels first, so that transposes pay only
        with other convolutions beside it. Such a convolution computes each channel from one channel alone, or is a
        pointwise one over many positions. If the image has a single channel, its vectors run along rows, which requires
        that windows do not lie further apart than elements."""
        if not self.is_reason(node):
            return False
        (_, inputs, *window), positions = node.inputs[1].type.shape, node.output.type.shape[2:]
        alone = all(size == 1 for size in window) and positions == node.inputs[0].type.shape[2:]
        if inputs == 1 and node.inputs[0].type.shape[1] == 1:
            stride = node.attribute("stride")
            step = stride[-1] if isinstance(stride, tuple) else stride
            return step == 1
        return inputs == 1 or (alone and bounds(product(positions))[0] >= MANY_POSITIONS)

    def is_apart(self, node: Node) -> bool:
        """Returns whether the node is a depthwise convolution at every position of images of known size. Row by row it
        runs equally well channels first, where chains of such convolutions can be computed channel by channel."""
        if not self.is_reason(node):
            return False
        x, (results, inputs, *_) = node.inputs[0].type.shape, node.inputs[1].type.shape
        positions, strides = x[2:], dict(node.attributes)["stride"]
        fixed = all(isinstance(size, int) for size in positions) and bounds(positions[-1])[0] >= LONG_ROW
        definition = self.known.definitions.get(node.inputs[0].name)
        turned = definition is not None and axis_order(definition) is not None
        one = strides == 1 or (isinstance(strides, tuple) and set(strides) == {1})
        return inputs == 1 and results == x[1] and fixed and one and not turned

    def is_movable(self, node: Node) -> bool:
        """Returns whether the weight and the bias of a convolution may be transposed: when the artifact is written, or
        in each call, if enough positions share the weight."""
        least, greatest = bounds(product((node.inputs[0].type.shape[0], *node.output.type.shape[2:])))
        positions = (least + greatest) // 2 if self.mean else least
        return positions >= MOVING_POSITIONS or all(map(self.known.is_known, node.inputs[1:]))


@dataclass(frozen=True, slots=True)
class Made:
    """The values for the results of a node. `last` says whether they are channels last; otherwise the layout is
    unchanged."""

    values: tuple[Value, ...]
    last: bool = True


@dataclass(frozen=True, slots=True)
class Opened:
    """Simpler nodes that replace a node, and to which rules apply in turn."""

    nodes: tuple[Node, ...]
    values: tuple[Value, ...]


class Site:
    """A node, a builder for its replacement, and queries about its operands."""

    def __init__(self, node: Node, b: NodeBuilder, layouts: Layouts) -> None:
        self.node, self.b, self.layouts = node, b, layouts
        self.found: dict[str, Value] = {}

    @property
    def x(self) -> Value:
        return self.node.inputs[0]

    @property
    def rank(self) -> int:
        return self.x.type.rank

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self.node.attributes)

    def wants(self, values: Sequence[Value]) -> bool:
        """Returns whether one of the values exists only channels last, or all of them exist channels last."""
        return any(v.name in self.layouts.only_last for v in values) or (
            bool(values) and all(v.name in self.layouts.last for v in values)
        )

    def last(self, value: Value) -> Value:
        """Returns the value in channels-last layout; transposed here if it does not exist yet."""
        known = self.layouts.last.get(value.name) or self.found.get(value.name)
        if known is not None:
            return known
        order, source = last_order(value.type.rank), value
        inner = self.layouts.definitions.get(value.name)
        axes = None if inner is None else axis_order(inner)
        if inner is not None and axes is not None:
            # transpose(transpose(x, p), q) == transpose(x, p[q])
            source, order = inner.inputs[0], pick(axes, order)
        self.found[value.name] = move(self.b, source, order)
        return self.found[value.name]

    def aligned(self, value: Value, rank: int) -> Value:
        """Returns an operand that is broadcast to a tensor of `rank`, for the channels-last form of that tensor."""
        if value.type.rank == 0:
            return value
        if value.type.rank == rank:
            return self.last(value)
        shape, order = (*(1,) * (rank - value.type.rank), *value.type.shape), last_order(rank)
        if not _moves_elements(shape, order):
            after = pick(shape, order)
            used = next((i for i, size in enumerate(after) if size != 1), len(after) - 1)
            return self.b.reshape(value, shape=after[used:])
        return move(self.b, self.b.reshape(value, shape=shape), order)


def move(b: NodeBuilder, x: Value, order: tuple[int, ...]) -> Value:
    """Transposes the value; emits a view if only axes of size 1 move."""
    if order == tuple(range(len(order))):
        return x
    if _moves_elements(x.type.shape, order):
        return b.transpose(x, axes=order)
    return b.reshape(x, shape=pick(x.type.shape, order))


def _moves_elements(shape: Shape, order: Sequence[int]) -> bool:
    """Returns whether the transpose changes the order of elements in memory. The sizes of the axes do not tell: two
    axes of one size may change places."""
    kept = [axis for axis in order if shape[axis] != 1]
    return kept != sorted(kept)


Rule = Callable[[Site], Made | Opened | None]


def _elementwise(site: Site) -> Made | None:
    rank = site.node.output.type.rank
    full = [v for v in site.node.inputs if v.type.rank == rank and not site.layouts.known.is_known(v)]
    if not site.wants(full):
        return None
    operands = [site.aligned(v, rank) for v in site.node.inputs]
    return Made(site.b.apply(site.node.op, operands, site.attributes))


# Windows


def _convolution(site: Site) -> Made | None:
    node, b = site.node, site.b
    x, weight, *bias = node.inputs
    if site.attributes["layout"] != FIRST or not site.layouts.is_movable(node):
        return None
    is_known = all(map(site.layouts.known.is_known, (weight, *bias)))
    # Few results leave lanes unused. Known weights are packed in panels of such results.
    if not site.layouts.is_reason(node) and not (is_known and site.wants([x])):
        return None
    if site.layouts.stays:
        return _opened(site, x, weight, bias)
    direct = not site.wants([x]) and bounds(x.type.shape[1])[1] <= site.layouts.direct
    attributes = site.attributes | {"layout": FIRST_TO_LAST if direct else LAST}
    if not direct:
        x = site.last(x)
    weight = move(b, weight, kernel_last_order(weight.type.rank))
    w = conv_geometry(node.op, node.inputs[0].type.shape[2:], node.inputs[1].type.shape[2:], site.attributes)
    x, attributes = _padded(site, x, w, 0, attributes, 2 if direct else 1)
    return Made((_with_bias(site, x, weight, bias, attributes),))


def _weight_gradient(site: Site) -> Made | None:
    """Rewrites the gradient of a weight between transposes of its own, so that a single one does not change the layout
    of its neighbours."""
    node, b = site.node, site.b
    if not site.layouts.is_weight_reason(node):
        return None
    x, g = (site.layouts.last.get(v.name) or move(b, v, last_order(v.type.rank)) for v in node.inputs)
    kernel = node.output.type.shape[2:]
    w = conv_geometry(node.op, node.inputs[0].type.shape[2:], kernel, site.attributes)
    attributes = site.attributes | {"layout": LAST}
    pairs = tuple(zip(w.low, w.high, strict=True))
    if any(pair != (0, 0) for pair in pairs):
        x, attributes["padding"] = b.pad(x, widths=((0, 0), *pairs, (0, 0))), 0
    value = b.apply(node.op, [x, g], attributes)[0]
    return Made((move(b, value, kernel_first_order(value.type.rank)),), last=False)


def _with_bias(site: Site, x: Value, weight: Value, bias: Sequence[Value], attributes: dict[str, Any]) -> Value:
    """Returns the convolution with its bias as a node after it. A 16-bit result is rounded once, after the bias, so the
    bias stays inside."""
    b = site.b
    if not bias or is_half(site.node.output.type.dtype):
        return b.apply(site.node.op, [x, weight, *bias], attributes)[0]
    (value,) = b.apply(site.node.op, [x, weight], attributes)
    (added,) = bias
    if attributes["layout"] == FIRST:
        added = b.reshape(added, shape=(*added.type.shape, *(1,) * (x.type.rank - 2)))
    return b.add(value, added)


def _opened(site: Site, x: Value, weight: Value, bias: Sequence[Value]) -> Made:
    """Returns the channels-first convolution, with its padding and its bias as nodes."""
    w = conv_geometry(site.node.op, x.type.shape[2:], weight.type.shape[2:], site.attributes)
    x, attributes = _padded(site, x, w, 0, site.attributes, 2)
    return Made((_with_bias(site, x, weight, bias, attributes),), last=False)


def _padded(
    site: Site, x: Value, w: Windows, value: float | int, attributes: dict[str, Any], axis: int
) -> tuple[Value, dict[str, Any]]:
    """Returns the operand with the padding of its windows as a node, and the attributes without the padding, if they
    can express it."""
    pairs = list(zip(w.low, w.high, strict=True))
    if all(pair == (0, 0) for pair in pairs) or w.ceil or not site.layouts.pads:
        return x, attributes
    widths: list[tuple[Size, Size]] = [(0, 0)] * x.type.rank
    widths[axis : axis + len(pairs)] = pairs
    operands = (*site.node.inputs[1:2],)
    rank, last = x.type.rank, attributes["layout"] != FIRST
    kernel, result = (kernel_last_order(rank), first_order(rank)) if last else (range(rank), range(rank))
    before = len(site.b.nodes)
    try:
        padded = site.b.pad(x, widths=tuple(widths), value=value)
        changed = attributes | {"padding": 0}
        types = [padded.type, *(v.type.with_shape(pick(v.type.shape, kernel)) for v in operands)]
        (type,) = OPERATORS[site.node.op].check(types, changed)
        if pick(type.shape, result) == site.node.output.type.shape:
            return padded, changed
    except (InferenceError, DimError):
        pass
    del site.b.nodes[before:]
    return x, attributes


def _pool(site: Site) -> Made | None:
    if site.attributes["layout"] != FIRST or not site.wants([site.x]):
        return None
    return Made(site.b.apply(site.node.op, [site.last(site.x)], site.attributes | {"layout": LAST}))


def _max_pool(site: Site) -> Made | None:
    if site.attributes["layout"] != FIRST or not site.wants([site.x]):
        return None
    w = pool_geometry(site.node.op, site.x.type.shape[2:], site.attributes)
    attributes = site.attributes | {"layout": LAST}
    x, attributes = _padded(site, site.last(site.x), w, lowest(site.x.type.dtype), attributes, 1)
    return Made(site.b.apply(site.node.op, [x], attributes))


# Along axes


def _axis(site: Site, axis: Any) -> int:
    """Returns the position of an axis of the operand in channels-last layout."""
    return last_order(site.rank).index(int(axis) % site.rank)


def _along_axis(site: Site) -> Made | None:
    """Rewrites operators whose attribute `axis` names one axis, which their results keep."""
    if not site.wants(site.node.inputs):
        return None
    operands = [site.last(v) for v in site.node.inputs]
    return Made(site.b.apply(site.node.op, operands, site.attributes | {"axis": _axis(site, site.attributes["axis"])}))


def _gather(site: Site) -> Made | None:
    x, indices = site.node.inputs
    if not site.wants([x]) or indices.type.rank != 1:
        return None
    return Made(
        (site.b.gather(site.last(x), indices, axis=_axis(site, site.attributes["axis"]), mode=site.attributes["mode"]),)
    )


def _batch_norm(site: Site) -> Made | None:
    if not site.wants([site.x]):
        return None
    operands = [site.last(site.x), *site.node.inputs[1:]]
    return Made(site.b.apply(site.node.op, operands, site.attributes | {"axis": _axis(site, site.attributes["axis"])}))


def _reduction(site: Site) -> Made | None:
    attributes = site.attributes
    axis = attributes.get("axis")
    if axis is None or not site.wants([site.x]) or len(site.node.outputs) != 1:
        return None
    named = [a % site.rank for a in (axis if isinstance(axis, tuple) else (axis,))]
    moved = [_axis(site, a) for a in named]
    attributes["axis"] = tuple(sorted(moved)) if isinstance(axis, tuple) else moved[0]
    kept = [a for a in range(site.rank) if a not in named]
    after = [a for a in last_order(site.rank) if a not in named]
    keeps = bool(attributes.get("keepdims"))
    # The result stays channels last without some spatial axes, as long as batch and channels remain.
    stays_last = keeps or (kept[:2] == [0, 1] and len(kept) > 2)
    if not stays_last and kept != after:
        return None
    return Made(site.b.apply(site.node.op, [site.last(site.x)], attributes), stays_last)


# Element order


def _pad(site: Site) -> Made | None:
    widths = site.attributes["widths"]
    if not site.wants([site.x]) or not isinstance(widths, tuple):
        return None
    pairs = widths if len(widths) == site.rank else tuple(zip(widths[::2], widths[1::2], strict=True))
    if not all(isinstance(pair, tuple) for pair in pairs):
        return None
    moved = pick(pairs, last_order(site.rank))
    return Made(site.b.apply("pad", [site.last(site.x)], site.attributes | {"widths": moved}))


def _slice(site: Site) -> Made | None:
    bounds = {name: site.attributes[name] for name in ("starts", "stops", "steps")}
    moved: dict[str, Any] = {}
    for name, value in bounds.items():
        if isinstance(value, tuple) and len(value) == site.rank:
            moved[name] = pick(value, last_order(site.rank))
        elif value is None or (name == "steps" and isinstance(value, int)):
            moved[name] = value
        else:
            return None
    return Made(site.b.apply("slice", [site.last(site.x)], moved)) if site.wants([site.x]) else None


def _view(site: Site) -> Made | None:
    """Rewrites a view. With one spatial position, the order of the elements is the same in both layouts."""
    if not site.wants([site.x]) or any(size != 1 for size in site.x.type.shape[2:]):
        return None
    return Made((site.b.reshape(site.last(site.x), shape=site.node.output.type.shape),), last=False)


def _transpose(site: Site) -> Made | None:
    axes = site.attributes["axes"]
    if site.x.name not in site.layouts.only_last or not isinstance(axes, tuple):
        return None
    order = pick(first_order(site.rank), [a % site.rank for a in axes])
    return Made((move(site.b, site.last(site.x), order),), last=False)


def _open(site: Site) -> Opened | None:
    """Opens operators that are defined by others; all of these have rules."""
    decompose = OPERATORS[site.node.op].decompose
    if not site.wants([site.x]) or decompose is None:
        return None
    values = tuple(decompose(site.b, site.node.inputs, site.attributes))
    return Opened(tuple(site.b.nodes), values)


_BY_NAME: Mapping[str, Rule] = {
    **{f"conv{rank}d": _convolution for rank in (1, 2, 3)},
    "conv_weight_gradient": _weight_gradient,
    **{f"avg_pool{rank}d": _pool for rank in (1, 2, 3)},
    **{f"max_pool{rank}d": _max_pool for rank in (1, 2, 3)},
    "max_pool_indices": _pool,
    "batch_norm": _batch_norm,
    "global_avg_pool": _open,
    "global_max_pool": _open,
    "resize": _open,
    "gather": _gather,
    "concat": _along_axis,
    "split": _along_axis,
    "softmax": _along_axis,
    "log_softmax": _along_axis,
    "cumsum": _along_axis,
    "repeat_interleave": _along_axis,
    "pad": _pad,
    "slice": _slice,
    "transpose": _transpose,
    **{name: _view for name in ("reshape", "flatten", "squeeze")},
}
assert all(name in OPERATORS for name in _BY_NAME), "a rule is for an unknown operator"


def rule_of(node: Node) -> Rule | None:
    operator = OPERATORS[node.op]
    if node.regions or not node.inputs or max(v.type.rank for v in node.inputs) < 3:
        return None
    if node.op in _BY_NAME:
        return _BY_NAME[node.op]
    if operator.has("elementwise") and len(node.outputs) == 1:
        return _elementwise
    return _reduction if operator.has("reduction") and operator.row_axes is not None else None
