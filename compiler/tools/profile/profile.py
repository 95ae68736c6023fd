"""Attributes the time of a call to kernels, lines of the model and threads, relative to the machine's peak.

Times are means over the faster half of the calls, so that interruptions are excluded and the parts add up to the total.
The time of a kernel is divided among its source lines by their shares of the operations. This is an estimate: times
inside a kernel are not measured.

On a GPU, times are those of the device: it stores them before and after each kernel. Copies of arguments and results
between the host and the device are not part of a call.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ....dialect.lazy_dataclass import dataclass
from ....runtime.arguments import Array
from ....runtime.loader import Entry, Model
from ....runtime.observe import Call, Operation, Recording, evaluate, record
from ...base.repeated import Restart
from .machine import Peak

_LEAST_RUNS = 3
_WARM_UP = 3
_CAPACITY = 1 << 17
_NEITHER = 0.3
"""A kernel below this share of both peaks is bound by neither."""


def ideal_seconds(flops: int, products: Mapping[str, int], peak: Peak) -> float:
    """Returns the time of operations at their peak rates; `products` gives those in products, by dtype."""
    others = flops - sum(products.values())
    return others / peak.flops + sum(count / peak.of(factors) for factors, count in products.items())


def count_products(operations: Iterable[Operation], dims: Mapping[str, int]) -> dict[str, int]:
    """Returns the operations in products, by the dtype of the factors."""
    counts: dict[str, int] = {}
    for operation in operations:
        if operation.factors is not None:
            counts[operation.factors] = counts.get(operation.factors, 0) + evaluate(operation.flops, dims)
    return counts


@dataclass(frozen=True, slots=True)
class CallTime:
    """One call of a kernel: its wall-clock time in seconds, and the computing time of each thread of a CPU. In a loop
    or branch it runs `times` times, and the seconds are those of all of them."""

    call: Call
    seconds: float
    busy: tuple[float, ...]
    times: float = 1.0


@dataclass(frozen=True, slots=True)
class KernelTime:
    """All calls of one kernel in a call of the entry, together."""

    kernel: str
    kind: str
    calls: int
    seconds: float
    flops: int
    bytes: int
    threads: float
    """The mean number of threads that computed; 0 on a GPU."""
    balance: float
    """The computing time of all threads divided by the available time of all threads: 1 if none ever waited, and on a
    GPU."""
    operations: tuple[Operation, ...]
    products: Mapping[str, int] = field(default_factory=dict)
    """The operations in products, by the dtype of the factors."""

    def ideal(self, peak: Peak) -> float:
        """Returns the seconds that its operations take at their peak rates."""
        return ideal_seconds(self.flops, self.products, peak)

    def compute(self, peak: Peak) -> float:
        """Returns the share of the peak operations per second."""
        return self.ideal(peak) / self.seconds if self.seconds else 0.0

    def bandwidth(self, peak: Peak) -> float:
        """Returns the share of the peak bandwidth; above 1 for data that are read from caches."""
        return self.bytes / peak.bytes / self.seconds if self.seconds else 0.0

    def bound(self, peak: Peak) -> str:
        """Returns the limit of its time: compute, memory, caches, or neither if it is far from both peaks."""
        compute, bandwidth = self.compute(peak), self.bandwidth(peak)
        if max(compute, bandwidth) < _NEITHER:
            return "neither"
        if compute >= bandwidth:
            return "compute"
        return "memory" if bandwidth <= 1 else "caches"


@dataclass(frozen=True, slots=True)
class LineTime:
    """The time of a line of the model, `file:line`, and its operators."""

    at: str
    seconds: float
    flops: float
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """Calls of an entry at sizes of its dims. `seconds` is the time of one call, `outside` its part outside kernels."""

    entry: str
    dims: Mapping[str, int]
    threads: int
    runs: int
    seconds: float
    calls: tuple[CallTime, ...]
    recording: Recording

    @property
    def outside(self) -> float:
        return self.seconds - sum(c.seconds for c in self.calls)

    def kernels(self) -> tuple[KernelTime, ...]:
        """The kernels, the longest times first."""
        groups: dict[str, list[CallTime]] = {}
        for call in self.calls:
            groups.setdefault(call.call.kernel, []).append(call)
        found = (self._kernel(group) for group in groups.values())
        return tuple(sorted(found, key=lambda k: -k.seconds))

    def _kernel(self, group: Sequence[CallTime]) -> KernelTime:
        first = group[0].call
        seconds = sum(c.seconds for c in group)
        busy = sum(sum(c.busy) for c in group)
        return KernelTime(
            kernel=first.kernel,
            kind=first.kind,
            calls=round(sum(c.times for c in group)),
            seconds=seconds,
            flops=round(sum(c.times * evaluate(o.flops, self.dims) for c in group for o in c.call.operations)),
            bytes=round(sum(c.times * evaluate(c.call.bytes, self.dims) for c in group)),
            threads=sum(len(c.busy) for c in group) / len(group),
            balance=min(1.0, busy / (self.threads * seconds)) if self.threads and seconds else 1.0,
            operations=first.operations,
            products=_sum_products(group, self.dims),
        )

    def lines(self) -> tuple[LineTime, ...]:
        """The lines, the longest times first."""
        seconds: dict[str, float] = {}
        flops: dict[str, float] = {}
        operators: dict[str, dict[str, None]] = {}
        for call in self.calls:
            for line, share, count, names in _split(call.call, self.dims):
                seconds[line] = seconds.get(line, 0.0) + share * call.seconds
                flops[line] = flops.get(line, 0.0) + call.times * count
                operators.setdefault(line, {}).update(dict.fromkeys(names))
        found = (LineTime(line, seconds[line], flops[line], tuple(operators[line])) for line in seconds)
        return tuple(sorted(found, key=lambda each: -each.seconds))


def _sum_products(group: Sequence[CallTime], dims: Mapping[str, int]) -> dict[str, int]:
    totals: dict[str, float] = {}
    for call in group:
        for factors, count in count_products(call.call.operations, dims).items():
            totals[factors] = totals.get(factors, 0.0) + call.times * count
    return {factors: round(count) for factors, count in totals.items()}


def _split(call: Call, dims: Mapping[str, int]) -> Iterator[tuple[str, float, float, list[str]]]:
    """Yields the lines of a kernel, with the share, the operations and the operators of each."""
    if not call.operations:
        yield "?", 1.0, 0.0, [call.kind]
        return
    counts = [evaluate(o.flops, dims) for o in call.operations]
    total = sum(counts)
    for operation, count in zip(call.operations, counts, strict=True):
        yield operation.line, count / total if total else 1 / len(counts), count, [operation.op]


def profile_entry(
    model: Model,
    entry: Entry,
    inputs: Sequence[Array],
    threads: int,
    seconds: float,
    restart: Restart = lambda: None,
) -> Profile:
    """Calls an entry for `seconds` seconds, at least a few times. `threads` is the number of threads of the CPU that a
    call may use, 0 on a GPU; `restart` runs before each call."""
    for _ in range(_WARM_UP):
        restart()
        entry(*inputs)
    with record(model, _CAPACITY) as recording:
        began = time.perf_counter()
        runs = 0
        while runs < _LEAST_RUNS or time.perf_counter() - began < seconds:
            restart()
            entry(*inputs)
            runs += 1
            # An incompletely recorded run is discarded.
            if recording.free < 2 * (len(recording.records) // runs + threads + 1):
                break
    (number,) = (i for i, name in enumerate(model.entries) if name == entry.name)
    records = recording.records
    whole = records[records["call"] < 0]
    lasted = whole["end"] - whole["begin"]
    chosen = whole["run"][lasted <= np.median(lasted)]
    kept = records[np.isin(records["run"], chosen)]
    calls = recording.calls[number]
    times = tuple(_time_call(call, kept[kept["call"] == call.number], len(chosen)) for call in calls)
    mean = float(lasted[np.isin(whole["run"], chosen)].mean()) / 1e9
    return Profile(entry.name, entry.bind(*inputs), threads, runs, mean, times, recording)


def _time_call(call: Call, records: np.ndarray[tuple[int], np.dtype[Any]], runs: int) -> CallTime:
    # One record for each thread that computed a part.
    _, first = np.unique(records[["run", "begin"]], return_index=True)
    seconds = float((records["end"] - records["begin"])[first].sum()) / 1e9 / runs
    threads = np.unique(records["thread"][records["thread"] != 0])
    busy = (float(records["busy"][records["thread"] == thread].sum()) / 1e9 / runs for thread in threads)
    return CallTime(call, seconds, tuple(busy), len(first) / runs)
