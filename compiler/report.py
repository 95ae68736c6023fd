"""The report of a build: each kernel with its operators, costs and the reasons why neighbours were not fused.

The memory of calls is compared with a lower bound for any plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from ..dialect.dims import INFINITY, Size, Symbol, add, evaluate, format_size, multiply
from ..dialect.graph import Function, Module, Node
from ..dialect.lazy_dataclass import dataclass
from ..dialect.wrapping import NO_BREAK, counted, fit
from ..passes.manager import Remark
from .artifact.spec import OperationSpec
from .codegen.objects import Launches, LoopCode, Program, Untiled
from .host.calls import Calls, maker_inside
from .host.plan import LoweredEntry
from .host.states import StateReport
from .lower.kinds import inner_nodes
from .lower.lowered import LoweredCall
from .lower.module import Lowered
from .lower.schedule import times_of


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The reason why a kernel reads an operand of its `reader` from another kernel instead of computing it."""

    kernel: str
    source: str
    reader: str
    reason: str


@dataclass(frozen=True, slots=True)
class KernelReport:
    """A kernel as one function calls it, `calls` times; each iteration of a `scan` counts, one of a `while`, and both
    sides of an `if`. Operations (`flops`) and `bytes` are those of one call. The kernel is compiled to plain loops for
    the targets that `untiled` names. `launches` are those on each device."""

    name: str
    kind: str
    operations: tuple[OperationSpec, ...]
    flops: Size
    bytes: Size
    calls: Size
    neighbours: tuple[Neighbour, ...]
    untiled: tuple[Untiled, ...] = ()
    launches: tuple[Launches, ...] = ()


@dataclass(frozen=True, slots=True)
class Workspace:
    """The bytes that a call needs for tensors between kernels and for scratch memory. `lower_bound` is the minimum for
    any plan at the report's dims, see `nacre.passes.analysis.liveness`."""

    formula: Size
    value: int
    lower_bound: int

    @property
    def ratio(self) -> float:
        return self.value / self.lower_bound if self.lower_bound else 1.0


@dataclass(frozen=True, slots=True)
class FunctionReport:
    """A function at some sizes of its dims. The kernels are in the order of their first calls. `workspace` is None if
    no code was generated, since memory is planned with the code. `states` are those that the function
    changes, and `loops` its loops for each target."""

    name: str
    dims: Mapping[str, int]
    kernels: tuple[KernelReport, ...]
    workspace: Workspace | None = None
    states: tuple[StateReport, ...] = ()
    loops: tuple[LoopCode, ...] = ()

    @property
    def calls(self) -> int:
        return sum(self.value(k.calls) for k in self.kernels)

    def value(self, size: Size) -> int:
        return evaluate(size, self.dims)

    def total(self, sizes: Iterable[tuple[Size, Size]]) -> Size:
        total: Size = 0
        for times, size in sizes:
            total = add(total, multiply(times, size))
        return total


def report_kernels(
    module: Module,
    lowered: Lowered,
    remarks: Sequence[Remark] = (),
    dims: Mapping[str, int] | None = None,
    program: Program | None = None,
) -> tuple[FunctionReport, ...]:
    """Returns the report on every function of a module after its passes. Dims that `dims` lacks have their
    `usual_size`."""
    reports = []
    planned = {} if program is None else {entry.name: entry for entry in program.entries}
    loops = () if program is None else program.loops
    for function in lowered.functions:
        graph = module.function(function.name)
        symbols = graph.symbols()
        sizes = {s.name: (dims or {}).get(s.name, usual_size(s)) for s in symbols}
        entry = planned.get(graph.name)
        calls = list(times_of(function.items, omitted=() if entry is None else entry.omitted))
        kernels = _Reporter(graph, calls, [r for r in remarks if r.function == graph.name], program).kernels()
        workspace = None if entry is None else _report_workspace(entry, sizes)
        states = () if entry is None else entry.states
        own = tuple(loop for loop in loops if loop.report.entry == graph.name)
        reports.append(FunctionReport(graph.name, sizes, kernels, workspace, states, own))
    return tuple(reports)


def _report_workspace(entry: LoweredEntry, dims: Mapping[str, int]) -> Workspace:
    return Workspace(entry.workspace, evaluate(entry.workspace, dims), entry.least_workspace(dims))


def usual_size(symbol: Symbol) -> int:
    """Returns a representative size of a dim: 128, or the nearest size that the dim admits."""
    steps = max(1, 128 // symbol.multiple)
    size = min(steps * symbol.multiple, symbol.high) if symbol.high != INFINITY else steps * symbol.multiple
    least = -(-symbol.low // symbol.multiple) * symbol.multiple
    return max(int(size) // symbol.multiple * symbol.multiple, least)


@dataclass
class _Reporter:
    """Collects the kernels of a function. `calls` are the calls of kernels, in order, each with the number of times
    that it runs."""

    function: Function
    calls: Sequence[tuple[LoweredCall, Size]]
    remarks: Sequence[Remark]
    program: Program | None
    described: Calls = field(init=False)
    nodes: dict[str, Node] = field(default_factory=dict)
    kernel_of: dict[str, str] = field(default_factory=dict)
    """For each value name, the node that computes it, also inside a group, and the kernel that does."""

    def __post_init__(self) -> None:
        self.described = Calls(self.function)
        for call, _ in self.calls:
            symbol, node = call.symbol, self.described.node(call)
            if node is None:
                continue
            for inner in inner_nodes(node):
                for value in inner.outputs:
                    self.nodes[value.name], self.kernel_of[value.name] = inner, symbol
            for number, value in enumerate(node.outputs):
                self.nodes[value.name], self.kernel_of[value.name] = maker_inside(node, number), symbol

    def kernels(self) -> tuple[KernelReport, ...]:
        counts: dict[str, Size] = {}
        for call, times in self.calls:
            counts[call.symbol] = add(counts.get(call.symbol, 0), times)
        first = {call.symbol: call for call, _ in reversed(self.calls)}
        return tuple(self.kernel(first[symbol], calls) for symbol, calls in counts.items())

    def kernel(self, lowered: LoweredCall, calls: Size) -> KernelReport:
        symbol, call = lowered.symbol, self.described.describe(lowered)
        made = self.program
        untiled = () if made is None else tuple(left for left in made.untiled if left.kernel == symbol)
        launches = () if made is None else tuple(each for each in made.launches if each.kernel == symbol)
        neighbours, costs = self.neighbours(symbol), (call.flops, call.bytes)
        return KernelReport(symbol, call.kind, call.operations, *costs, calls, neighbours, untiled, launches)

    def neighbours(self, symbol: str) -> tuple[Neighbour, ...]:
        found = [
            Neighbour(self.kernel_of[r.source], self.nodes[r.source].op, self.nodes[r.reader].op, r.text)
            for r in self.remarks
            if self.kernel_of.get(r.reader) == symbol and r.source in self.kernel_of
        ]
        return tuple(dict.fromkeys(found))


# --- text ---

_UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def _amount(value: int) -> str:
    for unit, letter in _UNITS:
        if value >= unit:
            return f"{value / unit:.3g} {letter}"
    return str(value)


def _quantity(value: int, unit: str) -> str:
    """Returns a number with its unit, between which no line breaks: `36.7 Mflop`, `64 B`."""
    number, _, letter = _amount(value).partition(" ")
    return f"{number}{NO_BREAK}{letter}{unit}"


def format_report(reports: Sequence[FunctionReport]) -> str:
    """Formats the report for people: a table for every function, with details of each row below it. Lines fit 80
    columns."""
    return fit("\n".join(line for report in reports for line in _format_function(report)))


def _format_function(report: FunctionReport) -> list[str]:
    flops = report.value(report.total((k.calls, k.flops) for k in report.kernels))
    size = report.value(report.total((k.calls, k.bytes) for k in report.kernels))
    at = ", ".join(f"{name}={value}" for name, value in report.dims.items())
    lines = [
        f"{report.name}{f' at {at}' if at else ''}: {counted(len(report.kernels), 'kernel')} in "
        f"{counted(report.calls, 'call')}, {_quantity(flops, 'flop')}, {_quantity(size, 'B')}",
        *_format_workspace(report.workspace),
        *_format_states(report),
        *_format_loops(report),
        f"{'calls':>5}  {'flop':>8}  {'bytes':>8}  {'kind':<11}  kernel",
    ]
    for k in report.kernels:
        flop, read = (_amount(report.value(s)) for s in (k.flops, k.bytes))
        lines.append(f"{report.value(k.calls):>5}  {flop:>8}  {read:>8}  {k.kind:<11}  {k.name}")
        if k.operations:
            lines.append(f"{'':7}{_format_operations(k.operations)}")
        lines.append(f"{'':7}flop = {format_size(k.flops)}; bytes = {format_size(k.bytes)}")
        lines += [f"{'':7}launches for {each.target.name}: {'; '.join(each.schedules)}" for each in k.launches]
        lines += [f"{'':7}{_describe_untiled(left)}" for left in k.untiled]
        lines += [f"{'':7}{n.reader} reads {n.source} from {n.kernel}: {n.reason}" for n in k.neighbours]
    return [*lines, ""]


def _describe_untiled(left: Untiled) -> str:
    kind = "one thread of" if left.target.is_device else "plain loops for"
    return f"{kind} {left.target.name}: {left.reason}"


def _format_workspace(workspace: Workspace | None) -> list[str]:
    if workspace is None:
        return []
    formula = format_size(workspace.formula)
    value, bound = _quantity(workspace.value, "B"), _quantity(workspace.lower_bound, "B")
    amount = value if formula.isdecimal() else f"{formula} = {value}"
    return [f"workspace: {amount}, {workspace.ratio:.3f} times the lower bound of {bound}"]


def _format_states(report: FunctionReport) -> list[str]:
    """Formats the states: one line for all that are written in place, and one for each that is copied."""
    kept = sum(not state.reason for state in report.states)
    lines = [f"states: {kept} of {len(report.states)} are written in place, 0 bytes copied"] if kept else []
    for state in report.states:
        if state.reason:
            copied = _quantity(report.value(state.copied), "B")
            lines.append(f"state `{state.name}`: {copied} copied, since {state.reason}")
    return lines


def _format_loops(report: FunctionReport) -> list[str]:
    """Formats the loops; a target is named where others treat a loop otherwise."""
    targets: dict[str, list[str]] = {}
    for loop in report.loops:
        targets.setdefault(str(loop.report), []).append(loop.target.name)
    every = {loop.target.name for loop in report.loops}
    return [line + ("" if set(named) == every else f" ({', '.join(named)})") for line, named in targets.items()]


def _format_operations(operations: Sequence[OperationSpec]) -> str:
    """Formats the operators with their lines; the file name appears where it changes."""
    parts: list[str] = []
    file = ""
    for operation in operations:
        where = ""
        if operation.span is not None:
            where = f":{operation.span.line}" if operation.span.file == file else str(operation.span).rpartition(":")[0]
            file = operation.span.file
        parts.append(f"{operation.op} {where}".rstrip())
    return ", ".join(parts)


# --- data ---


def report_data(reports: Sequence[FunctionReport]) -> list[dict[str, Any]]:
    """Returns the report as JSON data: sizes as formulas and as numbers."""
    return [
        {
            "function": report.name,
            "dims": dict(report.dims),
            "workspace": _workspace_data(report.workspace),
            "states": [
                {"name": s.name, "copied": format_size(s.copied), "reason": s.reason or None} for s in report.states
            ],
            "loops": [
                {
                    "loop": loop.report.name,
                    "target": loop.target.name,
                    "kernels": loop.report.kernels,
                    "bytes": format_size(loop.report.bytes),
                    "reason": loop.report.reason or None,
                }
                for loop in report.loops
            ],
            "kernels": [
                {
                    "name": k.name,
                    "kind": k.kind,
                    "calls": report.value(k.calls),
                    "operations": [
                        {"op": o.op, "scope": o.scope, "at": None if o.span is None else str(o.span)}
                        for o in k.operations
                    ],
                    "flops": {"formula": format_size(k.flops), "value": report.value(k.flops)},
                    "bytes": {"formula": format_size(k.bytes), "value": report.value(k.bytes)},
                    "untiled": [{"target": left.target.name, "reason": left.reason} for left in k.untiled],
                    "launches": [{"target": e.target.name, "schedules": list(e.schedules)} for e in k.launches],
                    "not_fused": [
                        {"kernel": n.kernel, "source": n.source, "reader": n.reader, "reason": n.reason}
                        for n in k.neighbours
                    ],
                }
                for k in report.kernels
            ],
        }
        for report in reports
    ]


def _workspace_data(workspace: Workspace | None) -> dict[str, Any] | None:
    if workspace is None:
        return None
    return {
        "formula": format_size(workspace.formula),
        "value": workspace.value,
        "lower_bound": workspace.lower_bound,
        "ratio": workspace.ratio,
    }
