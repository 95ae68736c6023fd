"""The entry function of a graph function, as LLVM IR: it finds every tensor's memory and calls the kernels in order.

An entry computes nothing itself. Its sizes and offsets are formulas of the dims, each evaluated once per call. A kernel
of several work items is distributed over the threads of the call, if it has any. A kernel that checks indices writes a
record for the caller, see `check_indices`; if the record holds an index, the entry returns. Each entry has a second
copy for observed calls, which also calls the observer before and after every kernel.

A kernel that reads by index may watch the indices itself: it sets the alarm, a word after the record. The entry clears
the alarm first, and calls a deferred check only if the alarm is set:

    store i64 0, ptr %alarm      call void @nacre_launch_1_4(ptr %team, ptr @gather, ..., ptr %alarm)
                                 br i1 %alarmed, label %due, label %done    due: call void @nacre_launch_0_2(...)

A check that depends on weights alone runs `once`. The word after the alarm is the address of an array with a byte for
each check of the entry. The entry skips the check if its byte is not 0, and sets the byte when the check has passed.

The time of code generation grows faster than the length of a function. An entry of more than `CALLS_PER_PART` calls is
therefore split into parts: functions with the same arguments, which it calls in order:

    define hidden i64 @entry(...) {                  define internal i64 @entry_part0(...) noinline {
      %r0 = call i64 @entry_part0(...)                 call void @nacre_launch_0_3(ptr %team, ptr @matmul_0, ...)
      br i1 %good0, label %next0, label %failed0       ...

The entry of a model with one kernel, for one dim B: the input, the weight at offset 0, the bias at offset 2048, the
result, and no scratch memory. Kernels with one dim and five tensors share the function that it calls:

    define hidden i64 @nacre_entry_head(ptr %inputs, ptr %outputs, ptr %workspace, ptr %weights, ptr %dims, ...) {
      %v0 = load i64, ptr %dims                                    B
      %v1 = load ptr, ptr %inputs
      %v2 = getelementptr i8, ptr %weights, i64 2048
      %v3 = load ptr, ptr %outputs
      call void @nacre_launch_1_5(ptr %team, ptr @fusion, ptr @fusion_items, ptr @fusion_pace,
                                  i64 %v0, ptr %v1, ptr %weights, ptr %v2, ptr %v3, ptr null)
      ret i64 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from ...dialect.diagnostics import Span
from ...dialect.dims import FloorDiv, Monomial, Size, Symbol, bounds
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops.index_checks import RECORD
from ...dialect.types import TensorType
from ..lower.lines import Scope, Scopes, no_lines
from ..lower.schedule import Branch, Item, Loop, While, calls_in
from ..lower.storage import Alarm, Failure, Input, Output, Sliced, Storage, Unused, Weight
from ..lower.writer import ITEMS
from .launchers import Signature
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
RECORD_BYTES = 8 * RECORD
"""The bytes of the record of a check."""
FAILURE_WORDS = RECORD + 2
"""The 64-bit words of the struct `nacre_failure` in the runtime's tables.h: the record of a check, the alarm, and the
address of the bytes of checks that run once."""
PACE = "_pace"
"""The suffix of a kernel's variable in which the runtime records the time of a work item."""


CALLS_PER_PART = 256
"""The most calls of kernels in one function of the generated code."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a kernel, or of one part of a kernel.

    dims, storages: the values of its dims, and the storage of each tensor argument.
    comment, span: a description of the computation, and its source location.
    number: the number of the kernel call, which all parts of the kernel share.
    record: the storage for the record, if the kernel checks indices.
    deferred: the check is skipped unless the alarm is set.
    once: the check is skipped after it has passed in the session.
    position: the position among the lowered calls; the memory plan omits some of these calls.
    copies: copies that precede the call.
    tensors: the tensors that it reads and writes; none for a copy.
    results: the storage and the bytes of each tensor that it writes, without the record of a check and slices.
    suffix: the suffix of the kernel's symbol, which names the target.
    """

    kernel: str
    dims: tuple[Symbol, ...]
    storages: tuple[Storage, ...]
    comment: str = ""
    number: int = 0
    span: Span | None = None
    record: Storage | None = None
    deferred: bool = False
    once: bool = False
    position: int = 0
    copies: tuple[Copy, ...] = ()
    tensors: tuple[TensorType, ...] = ()
    results: tuple[tuple[Storage, Size], ...] = ()
    suffix: str = ""

    @property
    def signature(self) -> Signature:
        """The signature of the kernel, which decides the launcher."""
        return Signature(len(self.dims), len(self.storages), self.suffix)


class EntryText:
    """The text of an entry whose kernels run on the same machine. A subclass changes how memory is reached."""

    remembers_checks = True

    def __init__(self, dims: Sequence[Symbol], scope: Scope) -> None:
        self.scope = scope
        self.lines: list[str] = []
        self._memo: dict[str, str] = {}
        self._names = count()
        self._loops: dict[str, str] = {}  # by name of an enclosing loop, the iteration number
        self._controls = count(1)
        self._dims = {symbol: number for number, symbol in enumerate(dims)}

    def define(self, expression: str) -> str:
        """Defines a value, each expression once: expressions have no effects, and loaded values do not change."""
        if expression not in self._memo:
            name = self._memo[expression] = f"%v{next(self._names)}"
            self.lines.append(f"  {name} = {expression}")
        return self._memo[expression]

    def address(self, storage: Storage) -> str:
        if isinstance(storage, Input):
            return self._table("%inputs", storage.number)
        if isinstance(storage, Output):
            return self._table("%outputs", storage.number)
        if isinstance(storage, Unused | Failure):
            return "null" if isinstance(storage, Unused) else "%failure"
        if isinstance(storage, Alarm):
            return self.define(f"getelementptr i64, ptr %failure, i64 {RECORD}")
        if isinstance(storage, Sliced):
            begin = self.define(f"mul i64 {self._loops[storage.loop]}, {self.size(storage.stride)}")
            return self.define(f"getelementptr i8, ptr {self.address(storage.base)}, i64 {begin}")
        base = "%weights" if isinstance(storage, Weight) else "%workspace"
        if storage.offset == 0:
            return base
        return self.define(f"getelementptr i8, ptr {base}, i64 {self.size(storage.offset)}")

    def _table(self, table: str, number: int) -> str:
        slot = table if number == 0 else self.define(f"getelementptr ptr, ptr {table}, i64 {number}")
        return self.define(f"load ptr, ptr {slot}, align 8")

    # Values that are defined inside a region are unknown after it.

    @contextmanager
    def inside(self) -> Iterator[None]:
        known = dict(self._memo)
        yield
        self._memo = known

    def next_control(self) -> int:
        """Returns a number for the labels of one loop or branch."""
        return next(self._controls)

    def choose(self, condition: str, then: str, otherwise: str) -> None:
        self.lines += [f"  br i1 {condition}, label %{then}, label %{otherwise}", f"{then}:"]

    def jump(self, label: str, after: str) -> None:
        self.lines += [f"  br label %{label}", f"{after}:"]

    def loop(self, loop: Loop[Call, Storage], write: Callable[[Sequence[Item[Call, Storage]]], None]) -> None:
        """Writes a loop. The number of the iteration is an SSA value, and is also stored in memory for kernels."""
        number = self.next_control()
        index, limit = self.address(loop.index), self.size(loop.count)
        self.jump(f"enter{number}", f"enter{number}")
        self.jump(f"loop{number}", f"loop{number}")
        self._loops[loop.name] = f"%i{number}"
        self.lines += [
            f"  %i{number} = phi i64 [ 0, %enter{number} ], [ %after{number}, %again{number} ]",
            f"  %more{number} = icmp slt i64 %i{number}, {limit}",
        ]
        self.choose(f"%more{number}", f"body{number}", f"done{number}")
        with self.inside():
            self.store_word(f"%i{number}", index)
            write(loop.body)
        del self._loops[loop.name]
        self.jump(f"again{number}", f"again{number}")
        self.lines.append(f"  %after{number} = add i64 %i{number}, 1")
        self.jump(f"loop{number}", f"done{number}")

    def while_loop(self, loop: While[Call, Storage], write: Callable[[Sequence[Item[Call, Storage]]], None]) -> None:
        number = self.next_control()
        self.jump(f"loop{number}", f"loop{number}")
        with self.inside():
            write(loop.condition)
            self._test(loop.test, number)
            self.choose(f"%test{number}", f"body{number}", f"done{number}")
            write(loop.body)
        self.jump(f"loop{number}", f"done{number}")

    def branch(self, branch: Branch[Call, Storage], write: Callable[[Sequence[Item[Call, Storage]]], None]) -> None:
        number = self.next_control()
        self._test(branch.test, number)
        self.choose(f"%test{number}", f"then{number}", f"else{number}")
        with self.inside():
            write(branch.then)
        self.jump(f"done{number}", f"else{number}")
        with self.inside():
            write(branch.otherwise)
        self.jump(f"done{number}", f"done{number}")

    def _test(self, storage: Storage, number: int) -> None:
        self.lines += [
            f"  %byte{number} = {self.load('i8', self.address(storage))}",
            f"  %test{number} = icmp ne i8 %byte{number}, 0",
        ]

    def load(self, type: str, pointer: str) -> str:
        """Returns the instruction that reads a number from memory that kernels write."""
        return f"load {type}, ptr {pointer}, align {int(type[1:]) // 8}"

    def store_word(self, value: str, pointer: str) -> None:
        """Writes an i64 where kernels read it."""
        self.lines.append(f"  store i64 {value}, ptr {pointer}, align 8")

    def copy(self, copy: Copy) -> None:
        source, target, size = self.address(copy.source), self.address(copy.target), self.size(copy.size)
        arguments = f"ptr {target}, ptr {source}, i64 {size}, i1 false"
        self.lines.append(f"  call void @llvm.memcpy.p0.p0.i64({arguments}){self.scope.at(None)}")

    def launch(self, call: Call) -> None:
        for copy in call.copies:
            self.copy(copy)
        sizes = (f"i64 {self.dim(s)}" for s in call.dims)
        arguments = [*sizes, *(f"ptr {self.address(p)}" for p in call.storages)]
        function, *leading = self.launcher(call)
        line = self.scope.at(call.span)
        passed = ", ".join(["ptr %team", *leading, *arguments])
        self.lines.append(f"  call void @{function}({passed}){line} ; {call.comment}")

    def launcher(self, call: Call) -> tuple[str, ...]:
        """Returns the function that runs a kernel, and its arguments between the team and those of the kernel."""
        kernel = call.kernel
        own = (f"ptr @{symbol}" for symbol in (kernel, f"{kernel}{ITEMS}", f"{kernel}{PACE}"))
        return (call.signature.launcher, *own)

    @contextmanager
    def if_due(self, call: Call, check: int) -> Iterator[None]:
        """Encloses the code of a call in conditions: a deferred check runs only if the alarm is set, and a check that
        runs once only until it has passed. `check` is the number of the check, from 1."""
        if call.once and self.remembers_checks:
            with self._until_passed(check):
                yield
            return
        if not call.deferred:
            yield
            return
        number, alarm = self.next_control(), self.address(Alarm())
        self.lines += [
            f"  %alarm{number} = {self.load('i64', alarm)}",
            f"  %alarmed{number} = icmp ne i64 %alarm{number}, 0",
        ]
        self.choose(f"%alarmed{number}", f"due{number}", f"done{number}")
        with self.inside():
            yield
        self.jump(f"done{number}", f"done{number}")

    @contextmanager
    def _until_passed(self, check: int) -> Iterator[None]:
        number = self.next_control()
        table = self.define(f"getelementptr i64, ptr %failure, i64 {RECORD + 1}")
        passed = self.define(f"load ptr, ptr {table}, align 8")
        slot = self.define(f"getelementptr i8, ptr {passed}, i64 {check - 1}")
        self.lines += [
            f"  %byte{number} = load atomic i8, ptr {slot} monotonic, align 1",
            f"  %open{number} = icmp eq i8 %byte{number}, 0",
        ]
        self.choose(f"%open{number}", f"due{number}", f"done{number}")
        with self.inside():
            yield
            self.lines.append(f"  store atomic i8 1, ptr {slot} monotonic, align 1")
        self.jump(f"done{number}", f"done{number}")

    def clear_alarm(self, calls: Iterable[Call]) -> None:
        if any(isinstance(storage, Alarm) for call in calls for storage in call.storages):
            self.store_word("0", self.address(Alarm()))

    def check(self, call: Call, number: int) -> None:
        """Returns after a call with a failed check: its record holds an index, and the return value is `number`, from
        1."""
        assert call.record is not None, call
        record, line = self.address(call.record), self.scope.at(call.span)
        self.lines += [
            f"  %c{number} = {self.load('i64', record)}",
            f"  %good{number} = icmp slt i64 %c{number}, 0",
            f"  br i1 %good{number}, label %next{number}, label %failed{number}",
            f"failed{number}:",
        ]
        self.keep_record(call.record, line)
        self.lines += [f"  ret i64 {number}{line}", f"next{number}:"]

    def show(self, call: Call) -> None:
        """Makes the results of a kernel readable for an observer. The host's own memory is."""

    def keep_record(self, record: Storage, line: str) -> None:
        """Copies the record of a failed check to the caller."""
        if not isinstance(record, Failure):
            copied = f"ptr %failure, ptr {self.address(record)}, i64 {RECORD_BYTES}, i1 false"
            self.lines.append(f"  call void @llvm.memcpy.p0.p0.i64({copied}){line}")

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


WriteCall = Callable[[EntryText, Call], None]
MakeText = Callable[[Sequence[Symbol], Scope], EntryText]


def write_items(text: EntryText, items: Sequence[Item[Call, Storage]], write_call: WriteCall) -> None:
    def write(part: Sequence[Item[Call, Storage]]) -> None:
        write_items(text, part, write_call)

    for item in items:
        if isinstance(item, Loop):
            text.loop(item, write)
        elif isinstance(item, While):
            text.while_loop(item, write)
        elif isinstance(item, Branch):
            text.branch(item, write)
        else:
            write_call(text, item)


def write_entry(
    symbol: str,
    dims: Sequence[Symbol],
    items: Sequence[Item[Call, Storage]],
    scopes: Scopes = no_lines,
    copies: Sequence[Copy] = (),
    make_text: MakeText = EntryText,
) -> str:
    """Returns the definition of an entry, hidden from the users of the object. The `copies` come after all calls."""
    checks = count(1)

    def write(text: EntryText, call: Call) -> None:
        number = next(checks) if call.record is not None else 0
        with text.if_due(call, number):
            text.launch(call)
            if call.record is not None:
                text.check(call, number)

    return _write_parts(symbol, ARGUMENTS, dims, items, scopes, write, copies, make_text)


def observed(symbol: str) -> str:
    """Returns the symbol of the observed copy of an entry; entries and kernels never have such a name."""
    return f"observed_{symbol}"


def write_observed_entry(
    symbol: str,
    dims: Sequence[Symbol],
    items: Sequence[Item[Call, Storage]],
    scopes: Scopes = no_lines,
    copies: Sequence[Copy] = (),
    make_text: MakeText = EntryText,
) -> str:
    """Returns the definition of an entry's observed copy."""
    checks = count(1)
    last = {call.number: call for call in calls_in(items)}

    def write(text: EntryText, call: Call) -> None:
        number = next(checks) if call.record is not None else 0
        with text.if_due(call, number):
            begin = text.define("load ptr, ptr %watch, align 8")
            text.lines.append(f"  call void {begin}(ptr %watch){text.scope.at(call.span)}")
            text.launch(call)
            if last[call.number] is call:
                text.show(call)
                slot = text.define("getelementptr ptr, ptr %watch, i64 1")
                end = text.define(f"load ptr, ptr {slot}, align 8")
                text.lines.append(f"  call void {end}(ptr %watch, i64 {call.number}){text.scope.at(call.span)}")
            if call.record is not None:
                text.check(call, number)

    return _write_parts(observed(symbol), WATCHED, dims, items, scopes, write, copies, make_text)


def _write_parts(
    symbol: str,
    arguments: str,
    dims: Sequence[Symbol],
    items: Sequence[Item[Call, Storage]],
    scopes: Scopes,
    write_call: WriteCall,
    copies: Sequence[Copy],
    make_text: MakeText,
) -> str:
    """Writes one function with all calls, or one for each `CALLS_PER_PART` of them and a function that calls those.
    Each returns the number of the failed check, or 0. Loops and branches are in one part as a whole."""

    def define(linkage: str, name: str, attributes: str, text: EntryText) -> str:
        head = f"define {linkage} i64 @{name}({arguments}){attributes}{text.scope.definition} {{"
        return "\n".join([head, *text.lines, f"  ret i64 0{text.scope.at(None)}", "}", ""])

    entry = make_text(dims, scopes(symbol))
    entry.clear_alarm(calls_in(items))
    split = list(_split(items))
    if len(split) <= 1:
        write_items(entry, items, write_call)
        for copy in copies:
            entry.copy(copy)
        return define("hidden", symbol, "", entry)
    parts: list[str] = []
    line = entry.scope.at(None)
    for number, part in enumerate(split):
        name = f"{symbol}_part{number}"
        text = make_text(dims, scopes(name))
        write_items(text, part, write_call)
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


def _split(items: Sequence[Item[Call, Storage]]) -> Iterator[Sequence[Item[Call, Storage]]]:
    """Yields the items in parts of at most `CALLS_PER_PART` calls, except for single items with more."""
    part: list[Item[Call, Storage]] = []
    calls = 0
    for item in items:
        size = len(list(calls_in([item])))
        if part and calls + size > CALLS_PER_PART:
            yield part
            part, calls = [], 0
        part.append(item)
        calls += size
    if part:
        yield part


def declare(calls: Iterable[Call], *, hidden: bool = False, apart: bool = False) -> str:
    """Returns the declarations of all symbols that entries with these calls refer to: the text of entries is
    self-contained. If the kernels are `hidden` from the users of the library, their addresses are known when it is
    linked. The launchers are defined here, unless they are modules of their own, `apart`."""
    lines = {
        "i64 @llvm.smin.i64(i64, i64)",
        "i64 @llvm.smax.i64(i64, i64)",
        "void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    }
    kernels = {call.kernel: call for call in calls}
    scope = "hidden " if hidden else ""
    for kernel, call in kernels.items():
        types = call.signature.types
        lines.add(f"{scope}void @{kernel}({', '.join([*types, 'i64', 'i64'])})")
        lines.add(f"{scope}i64 @{kernel}{ITEMS}({', '.join(types[: len(call.dims)])})")
    launchers = launchers_of(kernels.values())
    if apart:
        lines.update(f"hidden {signature.declaration}" for signature in launchers)
    declared = (f"declare {line}\n" for line in sorted(lines))
    paces = (f"@{kernel}{PACE} = internal global i64 0, align 8\n" for kernel in sorted(kernels))
    definitions = [] if apart else [signature.definition("internal") for signature in launchers]
    return "\n".join(["".join([*declared, *paces]), *definitions])


def launchers_of(calls: Iterable[Call]) -> list[Signature]:
    """Returns the signatures of the launchers that calls need, in order."""
    return sorted({call.signature for call in calls})
