"""The text of loops that are one function, and of their calls in an entry: see `whole_loops`.

The function has the arguments of the entry. It calls copies of the kernels, which are linked into the same module, so
that LLVM inlines them, see `codegen/llvm/inner_kernels.py`. A scan with one kernel for B rows, where an iteration
works on 64*B bytes:

    define internal void @loop1_of_nacre_entry_f(ptr noalias %inputs, ...) noinline {
      ...
      %v4 = call i64 @add_units_inner(i64 %v0)
      call void @add_inner(i64 %v0, ptr %v2, ptr %v3, i64 0, i64 %v4)

    define hidden i64 @nacre_entry_f(ptr noalias %inputs, ...) {
      %small1 = icmp sle i64 %v1, 32768                            64*B
      br i1 %small1, label %whole1, label %apart1
    whole1:
      call void @loop1_of_nacre_entry_f(ptr %inputs, ...)
      br label %joined1
    apart1:                                                        the loop with launches
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field

from ...dialect.dims import Symbol, bounds
from ...dialect.lazy_dataclass import dataclass
from ..lower.lines import Scope, Scopes
from ..lower.parts import INNER
from ..lower.schedule import Item, Loop, While
from ..lower.storage import Storage
from ..lower.writer import ITEMS
from .entry import ARGUMENTS, Call, EntryText, write_items
from .whole_loops import MOST_BYTES, is_one_function, iteration_bytes

Write = Callable[[Sequence[Item[Call, Storage]]], None]


@dataclass
class WholeLoops:
    """The loops of the entry `symbol` that are separate functions. `functions` are their definitions, in order; `inner`
    are the symbols of the kernels that have copies."""

    symbol: str
    inner: Collection[str]
    scopes: Scopes
    functions: list[str] = field(default_factory=list)

    def make_text(self, dims: Sequence[Symbol], scope: Scope) -> EntryText:
        return _Entry(dims, scope, self) if self.inner else EntryText(dims, scope)

    def define(self, dims: Sequence[Symbol], item: Item[Call, Storage], outer: Mapping[str, str]) -> str:
        """Adds the function of a loop, and returns its name. `outer` are the loops around it; the function has a
        further argument for the number of the iteration of each."""
        # Entries and kernels never have such a name.
        name = f"loop{len(self.functions) + 1}_of_{self.symbol}"
        self.functions.append("")
        scope = self.scopes(name)
        text = _Function(dims, scope, outer)
        write_items(text, [item], lambda text, call: text.launch(call))
        arguments = ", ".join([ARGUMENTS, *(f"i64 %o{number}" for number in range(len(outer)))])
        head = f"define internal void @{name}({arguments}) noinline{scope.definition} {{"
        body = [head, *text.lines, f"  ret void{scope.at(None)}", "}", ""]
        self.functions[int(name.partition("_")[0][4:]) - 1] = "\n".join(body)
        return name


class _Entry(EntryText):
    """The text of an entry that calls the functions of such loops."""

    def __init__(self, dims: Sequence[Symbol], scope: Scope, whole: WholeLoops) -> None:
        super().__init__(dims, scope)
        self._whole, self._symbols = whole, dims

    def loop(self, loop: Loop[Call, Storage], write: Write) -> None:
        self._call_or(loop, lambda: super(_Entry, self).loop(loop, write))

    def while_loop(self, loop: While[Call, Storage], write: Write) -> None:
        self._call_or(loop, lambda: super(_Entry, self).while_loop(loop, write))

    def _call_or(self, loop: Loop[Call, Storage] | While[Call, Storage], write_launches: Callable[[], None]) -> None:
        if not is_one_function(loop, self._whole.inner):
            write_launches()
            return
        size = iteration_bytes(loop)
        name = self._whole.define(self._symbols, loop, self._loops)
        passed = [part.replace(" noalias", "") for part in (ARGUMENTS, *(f"i64 {i}" for i in self._loops.values()))]
        call = f"  call void @{name}({', '.join(passed)}){self.scope.at(loop.span)}"
        if bounds(size)[1] <= MOST_BYTES:
            self.lines.append(call)
            return
        number = self.next_control()
        self.lines.append(f"  %small{number} = icmp sle i64 {self.size(size)}, {MOST_BYTES}")
        self.choose(f"%small{number}", f"whole{number}", f"apart{number}")
        self.lines.append(call)
        self.jump(f"joined{number}", f"apart{number}")
        with self.inside():
            write_launches()
        self.jump(f"joined{number}", f"joined{number}")


class _Function(EntryText):
    """The text of the function of a loop: kernels are called directly, all work items at once."""

    def __init__(self, dims: Sequence[Symbol], scope: Scope, outer: Mapping[str, str]) -> None:
        super().__init__(dims, scope)
        self._loops = {loop: f"%o{number}" for number, loop in enumerate(outer)}

    def launch(self, call: Call) -> None:
        for copy in call.copies:
            self.copy(copy)
        line = self.scope.at(call.span)
        sizes = [f"i64 {self.dim(s)}" for s in call.dims]
        items = self.define(f"call i64 @{call.kernel}{ITEMS}{INNER}({', '.join(sizes)}){line}")
        arguments = [*sizes, *(f"ptr {self.address(p)}" for p in call.storages), "i64 0", f"i64 {items}"]
        self.lines.append(f"  call void @{call.kernel}{INNER}({', '.join(arguments)}){line} ; {call.comment}")


def declare_inner(calls: Iterable[Call], inner: Collection[str]) -> str:
    """Returns the declarations of the copies that loops of these calls may refer to."""
    lines: dict[str, None] = {}
    for call in calls:
        if call.kernel in inner:
            dims, pointers = ["i64"] * len(call.dims), ["ptr"] * len(call.storages)
            lines[f"declare void @{call.kernel}{INNER}({', '.join([*dims, *pointers, 'i64', 'i64'])})\n"] = None
            lines[f"declare i64 @{call.kernel}{ITEMS}{INNER}({', '.join(dims)})\n"] = None
    return "".join(lines)
