"""The entries of a lowered module: where every tensor lives, now that it is known what its kernels need.

Nothing is decided about what is computed, or when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...dialect.diagnostics import Span
from ...dialect.dims import Size, Symbol
from ...passes.plan_memory import Plan, Step, plan_memory
from .entry import Call, Place, Unused, Workspace, declare, observed, write_entry, write_observed_entry
from .lines import NO_LINES, Metadata, Scope
from .lowered import Lowered, LoweredCall, LoweredFunction
from .nodes import Computed
from .writer import part_name

Usage = Mapping[str, Sequence[bool]]
"""Which of its scratch arguments a kernel uses, by the kernel's symbol; one that is not there uses all."""
Parts = Mapping[str, int]
"""How many functions were made of a kernel, by its symbol; one if it is not there."""


@dataclass(frozen=True, slots=True)
class LoweredEntry:
    """`symbol` is the C function of the function `name`; `dims` is the order in which it takes the dims. `span`
    is where the function is written."""

    name: str
    symbol: str
    dims: tuple[Symbol, ...]
    workspace: Size
    calls: tuple[Call, ...]
    plan: Plan
    span: Span | None = None

    def text(self, suffix: str = "", parts: Parts | None = None, lines: Metadata | None = None) -> str:
        """The entry whose symbol has the suffix, and calls kernels with the same; and its observed copy. `lines` takes
        their tables of lines."""
        symbols, calls = self.symbols(suffix), self.parts(suffix, parts)
        plain, watched = (self._scope(symbol, lines) for symbol in symbols)
        text = write_entry(symbols[0], self.dims, calls, plain)
        return text + "\n" + write_observed_entry(symbols[0], self.dims, calls, watched)

    def _scope(self, symbol: str, lines: Metadata | None) -> Scope:
        return NO_LINES if lines is None or self.span is None else lines.subprogram(symbol, self.span)

    def symbols(self, suffix: str = "") -> tuple[str, str]:
        """What that text defines."""
        return self.symbol + suffix, observed(self.symbol + suffix)

    def parts(self, suffix: str = "", parts: Parts | None = None) -> list[Call]:
        """The calls of all parts of all kernels."""
        return [
            replace(call, kernel=part_name(call.kernel + suffix, number))
            for call in self.calls
            for number in range((parts or {}).get(call.kernel, 1))
        ]


def plan_entries(lowered: Lowered, usage: Usage | None = None) -> tuple[LoweredEntry, ...]:
    """An entry for every function. Scratch that its kernel does not use gets no memory."""
    return tuple(_plan_entry(function, usage or {}) for function in lowered.functions)


def entry_ir(
    entries: Sequence[LoweredEntry], suffix: str = "", parts: Parts | None = None, *, debug: bool = False
) -> str:
    """The entries as a module of LLVM IR, to be linked with the kernels of the same suffix."""
    calls = [call for entry in entries for call in entry.parts(suffix, parts)]
    lines = Metadata() if debug else None
    texts = [entry.text(suffix, parts, lines) for entry in entries]
    return "\n".join([declare(calls), *texts, *([] if lines is None else [lines.text()])])


def _used(call: LoweredCall, usage: Usage) -> Sequence[bool]:
    used = usage.get(call.symbol, (True,) * len(call.kernel.scratch))
    assert len(used) == len(call.kernel.scratch), (call.symbol, used)
    return used


def _plan_entry(function: LoweredFunction, usage: Usage) -> LoweredEntry:
    steps = [
        Step(
            tuple(s.name for s in call.inputs if isinstance(s, Computed)),
            call.outputs,
            tuple(t.bytes for t, used in zip(call.kernel.scratch, _used(call, usage), strict=True) if used),
        )
        for call in function.calls
    ]
    plan = plan_memory(steps, function.sizes)
    places: dict[str, Place] = {name: Workspace(offset) for name, offset in plan.offsets.items()}
    places |= function.outputs
    calls: list[Call] = []
    for number, (call, planned) in enumerate(zip(function.calls, plan.scratch, strict=True)):
        offsets = iter(planned)
        scratch = [Workspace(next(offsets)) if used else Unused() for used in _used(call, usage)]
        inputs = [places[s.name] if isinstance(s, Computed) else s for s in call.inputs]
        outputs = [places[name] for name in call.outputs]
        given = (*inputs, *outputs, *scratch)
        calls.append(Call(call.symbol, call.kernel.dims, given, call.comment, number, call.span))
    return LoweredEntry(function.name, function.symbol, function.dims, plan.total, tuple(calls), plan, function.span)
