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

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from ...dialect.diagnostics import Span
from ...dialect.dims import Size, Symbol
from ...dialect.lazy_dataclass import dataclass
from ...passes.analysis.liveness import Step, lower_bound
from ...passes.analysis.plan_memory import plan_memory
from ..lower.lines import Metadata, Scopes, no_lines
from ..lower.lowered import Lowered, LoweredCall, LoweredFunction, Tensor
from ..lower.nodes import Computed
from ..lower.parts import Parts
from ..lower.schedule import Item, calls_in, map_items
from ..lower.storage import Alarm, Failure, Input, Output, Sliced, Storage, Unused, Weight, Workspace
from ..lower.writer import part_name
from .device import DeviceEntryText, declare_device
from .entry import Call, EntryText, declare, launchers_of, observed, write_entry, write_observed_entry
from .loop_text import WholeLoops, declare_inner
from .moves import Operand, Timeline
from .states import Copy, StateReport, old_values, plan_states, report_states, write_copies
from .whole_loops import LoopReport, report_loops, tensors_of


@dataclass(frozen=True, slots=True)
class LoweredEntry:
    """A planned entry: a C function that computes one function of the model.

    name, symbol, span: the function of the model, the symbol of the C function, and the source location.
    dims: the dim arguments, in order.
    workspace: the bytes of the workspace.
    items: the calls, with the loops and branches around them.
    steps, sizes: the parts of the calls in order, and the bytes of each tensor in the workspace.
    checks: for each call that checks indices, in order, the description of the check for messages.
    omitted: the positions of the lowered calls that the plan omits.
    copies, states: the copies of states after all calls, and a report on each state that the entry changes.
    """

    name: str
    symbol: str
    dims: tuple[Symbol, ...]
    workspace: Size
    items: tuple[Item[Call, Storage], ...]
    steps: tuple[Step, ...]
    sizes: Mapping[str, Size]
    span: Span | None = None
    checks: tuple[str, ...] = ()
    omitted: frozenset[int] = frozenset()
    copies: tuple[Copy, ...] = ()
    states: tuple[StateReport, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls in the order of the text, those in loops and branches included."""
        return tuple(calls_in(self.items))

    def least_workspace(self, dims: Mapping[str, int]) -> int:
        """Returns a lower bound of the workspace at these dims, in bytes: see `lower_bound`."""
        return lower_bound(self.steps, self.sizes, dims)

    def text(
        self,
        suffix: str = "",
        parts: Parts | None = None,
        lines: Metadata | None = None,
        *,
        device: bool = False,
        inner: Collection[str] = (),
    ) -> str:
        """Returns the text of the entry, with the suffix at its symbol and at the kernels that it calls. `lines`
        receives their line tables. `inner` are the functions with copies for loops that are one function."""
        symbol, items, scopes = self.symbol + suffix, self._items(suffix, parts), self._scopes(lines)
        whole = WholeLoops(symbol, inner, scopes)
        plain = DeviceEntryText if device else whole.make_text
        text = write_entry(symbol, self.dims, items, scopes, self.copies, plain)
        return "\n".join([*whole.functions, text])

    def observed_text(
        self, suffix: str = "", parts: Parts | None = None, lines: Metadata | None = None, *, device: bool = False
    ) -> str:
        """Returns the text of the entry's observed copy; see `text`."""
        make_text = DeviceEntryText if device else EntryText
        items, scopes = self._items(suffix, parts), self._scopes(lines)
        return write_observed_entry(self.symbol + suffix, self.dims, items, scopes, self.copies, make_text)

    def _scopes(self, lines: Metadata | None) -> Scopes:
        span = self.span
        return no_lines if lines is None or span is None else lambda name: lines.subprogram(name, span)

    def report_loops(self, inner: Collection[str]) -> Iterator[LoopReport]:
        """Yields a report on each loop; `inner` are the kernels with copies for loops that are one function."""
        return report_loops(self.name, self.items, inner)

    def parts(self, suffix: str = "", parts: Parts | None = None) -> list[Call]:
        """Returns the calls of all parts of all kernels."""
        return list(calls_in(self._items(suffix, parts)))

    def _items(self, suffix: str, parts: Parts | None) -> tuple[Item[Call, Storage], ...]:
        def split(call: Call) -> Sequence[Call]:
            last = len((parts or {}).get(call.kernel, " ")) - 1
            records = [*[None] * last, call.record]
            return [
                replace(
                    call,
                    kernel=part_name(call.kernel + suffix, number),
                    suffix=suffix,
                    record=record,
                    copies=call.copies if number == 0 else (),
                )
                for number, record in enumerate(records)
            ]

        return map_items(self.items, split, lambda storage: storage)


def plan_entries(lowered: Lowered, parts: Parts | None = None) -> tuple[LoweredEntry, ...]:
    """Plans an entry for every function. A tensor that no part of a kernel uses gets no memory."""
    return tuple(_plan_entry(function, parts or {}) for function in lowered.functions)


@dataclass(frozen=True, slots=True)
class EntryModule:
    """A module of LLVM IR with functions that call kernels: the `entries`, their `observed` copies, whose speed is
    unimportant, or a launcher. It defines the `symbols` for other modules."""

    symbols: tuple[str, ...]
    text: str
    entries: bool = False
    observed: bool = False


def entry_modules(
    entries: Sequence[LoweredEntry],
    suffix: str = "",
    parts: Parts | None = None,
    *,
    debug: bool = False,
    device: bool = False,
    inner: Collection[str] = (),
    watched: bool = True,
) -> list[EntryModule]:
    """Returns the modules of the entries, to be linked with the kernels of the same suffix, which run on a device or on
    the same machine, and with copies of the functions `inner` that loops call. If `watched`, they are part of an
    artifact: each entry has an observed copy, and the kernels are hidden.

    The entries are the last module. Their observed copies and each launcher are modules of their own, unless the
    kernels run on a device, or there is no artifact.
    """
    if not entries:
        return []
    calls = [call for entry in entries for call in entry.parts(suffix, parts)]
    apart = watched and not device
    symbols = tuple(entry.symbol + suffix for entry in entries)
    copies = tuple(map(observed, symbols)) if watched else ()

    def module(*, plain: bool, copied: bool) -> str:
        lines = Metadata() if debug else None
        texts = [entry.text(suffix, parts, lines, device=device, inner=inner) for entry in entries if plain]
        texts += [entry.observed_text(suffix, parts, lines, device=device) for entry in entries if copied]
        declared = declare_device(calls, suffix) if device else declare(calls, hidden=watched, apart=apart)
        called = declare_inner(calls, inner) if plain and not device else ""
        return "\n".join([declared + called, *texts, *([] if lines is None else [lines.text()])])

    if not apart:
        return [EntryModule((*symbols, *copies), module(plain=True, copied=watched), entries=True)]
    # A debugger finds the callers of functions without line tables by unwind tables.
    attributes = "uwtable " if debug else ""
    launchers = [EntryModule((s.launcher,), s.definition("hidden", attributes)) for s in launchers_of(calls)]
    return [
        *launchers,
        EntryModule(copies, module(plain=False, copied=True), observed=True),
        EntryModule(symbols, module(plain=True, copied=False), entries=True),
    ]


def _results_of(call: LoweredCall, storages: Sequence[Storage]) -> tuple[tuple[Storage, Size], ...]:
    written = zip(storages[len(call.inputs) :], call.kernel.results, strict=False)  # scratch follows the results
    return tuple((storage, type.bytes) for storage, type in written if isinstance(storage, Output | Workspace))


def _plan_entry(function: LoweredFunction, parts: Parts) -> LoweredEntry:
    old = old_values(function)
    timeline = Timeline(function, parts, old)
    function = timeline.resolved_states()
    records = {call.outputs[0] for call in function.calls if call.check} - set(function.outputs)
    # Maps the scratch tensor for an alarm to the position of the call that may raise it.
    alarms = {
        str(tensors[len(tensors) - len(call.kernel.scratch) + call.kernel.alarm]): position
        for position, (call, tensors) in enumerate(zip(function.calls, timeline.operands, strict=True))
        if call.kernel.alarm is not None
    }
    first_alarm = min(alarms.values(), default=len(function.calls))
    unplanned = {*records, *alarms, *timeline.aliases}
    sizes = {**function.sizes, **timeline.scratch}
    sizes = {name: size for name, size in sizes.items() if name not in unplanned}
    states = plan_states(function, timeline.steps, sizes, timeline.last_check)
    sizes = {name: size for name, size in sizes.items() if name not in states.placed} | dict(states.sizes)
    if states.pending:
        timeline.steps.append(Step(tuple(dict.fromkeys([*states.saved, *(p.source for p in states.pending)]))))
    plan = plan_memory(timeline.steps, sizes)
    storages: dict[str, Storage] = {name: Workspace(offset) for name, offset in plan.offsets.items()}
    storages |= {
        **function.outputs,
        **dict.fromkeys(records, Failure()),
        **dict.fromkeys(alarms, Alarm()),
        **states.placed,
    }
    storages |= {name: Input(number) for number, name in old.items()}

    def locate(tensor: Tensor | Operand) -> Storage:
        if isinstance(tensor, Computed):
            tensor = tensor.name
        if isinstance(tensor, str):
            name = timeline.resolve(tensor)
            if name not in timeline.slices:
                return storages.get(name, Unused())
            slice = timeline.slices[name]
            return Sliced(locate(slice.base), slice.loop, slice.stride)
        return Sliced(locate(tensor.base), tensor.loop, tensor.stride) if isinstance(tensor, Sliced) else tensor

    shared = {Output(state.result): Input(state.argument) for state in function.states}
    copied: list[tuple[str, Size]] = []

    def copy_over(call: LoweredCall) -> tuple[Copy, ...]:
        """Returns the copy of the tensor that a call overwrites in parts, unless its result is in the same memory."""
        if call.over is None:
            return ()
        source, target = locate(timeline.name(call.over)), locate(call.outputs[0])
        if source == target or (isinstance(target, Output) and shared.get(target) == source):
            return ()
        if isinstance(target, Unused):
            return ()
        (type,) = call.kernel.results
        copied.append((str(timeline.name(call.over)), type.bytes))
        return (Copy(source, target, type.bytes),)

    positions, numbers = count(), count()

    def plan_call(call: LoweredCall) -> Sequence[Call]:
        position = next(positions)
        if position in timeline.omitted:
            return ()
        lying = tuple(map(locate, timeline.operands[position]))
        record = storages[call.outputs[0]] if call.check else None
        # A record that is a result of the function is always written.
        deferred = call.deferred and isinstance(record, Failure) and first_alarm < position
        number, dims = next(numbers), call.kernel.dims
        # Weights do not change within a session. Dims may differ between calls, so a check of dims is not fixed.
        fixed = not dims and all(isinstance(locate(tensor), Weight) for tensor in call.inputs)
        once = fixed and isinstance(record, Failure) and not deferred
        return (
            Call(
                *(call.symbol, dims, lying, call.comment, number, call.span, record),
                deferred=deferred,
                once=once,
                position=position,
                copies=copy_over(call),
                tensors=tensors_of(call),
                results=_results_of(call, lying),
            ),
        )

    return LoweredEntry(
        function.name,
        function.symbol,
        function.dims,
        plan.total,
        map_items(function.items, plan_call, locate),
        tuple(timeline.steps),
        sizes,
        function.span,
        tuple(call.check for call in function.calls if call.check),
        frozenset(timeline.omitted),
        write_copies(states, storages),
        tuple(report_states(function, states, copied)),
    )
