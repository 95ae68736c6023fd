"""A description of each kernel call: its operators, cost and results, for build reports and for observers of an
artifact.

Operations are counted as in the budgets. Bytes are those that a kernel reads and writes, each tensor once, regardless
of caches. Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from ...dialect.control_flow import walk_control
from ...dialect.dims import bounds, multiply, product
from ...dialect.emitter import ROUNDED_ROWS
from ...dialect.graph import Function, Node
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.ops.support.accumulate import rounded_to
from ...dialect.types import DType
from ..artifact.spec import CallSpec, NamedValueSpec, OperationSpec, ValueSpec
from ..lower.cost import count_bytes, count_operations
from ..lower.kinds import inner_nodes, kind_of
from ..lower.lowered import LoweredCall, LoweredFunction
from ..lower.storage import Failure, Output, Sliced, Storage, Workspace
from .plan import LoweredEntry


@dataclass
class Calls:
    """Describes the kernel calls of one function."""

    function: Function
    makers: dict[str, Node] = field(init=False)
    """The node of the function that computes a value, by the name of the value."""

    def __post_init__(self) -> None:
        self.makers = {v.name: node for node in walk_control(self.function.body) for v in node.outputs}

    def node(self, call: LoweredCall) -> Node | None:
        """Returns the node that a call computes; None for a copy."""
        return None if call.copied is not None else self.makers[call.outputs[0]]

    def describe(self, call: LoweredCall) -> CallSpec:
        """Describes the call of a kernel, without the storage of its results."""
        node, kernel, outputs = self.node(call), call.symbol, call.outputs
        if node is None:
            assert call.copied is not None, call
            copy = ValueSpec(outputs[0], call.copied.type)
            return CallSpec(kernel, "copy", (), multiply(2, copy.type.bytes), (copy,))
        inner = _computing(node)
        operations = describe_operations(node)
        # In the order of the kernel's arguments.
        values = tuple(
            ValueSpec(v.name, v.type, operation=_position(maker_inside(node, number), inner))
            for number, v in enumerate(node.outputs)
            if v.name in outputs
        )
        return CallSpec(kernel, kind_of(inner), operations, count_bytes(node, self.makers, outputs), values)


def _computing(node: Node) -> list[Node]:
    return [n for n in inner_nodes(node) if n.op != "constant"]


def describe_operations(node: Node) -> tuple[OperationSpec, ...]:
    """Returns the operations of a node, or of the nodes of a group."""
    return tuple(OperationSpec(n.op, n.scope, n.span, count_operations([n]), _factors(n)) for n in _computing(node))


def describe_calls(
    function: Function, lowered: LoweredFunction, entry: LoweredEntry, named: Mapping[str, NamedValueSpec]
) -> tuple[CallSpec, ...]:
    """Describes the calls of an entry in their order, with the storage of their results; `named` maps the results that
    are named values of the model."""
    calls = Calls(function)
    described: list[CallSpec] = []
    made = lowered.calls
    for planned in entry.calls:
        call = made[planned.position]
        spec = calls.describe(call)
        storages = planned.storages[len(call.inputs) :][: len(call.outputs)]
        values = zip(spec.values, storages, strict=True)
        # Only the caller reads the record of an index check. The storage of a slice changes with each iteration.
        kept = [(value, storage) for value, storage in values if not isinstance(storage, (Failure, Sliced))]
        placed = (replace(_placed(value, storage), named=named.get(value.name)) for value, storage in kept)
        described.append(replace(spec, values=tuple(placed)))
    return tuple(described)


def _placed(value: ValueSpec, storage: Storage) -> ValueSpec:
    if isinstance(storage, Output):
        return replace(value, output=storage.number)
    assert isinstance(storage, Workspace), (value, storage)
    return replace(value, offset=storage.offset)


def _factors(node: Node) -> DType | None:
    """Returns the dtype of a contraction's factors: the one that code may round them to in a call of many rows, or the
    widest, a signed one where another is as wide."""
    rounded, dtypes = rounded_to(node), [v.type.dtype for v in node.inputs]
    if rounded is not None and bounds(product(node.output.type.shape[:-1]))[1] >= ROUNDED_ROWS:
        return rounded
    if not OPERATORS[node.op].has("contraction") or not dtypes:
        return None
    return max(dtypes, key=lambda dtype: (dtype.bits, dtype.is_signed))


def maker_inside(node: Node, result: int) -> Node:
    """Returns the node that computes a result of a node, inside of it where it is a group."""
    if not OPERATORS[node.op].has("group"):
        return node
    region = node.regions[0]
    return next((n for n in region.body if region.results[result] in n.outputs), node)


def _position(node: Node, nodes: Sequence[Node]) -> int | None:
    return nodes.index(node) if node in nodes else None
