"""What each call of a kernel computes, costs and writes: for a build's report, and for whoever observes an artifact.

Operations are counted as the budgets count them; bytes are those of what a kernel reads and writes, each tensor once,
whatever the caches do. Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..dialect.dims import multiply
from ..dialect.graph import Function, Node
from ..dialect.ops import OPERATORS
from ..dialect.types import DType
from .artifact.spec import CallSpec, OperationSpec, PointSpec, ValueSpec
from .lower.cost import count_bytes, count_operations
from .lower.entry import Failure, Output, Place, Workspace
from .lower.kinds import inner_nodes, kind_of
from .lower.lowered import LoweredFunction
from .lower.plan import LoweredEntry


@dataclass
class Calls:
    """The calls of a function, of which `outputs` are the names of what each writes."""

    function: Function
    makers: dict[str, Node] = field(init=False)
    """By the name of a value: the node of the function that makes it."""

    def __post_init__(self) -> None:
        self.makers = {v.name: node for node in self.function.body for v in node.outputs}

    def node(self, outputs: Sequence[str]) -> Node | None:
        """What a call computes; None is a copy of a result that is an argument, or is there already."""
        return next((self.makers[name] for name in outputs if name in self.makers), None)

    def describe(self, kernel: str, outputs: Sequence[str]) -> CallSpec:
        """What the call of a kernel is, but for where its results lie."""
        node = self.node(outputs)
        if node is None:
            (copied,) = [v for i, v in enumerate(self.function.results) if f"{v.name}.{i}" in outputs]
            copy = ValueSpec(outputs[0], copied.type)
            return CallSpec(kernel, "copy", (), multiply(2, copied.type.bytes), (copy,))
        inner = [n for n in inner_nodes(node) if n.op != "constant"]
        operations = tuple(OperationSpec(n.op, n.scope, n.span, count_operations([n]), _factors(n)) for n in inner)
        # In the order in which the kernel takes them.
        values = tuple(
            ValueSpec(v.name, v.type, operation=_position(maker_inside(node, number), inner))
            for number, v in enumerate(node.outputs)
            if v.name in outputs
        )
        return CallSpec(kernel, kind_of(inner), operations, count_bytes(node, self.makers, outputs), values)


def describe_calls(
    function: Function, lowered: LoweredFunction, entry: LoweredEntry, points: Mapping[str, PointSpec]
) -> tuple[CallSpec, ...]:
    """The calls of an entry in their order, and where each leaves its results, of which `points` are values of the
    model."""
    calls = Calls(function)
    described: list[CallSpec] = []
    for call, planned in zip(lowered.calls, entry.calls, strict=True):
        spec = calls.describe(call.symbol, call.outputs)
        places = planned.places[len(call.inputs) :][: len(call.outputs)]
        values = zip(spec.values, places, strict=True)
        # Nothing else reads what a check of indices leaves for the caller.
        kept = [(value, place) for value, place in values if not isinstance(place, Failure)]
        placed = (replace(_placed(value, place), point=points.get(value.name)) for value, place in kept)
        described.append(replace(spec, values=tuple(placed)))
    return tuple(described)


def _placed(value: ValueSpec, place: Place) -> ValueSpec:
    if isinstance(place, Output):
        return replace(value, output=place.number)
    assert isinstance(place, Workspace), (value, place)
    return replace(value, offset=place.offset)


def _factors(node: Node) -> DType | None:
    """The dtype of what a contraction multiplies; a signed one where another is as wide."""
    dtypes = [v.type.dtype for v in node.inputs]
    if not OPERATORS[node.op].has("contraction") or not dtypes:
        return None
    return max(dtypes, key=lambda dtype: (dtype.bits, dtype.is_signed))


def maker_inside(node: Node, result: int) -> Node:
    """The node that computes a result of a node, inside of it where it is a group."""
    if node.op != "fusion":
        return node
    region = node.regions[0]
    return next((n for n in region.body if region.results[result] in n.outputs), node)


def _position(node: Node, nodes: Sequence[Node]) -> int | None:
    return nodes.index(node) if node in nodes else None
