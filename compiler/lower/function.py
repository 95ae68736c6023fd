"""Lowers a function to calls of kernels: each node becomes a kernel, and each value a view, a weight or a result.

Assumes that loops are unrolled. Constants up to a few elements are written into the kernels that read them; parameters
and larger constants are weights. For two results, y and x:

    %w = parameter() {name = "w"}            weight at offset 0
    %h = matmul(%x, %w)                      call of `matmul`: (input 0, weight 0) -> h
    %v = reshape(%h) {shape = (B, 4, 8)}     a view: the memory of h
    %2 = constant() {value = ...}            a part of the text of `multiply`
    %m = multiply(%v, %2)                    call of `multiply`: (h) -> m
    %y = reshape(%m) {shape = (B, 32)}       a view: the memory of m, which is output 0
    return %y, %x                            call of `copy`: (input 0) -> x.1, which is output 1

The only intermediate tensor is h, of 128*B bytes; the memory plan gives it an offset in the workspace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property

from ...dialect.control_flow import CONTROL_FLOW
from ...dialect.diagnostics import Span
from ...dialect.dims import Size
from ...dialect.graph import Constant, Function, Module, Node, Parameter, Region, Value, walk
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS, may_fail
from ...dialect.ops.structure import ELEMENTS_INLINE
from ...dialect.types import TensorType
from ...passes.analysis.node_keys import Key, node_key
from ..artifact.spec import align, c_identifier
from ..targets.vector_unit import PanelSizes
from .control_flow import lower_control_flow
from .kinds import name_operators
from .lowered import LoweredCall, LoweredFunction, LoweredWeight, Tensor, name_kernel, static_bytes
from .nodes import Computed, Inline, KernelLowering, Source, Stored, Unplaced
from .packing import Packing
from .scanned import scanned_slice
from .schedule import Item
from .state_values import StateValue, checks_first
from .storage import Input, Output, Sliced, Weight
from .text import printable
from .tied import Stored as StoredWeight
from .tied import Tied
from .writer import Kernel


@dataclass
class Shared:
    """The weights, by name, and the kernels, by text, that all functions of a module share. With `debug`, texts include
    locations, and kernels have readable names. `tied` has the packing of each parameter that is both packed for a
    contraction and read by row look-ups. `for_device` is that of `KernelEmitter`."""

    module: Module
    pack: PanelSizes | None = None
    debug: bool = False
    tied: Mapping[str, Packing] = field(default_factory=dict)
    for_device: bool = False
    weights: dict[str, LoweredWeight] = field(default_factory=dict)
    kernels: dict[str, tuple[str, Kernel]] = field(default_factory=dict)
    symbols: dict[Kernel, str] = field(default_factory=dict)
    origins: dict[str, list[str]] = field(default_factory=dict)
    stems: Counter[str] = field(default_factory=Counter)
    weights_end: int = 0

    def weight(self, source: Parameter | Constant, packing: Packing | None, seen: TensorType) -> Weight:
        """Returns the storage of a source's data; with a packing, for a kernel that reads them with the type `seen`."""
        stored = self._stored(source, packing, seen)
        if stored is not None:
            source, packing, seen = stored.source, stored.packing, stored.source.type
        name = source.name if isinstance(source, Parameter) else f"constant.{source.digest}"
        if isinstance(source, Constant):
            # Arrays of equal bytes may differ in type.
            name += f".{source.type.dtype}.{'x'.join(map(str, source.type.shape))}"
        if packing is not None:
            name += f".{packing.name}" + (f".{'x'.join(map(str, seen.shape))}" if seen != source.type else "")
        if name not in self.weights:
            type = source.type if packing is None else packing.type(seen)
            offset = align(self.weights_end)
            self.weights[name] = LoweredWeight(name, type, offset, source, seen, packing)
            self.weights_end = offset + static_bytes(type)
        return Weight(self.weights[name].offset)

    @cached_property
    def _finder(self) -> Tied:
        return Tied(self.module)

    def _stored(self, source: Parameter | Constant, packing: Packing | None, seen: TensorType) -> StoredWeight | None:
        """Returns the single copy of a tied weight, if the source is another view of it."""
        if packing is None or not self.tied:
            return None
        found = self._finder.stored(source, packing, seen)
        return found if found is not None and self.tied.get(found.source.name) == found.packing else None

    def parameter(self, node: Node, indices: Sequence[int]) -> Parameter:
        name = node.attribute("name")
        assert isinstance(name, str), node
        return self.module.parameter_index[name].at(indices)

    def add(self, kernel: Kernel, stem: str, origins: Sequence[str]) -> str:
        """Returns the symbol of the kernel; an equal kernel keeps its existing symbol."""
        symbol = self.symbols.get(kernel)
        if symbol is None:
            text = kernel.text if self.debug else kernel.shape_of_text
            if text not in self.kernels:
                self.kernels[text] = (self._number(stem) if self.debug else name_kernel(stem, kernel), kernel)
            symbol, _ = self.kernels[text]
            self.symbols[kernel] = symbol
        self.origins.setdefault(symbol, []).extend(origins)
        return symbol

    def _number(self, stem: str) -> str:
        """Returns the stem with a number that separates kernels of the same operators."""
        self.stems[stem] += 1
        return f"{stem}_{self.stems[stem]}"


class FunctionLowering:
    def __init__(self, shared: Shared, function: Function) -> None:
        self.shared, self.function = shared, function
        self.sources: dict[str, Source] = {v.name: Input(i) for i, v in enumerate(function.arguments)}
        self.slices: dict[str, Sliced[Computed]] = {}
        self.counts: dict[str, Size] = {}
        self.types: dict[str, TensorType] = {}
        self.items: list[Item[LoweredCall, Tensor]] = []
        self.needed = _needed(function.body, function.results)
        self.written: dict[Key, tuple[Kernel, Sequence[Stored]]] = {}

    def lower(self, symbol: str) -> LoweredFunction:
        function = self.function
        self._lower_nodes(checks_first(function))
        outputs = self._place_results()
        states = tuple(self._find_states())
        sizes = {name: type.bytes for name, type in self.types.items() if name not in outputs}
        items, dims = tuple(self.items), function.symbols()
        return LoweredFunction(function.name, symbol, dims, items, sizes, outputs, function.span, self.slices, states)

    def _lower_nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if any(v.name in self.needed for v in node.outputs) or may_fail(node):
                self._lower_node(node)

    def _lower_node(self, node: Node) -> None:
        operator = OPERATORS[node.op]
        if node.op in CONTROL_FLOW:
            lower_control_flow(self, node)
        elif (slice := scanned_slice(node, self.sources, self.counts)) is not None:
            self.sources[node.output.name] = slice
        elif node.op == "constant":
            value = node.attribute("value")
            assert isinstance(value, Constant), node
            self.sources[node.output.name] = self._constant(value)
        elif node.op == "parameter":
            self.sources[node.output.name] = Unplaced(self._parameter(node))
        elif operator.has("view") and not isinstance(self.sources[node.inputs[0].name], Inline):
            self.sources[node.output.name] = self.sources[node.inputs[0].name]
        else:
            self._call(node, [v for v in node.outputs if v.name in self.needed])

    # The protocol of control flow

    def declare(self, value: Value) -> None:
        self.sources[value.name] = Computed(value.name)
        self.types[value.name] = value.type

    def lower_body(self, region: Region) -> None:
        self._lower_nodes(region.body)

    def inside(self, write: Callable[[], None]) -> tuple[Item[LoweredCall, Tensor], ...]:
        around, self.items = self.items, []
        write()
        around, self.items = self.items, around
        return tuple(around)

    def add(self, item: Item[LoweredCall, Tensor]) -> None:
        self.items.append(item)

    def copy(self, source: Value, target: Value, *, is_move: bool, comment: str = "") -> None:
        writer = self._kernel([source])
        kernel = writer.emitter.finish([writer.outer[source.name]])
        comment = comment or f"{target.name} = {source.name}"
        self._add_call(kernel, writer.inputs, [target], "copy", comment, [comment], copied=source, is_move=is_move)

    def in_memory(self, value: Value) -> Tensor:
        source = self.sources[value.name]
        if isinstance(source, Inline):
            stored = Value(f"{value.name}.stored", value.type)
            self.copy(value, stored, is_move=False)
            source = Computed(stored.name)
        return self._place(source, value.type, None)

    def _constant(self, value: Constant) -> Source:
        elements = value.type.elements
        assert isinstance(elements, int), value
        return Inline(value) if elements <= ELEMENTS_INLINE else Unplaced(value)

    def _parameter(self, node: Node) -> Parameter:
        indices: list[int] = []
        for index in node.inputs:
            source = self.sources[index.name]
            assert isinstance(source, Inline), f"{node}: the loop around it is not unrolled"
            indices.append(int(source.constant.data.item()))
        return self.shared.parameter(node, indices)

    def _call(self, node: Node, outputs: Sequence[Value]) -> None:
        over = self._overwritten(node)
        kernel, inputs = self._write(node, outputs, is_overwriting=over is not None)
        # For a node with inner nodes, the origins are the inner nodes.
        origins = [_describe(inner) for inner in walk([node]) if not inner.regions]
        stem = name_operators(node) if self.shared.debug else node.op
        check = _check_of(node)
        deferred = bool(check) and dict(node.attributes).get("deferred") is True
        comment = _describe(node)
        self._add_call(kernel, inputs, outputs, stem, comment, origins, node.span, check, deferred, over=over)

    def _write(self, node: Node, outputs: Sequence[Value], *, is_overwriting: bool) -> tuple[Kernel, Sequence[Stored]]:
        """Returns the kernel of a node and the sources of its inputs. The kernel of equal nodes, such as those of the
        layers of a model, is written once; with debug information, it would have the lines of the first one."""
        read = node.inputs[is_overwriting:]
        sources = {v.name: self.sources[v.name] for v in read}
        stored = [source for source in sources.values() if not isinstance(source, Inline)]
        key = None if self.shared.debug else self._key(node, outputs, sources)
        if key in self.written:
            kernel, others = self.written[key]
            return kernel, [*stored, *others]
        writer = self._kernel(read)
        if is_overwriting:
            writer.outer[node.inputs[0].name] = writer.emitter.resident(node.inputs[0].type)
        values = writer.lower_nodes([node], {})
        kernel = writer.emitter.finish([values[v.name] for v in outputs])
        if key is not None:
            # The other inputs are constants, which the key determines.
            self.written[key] = kernel, writer.inputs[len(stored) :]
        return kernel, writer.inputs

    def _key(self, node: Node, outputs: Sequence[Value], sources: Mapping[str, Source]) -> Key:
        """Returns a key that is equal for nodes with the same kernel. Inputs are numbered, whatever their names."""
        numbers: dict[str, int] = {}
        for value in node.inputs:
            numbers.setdefault(value.name, len(numbers))
        kinds = tuple(self._kind(source, value.type) for value in node.inputs if (source := sources.get(value.name)))
        needed = tuple(value in outputs for value in node.outputs)
        return node_key(node, numbers, ordered=True), tuple(v.type for v in node.inputs), kinds, needed

    def _kind(self, source: Source, type: TensorType) -> object:
        """Returns the part of a source on which the kernel that reads it depends."""
        if isinstance(source, Inline):
            return source.constant
        if not isinstance(source, Unplaced):
            return Computed
        data = source.data
        is_whole = isinstance(data, Parameter) and type == data.type
        return Unplaced, self.shared.tied.get(data.name) if isinstance(data, Parameter) and is_whole else None

    def _overwritten(self, node: Node) -> Input | Computed | None:
        """Returns the tensor in whose memory a node writes its result, which it otherwise does not read."""
        if not OPERATORS[node.op].has("overwriting"):
            return None
        over, *others = (self.sources[v.name] for v in node.inputs)
        return over if isinstance(over, (Input, Computed)) and over not in others else None

    def _kernel(self, inputs: Sequence[Value]) -> KernelLowering:
        shared = self.shared
        return KernelLowering(
            inputs, self.sources, self._constant, pack=shared.pack, tied=shared.tied, for_device=shared.for_device
        )

    def _add_call(
        self,
        kernel: Kernel,
        inputs: Sequence[Stored],
        outputs: Sequence[Value],
        stem: str,
        comment: str,
        origins: Sequence[str],
        span: Span | None = None,
        check: str = "",
        deferred: bool = False,
        copied: Value | None = None,
        is_move: bool = False,
        over: Input | Computed | None = None,
    ) -> None:
        # Names in C have no dots.
        stem = f"{c_identifier(self.function.name)}.{stem}" if self.shared.debug else stem
        symbol = self.shared.add(kernel, stem, origins)
        tensors = tuple(
            self._place(source, type, kernel.packings.get(slot))
            for slot, (source, type) in enumerate(zip(inputs, kernel.inputs, strict=True))
        )
        names = tuple(v.name for v in outputs)
        self.items.append(
            LoweredCall(symbol, kernel, tensors, names, comment, span, check, deferred, copied, is_move, over)
        )
        for value in outputs:
            if value.name not in self.slices:
                self.declare(value)

    def _place(self, source: Stored, type: TensorType, packing: Packing | None) -> Tensor:
        if isinstance(source, Unplaced):
            return self.shared.weight(source.data, packing, type)
        if isinstance(source, Sliced):
            whole = source.base.data.type if isinstance(source.base, Unplaced) else type
            return Sliced(self._place(source.base, whole, None), source.loop, source.stride)
        return source

    def _place_results(self) -> dict[str, Output]:
        """Places results in the caller's memory where kernels can write them there; other results are copied."""
        placed: dict[str, Output] = {}
        for number, value in enumerate(self.function.outputs):
            source = self.sources[value.name]
            if isinstance(source, Computed) and source.name not in placed:
                placed[source.name] = Output(number)
                continue
            placed[self._copy(value, number).name] = Output(number)
        return placed

    def _copy(self, value: Value, number: int) -> Value:
        """Adds a copy of the value of result `number`."""
        copy = Value(f"{value.name}.{number}", value.type)
        self.copy(value, copy, is_move=False, comment=f"{value.name}, again")
        return copy

    def _find_states(self) -> Iterator[StateValue]:
        """Yields the states with another value after the call. A constant or parameter is computed as a value."""
        function = self.function
        values = zip(function.states, function.state_results, strict=True)
        for i, (name, value) in enumerate(values):
            argument, result = len(function.inputs) + i, len(function.outputs) + i
            source = self.sources[value.name]
            if source == Input(argument):
                continue
            if not isinstance(source, (Input, Computed)):
                source = Computed(self._copy(value, result).name)
            yield StateValue(name, argument, result, value.type.bytes, source)


def _needed(nodes: Sequence[Node], results: Sequence[Value]) -> set[str]:
    """Returns the values that the results, and the success of the call, depend on."""
    needed = {v.name for v in results}
    for node in reversed(nodes):
        if may_fail(node):
            needed |= {v.name for v in node.outputs}
        if any(v.name in needed for v in node.outputs) or may_fail(node):
            needed |= {v.name for v in node.inputs}
            for region in node.regions:
                needed |= _needed(region.body, region.results)
    return needed


def _check_of(node: Node) -> str:
    """Returns the description of a node's index check for the error of a call, such as "`gather` at m.nacre:3:5"; the
    empty string for other nodes."""
    if not OPERATORS[node.op].has("checking"):
        return ""
    return f"`{node.attribute('operator')}`{f' at {node.span}' if node.span else ''}"


def _describe(node: Node) -> str:
    """Returns a one-line description of a node for readers of the generated text."""
    operation = f"{', '.join(v.name for v in node.outputs)} = {node.op}({', '.join(v.name for v in node.inputs)})"
    scope = f" in {node.scope}" if node.scope else ""
    return printable(f"{operation}{scope}{f' at {node.span}' if node.span else ''}")
