"""The emitter of an operator's own lowering: it records a kernel and returns its text.

One emitter writes one kernel, the group of nodes between its inputs and its results. An assertion rejects bodies that
capture values outside of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...dialect import emitter as protocol
from ...dialect.diagnostics import Span
from ...dialect.dims import Shape, Size
from ...dialect.emitter import IndexMap, identity
from ...dialect.types import I64, TensorType
from ..targets.vector_unit import PanelSizes
from .arrange import arrange
from .bodies import BodyWriter, SequenceWriter
from .packing import Packing
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
    Scalars,
    Scan,
    Slice,
    Structured,
    StructuredBody,
    as_ref,
    copy_of,
)
from .scalars import ScalarWriter
from .shapes import merges_in_place
from .statements import Element
from .text import FunctionText
from .writer import Kernel, KernelWriter


class _AnyDims(dict[Any, str]):
    def __missing__(self, symbol: object) -> str:
        return "%d"


class KernelEmitter:
    """An implementation of the emitter protocol. `span` is the source location of the node that is being lowered;
    `panels` are the sizes of panels of packed weights. Sums `for_device` read transposed tensors where they are, and
    the kernel has memory for the parts of long reductions."""

    def __init__(self, panels: PanelSizes | None = None, for_device: bool = False) -> None:
        self.panels, self.for_device = panels, for_device
        self.span: Span | None = None
        self._ops: list[Op] = []
        self._inputs: list[TensorType] = []
        self._tied: dict[int, Packing] = {}

    def input(self, type: TensorType, *, weight: bool = False, tied: Packing | None = None) -> Ref:
        """Adds an argument of the kernel; it may be a weight, and it may be stored packed for other kernels."""
        slot = len(self._inputs)
        self._inputs.append(type)
        if tied is not None:
            self._tied[slot] = tied
        return self._add(Argument(types=(type,), slot=slot, weight=weight)).result()

    def resident(self, type: TensorType) -> Ref:
        """Adds the initial content of a result's memory. The kernel overwrites parts of this memory."""
        return self._add(Resident(types=(type,))).result()

    def finish(self, results: Sequence[protocol.Tensor]) -> Kernel:
        """Returns the text of the kernel that computes these results. Nothing may be recorded after it."""
        refs = [as_ref(r) for r in results]
        types = [r.type for r in refs]
        plan = arrange(self._ops, refs, in_place=self.for_device)
        return KernelWriter(plan, self._inputs, types, self._tied, self.panels, for_device=self.for_device).write()

    def _add(self, op: Op) -> Op:
        op.span = self.span
        self._ops.append(op)
        return op

    # The protocol

    def map(
        self,
        result: TensorType,
        inputs: Sequence[tuple[protocol.Tensor, IndexMap]],
        body: Callable[..., protocol.Scalar],
    ) -> Ref:
        loops = [protocol.Loop(size) for size in result.shape]
        outputs = [protocol.Result(result, identity(result.rank))]
        op = self._structured(loops, inputs, outputs, lambda s, elements, _: [body(s, *elements)])
        op.elementwise = True
        op.moves = op.moves and all(ref.type.dtype == result.dtype for ref in op.operands)
        return op.result()

    def structured(
        self,
        loops: Sequence[protocol.Loop],
        inputs: Sequence[tuple[protocol.Tensor, IndexMap]],
        results: Sequence[protocol.Result],
        body: Callable[..., Scalars],
    ) -> tuple[Ref, ...]:
        op = self._structured(loops, inputs, results, lambda s, elements, totals: body(s, *elements, *totals))
        op.moves = False
        return tuple(op.result(i) for i in range(len(results)))

    def _structured(
        self,
        loops: Sequence[protocol.Loop],
        inputs: Sequence[tuple[protocol.Tensor, IndexMap]],
        results: Sequence[protocol.Result],
        body: StructuredBody,
    ) -> Structured:
        operands = [as_ref(x) for x, _ in inputs]
        for ref, map in zip(operands, (m for _, m in inputs), strict=True):
            assert len(map) == ref.type.rank, (ref, map)
        starts: list[int | None] = []
        for result in results:
            assert len(result.map) == result.type.rank, result
            if result.initial is None:
                assert all(loop.parallel for loop in loops), "a reduction needs something to start from"
                starts.append(None)
                continue
            number = isinstance(result.initial, (bool, int, float))
            start = self.full(result.type, result.initial) if number else as_ref(result.initial)  # type: ignore[arg-type]  # `number` tells
            assert start.type == result.type, (start, result)
            starts.append(len(operands))
            operands.append(start)
        op = Structured(
            types=tuple(r.type for r in results),
            operands=operands,
            loops=tuple(loops),
            input_maps=tuple(m for _, m in inputs),
            result_maps=tuple(r.map for r in results),
            starts=tuple(starts),
            body=body,
        )
        rehearsal = _Rehearsal()
        s = BodyWriter(rehearsal.text, rehearsal.load, rehearsal.alarm, identity(len(loops)))
        elements = [
            Element(f"%in{i}", ref.type.dtype) for i, (ref, _) in enumerate(zip(operands, inputs, strict=False))
        ]
        after = body(s, elements, [Element(f"%out{i}", r.type.dtype) for i, r in enumerate(results)])
        for value, result in zip(after, results, strict=True):
            assert value.dtype == result.type.dtype, (value, result)
        op.loads, op.moves = rehearsal.loads, bool(after) and after[0] in elements
        self._add(op)
        return op

    def scan(
        self,
        sizes: Sequence[Size],
        carried: Sequence[protocol.Tensor],
        body: Callable[..., Sequence[protocol.Tensor]],
        *,
        work_items: bool = False,
    ) -> tuple[Ref, ...]:
        operands = [as_ref(x) for x in carried]
        rehearsal = _Rehearsal()
        s = SequenceWriter(rehearsal.text, rehearsal.load, rehearsal.alarm)
        body(s, [Element("%i", I64) for _ in sizes], [Local(ref.type, "%t") for ref in operands])
        types = tuple(ref.type for ref in operands)
        assert not work_items or isinstance(sizes[0], int), sizes
        op = Scan(
            types=types,
            operands=operands,
            sizes=tuple(sizes),
            body=body,
            loads=rehearsal.loads,
            work_items=work_items,
        )
        self._add(op)
        return tuple(op.result(i) for i in range(len(operands)))

    def full(self, type: TensorType, value: float | int | bool) -> Ref:
        return self._add(Full(types=(type,), value=value)).result()

    def memory(self, type: TensorType) -> Ref:
        return self.resident(type)

    def constant(self, type: TensorType, values: Sequence[float | int | bool]) -> Ref:
        assert type.elements == len(values), (type, len(values))
        return self._add(Dense(types=(type,), values=tuple(values))).result()

    def reshape(self, x: protocol.Tensor, shape: Shape) -> Ref:
        ref = as_ref(x)
        type = ref.type.with_shape(shape)
        assert type.elements == ref.type.elements, (ref.type, type)
        if type == ref.type:
            return ref
        if type.elements == 0:
            # MLIR assumes that a group of axes with a static 0 is static even where others of its axes are not.
            return self.full(type, 0)
        if isinstance(ref.op, Slice) and not merges_in_place(ref.op, shape):
            ref = self._add(copy_of(ref, self.span)).result()
        return self._add(Reshape(types=(type,), operands=[ref])).result()

    def slice(self, x: protocol.Tensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[int]) -> Ref:
        ref = as_ref(x)
        assert len(starts) == len(sizes) == len(steps) == ref.type.rank, (ref.type, starts, sizes, steps)
        type = ref.type.with_shape(sizes)
        if type.elements == 0:
            # MLIR requires even an empty slice to start at an element.
            return self.full(type, 0)
        op = Slice(types=(type,), operands=[ref], starts=tuple(starts), steps=tuple(steps))
        return self._add(op).result()

    def insert(
        self, source: protocol.Tensor, target: protocol.Tensor, starts: Sequence[Size], steps: Sequence[int]
    ) -> Ref:
        part, whole = as_ref(source), as_ref(target)
        assert part.type.dtype == whole.type.dtype and part.type.rank == whole.type.rank, (part.type, whole.type)
        assert len(starts) == len(steps) == whole.type.rank, (whole.type, starts, steps)
        if part.type.elements == 0:
            return whole
        op = Insert(types=(whole.type,), operands=[part, whole], starts=tuple(starts), steps=tuple(steps))
        return self._add(op).result()


class _Rehearsal:
    """A trial call of a body: it discards the statements and records the tensors that the body reads."""

    def __init__(self) -> None:
        self.text = FunctionText(_AnyDims())
        self._loads: dict[int, Ref] = {}

    @property
    def loads(self) -> tuple[Ref, ...]:
        return tuple(self._loads.values())

    def alarm(self) -> str:
        return "%alarm"

    def load(self, s: ScalarWriter, tensor: protocol.Tensor, indices: Sequence[protocol.Scalar]) -> Element:
        assert len(indices) == tensor.type.rank, (tensor, indices)
        if isinstance(tensor, Ref):
            self._loads.setdefault(id(tensor.op) * 8 + tensor.number, tensor)
        return s.constant(0, tensor.type.dtype)
