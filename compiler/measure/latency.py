"""How long calls of an artifact take, and what memory they need, measured in a process that has nothing else to do."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.arguments import Array
from ...runtime.loader import Entry, Model, NacreError

WORKER = "nacre.compiler.measure.latency_worker"
PERCENTILES = (50, 90, 99, 99.9)


@dataclass(frozen=True, slots=True)
class Latency:
    """Calls one after another: their seconds sorted, those of loading and of the first call in a fresh process; and
    memory in bytes. `resident` is what loading and calling added to the process at most, of which weights are shared
    with other processes; `peak` is the process at its largest."""

    seconds: tuple[float, ...]
    load: float
    first: float
    workspace: int
    weights: int
    file: int
    resident: int
    peak: int

    def percentile(self, percent: float) -> float:
        return float(np.percentile(self.seconds, percent))

    @property
    def mean(self) -> float:
        return sum(self.seconds) / len(self.seconds)


def measure_latency(
    model: Model,
    entry: Entry,
    inputs: Sequence[Array],
    *,
    weights: Path | None = None,
    threads: int = 0,
    warm_up: float = 0.5,
    seconds: float = 3.0,
) -> Latency:
    """Calls an entry in a process of its own for so many seconds, after others that are not counted.

    Raises NacreError where the artifact refuses, or the process does not live to the end.
    """
    dims = entry.bind(*inputs)
    with tempfile.TemporaryDirectory(prefix="nacre-") as folder:
        arrays: dict[str, Any] = {str(i): _plain(x) for i, x in enumerate(inputs)}
        np.savez(Path(folder) / "inputs.npz", **arrays)
        job = {
            "path": str(Path(model.path).resolve()),
            "weights": None if weights is None else str(weights.resolve()),
            "entry": entry.name,
            "threads": threads,
            "warm_up": warm_up,
            "seconds": seconds,
        }
        (Path(folder) / "job.json").write_text(json.dumps(job))
        done = subprocess.run([sys.executable, "-m", WORKER, folder], capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
            raise NacreError(f"the process that calls the model failed: {last}")
        told: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text())
        times = np.load(Path(folder) / "times.npy")
    return Latency(
        seconds=tuple(np.sort(times).tolist()),
        workspace=entry.workspace_bytes(**dims),
        weights=model.describe()["weights"]["bytes"],
        file=Path(model.path).stat().st_size,
        **told,
    )


def _plain(array: Array) -> Array:
    """The array in a dtype that numpy's files can hold: what numpy itself has no floats of as their bits."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.itemsize}")
