"""Selects the loops of an entry that become separate functions, and reports the reason for each other loop.

If the body of a loop does little work, the loop spends much of its time between kernels: on launches, on counts of work
items, and on addresses that are computed again. Such a loop becomes one function in the object of the entry, with
inlined copies of its kernels, see `loop_text`. It runs on one thread, because so little work does not benefit from
several threads:

    scan of an LSTM with 8 units, batch B         1024 + 512*B bytes per iteration
    B = 1                                         1536 <= MOST_BYTES: one function
    B = 100                                       52224: a launch of each kernel in each iteration, as in other loops

Observed calls always launch the kernels one by one, on the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from ...dialect.diagnostics import Span
from ...dialect.dims import Size, add, bounds, format_size
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import TensorType
from ..lower.lowered import LoweredCall, LoweredFunction
from ..lower.schedule import Branch, Item, Loop, While, calls_in
from ..lower.storage import Storage
from .entry import Call

MOST_BYTES = 32 << 10
"""The most bytes that the kernels of one iteration read and write, each kernel's tensors counted once: they stay in the
first cache of a core."""

AnyCall = TypeVar("AnyCall")
Index = TypeVar("Index")


@dataclass(frozen=True, slots=True)
class LoopReport:
    """A loop of an entry: its operator, the number of kernels in an iteration, and the bytes that they read and write.
    `reason` states why the loop is not a separate function. If it is empty, calls with at most `MOST_BYTES` bytes run
    the function."""

    entry: str
    operator: str
    span: Span | None
    kernels: int
    bytes: Size
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.operator} at {self.span}" if self.span else f"{self.operator} of {self.entry}"

    def __str__(self) -> str:
        calls = f"{self.kernels} kernel{'s' * (self.kernels != 1)}"
        if self.reason:
            return f"{self.name}: launches {calls} in each iteration, since {self.reason}"
        limit = "" if isinstance(self.bytes, int) else f" while {format_size(self.bytes)} <= {MOST_BYTES}"
        return f"{self.name}: one function with {calls}{limit}"


def iteration_bytes(loop: Loop[Call, Storage] | While[Call, Storage]) -> Size:
    """Returns the bytes that the kernels of an iteration read and write; those of inner loops count once."""
    return _bytes(call.tensors for call in calls_in(_inside(loop)))


def is_one_function(loop: Loop[Call, Storage] | While[Call, Storage], inner: Collection[str]) -> bool:
    """Returns whether a loop becomes a separate function; `inner` are the kernels with copies for such functions."""
    return bool(inner) and not _reason(loop, inner)


def report_loops(entry: str, items: Sequence[Item[Call, Storage]], inner: Collection[str]) -> Iterator[LoopReport]:
    """Yields a report on each loop, except on loops inside a loop that is a separate function."""
    for loop in _loops(items, lambda loop: is_one_function(loop, inner)):
        operator = "scan" if isinstance(loop, Loop) else "while"
        kernels = sum(1 for _ in calls_in(_inside(loop)))
        yield LoopReport(entry, operator, loop.span, kernels, iteration_bytes(loop), _reason(loop, inner))


def find_inner_kernels(functions: Iterable[LoweredFunction]) -> set[str]:
    """Returns the symbols of the kernels that loops may need copies of."""

    def may_be_one(loop: Loop[LoweredCall, Index] | While[LoweredCall, Index]) -> bool:
        calls = list(calls_in(_inside(loop)))
        return not any(call.check for call in calls) and _may_be_small(_bytes(map(tensors_of, calls)))

    loops = (loop for function in functions for loop in _loops(function.items, may_be_one) if may_be_one(loop))
    return {call.symbol for loop in loops for call in calls_in(_inside(loop))}


def tensors_of(call: LoweredCall) -> tuple[TensorType, ...]:
    """Returns the tensors that count as work of a call: none for a copy, since the memory plan omits most of them."""
    return () if call.copied is not None else (*call.kernel.inputs, *call.kernel.results)


def _reason(loop: Loop[Call, Storage] | While[Call, Storage], inner: Collection[str]) -> str:
    calls = list(calls_in(_inside(loop)))
    checking = next((call for call in calls if call.record is not None), None)
    if checking is not None:
        return f"`{checking.kernel}` checks indices"
    size = iteration_bytes(loop)
    if not _may_be_small(size):
        return f"they read and write at least {bounds(size)[0]} bytes, more than {MOST_BYTES}"
    other = next((call for call in calls if call.kernel not in inner), None)
    return f"`{other.kernel}` has no vector code" if other is not None else ""


def _may_be_small(size: Size) -> bool:
    return bounds(size)[0] <= MOST_BYTES


def _bytes(tensors: Iterable[Iterable[TensorType]]) -> Size:
    total: Size = 0
    for types in tensors:
        for type in types:
            total = add(total, type.bytes)
    return total


def _loops(
    items: Iterable[Item[AnyCall, Index]],
    is_whole: Callable[[Loop[AnyCall, Index] | While[AnyCall, Index]], bool],
) -> Iterator[Loop[AnyCall, Index] | While[AnyCall, Index]]:
    """Yields outer loops before inner ones, and no loop inside one for which `is_whole` holds."""
    for item in items:
        if isinstance(item, Branch):
            yield from _loops((*item.then, *item.otherwise), is_whole)
        elif isinstance(item, (Loop, While)):
            yield item
            if not is_whole(item):
                yield from _loops(_inside(item), is_whole)


def _inside(loop: Loop[AnyCall, Index] | While[AnyCall, Index]) -> Sequence[Item[AnyCall, Index]]:
    return loop.body if isinstance(loop, Loop) else (*loop.condition, *loop.body)
