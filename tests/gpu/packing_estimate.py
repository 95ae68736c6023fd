"""An estimate of the time of `run.py run` on a chip, from what the folder contains and from stated assumptions.

It tells whether a stage fits its share of the time before a machine with a GPU is at hand. Nothing of it is measured on
a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from pathlib import Path

from chip.cases import CALLS, Packed
from chip.clock import CALLS as TIMED
from chip.report import table
from chip.stages import SHARES
from chip.timing import BYTES, Timing, calls_before, copies_for
from nacre.compiler.targets.chips import CHIPS
from nacre.compiler.tools.profile.device_code import modules_of
from nacre.runtime.library import open_library
from nacre.runtime.observe import read_calls

PROCESSES = 8
"""The processes at a time, each with a core."""
START = 2.0
"""The seconds in which a process starts Python and NumPy, and the driver makes a context."""
PER_MODULE, PER_BYTE = 2e-3, 3e-6
"""The seconds in which the driver compiles PTX. `ptxas`, the same compiler, takes 2 to 3 s for a MB on a core of a
server."""
PER_CASE, PER_LAUNCH = 4e-3, 2e-5
"""The seconds of a case: copies to the device and back, a graph, the comparison; and those of each launch."""
COPIED, NUMBERS = 5e9, 1e8
"""The bytes that are read from a disk or copied to a device in a second, and the random numbers that are drawn."""
CHIP, OF_BOUND = CHIPS["h100"], 0.5
"""The chip whose data sheet bounds the calls that are timed, and the share of these bounds that they reach."""
L2_BYTES = 50 << 20
"""The second cache of this chip."""
_ENTRY = re.compile(r"\.entry ([\w$]+)")


@dataclass(frozen=True)
class Load:
    """The load of a process: artifacts, their PTX modules, the bytes of these, and the kernels in them; cases, and the
    launches of all their calls. `seconds` are those of one process after the other, `longest` those of the longest."""

    artifacts: int = 0
    modules: int = 0
    ptx: int = 0
    kernels: int = 0
    cases: int = 0
    launches: int = 0
    seconds: float = 0.0
    longest: float = 0.0

    def __add__(self, other: Load) -> Load:
        added = Load(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))
        return replace(added, longest=max(self.longest, other.longest))

    @property
    def in_parallel(self) -> float:
        return max(self.longest, self.seconds / PROCESSES)

    def described(self, stage: str, seconds: float) -> tuple[object, ...]:
        counts = (self.artifacts, self.modules, self.kernels, f"{self.ptx / 1e6:.2f}", self.cases, self.launches)
        return (stage, *counts, f"{seconds:.0f}", SHARES[stage])


def _load_modules(paths: Sequence[Path]) -> tuple[Load, list[str]]:
    """Returns the load of the files and of the driver's compiler, in one process, and the kernels."""
    texts = [text for path in paths for text in modules_of(path)]
    kernels = [kernel for text in texts for kernel in _ENTRY.findall(text)]
    ptx = sum(map(len, texts))
    seconds = START + PER_MODULE * len(texts) + PER_BYTE * ptx + sum(path.stat().st_size for path in paths) / COPIED
    return Load(len(paths), len(texts), ptx, len(kernels), seconds=seconds), kernels


def load_artifact(folder: Path, packed: Packed) -> Load:
    """Returns what a process does with the cases of an artifact."""
    path = folder / f"{packed.name}.so"
    load, kernels = _load_modules([path])
    calls = read_calls(open_library(str(path)), "device")
    launches = {
        entry: sum(kernel.startswith(call.kernel) for call in calls[entry] for kernel in kernels)
        for entry in {case.entry for case in packed.cases}
    }
    total = CALLS * sum(launches[case.entry] for case in packed.cases)
    seconds = load.seconds + PER_CASE * len(packed.cases) + PER_LAUNCH * total
    return replace(load, cases=len(packed.cases), launches=total, seconds=seconds, longest=seconds)


def _time(timing: Timing) -> float:
    """Returns the seconds in which a call is prepared and timed; not those of its peer."""
    copies = copies_for(timing, L2_BYTES)
    numbers = sum(prod(shape) for _, shape in timing.arguments)
    moved = copies * sum(BYTES[dtype] * prod(shape) for dtype, shape in timing.arguments)
    bound = max(timing.bytes / CHIP.bandwidth, timing.flops / CHIP.rate(timing.arguments[0][0]))
    return numbers / NUMBERS + moved / COPIED + (calls_before(copies) + TIMED) * (bound / OF_BOUND + PER_LAUNCH)


def load_timings(folder: Path, timings: Sequence[Timing]) -> Load:
    """Returns what a single process does with the calls that are timed; their launches are not counted."""
    load, _ = _load_modules(sorted({folder / f"{timing.artifact}.so" for timing in timings}))
    return replace(load, cases=len(timings), seconds=load.seconds + sum(map(_time, timings)))


def estimate(folder: Path, packed: Sequence[Packed], timings: Sequence[Timing]) -> Iterator[str]:
    """Yields a table of the stages of the folder's artifacts, and the assumptions."""
    rows, whole = [], 0.0
    for stage in ("samples", "operators", "graphs"):
        total = sum((load_artifact(folder, each) for each in packed if each.stage == stage), Load())
        whole += min(total.in_parallel, SHARES[stage])
        rows.append(total.described(stage, total.in_parallel))
    timed = load_timings(folder, timings)
    whole += min(timed.seconds, SHARES["timings"])
    rows.append(timed.described("timings", timed.seconds))
    names = ("stage", "artifacts", "modules", "kernels", "MB of PTX", "cases", "launches", "seconds", "share")
    yield from table(names, rows)
    rest = sum(SHARES.values()) - sum(SHARES[str(row[0])] for row in rows)
    yield f"{whole:.0f} s of {sum(SHARES.values())}, without peers and {rest} s for errors, threads and the sanitizer."
    yield "No stage exceeds its share and the time that those before it leave: it reports the rest as not run."
    yield (
        f"Assumed, not measured: {PROCESSES} processes, which start in {START:.0f} s; {1e3 * PER_MODULE:.0f} ms for a"
        f" PTX module and {1e6 * PER_BYTE:.0f} s for a MB of PTX; {1e3 * PER_CASE:.0f} ms for a case and"
        f" {1e6 * PER_LAUNCH:.0f} us for a launch; {OF_BOUND:.0%} of the bounds of {CHIP.name} in what is timed."
    )
