"""Lowers a group of nodes into one kernel: each node writes its operations into the same emitter.

Operators that are defined by `decompose` are expanded first. The inputs of the kernel are collected on the way, because
a group may hold constants that are too large for the text of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ...dialect.graph import Constant, Node, Parameter, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Builder
from ...dialect.ops import OPERATORS
from ...dialect.types import TensorType
from ..targets.vector_unit import PanelSizes
from .kernel import KernelEmitter
from .packing import Packing
from .records import Ref, as_ref
from .storage import Input, Sliced


@dataclass(frozen=True, slots=True)
class Computed:
    """A tensor that a kernel writes, by the name of the first value computed in its memory."""

    name: str


@dataclass(frozen=True, slots=True)
class Inline:
    """A constant that is written into the kernels that read it."""

    constant: Constant


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A weight; its storage depends on the kernels that read it."""

    data: Parameter | Constant


Stored = Input | Unplaced | Computed | Sliced["Stored"]
Source = Stored | Inline
"""The source of a graph value."""


class KernelLowering:
    """The recorder of one kernel's nodes. `inputs` are the values that the kernel reads, in the order of its
    arguments."""

    def __init__(
        self,
        inputs: Sequence[Value],
        sources: Mapping[str, Source],
        place_constant: Callable[[Constant], Source],
        *,
        pack: PanelSizes | None = None,
        tied: Mapping[str, Packing] = MappingProxyType({}),
        for_device: bool = False,
    ) -> None:
        self.place_constant = place_constant
        self.pack, self.tied = pack, tied
        self.emitter = KernelEmitter(pack, for_device)
        self.inputs: list[Stored] = []
        self.outer: dict[str, Ref] = {}
        self._prefixes = 0
        for value in inputs:
            if value.name not in self.outer:
                self.outer[value.name] = self._read(sources[value.name], value.type)

    def _read(self, source: Source, type: TensorType) -> Ref:
        if isinstance(source, Inline):
            return self.emitter.constant(type, [x.item() for x in source.constant.data.reshape(-1)])
        self.inputs.append(source)
        if self.pack is None or not isinstance(source, Unplaced):
            return self.emitter.input(type)
        # A view with other axes is not a view of a table.
        tied = self.tied.get(source.data.name) if isinstance(source.data, Parameter) else None
        return self.emitter.input(type, weight=True, tied=tied if type == source.data.type else None)

    def lower_nodes(self, nodes: Sequence[Node], values: Mapping[str, Ref]) -> dict[str, Ref]:
        """Lowers the nodes; returns their tensors by name, besides those given."""
        known = dict(values)
        for node in nodes:
            self.emitter.span = node.span or self.emitter.span
            inputs = [known.get(v.name) or self.outer[v.name] for v in node.inputs]
            for value, ref in zip(node.outputs, self._lower_node(node, inputs, known), strict=True):
                assert ref.type == value.type, (node, ref.type)
                known[value.name] = ref
        return known

    def _lower_node(self, node: Node, inputs: Sequence[Ref], known: Mapping[str, Ref]) -> Sequence[Ref]:
        operator = OPERATORS[node.op]
        if operator.has("group"):
            region = node.regions[0]
            inner = dict(known) | {v.name: ref for v, ref in zip(region.arguments, inputs, strict=True)}
            inner = self.lower_nodes(region.body, inner)
            return [inner[v.name] for v in region.results]
        if node.op == "constant":
            value = node.attribute("value")
            assert isinstance(value, Constant), node
            return [self._read(self.place_constant(value), value.type)]
        attributes = operator.complete(dict(node.attributes))
        if operator.lower is not None:
            types = [v.type for v in node.outputs]
            results = operator.lower(self.emitter, inputs, attributes, types)
            return [as_ref(r) for r in results]
        assert operator.decompose is not None, f"{node.op} cannot stand inside a kernel"
        self._prefixes += 1
        arguments = [Value(f"{i}:{self._prefixes}", ref.type) for i, ref in enumerate(inputs)]
        builder = Builder(OPERATORS, f"{self._prefixes}.", span=node.span)
        parts = operator.decompose(builder, arguments, attributes)
        inner = self.lower_nodes(builder.nodes, {v.name: ref for v, ref in zip(arguments, inputs, strict=True)})
        return [inner[v.name] for v in parts]
