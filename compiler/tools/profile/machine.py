"""The peak of this machine: floating-point operations and bytes read per second that compiled code reaches.

The peak is measured with Nacre's own kernels, products of matrices that fit caches and a sum of a buffer that exceeds
them, and is cached in the user's cache under the processor's name. Other load lowers the measured rate, so the best of
many runs counts.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import BF16, F32, I8, I32, U8, DType
from ....runtime.loader import load
from ...base.cache_folder import cache_folder, cache_is_wanted
from ...base.files import write_whole
from ...checking import read_model
from ...options import Options
from ...pipeline import Build
from ...version import __version__

_SECONDS = 0.3
_ROWS, _WIDTH = 384, 256
"""Rows per thread and width of the square matrix of a product: its operands fit the second-level cache."""
_BUFFER = 256 << 20
"""Bytes that are read from memory: more than the caches hold."""


_FACTORS: Mapping[str, tuple[DType, DType, DType]] = {
    "f32": (F32, F32, F32),
    "bf16": (BF16, BF16, F32),
    "i8": (U8, I8, I32),
    "i16": (F32, F32, F32),
}
"""The dtypes of both factors and of the sum, by the name of the product's dtype. Code may round factors to i16."""


def _columns(name: str) -> int:
    """Returns the columns of a product: more where rows are rounded once for several panels."""
    return 4 * _WIDTH if name == "i16" else _WIDTH


def _multiply(name: str) -> str:
    x, weight, total = _FACTORS[name]
    rounded, columns = ", factors=i16" if name == "i16" else "", _columns(name)
    return f"""
model multiply_{name}(x: {x}[M, {_WIDTH}]) -> {total}[M, {columns}] {{
  param weight_{name}: {weight}[{_WIDTH}, {columns}]
  return matmul(x, weight_{name}, into={total}{rounded})
}}
"""


_TEXT = f"""dim M in 1..1048576
{"".join(map(_multiply, _FACTORS))}
model read(x: f32[M, 4096]) -> f32[M] {{ return sum(x, axis=1) }}
"""


@dataclass(frozen=True, slots=True)
class Peak:
    """Operations on f32, and bytes read from memory, per second, of all threads together; `narrow` are operations in
    products of narrower dtypes, by dtype."""

    flops: float
    bytes: float
    narrow: Mapping[str, float] = field(default_factory=dict)

    def of(self, factors: str | None) -> float:
        """Returns operations per second in products of this dtype, or in other operations for None."""
        return self.narrow.get(factors or "", self.flops)


def processor() -> str:
    """Returns the processor name that the system reports."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def threads_of(threads: int) -> int:
    """Returns the number of threads that a call uses in a session with this `threads` setting: the rule of ABI.md."""
    cpus = len(os.sched_getaffinity(0))
    return min(threads or int(os.environ.get("NACRE_THREADS") or cpus), cpus)


def find_peak(threads: int, *, anew: bool = False) -> Peak:
    """Returns the peak with this many threads; measures it if it is not cached, or if `anew` is set."""
    path = cache_folder() / "peaks.json"
    name = f"nacre {__version__}, {processor()}, {threads} threads"
    known = _read(path)
    if name in known and not anew:
        return known[name]
    peak = measure_peak(threads)
    if cache_is_wanted():
        path.parent.mkdir(parents=True, exist_ok=True)
        peaks = {**_read(path), name: peak}
        write_whole(path, json.dumps({key: asdict(value) for key, value in peaks.items()}, indent=2) + "\n")
    return peak


def _read(path: Path) -> dict[str, Peak]:
    """Reads the peaks of a file; none if it is damaged, since they can be measured again."""
    try:
        return {name: Peak(**peak) for name, peak in json.loads(path.read_text()).items() if "narrow" in peak}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def measure_peak(threads: int) -> Peak:
    """Compiles the two kernels, and runs each repeatedly."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="nacre-") as folder:
        weights = Path(folder) / "weights.safetensors"
        drawn = {name: rng.integers(0, 100, (_WIDTH, _columns(name))) for name in _FACTORS}
        save_file({f"weight_{name}": drawn[name].astype(w.numpy) for name, (_, w, _) in _FACTORS.items()}, weights)
        Build(read_model(_TEXT, weights), Options()).run(Path(folder) / "peak.so")
        model = load(Path(folder) / "peak.so", threads=threads)
        rows = rng.integers(0, 100, (threads * _ROWS, _WIDTH))
        rates: dict[str, float] = {}
        for name, (x, _, _) in _FACTORS.items():
            array = rows.astype(x.numpy)
            rates[name] = 2 * rows.size * _columns(name) / _best(partial(model.entries[f"multiply_{name}"], array))
        memory = np.ones((_BUFFER // 4 // 4096, 4096), np.float32)
        read = _best(lambda: model.entries["read"](memory))
    flops = rates.pop("f32")
    # Dtypes that the CPU does not support are computed in f32.
    return Peak(flops, memory.nbytes / read, {name: max(flops, rate) for name, rate in rates.items()})


def _best(call: Callable[[], object]) -> float:
    """Returns the seconds of the fastest call."""
    call()
    times: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
