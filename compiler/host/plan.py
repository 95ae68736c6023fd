"""Plans the entries of a lowered module: assigns memory to every tensor, now that the needs of its kernels are known.

The plan changes neither the computations nor their order.

A call is one step of the memory plan for each part of its kernel. Memory that only some parts use is free in the
others:

    call 0    matmul(x, w) -> t                 step 0: t
    call 1    a kernel with two parts:
              p0 reads t, writes scratch s      step 1: t, s
              p1 reads s, writes y              step 2: s, y      y may take the memory of t
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...dialect.diagnostics import Span
from ...dialect.dims import Size, Symbol
from ...passes.analysis.liveness import Step, lower_bound
from ...passes.analysis.plan_memory import plan_memory
from ..lower.lines import Metadata, no_lines
from ..lower.lowered import Lowered, LoweredCall, LoweredFunction
from ..lower.nodes import Computed
from ..lower.parts import KernelPart, Parts
from ..lower.places import Alarm, Failure, Input, Place, Unused, Weight, Workspace
from ..lower.writer import part_name
from .entry import Call, declare, observed, write_entry, write_observed_entry


@dataclass(frozen=True, slots=True)
class LoweredEntry:
    """An entry. `symbol` is the C function of the function `name`; `dims` is the order of its dim arguments. `steps`
    are the parts of its calls in order, and `sizes` the bytes of the tensors in the workspace. `span` is the source
    location of the function. `checks` holds the purposes of the calls that check indices, in their order."""

    name: str
    symbol: str
    dims: tuple[Symbol, ...]
    workspace: Size
    calls: tuple[Call, ...]
    steps: tuple[Step, ...]
    sizes: Mapping[str, Size]
    span: Span | None = None
    checks: tuple[str, ...] = ()

    def least_workspace(self, dims: Mapping[str, int]) -> int:
        """Returns a lower bound of the workspace at these dims, in bytes: see `lower_bound`."""
        return lower_bound(self.steps, self.sizes, dims)

    def text(self, suffix: str = "", parts: Parts | None = None, lines: Metadata | None = None) -> str:
        """Returns the text of the entry, with the suffix at its symbol and at the kernels that it calls, and of its
        observed copy. `lines` receives their line tables."""
        symbol, calls = self.symbols(suffix)[0], self.parts(suffix, parts)
        span = self.span
        scopes = no_lines if lines is None or span is None else lambda name: lines.subprogram(name, span)
        text = write_entry(symbol, self.dims, calls, scopes)
        return text + "\n" + write_observed_entry(symbol, self.dims, calls, scopes)

    def symbols(self, suffix: str = "") -> tuple[str, str]:
        """Returns the symbols that the entry's text defines."""
        return self.symbol + suffix, observed(self.symbol + suffix)

    def parts(self, suffix: str = "", parts: Parts | None = None) -> list[Call]:
        """Returns the calls of all parts of all kernels."""
        found: list[Call] = []
        for call in self.calls:
            count = len((parts or {}).get(call.kernel, " "))
            for number in range(count):
                record = call.record if number == count - 1 else None
                found.append(replace(call, kernel=part_name(call.kernel + suffix, number), record=record))
        return found


def plan_entries(lowered: Lowered, parts: Parts | None = None) -> tuple[LoweredEntry, ...]:
    """Plans an entry for every function. A tensor that no part of a kernel uses gets no memory."""
    return tuple(_plan_entry(function, parts or {}) for function in lowered.functions)


def entry_ir(
    entries: Sequence[LoweredEntry], suffix: str = "", parts: Parts | None = None, *, debug: bool = False
) -> str:
    """Returns the entries as a module of LLVM IR, to be linked with the kernels of the same suffix."""
    calls = [call for entry in entries for call in entry.parts(suffix, parts)]
    lines = Metadata() if debug else None
    texts = [entry.text(suffix, parts, lines) for entry in entries]
    return "\n".join([declare(calls), *texts, *([] if lines is None else [lines.text()])])


def _plan_entry(function: LoweredFunction, parts: Parts) -> LoweredEntry:
    steps: list[Step] = []
    sizes = dict(function.sizes)
    operands = [_operands(call, number) for number, call in enumerate(function.calls)]
    for call, tensors in zip(function.calls, operands, strict=True):
        first = len(tensors) - len(call.kernel.scratch)
        sizes |= {f"{t}": type.bytes for t, type in zip(tensors[first:], call.kernel.scratch, strict=True)}
        steps += _steps(call, tensors, parts.get(call.symbol, (KernelPart((True,) * len(tensors)),)))
    records = {call.outputs[0] for call in function.calls if call.check} - set(function.outputs)
    alarms = {
        tensors[len(tensors) - len(call.kernel.scratch) + call.kernel.alarm]: number
        for number, (call, tensors) in enumerate(zip(function.calls, operands, strict=True))
        if call.kernel.alarm is not None
    }
    sizes = {name: size for name, size in sizes.items() if name not in records and name not in alarms}
    plan = plan_memory(steps, sizes)
    places: dict[str, Place] = {name: Workspace(offset) for name, offset in plan.offsets.items()}
    places |= {**function.outputs, **dict.fromkeys(records, Failure()), **dict.fromkeys(map(str, alarms), Alarm())}
    first_alarm = min(alarms.values(), default=len(function.calls))
    calls: list[Call] = []
    for number, (call, tensors) in enumerate(zip(function.calls, operands, strict=True)):
        lying = tuple(places.get(t, Unused()) if isinstance(t, str) else t for t in tensors)
        record = places[call.outputs[0]] if call.check else None
        # A record that is a result of the function is always written.
        deferred = call.deferred and isinstance(record, Failure) and first_alarm < number
        calls.append(Call(call.symbol, call.kernel.dims, lying, call.comment, number, call.span, record, deferred))
    return LoweredEntry(
        function.name,
        function.symbol,
        function.dims,
        plan.total,
        tuple(calls),
        tuple(steps),
        sizes,
        function.span,
        tuple(call.check for call in function.calls if call.check),
    )


def _operands(call: LoweredCall, number: int) -> list[str | Input | Weight]:
    """Returns the tensors of a kernel in the order of its arguments: by name, or by storage."""
    inputs = [source.name if isinstance(source, Computed) else source for source in call.inputs]
    return [*inputs, *call.outputs, *(f"scratch {number}.{k}" for k in range(len(call.kernel.scratch)))]


def _steps(call: LoweredCall, tensors: Sequence[str | Input | Weight], parts: Sequence[KernelPart]) -> Iterator[Step]:
    for part in parts:
        used = [t for t, uses in zip(tensors, part.uses, strict=True) if uses and isinstance(t, str)]
        # No part writes a result without elements, but the result exists.
        made = call.outputs if part is parts[-1] else ()
        yield Step(tuple(dict.fromkeys([*used, *made])), tuple(_in_place(tensors, part)))


def _in_place(tensors: Sequence[str | Input | Weight], part: KernelPart) -> Iterator[tuple[str, str]]:
    """Yields the tensors that may share memory; a tensor that is passed more than once counts as each of its
    arguments."""
    for written, read in part.in_place:
        new, old = tensors[written], tensors[read]
        same = [i for i, tensor in enumerate(tensors) if tensor == old and part.uses[i]]
        if isinstance(new, str) and isinstance(old, str) and all((written, i) in part.in_place for i in same):
            yield new, old
