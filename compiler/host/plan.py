"""Plans the entries of a lowered module: assigns memory to every tensor, now that the needs of its kernels are known.

The plan changes neither the computations nor their order.
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
from ..lower.places import Failure, Input, Output, Place, Unused, Weight, Workspace
from ..lower.writer import part_name
from .entry import Call, declare, observed, write_entry, write_observed_entry
from .states import Copy, StateReport, old_values, plan_states, report_states, state_tensor, write_copies


@dataclass(frozen=True, slots=True)
class LoweredEntry:
    """An entry. `symbol` is the C function of the function `name`; `dims` is the order of its dim arguments. `steps`
    are the parts of its calls in order, and `sizes` the bytes of the tensors in the workspace. `span` is the source
    location of the function. `checks` holds the purposes of the calls that check indices, in their order; `copies` are
    those of states after all calls, and `states` the reports on the states that the entry changes."""

    name: str
    symbol: str
    dims: tuple[Symbol, ...]
    workspace: Size
    calls: tuple[Call, ...]
    steps: tuple[Step, ...]
    sizes: Mapping[str, Size]
    span: Span | None = None
    checks: tuple[str, ...] = ()
    copies: tuple[Copy, ...] = ()
    states: tuple[StateReport, ...] = ()

    def least_workspace(self, dims: Mapping[str, int]) -> int:
        """Returns a lower bound of the workspace at these dims, in bytes: see `lower_bound`."""
        return lower_bound(self.steps, self.sizes, dims)

    def text(self, suffix: str = "", parts: Parts | None = None, lines: Metadata | None = None) -> str:
        """Returns the text of the entry, with the suffix at its symbol and at the kernels that it calls, and of its
        observed copy. `lines` receives their line tables."""
        symbol, calls = self.symbols(suffix)[0], self.parts(suffix, parts)
        span = self.span
        scopes = no_lines if lines is None or span is None else lambda name: lines.subprogram(name, span)
        text = write_entry(symbol, self.dims, calls, scopes, self.copies)
        return text + "\n" + write_observed_entry(symbol, self.dims, calls, scopes, self.copies)

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
                copies = call.copies if number == 0 else ()
                name = part_name(call.kernel + suffix, number)
                found.append(replace(call, kernel=name, record=record, copies=copies))
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
    last_check = -1
    sizes = dict(function.sizes)
    old = old_values(function)
    operands = [_operands(call, number, old) for number, call in enumerate(function.calls)]
    for call, tensors in zip(function.calls, operands, strict=True):
        first = len(tensors) - len(call.kernel.scratch)
        sizes |= {f"{t}": type.bytes for t, type in zip(tensors[first:], call.kernel.scratch, strict=True)}
        steps += _steps(call, tensors, parts.get(call.symbol, (KernelPart((True,) * len(tensors)),)), old)
        last_check = len(steps) - 1 if call.check else last_check
    records = {call.outputs[0] for call in function.calls if call.check} - set(function.outputs)
    sizes = {name: size for name, size in sizes.items() if name not in records}
    states = plan_states(function, steps, sizes, last_check)
    sizes = {name: size for name, size in sizes.items() if name not in states.placed} | dict(states.sizes)
    if states.pending:
        steps.append(Step(tuple(dict.fromkeys([*states.saved, *(p.source for p in states.pending)]))))
    plan = plan_memory(steps, sizes)
    places: dict[str, Place] = {name: Workspace(offset) for name, offset in plan.offsets.items()}
    places |= {**function.outputs, **dict.fromkeys(records, Failure()), **states.placed}
    kept = (s.source for s in function.states if isinstance(s.source, Input))
    places |= {state_tensor(number): Input(number) for number in (*old, *(source.number for source in kept))}
    calls: list[Call] = []
    copied: list[tuple[str, Size]] = []
    for number, (call, tensors) in enumerate(zip(function.calls, operands, strict=True)):
        lying = tuple(places.get(t, Unused()) if isinstance(t, str) else t for t in tensors)
        record = places[call.outputs[0]] if call.check else None
        copies = tuple(_copy_over(call, function, old, places))
        copied += [(str(_tensor(call.over, old)), copy.size) for copy in copies if call.over is not None]
        calls.append(Call(call.symbol, call.kernel.dims, lying, call.comment, number, call.span, record, copies))
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
        write_copies(states, places),
        tuple(report_states(function, states, copied)),
    )


def _copy_over(
    call: LoweredCall, function: LoweredFunction, old: Mapping[int, str], places: Mapping[str, Place]
) -> Iterator[Copy]:
    """Yields the copy of the tensor that a call overwrites in parts, unless its result is in the same memory."""
    if call.over is None:
        return
    tensor = _tensor(call.over, old)
    source = places[tensor] if isinstance(tensor, str) else tensor
    target = places.get(call.outputs[0], Unused())
    shared = {Output(state.result): Input(state.argument) for state in function.states}
    same = target == source or (isinstance(target, Output) and shared.get(target) == source)
    if not same and not isinstance(target, Unused):
        (type,) = call.kernel.results
        yield Copy(source, target, type.bytes)


def _tensor(source: Input | Weight | Computed, old: Mapping[int, str]) -> str | Input | Weight:
    """Returns a tensor by name, or by storage. The values of states before the call have names."""
    if isinstance(source, Input) and source.number in old:
        return old[source.number]
    return source.name if isinstance(source, Computed) else source


def _operands(call: LoweredCall, number: int, old: Mapping[int, str]) -> list[str | Input | Weight]:
    """Returns the tensors of a kernel in the order of its arguments: by name, or by storage."""
    inputs = [_tensor(source, old) for source in call.inputs]
    return [*inputs, *call.outputs, *(f"scratch {number}.{k}" for k in range(len(call.kernel.scratch)))]


def _steps(
    call: LoweredCall, tensors: Sequence[str | Input | Weight], parts: Sequence[KernelPart], old: Mapping[int, str]
) -> Iterator[Step]:
    over = None if call.over is None else _tensor(call.over, old)
    for part in parts:
        used = [t for t, uses in zip(tensors, part.uses, strict=True) if uses and isinstance(t, str)]
        # No part writes a result without elements, but the result exists.
        made = call.outputs if part is parts[-1] else ()
        pairs = list(_in_place(tensors, part))
        if isinstance(over, str) and part is parts[0]:
            made, pairs = (over, *call.outputs), [*pairs, (call.outputs[0], over)]
        yield Step(tuple(dict.fromkeys([*used, *made])), tuple(pairs))


def _in_place(tensors: Sequence[str | Input | Weight], part: KernelPart) -> Iterator[tuple[str, str]]:
    """Yields the tensors that may share memory; a tensor that is passed more than once counts as each of its
    arguments."""
    for written, read in part.in_place:
        new, old = tensors[written], tensors[read]
        same = [i for i, tensor in enumerate(tensors) if tensor == old and part.uses[i]]
        if isinstance(new, str) and isinstance(old, str) and all((written, i) in part.in_place for i in same):
            yield new, old
