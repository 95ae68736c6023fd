"""Writes an arranged kernel as a function of structured ops on tensors.

The function takes its dims as `index`, and every tensor as a pointer to memory that the caller owns: inputs, results,
and scratch for other tensors. The last arguments are the range of work items to compute. A second function, with a name
that ends with `_items`, returns the number of work items for given dims; different work items may run at the same time.
The body is linalg on tensors, in destination-passing style, so that bufferization allocates nothing.

For relu(x @ w) with x [B, 16] and w [16, 32], not packed, `@@` stands for the name of the kernel:

    func.func @@(%d0: index, %p0: memref<f32>, %p1: memref<f32>, %r0: memref<f32>, %s0: memref<f32>,
                 %begin: index, %end: index) {
      %m_p0 = memref.reinterpret_cast %p0 to offset: [0], sizes: [%d0, 16], strides: [16, 1]         x
      %t_p0 = bufferization.to_tensor %m_p0 restrict
      ...                                                         the same for w, the scratch s0 and the result r0
      %1 = linalg.fill ins(%0) outs(%t_s0)                        zeros in the scratch
      %5 = linalg.generic ... ins(%t_p0, %t_p1) outs(%1)          sums, over the zeros
      %10 = linalg.generic ... ins(%5) outs(%t_r0)                the maximum with 0, in the memory of the result
      bufferization.materialize_in_destination %10 in restrict writable %m_r0
      return
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial

from ...dialect import emitter as protocol
from ...dialect.diagnostics import Span
from ...dialect.dims import Size, Symbol, static_size
from ...dialect.emitter import IndexMap, identity
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import BOOL, I64, TensorType
from ..targets.vector_unit import PanelSizes
from .arrange import Arrangement, Key, key
from .bodies import BodyWriter, SequenceWriter, as_local
from .packing import Packing, Packings, Reading, choose_packing, reads_groups
from .part_memory import find_part_memory
from .records import (
    Argument,
    Dense,
    Full,
    Insert,
    Local,
    Op,
    Ref,
    Reshape,
    Resident,
    Scan,
    Slice,
    Structured,
    compose,
    single_value,
)
from .scalars import ScalarWriter, as_element
from .shapes import (
    affine_map,
    extents,
    group_extents,
    memref_type,
    plain_loop,
    reshape_groups,
    shaped_type,
    strides,
    tensor_type,
    values,
)
from .statements import INDENT, Element
from .text import FunctionText, element_type, printable

NAME = "@@"
"""The placeholder for the function's symbol in a kernel's text, so that equal kernels have equal texts."""
ITEMS = "_items"
"""The suffix of the function that counts a kernel's work items."""
SPARSE = "nacre.sparse"
"""The attribute of an op with sparse loops."""
ROUNDED = "nacre.rounds_factors"
"""The attribute of an op whose factors may be rounded."""
UNTIL, SINCE = "nacre.until", "nacre.since"
"""The attributes of an op with a loop that may begin or end at a distance from the index of another loop: the number of
the other loop, and the distance."""


def part_name(kernel: str, part: int) -> str:
    """Returns the name of a part of a kernel, where code generation splits it into several functions that are called in
    order."""
    return f"{kernel}_part{part}" if part else kernel


def _hints(op: Structured) -> str:
    """Returns the attributes for steps that a sum may omit, and for factors that may be rounded."""
    found = [SPARSE] if any(loop.sparse for loop in op.loops) else []
    found += [ROUNDED] if any(loop.rounds_factors for loop in op.loops) else []
    for loop in op.loops:
        pairs = ((UNTIL, loop.until), (SINCE, loop.since))
        found += [f"{name} = array<i64: {bound[0]}, {bound[1]}>" for name, bound in pairs if bound is not None]
    return f" attrs = {{{', '.join(found)}}}" if found else ""


_LOCATION = re.compile(r' loc\("(?:[^"\\]|\\.)*":\d+:\d+\)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's text, with `NAME` for its name, and the caller's arguments: dims, inputs, results, then scratch.
    `alarm` is the number of the scratch word that the kernel sets where an index is out of range. The last `parts`
    tensors of the scratch are memory for the parts of reductions, which the text does not use."""

    text: str
    dims: tuple[Symbol, ...]
    inputs: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    scratch: tuple[TensorType, ...]
    packings: Packings = field(default_factory=dict, hash=False)
    alarm: int | None = None
    parts: int = 0

    @property
    def shape_of_text(self) -> str:
        """Returns the text without source locations, which differ between equal kernels."""
        return _LOCATION.sub("", self.text)


class _Dims(Mapping[Symbol, str]):
    """The names of dims in the order of their first use, independent of their names in the model."""

    def __init__(self) -> None:
        self.names: dict[Symbol, str] = {}

    def __getitem__(self, symbol: Symbol) -> str:
        return self.names.setdefault(symbol, f"%d{len(self.names)}")

    def __iter__(self) -> Iterator[Symbol]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def location(span: Span | None) -> str:
    if span is None:
        return ""
    escaped = printable(span.file).replace("\\", "\\\\").replace('"', '\\"')
    return f' loc("{escaped}":{span.line}:{span.column})'


class KernelWriter:
    """The writer of one kernel. `tied` maps input slots to the packing that other kernels chose; it applies only to
    inputs that are read element by element, or in groups. `panels` are the sizes of panels of packed weights. A kernel
    `for_device` has memory for the parts of reductions."""

    def __init__(
        self,
        plan: Arrangement,
        inputs: Sequence[TensorType],
        results: Sequence[TensorType],
        tied: Packings,
        panels: PanelSizes | None,
        *,
        for_device: bool = False,
    ) -> None:
        self.plan, self.tied = plan, tied
        self.parts = find_part_memory(plan) if for_device else ()
        self.input_types, self.result_types = tuple(inputs), tuple(results)
        self.dims = _Dims()
        self.text = FunctionText(self.dims)
        self.bindings: list[str] = []
        self.names: dict[Key, str] = {}
        self.scratch: list[TensorType] = []
        self.alarm: int | None = None
        self.items = 1
        self.packings: dict[int, Packing] = {}
        self.panels = panels
        self._writers: Mapping[type[Op], Callable[..., None]] = {
            Argument: self._write_nothing,
            Dense: self._write_nothing,
            Full: self._write_full,
            Resident: self._write_resident,
            Structured: self._write_structured,
            Reshape: self._write_reshape,
            Slice: self._write_slice,
            Insert: self._write_insert,
            Scan: self._write_scan,
        }

    def write(self) -> Kernel:
        self._pack()
        self.items = self._count_items()
        for op in self.plan.ops:
            if id(op) not in self.plan.inlined:
                self._writers[type(op)](op)
        for number, ref in enumerate(self.plan.results):
            memory = f"%m_r{number}"
            types = f"({tensor_type(ref.type)}, {memref_type(ref.type)}) -> ()"
            operands = f"{self.name(ref)} in restrict writable {memory}"
            self.line(f"bufferization.materialize_in_destination {operands} : {types}{location(ref.op.span)}")
        self.scratch += self.parts
        # The bindings may use dims too, so the signature is written last.
        arguments = [f"{name}: index" for name in self.dims.names.values()]
        arguments += [_pointer(f"%p{i}", t, "llvm.readonly, ") for i, t in enumerate(self.input_types)]
        arguments += [_pointer(f"%r{i}", t) for i, t in enumerate(self.result_types)]
        arguments += [_pointer(f"%s{i}", t) for i, t in enumerate(self.scratch)]
        counted = ", ".join(arguments[: len(self.dims.names)])
        items = [
            f"func.func {NAME}{ITEMS}({counted}) -> index {{",
            f"{INDENT}%items = arith.constant {self.items} : index",
            f"{INDENT}return %items : index",
            "}",
        ]
        signature = ", ".join([*arguments, "%begin: index", "%end: index"])
        lines = [f"func.func {NAME}({signature}){_facts(list(self.dims.names))} {{"]
        lines += [INDENT + line for line in (*self.text.prologue, *self.bindings)]
        lines += [*self.text.lines, f"{INDENT}return", "}", *items]
        text = "\n".join(lines) + "\n"
        dims, scratch = tuple(self.dims.names), tuple(self.scratch)
        packings, alarm = self.packings, self.alarm
        return Kernel(text, dims, self.input_types, self.result_types, scratch, packings, alarm, len(self.parts))

    def _count_items(self) -> int:
        """Returns the number of work items: 1, unless the kernel is a scan of work items alone."""
        working = [op for op in self.plan.ops if not isinstance(op, (Argument, Dense, Resident, Reshape))]
        if len(working) == 1 and isinstance(working[0], Scan) and working[0].work_items:
            return static_size(working[0].sizes[0])
        return 1

    def _pack(self) -> None:
        """Chooses the storage order of weights that only one contraction reads, in one or several places."""
        readers: dict[int, list[tuple[Op, IndexMap | None, list[Reading]]]] = {}
        for op in self.plan.ops:
            if id(op) in self.plan.inlined:
                continue
            leaves = self._leaves(op, identity(len(op.loops))) if isinstance(op, Structured) else {}
            for (_, access), ref in leaves.items():
                if isinstance(ref.op, Argument) and ref.op.weight:
                    beside = (leaf for leaf in leaves.items() if leaf[0] != (key(ref), access))
                    others = [Reading(other.type.dtype, map) for (_, map), other in beside]
                    readers.setdefault(ref.op.slot, []).append((op, access, others))
            inputs = len(op.input_maps) if isinstance(op, Structured) else 0
            for ref in (*op.operands[inputs:], *op.loads):
                if isinstance(ref.op, Argument):
                    readers.setdefault(ref.op.slot, []).append((op, None, []))
        for slot, ((op, map, others), *more) in readers.items():
            if all(_is_beside(op, map, each) for each in more) and map is not None and self.panels is not None:
                if not isinstance(op, Structured):
                    continue
                type, groups = self.input_types[slot], self.tied.get(slot)
                packing = choose_packing(op, type, map, others, self.panels)
                if groups is not None and reads_groups(op, type, map, others, self.panels, groups):
                    packing = groups
                if packing is not None:
                    self.packings[slot] = packing
        whole = {ref.op.slot for ref in self._whole() if isinstance(ref.op, Argument)}
        self.packings |= {slot: packing for slot, packing in self.tied.items() if slot not in whole}

    def _whole(self) -> Iterator[Ref]:
        """Yields the tensors that are read by more than single elements."""
        yield from self.plan.results
        for op in self.plan.ops:
            yield from op.operands

    def _stored(self, ref: Ref, map: IndexMap) -> tuple[TensorType, IndexMap]:
        """Returns the type under which a tensor is stored in memory, and the index map of its reads there."""
        packing = self.packings.get(ref.op.slot) if isinstance(ref.op, Argument) else None
        return (ref.type, map) if packing is None else (packing.type(ref.type), packing.map(map))

    def line(self, text: str) -> None:
        self.text.lines.append(INDENT + text)

    # Tensors and their memory

    def name(self, tensor: protocol.Tensor) -> str:
        """Returns the name of a tensor's value; binds an argument, or writes a constant, at its first use."""
        if isinstance(tensor, Local):
            return tensor.name
        assert isinstance(tensor, Ref), tensor
        known = self.names.get(key(tensor))
        if known is None:
            op = tensor.op
            if isinstance(op, Argument):
                packing = self.packings.get(op.slot)
                type = tensor.type if packing is None else packing.type(tensor.type)
                known = self._bind(f"p{op.slot}", type, "restrict")
            else:
                assert isinstance(op, Dense), op
                known = self.text.dense(op.values, [static_size(s) for s in op.types[0].shape], op.types[0].dtype)
            self.names[key(tensor)] = known
        return known

    def _bind(self, pointer: str, type: TensorType, access: str) -> str:
        """Returns the tensor in the memory of an argument of the function."""
        memory, bare = memref_type(type), shaped_type("memref", (), element_type(type.dtype))
        sizes = f"sizes: [{values(type.shape, self.text)}], strides: [{strides(type.shape, self.text)}]"
        self.bindings += [
            f"%m_{pointer} = memref.reinterpret_cast %{pointer} to offset: [0], {sizes} : {bare} to {memory}",
            f"%t_{pointer} = bufferization.to_tensor %m_{pointer} {access} : {memory} to {tensor_type(type)}",
        ]
        return f"%t_{pointer}"

    def _memory(self, ref: Ref) -> str:
        """Returns memory for a result that is not computed in an operand's memory."""
        number = self.plan.destinations.get(key(ref))
        if number is not None:
            return self._bind(f"r{number}", ref.type, "restrict writable")
        return self._new_scratch(ref.type)

    def _new_scratch(self, type: TensorType) -> str:
        self.scratch.append(type)
        return self._bind(f"s{len(self.scratch) - 1}", type, "restrict writable")

    def _raise(self) -> str:
        """Returns the memory of the alarm: a scratch word of the kernel, which the entry reads."""
        if self.alarm is None:
            self.alarm = len(self.scratch)
            self.scratch.append(TensorType(I64, ()))
        return f"%s{self.alarm}"

    def load_element(self, s: ScalarWriter, tensor: protocol.Tensor, indices: Sequence[protocol.Scalar]) -> Element:
        assert len(indices) == tensor.type.rank, (tensor, indices)
        value = single_value(tensor) if isinstance(tensor, Ref) else None
        if value is not None:
            return s.constant(value, tensor.type.dtype)
        type, coordinates = tensor.type, tuple(s.position(i) for i in indices)
        packing = None
        if isinstance(tensor, Ref) and isinstance(tensor.op, Argument):
            packing = self.packings.get(tensor.op.slot)
        if packing is not None:
            type, coordinates = packing.type(type), packing.positions(coordinates, partial(self._divide, s))
        expression = f"tensor.extract {self.name(tensor)}[{', '.join(coordinates)}] : {tensor_type(type)}"
        return s.define(expression, type.dtype)

    def _divide(self, s: ScalarWriter, position: str, size: int) -> tuple[str, str]:
        operands = f"{position}, {self.text.index(size)} : index"
        quotient, rest = (s.define(f"arith.{op} {operands}", I64).name for op in ("divui", "remui"))
        return quotient, rest

    def define(self, op: Op, expression: str) -> None:
        name = self.names[key(op.result())] = self.text.fresh()
        self.line(f"{name} = {expression}{location(op.span)}")

    # Operations

    def _write_nothing(self, op: Op) -> None:
        """Writes nothing: arguments and constants are written at their first use."""

    def _write_full(self, op: Full) -> None:
        # An operand that only structured ops read is a scalar in them.
        if not self._is_read_as_tensor(op):
            return
        ref = op.result()
        type, element = tensor_type(ref.type), element_type(ref.type.dtype)
        value = self.text.constant(op.value, ref.type.dtype)
        self.define(op, f"linalg.fill ins({value} : {element}) outs({self._memory(ref)} : {type}) -> {type}")

    def _write_resident(self, op: Resident) -> None:
        self.names[key(op.result())] = self._memory(op.result())

    def _is_read_as_tensor(self, op: Full) -> bool:
        if any(ref.op is op for ref in self.plan.results):
            return True
        for reader in self.plan.ops:
            inputs = len(reader.input_maps) if isinstance(reader, Structured) else 0
            if any(ref.op is op for ref in reader.operands[inputs:]):
                return True
        return False

    def _write_reshape(self, op: Reshape) -> None:
        """Merges the necessary axes, then splits the others."""
        source, target = op.operands[0].type, op.types[0]
        before, after = reshape_groups(source.shape, target.shape)
        value, dims = self.name(op.operands[0]), extents(source.shape)
        if len(before) != source.rank:
            merged = group_extents(before, source.shape)
            value = self._step(op, f"tensor.collapse_shape {value} {before}", dims, "into", merged)
            dims = merged
        split = group_extents(after, target.shape)
        if dims != split:
            # MLIR treats a group of axes with a static 0 as static, although other axes of the group may be dynamic.
            value = self._step(op, f"tensor.cast {value}", dims, "to", split)
        if len(after) != target.rank:
            sizes = values(target.shape, self.text)
            expression = f"tensor.expand_shape {value} {after} output_shape [{sizes}]"
            value = self._step(op, expression, split, "into", extents(target.shape))
        self.names[key(op.result())] = value

    def _step(self, op: Reshape, expression: str, before: Sequence[str], word: str, after: Sequence[str]) -> str:
        name, element = self.text.fresh(), element_type(op.types[0].dtype)
        types = f"{shaped_type('tensor', before, element)} {word} {shaped_type('tensor', after, element)}"
        self.line(f"{name} = {expression} : {types}{location(op.span)}")
        return name

    def _write_slice(self, op: Slice) -> None:
        source, result = op.operands[0], op.types[0]
        region = self._region(op.starts, result.shape, op.steps)
        types = f"{tensor_type(source.type)} to {tensor_type(result)}"
        self.define(op, f"tensor.extract_slice {self.name(source)}{region} : {types}")

    def _write_insert(self, op: Insert) -> None:
        source, target = op.operands
        region = self._region(op.starts, source.type.shape, op.steps)
        types = f"{tensor_type(source.type)} into {tensor_type(target.type)}"
        self.define(op, f"tensor.insert_slice {self.name(source)} into {self.name(target)}{region} : {types}")

    def _region(self, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[int]) -> str:
        return f"[{values(starts, self.text)}] [{values(sizes, self.text)}] [{', '.join(map(str, steps))}]"

    def _write_scan(self, op: Scan) -> None:
        carried = [Local(ref.type, self.name(ref)) for ref in op.operands]
        writer = SequenceWriter(self.text, self.load_element, self._raise)
        results = self._write_loops(op, writer, carried, [])
        for number, local in enumerate(results):
            self.names[key(op.result(number))] = local.name

    def _write_loops(
        self, op: Scan, s: SequenceWriter, carried: Sequence[Local], indices: list[Element]
    ) -> Sequence[Local]:
        if len(indices) == len(op.sizes):
            after = [as_local(x) for x in op.body(s, indices, carried)]
            assert [x.type for x in after] == [x.type for x in carried], (after, carried)
            return after
        variable = self.text.fresh()
        inner = [Local(x.type, self.text.fresh()) for x in carried]
        label, names = self.text.results(len(carried))
        arguments = ", ".join(f"{i.name} = {x.name}" for i, x in zip(inner, carried, strict=True))
        types = ", ".join(tensor_type(x.type) for x in carried)
        limit = self.text.size(op.sizes[len(indices)])
        bounds = f"{self.text.index(0)} to {limit} step {self.text.index(1)}"
        if not indices and self.items > 1:
            bounds = f"%begin to %end step {self.text.index(1)}"
        s.line(f"{label} = scf.for {variable} = {bounds} iter_args({arguments}) -> ({types}) {{")
        with s.deeper():
            index = s.define(f"arith.index_cast {variable} : index to i64", I64)
            inside = self._write_loops(op, s, inner, [*indices, index])
            s.line(f"scf.yield {', '.join(x.name for x in inside)} : {types}")
        s.line(f"}}{location(op.span)}")
        return [Local(x.type, name) for x, name in zip(carried, names, strict=True)]

    # Structured operations

    def _write_structured(self, op: Structured) -> None:
        rank = len(op.loops)
        leaves = self._leaves(op, identity(rank))
        starts = [
            self._memory(op.result(i)) if start is None else self.name(op.operands[start])
            for i, start in enumerate(op.starts)
        ]
        operands = [(self.name(ref), *self._stored(ref, map)) for (_, map), ref in leaves.items()]
        maps = [map for _, _, map in operands] + list(op.result_maps)
        unbounded = set(range(rank)) - {plain_loop(index) for map in maps for index in map}
        if unbounded:
            # MLIR derives loop bounds from the operands' shapes: an operand that is never read defines those of
            # windows.
            loops = sorted(unbounded)
            window = TensorType(BOOL, tuple(op.loops[i].size for i in loops))
            operands.append((self._new_scratch(window), window, protocol.loops(*loops)))
        elements = [Element(self.text.fresh(), type.dtype) for _, type, _ in operands]
        starting = [Element(self.text.fresh(), type.dtype) for type in op.types]
        known = dict(zip(leaves, elements, strict=False))

        label, names = self.text.results(len(op.types))
        maps = [map for _, _, map in operands] + list(op.result_maps)
        iterators = ", ".join(f'"{"parallel" if loop.parallel else "reduction"}"' for loop in op.loops)
        traits = f"{{indexing_maps = [{', '.join(affine_map(rank, m) for m in maps)}], iterator_types = [{iterators}]}}"
        inputs = _typed("ins", [name for name, _, _ in operands], [type for _, type, _ in operands])
        outputs = _typed("outs", starts, op.types)
        self.line(f"{label} = linalg.generic {traits}{inputs}{outputs}{_hints(op)} {{")
        block = ", ".join(f"{x.name}: {element_type(x.dtype)}" for x in (*elements, *starting))
        self.line(f"^bb0({block}):")
        s = BodyWriter(self.text, self.load_element, self._raise, identity(rank))
        after = self._evaluate(op, s, identity(rank), known, starting)
        for value, type in zip(after, op.types, strict=True):
            assert value.dtype == type.dtype, (op, value, type)
        types = ", ".join(element_type(x.dtype) for x in after)
        s.line(f"linalg.yield {', '.join(x.name for x in after)} : {types}")
        results = ", ".join(tensor_type(t) for t in op.types)
        arrow = results if len(op.types) == 1 else f"({results})"
        self.line(f"}} -> {arrow}{location(op.span)}")
        for number, name in enumerate(names):
            self.names[key(op.result(number))] = name

    def _inputs(self, op: Structured, access: IndexMap) -> Iterator[tuple[Ref, IndexMap]]:
        """Yields the inputs of an operation with loops `access`, as the operation that is being written reads them."""
        is_own = access is identity(len(op.loops))
        for ref, map in zip(op.operands, op.input_maps, strict=False):
            yield ref, map if is_own else tuple(compose(index, access) for index in map)

    def _leaves(self, op: Structured, access: IndexMap) -> dict[tuple[Key, IndexMap], Ref]:
        """Returns the tensors that an operation reads in memory, directly or through inlined operations, in the order
        of a walk that visits each use of a tensor at an access once."""
        leaves: dict[tuple[Key, IndexMap], Ref] = {}
        visited: set[tuple[Key, IndexMap]] = set()
        pending = [self._inputs(op, access)]
        while pending:
            ref, map = next(pending[-1], (None, ()))
            if ref is None:
                pending.pop()
            elif id(ref.op) not in self.plan.inlined:
                if single_value(ref) is None:
                    leaves.setdefault((key(ref), map), ref)
            elif (key(ref), map) not in visited:
                assert isinstance(ref.op, Structured), ref.op
                visited.add((key(ref), map))
                pending.append(self._inputs(ref.op, map))
        return leaves

    def _evaluate(
        self,
        op: Structured,
        s: BodyWriter,
        access: IndexMap,
        known: dict[tuple[Key, IndexMap], Element],
        starting: Sequence[Element],
        where: str = "",
    ) -> list[Element]:
        """Writes the body of an operation with loops `access`, after its inputs; each element once. `where` is the
        location of the body, if it is another operation's."""
        elements: list[Element] = []
        for ref, map in self._inputs(op, access):
            value = single_value(ref)
            if value is not None:
                elements.append(s.constant(value, ref.type.dtype))
                continue
            if (key(ref), map) not in known:
                assert isinstance(ref.op, Structured), ref.op
                known[key(ref), map] = self._evaluate(ref.op, s, map, known, (), location(ref.op.span))[0]
            elements.append(known[key(ref), map])
        with s.inside(access, where):
            return [as_element(x) for x in op.body(s, elements, starting)]


def _facts(dims: Sequence[Symbol]) -> str:
    """Returns an annotation of the dims for readers of the text: their ranges and divisors."""
    if not dims:
        return ""
    columns = {"low": [d.low for d in dims], "high": [d.high for d in dims], "multiple": [d.multiple for d in dims]}
    facts = (f"nacre.{name} = array<i64: {', '.join(map(str, column))}>" for name, column in columns.items())
    return f" attributes {{{', '.join(facts)}}}"


def _typed(keyword: str, names: Sequence[str], types: Sequence[TensorType]) -> str:
    if not names:
        return ""
    return f" {keyword}({', '.join(names)} : {', '.join(map(tensor_type, types))})"


def _pointer(name: str, type: TensorType, attributes: str = "") -> str:
    element = element_type(type.dtype)
    return f"{name}: memref<{element}> {{{attributes}llvm.noalias}}"


def _is_beside(op: Op, map: IndexMap | None, reader: tuple[Op, IndexMap | None, list[Reading]]) -> bool:
    """Returns whether a reader is the same op, at positions that differ from those of a map by constants."""
    if map is None or reader[0] is not op or reader[1] is None:
        return False
    pairs = zip(map, reader[1], strict=True)
    return all(index.coefficients == other.coefficients for index, other in pairs)
