"""The entries of a program as functions of this process, run on guarded memory.

An entry passes a kernel with several work items to a team, which may compute them in any order and on any threads. The
teams here process the last work items first.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

from ...dialect.dims import evaluate
from ...dialect.graph import Function
from ...dialect.interpreter import Load
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops.index_checks import RECORD
from ...dialect.types import Array, TensorType
from ..codegen.jit import fill_weights, link_objects
from ..codegen.objects import Program
from ..host.entry import FAILURE_WORDS
from ..host.plan import LoweredEntry
from .array_errors import same_bits
from .guarded_memory import Memory
from .judge import Difference, Judge

_ALIGNMENT = 64
_ALIGNMENTS = {"workspace": _ALIGNMENT}
_MOST_CALLS = 50

_TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_PARALLEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)
)


class Team(ctypes.Structure):
    """The team to which an entry passes kernels with several work items; the runtime has its own, with threads."""

    _fields_ = (("parallel", _PARALLEL),)


def _ranges(items: int, chunk: int) -> list[tuple[int, int]]:
    """Splits [0, items) into chunks of `chunk` work items, the last first; larger ones if they would be too many."""
    chunk = max(chunk, -(-items // _MOST_CALLS))
    return [(max(0, end - chunk), end) for end in range(items, 0, -chunk)]


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Returns further threads of a process; those of its parent do not survive the fork."""
    return ThreadPoolExecutor(threads)


def make_team(chunk: int, threads: int) -> Team:
    """Returns a team that computes work items in chunks, from the last to the first, on `threads` threads."""

    def parallel(_team: int, task: int, context: int, items: int, _pace: object) -> None:
        call = _TASK(task)
        ranges = _ranges(items, chunk)

        def compute(thread: int) -> None:
            for begin, end in ranges[thread::threads]:
                call(context, begin, end)

        if threads == 1 or len(ranges) == 1:
            compute(0)
        else:
            others = [_pool(threads - 1, os.getpid()).submit(compute, thread) for thread in range(1, threads)]
            compute(0)
            for other in others:
                other.result()

    return Team(_PARALLEL(parallel))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of one call, the damage to guarded memory, and the failed check of indices, with its record."""

    results: tuple[Array, ...]
    damage: str | None
    failed: str | None = None
    record: tuple[int, ...] = ()

    @property
    def judged(self) -> tuple[Array, ...] | None:
        """The results, or None if the call failed a check."""
        return None if self.failed else self.results


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an entry, ready to run: its arguments, the types and shapes of its results, the bytes of its buffers,
    and the sizes of its dims, in the order of the entry."""

    entry: LoweredEntry
    inputs: Mapping[str, Array]
    results: Mapping[str, tuple[TensorType, tuple[int, ...]]]
    sizes: Mapping[str, int]
    dims: Sequence[int]


class Library:
    """The entries of a program, loaded into this process. They must be visible symbols in the objects."""

    def __init__(self, program: Program, objects: Sequence[bytes], load: Load | None) -> None:
        self._entries = {entry.name: entry for entry in program.entries}
        self._data = fill_weights(program.lowered, load)
        self._library = link_objects(objects)

    @cache  # noqa: B019  (it lives as long as its library)
    def _weights(self, at_end: bool) -> Memory:
        """Returns the weights in read-only memory, which all calls share."""
        memory = Memory({"weights": self._data.nbytes}, at_end=at_end, alignments={"weights": _ALIGNMENT})
        memory.buffers["weights"].data[:] = self._data
        memory.freeze()
        return memory

    def prepare(self, function: Function, arguments: Sequence[Array], binding: Mapping[str, int]) -> Call:
        """Returns a call of a function, which may run several times."""
        entry = self._entries[function.name]
        inputs = {f"argument {i}": np.ascontiguousarray(a).reshape(a.shape) for i, a in enumerate(arguments)}
        results = {f"result {i}": (v.type, v.type.concrete(binding)) for i, v in enumerate(function.results)}
        sizes = {name: a.nbytes for name, a in inputs.items()}
        sizes |= {name: math.prod(shape) * type.dtype.bytes for name, (type, shape) in results.items()}
        sizes |= {"workspace": evaluate(entry.workspace, binding)}
        return Call(entry, inputs, results, sizes, [binding[s.name] for s in entry.dims])

    def run(
        self,
        function: Function,
        arguments: Sequence[Array],
        binding: Mapping[str, int],
        *,
        suffix: str = "",
        team: Team | None = None,
        at_end: bool,
    ) -> Outcome:
        """Prepares a call of a function, and runs it once."""
        return self.run_prepared(self.prepare(function, arguments, binding), suffix=suffix, team=team, at_end=at_end)

    def run_prepared(self, call: Call, *, suffix: str = "", team: Team | None = None, at_end: bool) -> Outcome:
        """Runs a call on guarded memory, with read-only arguments. The initial bytes of the results and the workspace
        depend on `at_end`. `suffix` is the symbol suffix of a target."""
        memory = Memory(call.sizes, at_end=at_end, alignments=_ALIGNMENTS)
        # NaN in every float dtype, or large numbers in any dtype: reads of uninitialized memory become visible.
        unset = 0xFF if at_end else 0x4B
        for name, buffer in memory.buffers.items():
            buffer.data[:] = call.inputs[name].reshape(-1).view(np.uint8) if name in call.inputs else unset
        memory.freeze(call.inputs)

        def table(names: Collection[str]) -> ctypes.Array[ctypes.c_void_p]:
            return (ctypes.c_void_p * max(1, len(names)))(*(memory.buffers[n].address for n in names))

        entry = call.entry
        dims = (ctypes.c_int64 * max(1, len(call.dims)))(*call.dims)
        passed = (ctypes.c_int8 * max(1, len(entry.checks)))()
        failure = (ctypes.c_int64 * FAILURE_WORDS)()
        failure[FAILURE_WORDS - 1] = ctypes.addressof(passed)
        failed = self._library[entry.symbol + suffix](
            table(call.inputs),
            table(call.results),
            ctypes.c_void_p(memory.buffers["workspace"].address),
            ctypes.c_void_p(self._weights(at_end).buffers["weights"].address),
            dims,
            None if team is None else ctypes.byref(team),
            failure,
        )
        damage = memory.check()
        results = tuple(
            memory.buffers[name].data.copy().view(type.dtype.numpy).reshape(shape)
            for name, (type, shape) in call.results.items()
        )
        memory.close()
        return Outcome(results, damage, entry.checks[failed - 1] if failed else None, tuple(failure[:RECORD]))


@dataclass(frozen=True, slots=True)
class Finding:
    """An error of a call: `kind` is memory, repeat or numbers; numbers have a difference."""

    kind: str
    message: str
    difference: Difference | None = None


def check_call(library: Library, function: Function, judge: Judge, suffix: str = "") -> Finding | None:
    """Calls a function three times, with other orders of work items and other threads, and judges its results."""
    trial = judge.trial
    call = library.prepare(function, trial.arguments, trial.dims)
    first = library.run_prepared(call, suffix=suffix, at_end=True)
    if first.damage:
        return Finding("memory", first.damage)
    found = judge.difference(first.judged)
    if found is not None:
        return Finding("numbers", str(found), found)
    for chunk, threads, at_end in ((1, 1, False), (3, 2, True)):
        team = make_team(chunk, threads)
        again = library.run_prepared(call, suffix=suffix, team=team, at_end=at_end)
        how = f"with items by {chunk} from the last to the first, in {threads} threads"
        if again.damage:
            return Finding("memory", f"{again.damage} {how}")
        if again.failed != first.failed:
            return Finding("repeat", f"another index is out of range {how}")
        if first.failed:
            continue
        for i, (a, b) in enumerate(zip(first.results, again.results, strict=True)):
            if not same_bits(a, b):
                return Finding("repeat", f"result {i} differs {how}")
    return None
