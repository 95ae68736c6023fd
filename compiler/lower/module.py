"""A module as kernels and entries: every node (or fused group) of a function becomes one kernel, equal ones once.

Assumes that loops are unrolled. Constants up to a few elements are written into the kernels that read them; parameters
and larger constants are weights. Operators that are defined by others are written as those, inside their kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...dialect.dims import Size, Symbol
from ...dialect.graph import Constant, Function, Module, Node, Parameter, Value
from ...dialect.operator import Builder
from ...dialect.ops import OPERATORS
from ...dialect.ops.structure import ELEMENTS_INLINE
from ...dialect.types import TensorType
from ...passes.plan_memory import Plan, Step, plan_memory
from ..artifact.spec import align, c_identifier
from .entry import Call, Input, Output, Place, Weight, Workspace, declare, write_entry
from .kernel import KernelEmitter
from .records import Ref
from .text import printable
from .writer import NAME, Kernel


@dataclass(frozen=True, slots=True, eq=False)
class LoweredWeight:
    """A tensor that generated code reads at `offset` bytes of the weights. `source` says where its data come from."""

    name: str
    type: TensorType
    offset: int
    source: Parameter | Constant


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """`text` is a function named `name`; `origins` says which nodes it computes."""

    name: str
    kernel: Kernel
    origins: tuple[str, ...]

    @property
    def text(self) -> str:
        return self.kernel.text.replace(NAME, f"@{self.name}", 1)


@dataclass(frozen=True, slots=True)
class LoweredEntry:
    """`symbol` is the C function of the function `name`; `dims` is the order in which it takes the dims."""

    name: str
    symbol: str
    dims: tuple[Symbol, ...]
    workspace: Size
    calls: tuple[Call, ...]
    plan: Plan

    @property
    def text(self) -> str:
        return write_entry(self.symbol, self.dims, self.calls)


@dataclass(frozen=True, slots=True)
class Lowered:
    """What code generation starts from."""

    name: str
    kernels: tuple[LoweredKernel, ...]
    entries: tuple[LoweredEntry, ...]
    weights: tuple[LoweredWeight, ...]

    @property
    def mlir(self) -> str:
        """The kernels, as MLIR."""
        return "\n".join(f"// {', '.join(k.origins)}\n{k.text}" for k in self.kernels)

    @property
    def entry_ir(self) -> str:
        """The entries, as a module of LLVM IR to be linked with the kernels."""
        calls = [call for entry in self.entries for call in entry.calls]
        return "\n".join([declare(calls), *(entry.text for entry in self.entries)])

    @property
    def weight_bytes(self) -> int:
        return align(max((w.offset + _static_bytes(w.type) for w in self.weights), default=0))


def lower_module(module: Module) -> Lowered:
    """Every function of the module as an entry."""
    lowering = _ModuleLowering(module)
    entries: list[LoweredEntry] = []
    taken: set[str] = set()
    for function in module.functions:
        symbol = stem = f"nacre_entry_{c_identifier(function.name)}"
        while symbol in taken:
            symbol = f"{stem}_{len(taken)}"
        taken.add(symbol)
        entries.append(_FunctionLowering(lowering, function).lower(symbol))
    kernels = tuple(
        LoweredKernel(name, kernel, tuple(dict.fromkeys(lowering.origins[name])))
        for name, kernel in lowering.kernels.values()
    )
    return Lowered(module.name, kernels, tuple(entries), tuple(lowering.weights.values()))


def _static_bytes(type: TensorType) -> int:
    size = type.bytes
    assert isinstance(size, int), type
    return size


@dataclass
class _ModuleLowering:
    """What functions share: weights by name, and kernels by their text."""

    module: Module
    weights: dict[str, LoweredWeight] = field(default_factory=dict)
    kernels: dict[str, tuple[str, Kernel]] = field(default_factory=dict)
    origins: dict[str, list[str]] = field(default_factory=dict)

    def weight(self, source: Parameter | Constant) -> Weight:
        name = source.name if isinstance(source, Parameter) else f"constant.{source.digest}"
        if isinstance(source, Constant):
            # Arrays of equal bytes may differ in type.
            name += f".{source.type.dtype}.{'x'.join(map(str, source.type.shape))}"
        if name not in self.weights:
            end = max((w.offset + _static_bytes(w.type) for w in self.weights.values()), default=0)
            self.weights[name] = LoweredWeight(name, source.type, align(end), source)
        return Weight(self.weights[name].offset)

    def parameter(self, node: Node, indices: Sequence[int]) -> Parameter:
        name = node.attribute("name")
        assert isinstance(name, str), node
        return self.module.parameter_index[name].at(indices)

    def add(self, kernel: Kernel, stem: str, origin: str) -> str:
        """The name of the kernel, under which an equal one may be there already."""
        name, _ = self.kernels.setdefault(kernel.shape_of_text, (f"kernel_{len(self.kernels)}_{stem}", kernel))
        self.origins.setdefault(name, []).append(origin)
        return name


@dataclass(frozen=True, slots=True)
class _Computed:
    """A tensor that a kernel writes, by the name of the value that was computed first in its memory."""

    name: str


@dataclass(frozen=True, slots=True)
class _Inline:
    """A constant that is written into the kernels that read it."""

    constant: Constant


_Source = Input | Weight | _Computed | _Inline


@dataclass
class _PlannedCall:
    kernel: Kernel
    name: str
    inputs: list[Input | Weight | _Computed]
    outputs: list[str]
    comment: str


class _FunctionLowering:
    def __init__(self, shared: _ModuleLowering, function: Function) -> None:
        self.shared, self.function = shared, function
        self.sources: dict[str, _Source] = {v.name: Input(i) for i, v in enumerate(function.arguments)}
        self.types: dict[str, TensorType] = {}
        self.calls: list[_PlannedCall] = []

    def lower(self, symbol: str) -> LoweredEntry:
        needed = _needed(self.function)
        for node in self.function.body:
            if any(v.name in needed for v in node.outputs):
                self._lower_node(node, needed)
        outputs = self._place_results()
        sizes = {name: type.bytes for name, type in self.types.items() if name not in outputs}
        steps = [
            Step(
                tuple(s.name for s in call.inputs if isinstance(s, _Computed)),
                tuple(call.outputs),
                tuple(t.bytes for t in call.kernel.scratch),
            )
            for call in self.calls
        ]
        plan = plan_memory(steps, sizes)
        places: dict[str, Place] = {name: Workspace(offset) for name, offset in plan.offsets.items()}
        places |= outputs
        calls = [
            Call(
                call.name,
                call.kernel.dims,
                (
                    *(places[s.name] if isinstance(s, _Computed) else s for s in call.inputs),
                    *(places[name] for name in call.outputs),
                    *(Workspace(offset) for offset in scratch),
                ),
                call.comment,
            )
            for call, scratch in zip(self.calls, plan.scratch, strict=True)
        ]
        return LoweredEntry(self.function.name, symbol, self.function.symbols(), plan.total, tuple(calls), plan)

    def _lower_node(self, node: Node, needed: set[str]) -> None:
        operator = OPERATORS[node.op]
        if node.op == "constant":
            value = node.attribute("value")
            assert isinstance(value, Constant), node
            self.sources[node.output.name] = self._constant(value)
        elif node.op == "parameter":
            self.sources[node.output.name] = self.shared.weight(self._parameter(node))
        elif operator.has("view") and not isinstance(self.sources[node.inputs[0].name], _Inline):
            self.sources[node.output.name] = self.sources[node.inputs[0].name]
        else:
            self._call(node, [v for v in node.outputs if v.name in needed])

    def _constant(self, value: Constant) -> _Source:
        elements = value.type.elements
        assert isinstance(elements, int), value
        return _Inline(value) if elements <= ELEMENTS_INLINE else self.shared.weight(value)

    def _parameter(self, node: Node) -> Parameter:
        indices: list[int] = []
        for index in node.inputs:
            source = self.sources[index.name]
            assert isinstance(source, _Inline), f"{node}: the loop around it is not unrolled"
            indices.append(int(source.constant.data.item()))
        return self.shared.parameter(node, indices)

    def _call(self, node: Node, outputs: Sequence[Value]) -> None:
        writer = _KernelLowering(self, node.inputs)
        values = writer.lower_nodes([node], {})
        kernel = writer.emitter.finish([values[v.name] for v in outputs])
        self._add_call(kernel, writer.inputs, outputs, node.op, _describe(node))

    def _add_call(
        self,
        kernel: Kernel,
        inputs: list[Input | Weight | _Computed],
        outputs: Sequence[Value],
        stem: str,
        comment: str,
    ) -> None:
        name = self.shared.add(kernel, c_identifier(stem), comment)
        self.calls.append(_PlannedCall(kernel, name, inputs, [v.name for v in outputs], comment))
        for value in outputs:
            self.sources[value.name] = _Computed(value.name)
            self.types[value.name] = value.type

    def _place_results(self) -> dict[str, Output]:
        """Lets kernels write results where the caller wants them; what cannot be computed there is copied."""
        placed: dict[str, Output] = {}
        for number, value in enumerate(self.function.results):
            source = self.sources[value.name]
            if isinstance(source, _Computed) and source.name not in placed:
                placed[source.name] = Output(number)
                continue
            copy = Value(f"{value.name}.{number}", value.type)
            writer = _KernelLowering(self, [value])
            kernel = writer.emitter.finish([writer.outer[value.name]])
            self._add_call(kernel, writer.inputs, [copy], "copy", f"{value.name}, again")
            placed[copy.name] = Output(number)
        return placed


class _KernelLowering:
    """Records the nodes of one kernel. `inputs` are what the kernel reads, in the order of its arguments."""

    def __init__(self, function: _FunctionLowering, inputs: Sequence[Value]) -> None:
        self.function = function
        self.emitter = KernelEmitter()
        self.inputs: list[Input | Weight | _Computed] = []
        self.outer: dict[str, Ref] = {}
        self._prefixes = 0
        for value in inputs:
            if value.name not in self.outer:
                self.outer[value.name] = self._read(function.sources[value.name], value.type)

    def _read(self, source: _Source, type: TensorType) -> Ref:
        if isinstance(source, _Inline):
            return self.emitter.constant(type, [x.item() for x in source.constant.data.reshape(-1)])
        self.inputs.append(source)
        return self.emitter.input(type)

    def lower_nodes(self, nodes: Sequence[Node], values: Mapping[str, Ref]) -> dict[str, Ref]:
        """The tensors of the nodes by name, besides those given."""
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
        if node.op == "fusion":
            region = node.regions[0]
            inner = dict(known) | {v.name: ref for v, ref in zip(region.arguments, inputs, strict=True)}
            inner = self.lower_nodes(region.body, inner)
            return [inner[v.name] for v in region.results]
        if node.op == "constant":
            value = node.attribute("value")
            assert isinstance(value, Constant), node
            return [self._read(self.function._constant(value), value.type)]
        attributes = operator.complete(dict(node.attributes))
        if operator.lower is not None:
            types = [v.type for v in node.outputs]
            results = operator.lower(self.emitter, inputs, attributes, types)
            return [_as_ref(r) for r in results]
        assert operator.decompose is not None, f"{node.op} cannot stand inside a kernel"
        self._prefixes += 1
        arguments = [Value(f"{i}:{self._prefixes}", ref.type) for i, ref in enumerate(inputs)]
        builder = Builder(OPERATORS, f"{self._prefixes}.", span=node.span)
        parts = operator.decompose(builder, arguments, attributes)
        inner = self.lower_nodes(builder.nodes, {v.name: ref for v, ref in zip(arguments, inputs, strict=True)})
        return [inner[v.name] for v in parts]


def _as_ref(x: object) -> Ref:
    assert isinstance(x, Ref), x
    return x


def _needed(function: Function) -> set[str]:
    """The values that the results depend on."""
    needed = {v.name for v in function.results}
    for node in reversed(function.body):
        if any(v.name in needed for v in node.outputs):
            needed |= {v.name for v in node.inputs}
    return needed


def _describe(node: Node) -> str:
    """What a reader of the generated text wants to know of a node, on one line."""
    operation = f"{', '.join(v.name for v in node.outputs)} = {node.op}({', '.join(v.name for v in node.inputs)})"
    scope = f" in {node.scope}" if node.scope else ""
    return printable(f"{operation}{scope}{f' at {node.span}' if node.span else ''}")
