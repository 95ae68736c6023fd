"""The stages of a run: each artifact is checked in a process of its own, since a fault of a kernel ends its context."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cases import Packed, check_artifact, packed_of, read_index
from .errors import check_errors
from .peers import time_peers
from .threads import check_threads
from .timing import Timing, time_all

SANITIZERS = ("memcheck", "racecheck", "synccheck")
SANITIZED = "sample-digits"
PART_SECONDS = 240


@dataclass(frozen=True)
class Run:
    """A run of the packed folder. `program` is run.py, `data` the folder of the artifacts; `deadline` is the time at
    which the last stage should end."""

    program: Path
    data: Path
    device: str
    jobs: int
    deadline: float

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()


def run_part(data: Path, part: str, name: str, device: str, deadline: float) -> dict[str, Any]:
    """Runs a part in this process."""
    index = read_index(data)
    if part in ("timings", "peers"):
        timings = [Timing.read(each) for each in index["timings"]]
        if part == "peers":
            return time_peers(timings, device, deadline)
        return time_all(data, timings, device, quick=index["rounds"] == 1)
    if part == "errors":
        return check_errors(data, device, index["rounds"])
    packed = next(each for each in packed_of(index) if each.name == name)
    if part == "threads":
        return check_threads(data, packed, device, index["rounds"])
    return check_artifact(data, packed, device)


def start_part(run: Run, part: str, name: str, prefix: Sequence[str] = ()) -> dict[str, Any]:
    """Runs a part in a process; a crash, an endless kernel and an exception are failures of it."""
    if run.left <= 0:
        return {"name": name, "cases": 0, "failures": [], "skipped": "no time is left"}
    with tempfile.TemporaryDirectory() as temporary:
        output = Path(temporary) / "part.json"
        command = [*prefix, sys.executable, str(run.program), "part", part, name, str(run.data), str(output)]
        limit = max(10.0, min(PART_SECONDS, run.left))
        try:
            command += ["--device", run.device, "--deadline", str(run.deadline)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return {"name": name, "cases": 0, "failures": [f"{name}: no end after {limit:.0f} seconds"]}
        result: dict[str, Any] = {"cases": 0, "failures": []}
        if output.exists():
            result = json.loads(output.read_text())
        if done.returncode:
            said = (done.stdout + done.stderr)[-1500:]
            result["failures"] = [*result["failures"], f"{name}: exit status {done.returncode}: {said}"]
    return {"name": name, **result}


def run_stage(run: Run, stage: str, parts: Iterable[Callable[[], dict[str, Any]]], jobs: int) -> dict[str, Any]:
    """Runs the parts of a stage, several at once."""
    begin = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda part: part(), parts))
    failures = [failure for result in results for failure in result["failures"]]
    return {
        "stage": stage,
        "parts": len(results),
        "skipped": [result["name"] for result in results if "skipped" in result],
        "cases": sum(result["cases"] for result in results),
        "failures": failures,
        "seconds": round(time.monotonic() - begin, 1),
        "details": [result for result in results if "rows" in result],
    }


def run_checks(run: Run, stages: Sequence[str], tell: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """Runs the stages of correctness in order."""
    packed = packed_of(read_index(run.data))
    results = []
    for stage in stages:
        if stage == "sanitizer":
            results.append(_run_sanitizer(run))
        elif stage == "threads":
            chosen = [each for each in packed if each.stage == "samples"]
            results.append(run_stage(run, stage, [_part(run, "threads", each) for each in chosen], 1))
        elif stage == "timings":
            # One after the other: a device that two processes use has no time of its own.
            parts = [lambda part=part: start_part(run, part, part) for part in ("timings", "peers")]
            results.append(run_stage(run, stage, parts, 1))
        elif stage == "errors":
            results.append(run_stage(run, stage, [lambda: start_part(run, "errors", "errors")], 1))
        else:
            chosen = [each for each in packed if each.stage == stage]
            results.append(run_stage(run, stage, [_part(run, "check", each) for each in chosen], run.jobs))
        tell(results[-1])
    return results


def _part(run: Run, part: str, packed: Packed) -> Callable[[], dict[str, Any]]:
    return lambda: start_part(run, part, packed.name)


def find_sanitizer() -> str | None:
    places = [os.environ.get("CUDA_HOME", "/usr/local/cuda"), "/usr/local/cuda"]
    return shutil.which("compute-sanitizer") or next(
        (str(path) for place in places if (path := Path(place) / "bin" / "compute-sanitizer").exists()), None
    )


def _run_sanitizer(run: Run) -> dict[str, Any]:
    found = find_sanitizer()
    if found is None:
        return {"stage": "sanitizer", "parts": 0, "cases": 0, "failures": [], "seconds": 0.0, "skipped": ["not found"]}
    parts = [
        lambda tool=tool: start_part(run, "check", SANITIZED, [found, "--tool", tool, "--error-exitcode", "9"])
        for tool in SANITIZERS
    ]
    return run_stage(run, "sanitizer", parts, len(SANITIZERS))
