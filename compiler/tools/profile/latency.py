"""Measures the latency and the memory of calls of an artifact, in a separate process."""

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

from ....runtime.arguments import Array
from ....runtime.loader import Entry, Model, NacreError, Session

WORKER = "nacre.compiler.tools.profile.latency_worker"
PERCENTILES = (50, 90, 99, 99.9)


@dataclass(frozen=True, slots=True)
class Latency:
    """Sequential calls: their times in seconds, sorted; the times of loading and of the first call in a new process;
    and memory in bytes. `states` are those of the session; `resident` is the maximum increase due to loading and
    calling, including weights, which processes share; `peak` is the maximum of the process."""

    seconds: tuple[float, ...]
    load: float
    first: float
    workspace: int
    states: int
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
    states: Path | None = None,
    threads: int = 0,
    warm_up: float = 0.5,
    seconds: float = 3.0,
) -> Latency:
    """Calls an entry in a separate process for `seconds` seconds, after `warm_up` seconds that are not counted. If
    `model` is a session, a new session with its dims is called, with the states of a file if there is one.

    Raises NacreError if the artifact rejects the call, or if the process dies.
    """
    dims = entry.bind(*inputs)
    session = dict(model.dims) if isinstance(model, Session) else None
    with tempfile.TemporaryDirectory(prefix="nacre-") as folder:
        arrays: dict[str, Any] = {str(i): _plain(x) for i, x in enumerate(inputs)}
        np.savez(Path(folder) / "inputs.npz", **arrays)
        job = {
            "path": str(Path(model.path).resolve()),
            "weights": None if weights is None else str(weights.resolve()),
            "session": session,
            "states": None if states is None else str(states.resolve()),
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
        reported: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text())
        times = np.load(Path(folder) / "times.npy")
    return Latency(
        seconds=tuple(np.sort(times).tolist()),
        workspace=entry.workspace_bytes(**dims),
        states=0 if session is None else model.session_bytes(**session),
        weights=model.describe()["weights"]["bytes"],
        file=Path(model.path).stat().st_size,
        **reported,
    )


def _plain(array: Array) -> Array:
    """Returns the array in a dtype that numpy's files support: floats that numpy lacks become integers."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.itemsize}")
