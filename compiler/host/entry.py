"""The entry function of a graph function, as LLVM IR: it finds every tensor's memory and calls the kernels in order.

An entry computes nothing itself. Its sizes and offsets are formulas of the dims, each evaluated once per call. A kernel
of several work items is distributed over the threads of the call, if it has any. A kernel that checks indices writes a
record for the caller, see `check_indices`; if the record holds an index, the entry returns. Each entry has a second
copy for observed calls, which also calls the observer before and after every kernel.

Code generation takes more than linear time in the length of a function. An entry of more than `CALLS_PER_PART` calls is
therefore split into parts, functions of the same arguments that it calls in order:

    define hidden i64 @entry(...) {                  define internal i64 @entry_part0(...) noinline {
      %r0 = call i64 @entry_part0(...)                 call void @matmul_0_launch(...)
      br i1 %good0, label %next0, label %failed0       ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from ...dialect.diagnostics import Span
from ...dialect.dims import FloorDiv, Monomial, Size, Symbol, bounds
from ...dialect.ops.index_checks import RECORD
from ..lower.lines import Scope, Scopes, no_lines
from ..lower.places import Failure, Input, Output, Place, Unused, Weight
from ..lower.writer import UNITS
from .states import Copy

ARGUMENTS = ", ".join(
    [
        *(f"ptr noalias %{a}" for a in ("inputs", "outputs", "workspace", "weights", "dims")),
        "ptr %team",
        "ptr noalias %failure",
    ]
)
WATCHED = f"{ARGUMENTS}, ptr %watch"
"""The additional argument of an observed entry: see `nacre_watch` in the runtime's tables.h."""
_RECORD = 8 * RECORD
LAUNCH, TASK, PACE = "_launch", "_task", "_pace"
"""The suffixes of a kernel's symbols among the entries: the function that computes all work items on the threads of a
team, the function that each thread calls, and the variable in which the runtime records the time of a work item."""


CALLS_PER_PART = 256
"""The most calls of kernels in one function of the generated code."""


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel call with the values of its dims and the storage of its tensors; `comment` describes the computation,
    and `span` is its source location. Parts of one kernel have one `number`: that of the call of the whole. `record`
    is the storage for the result of an index check. `copies` come before the call."""

    kernel: str
    dims: tuple[Symbol, ...]
    places: tuple[Place, ...]
    comment: str = ""
    number: int = 0
    span: Span | None = None
    record: Place | None = None
    copies: tuple[Copy, ...] = ()


class _EntryText:
    def __init__(self, dims: Sequence[Symbol], scope: Scope) -> None:
        self.scope = scope
        self.lines: list[str] = []
        self._memo: dict[str, str] = {}
        self._dims = {symbol: number for number, symbol in enumerate(dims)}

    def define(self, expression: str) -> str:
        """Defines a value, each expression once: expressions have no effects, and loaded values do not change."""
        if expression not in self._memo:
            name = self._memo[expression] = f"%v{len(self._memo)}"
            self.lines.append(f"  {name} = {expression}")
        return self._memo[expression]

    def place(self, place: Place) -> str:
        if isinstance(place, Input):
            return self._table("%inputs", place.number)
        if isinstance(place, Output):
            return self._table("%outputs", place.number)
        if isinstance(place, Unused | Failure):
            return "null" if isinstance(place, Unused) else "%failure"
        base = "%weights" if isinstance(place, Weight) else "%workspace"
        if place.offset == 0:
            return base
        return self.define(f"getelementptr i8, ptr {base}, i64 {self.size(place.offset)}")

    def _table(self, table: str, number: int) -> str:
        slot = table if number == 0 else self.define(f"getelementptr ptr, ptr {table}, i64 {number}")
        return self.define(f"load ptr, ptr {slot}, align 8")

    def copy(self, copy: Copy) -> None:
        source, target, size = self.place(copy.source), self.place(copy.target), self.size(copy.size)
        arguments = f"ptr {target}, ptr {source}, i64 {size}, i1 false"
        self.lines.append(f"  call void @llvm.memcpy.p0.p0.i64({arguments}){self.scope.at(None)}")

    def launch(self, call: Call) -> None:
        for copy in call.copies:
            self.copy(copy)
        sizes = (f"i64 {self.dim(s)}" for s in call.dims)
        arguments = ["ptr %team", *sizes, *(f"ptr {self.place(p)}" for p in call.places)]
        line = self.scope.at(call.span)
        self.lines.append(f"  call void @{call.kernel}{LAUNCH}({', '.join(arguments)}){line} ; {call.comment}")

    def check(self, call: Call, number: int) -> None:
        """Returns after a call with a failed check: its record holds an index, and the return value is `number`, from
        1."""
        assert call.record is not None, call
        record, line = self.place(call.record), self.scope.at(call.span)
        self.lines += [
            f"  %c{number} = load i64, ptr {record}, align 8",
            f"  %good{number} = icmp slt i64 %c{number}, 0",
            f"  br i1 %good{number}, label %next{number}, label %failed{number}",
            f"failed{number}:",
        ]
        if not isinstance(call.record, Failure):
            copied = f"ptr %failure, ptr {record}, i64 {_RECORD}, i1 false"
            self.lines.append(f"  call void @llvm.memcpy.p0.p0.i64({copied}){line}")
        self.lines += [f"  ret i64 {number}{line}", f"next{number}:"]

    def dim(self, symbol: Symbol) -> str:
        number = self._dims[symbol]
        slot = "%dims" if number == 0 else self.define(f"getelementptr i64, ptr %dims, i64 {number}")
        return self.define(f"load i64, ptr {slot}, align 8")

    def size(self, size: Size) -> str:
        if isinstance(size, int):
            return str(size)
        total = ""
        for monomial, coefficient in size.terms:
            part = self._term(monomial, coefficient)
            total = self.define(f"add i64 {total}, {part}") if total else part
        return total

    def _term(self, monomial: Monomial, coefficient: int) -> str:
        value = ""
        for atom, power in monomial:
            if isinstance(atom, Symbol):
                factor = self.dim(atom)
                if atom.multiple != 1:
                    factor = self.define(f"udiv i64 {factor}, {atom.multiple}")
            elif isinstance(atom, FloorDiv):
                factor = self._floor_divide(atom)
            else:
                operands = f"i64 {self.size(atom.left)}, i64 {self.size(atom.right)}"
                factor = self.define(f"call i64 @llvm.s{atom.kind}.i64({operands})")
            for _ in range(power):
                value = self.define(f"mul i64 {value}, {factor}") if value else factor
        if not value:
            return str(coefficient)
        return value if coefficient == 1 else self.define(f"mul i64 {value}, {coefficient}")

    def _floor_divide(self, atom: FloorDiv) -> str:
        operands = f"i64 {self.size(atom.numerator)}, {self.size(atom.denominator)}"
        if bounds(atom.numerator)[0] >= 0:
            return self.define(f"udiv {operands}")
        quotient, rest = self.define(f"sdiv {operands}"), self.define(f"srem {operands}")
        # The denominator is positive: a negative remainder means that truncation rounded up.
        step = self.define(f"sext i1 {self.define(f'icmp slt i64 {rest}, 0')} to i64")
        return self.define(f"add i64 {quotient}, {step}")


def write_entry(
    symbol: str,
    dims: Sequence[Symbol],
    calls: Sequence[Call],
    scopes: Scopes = no_lines,
    copies: Sequence[Copy] = (),
) -> str:
    """Returns the definition of an entry, hidden from the users of the object. The `copies` come after all calls."""
    checks = count(1)

    def write(text: _EntryText, part: Sequence[Call]) -> None:
        for call in part:
            text.launch(call)
            if call.record is not None:
                text.check(call, next(checks))

    return _write_parts(symbol, ARGUMENTS, dims, calls, scopes, write, copies)


def observed(symbol: str) -> str:
    """Returns the symbol of the observed copy of an entry; entries and kernels never have such a name."""
    return f"observed_{symbol}"


def write_observed_entry(
    symbol: str,
    dims: Sequence[Symbol],
    calls: Sequence[Call],
    scopes: Scopes = no_lines,
    copies: Sequence[Copy] = (),
) -> str:
    """Returns the definition of an entry's observed copy."""
    checks = count(1)
    last = {call.number: position for position, call in enumerate(calls)}

    def write(text: _EntryText, part: Sequence[Call]) -> None:
        for call in part:
            begin = text.define("load ptr, ptr %watch, align 8")
            text.lines.append(f"  call void {begin}(ptr %watch){text.scope.at(call.span)}")
            text.launch(call)
            if calls[last[call.number]] is call:
                slot = text.define("getelementptr ptr, ptr %watch, i64 1")
                end = text.define(f"load ptr, ptr {slot}, align 8")
                text.lines.append(f"  call void {end}(ptr %watch, i64 {call.number}){text.scope.at(call.span)}")
            if call.record is not None:
                text.check(call, next(checks))

    return _write_parts(observed(symbol), WATCHED, dims, calls, scopes, write, copies)


def _write_parts(
    symbol: str,
    arguments: str,
    dims: Sequence[Symbol],
    calls: Sequence[Call],
    scopes: Scopes,
    write: Callable[[_EntryText, Sequence[Call]], None],
    copies: Sequence[Copy],
) -> str:
    """Writes one function with all calls, or one for each `CALLS_PER_PART` of them and a function that calls those.
    Each returns the number of the failed check, or 0."""

    def define(linkage: str, name: str, attributes: str, text: _EntryText) -> str:
        head = f"define {linkage} i64 @{name}({arguments}){attributes}{text.scope.definition} {{"
        return "\n".join([head, *text.lines, f"  ret i64 0{text.scope.at(None)}", "}", ""])

    entry = _EntryText(dims, scopes(symbol))
    if len(calls) <= CALLS_PER_PART:
        write(entry, calls)
        for copy in copies:
            entry.copy(copy)
        return define("hidden", symbol, "", entry)
    parts: list[str] = []
    line = entry.scope.at(None)
    for number, first in enumerate(range(0, len(calls), CALLS_PER_PART)):
        name = f"{symbol}_part{number}"
        text = _EntryText(dims, scopes(name))
        write(text, calls[first : first + CALLS_PER_PART])
        parts.append(define("internal", name, " noinline", text))
        entry.lines += [
            f"  %r{number} = call i64 @{name}({arguments}){line}",
            f"  %good{number} = icmp eq i64 %r{number}, 0",
            f"  br i1 %good{number}, label %next{number}, label %failed{number}",
            f"failed{number}:",
            f"  ret i64 %r{number}{line}",
            f"next{number}:",
        ]
    for copy in copies:
        entry.copy(copy)
    return "\n".join([*parts, define("hidden", symbol, "", entry)])


def declare(calls: Iterable[Call]) -> str:
    """Returns the declarations of all symbols that entries with these calls refer to: the text of entries is
    self-contained."""
    lines = {
        "i64 @llvm.smin.i64(i64, i64)",
        "i64 @llvm.smax.i64(i64, i64)",
        "void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    }
    kernels = {call.kernel: (["i64"] * len(call.dims), ["ptr"] * len(call.places)) for call in calls}
    for kernel, (dims, pointers) in kernels.items():
        lines.add(f"void @{kernel}({', '.join([*dims, *pointers, 'i64', 'i64'])})")
        lines.add(f"i64 @{kernel}{UNITS}({', '.join(dims)})")
    launchers = [_write_launcher(kernel, *kernels[kernel]) for kernel in sorted(kernels)]
    return "\n".join(["".join(f"declare {line}\n" for line in sorted(lines)), *launchers])


def _write_launcher(kernel: str, dims: Sequence[str], pointers: Sequence[str]) -> str:
    """Writes the function that computes all work items of a kernel. With one work item, or without a team, it is a
    plain call; otherwise dims and pointers are passed to the task in each thread through memory. See `nacre_team` in
    the runtime's tables.h."""
    types = [*dims, *pointers]
    values = [f"{type} %a{number}" for number, type in enumerate(types)]
    slots = [f"getelementptr i64, ptr %context, i64 {number}" for number in range(len(types))]
    parameters = ", ".join(["ptr %team", *values])
    return "\n".join(
        [
            f"@{kernel}{PACE} = internal global i64 0, align 8",
            f"define internal void @{kernel}{TASK}(ptr %context, i64 %begin, i64 %end) {{",
            *(f"  %s{number} = {slot}" for number, slot in enumerate(slots)),
            *(f"  %a{number} = load {type}, ptr %s{number}, align 8" for number, type in enumerate(types)),
            f"  call void @{kernel}({', '.join([*values, 'i64 %begin', 'i64 %end'])})",
            "  ret void",
            "}",
            f"define internal void @{kernel}{LAUNCH}({parameters}) noinline {{",
            f"  %context = alloca [{max(1, len(types))} x i64], align 8",
            f"  %units = call i64 @{kernel}{UNITS}({', '.join(values[: len(dims)])})",
            "  %single = icmp slt i64 %units, 2",
            "  %alone = icmp eq ptr %team, null",
            "  %direct = or i1 %single, %alone",
            "  br i1 %direct, label %here, label %shared",
            "here:",
            f"  call void @{kernel}({', '.join([*values, 'i64 0', 'i64 %units'])})",
            "  ret void",
            "shared:",
            *(f"  %s{number} = {slot}" for number, slot in enumerate(slots)),
            *(f"  store {value}, ptr %s{number}, align 8" for number, value in enumerate(values)),
            "  %parallel = load ptr, ptr %team, align 8",
            f"  call void %parallel(ptr %team, ptr @{kernel}{TASK}, ptr %context, i64 %units, ptr @{kernel}{PACE})",
            "  ret void",
            "}",
            "",
        ]
    )
