"""The stages of a run: each artifact is checked in a process of its own, since a fault of a kernel ends its context.

A part of a stage is such a process. It appends records to a file of its own while it runs. If it ends early, the case
that it had begun has failed, and another process goes on with the next case.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .cases import Packed, check_artifact, packed_of, read_index
from .ceilings import CEILINGS, measure_ceilings
from .errors import CHECKS, check_errors
from .peers import time_peers
from .records import Record, append_record, count_begun, ended, open_case, out_of_time, summarize
from .threads import check_threads
from .timing import Timing, time_all

SANITIZERS = ("memcheck", "racecheck", "synccheck")
SANITIZED = "sample-digits"
SHARES = {
    "samples": 25,
    "errors": 30,
    "operators": 130,
    "graphs": 60,
    "threads": 15,
    "timings": 160,
    "sanitizer": 30,
}
"""The stages by importance, and the seconds of each one in a run of 450. A stage that ends early leaves its time to
later ones."""
GRACE = 10.0
"""The seconds that a process has after its deadline, before which its last case has begun."""
MOST_PROCESSES = 6
"""The processes of a part."""
LONGER = {"peers": 1.5}
"""The time of a part relative to that of others: PyTorch compiles the operations and the models."""
LOST = 3
"""The exit status of a process whose device fails all further calls."""


@dataclass(frozen=True)
class Run:
    """A run of the packed folder. `program` is run.py, `data` the folder of the artifacts, `parts` that of the records;
    `deadline` is the time after which no case begins. A part takes at most `part_seconds`, with all its processes."""

    program: Path
    data: Path
    parts: Path
    device: str
    jobs: int
    deadline: float
    part_seconds: float

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()


def run_part(data: Path, part: str, name: str, device: str, deadline: float, first: int) -> Iterator[Record]:
    """Runs a part in this process, from its `first` case on."""
    index = read_index(data)
    if part in ("timings", "peers"):
        timings = [Timing.read(each) for each in index["timings"]]
        if part == "peers":
            return time_peers(timings, device, deadline, first)
        return time_all(data, timings, device, first, deadline)
    if part == "ceilings":
        return measure_ceilings(device, first, quick=index["rounds"] == 1)
    if part == "errors":
        return check_errors(data, device, index["rounds"], first)
    packed = next(each for each in packed_of(index) if each.name == name)
    if part == "threads":
        return check_threads(data, packed, device, index["rounds"], first)
    return check_artifact(data, packed, device, first, deadline)


def start_part(run: Run, part: str, name: str, planned: int = 0, prefix: Sequence[str] = ()) -> dict[str, Any]:
    """Runs a part of `planned` cases in processes; a crash, an endless kernel and an exception are failures of it."""
    begin = time.monotonic()
    deadline = min(run.deadline, begin + run.part_seconds * LONGER.get(part, 1.0))
    records = run.parts / f"{'-'.join([part, name, *prefix[2:3]])}.jsonl"
    for _ in range(MOST_PROCESSES):
        if run.left <= 0:
            append_record(records, out_of_time())
            break
        first = count_begun(records)
        command = [*prefix, sys.executable, str(run.program), "part", part, name, str(run.data), str(records)]
        command += ["--device", run.device, "--deadline", str(deadline), "--first", str(first)]
        status = run_process(command, records.with_suffix(".log"), max(0.0, deadline - time.monotonic()) + GRACE)
        if status == 0:
            break
        case = open_case(records)
        if status != LOST or case:
            said = records.with_suffix(".log").read_text(errors="replace")[-1500:]
            reason = "no end in time" if status is None else f"exit status {status}: {said}"
            append_record(records, ended(case or name, reason))
        if status is None or (status != LOST and not case):
            break
    else:
        append_record(records, ended(name, f"no case is run after {MOST_PROCESSES} processes that ended early"))
    return {"name": name, "planned": planned, "seconds": round(time.monotonic() - begin, 1), **summarize(records)}


def run_process(command: Sequence[str], log: Path, seconds: float) -> int | None:
    """Returns the exit status of a process; None if it had to be killed. One that waits for a device may outlive that,
    so nothing waits for it."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None


def run_stage(run: Run, stage: str, parts: Iterable[Callable[[], dict[str, Any]]], jobs: int) -> dict[str, Any]:
    """Runs the parts of a stage, several at once."""
    begin = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda part: part(), parts))
    failures = [failure for result in results for failure in result["failures"]]
    return {
        "stage": stage,
        "parts": len(results),
        "skipped": [f"{result['name']}: {result['skipped']}" for result in results if "skipped" in result],
        "cases": sum(result["cases"] for result in results),
        "not_run": sum(max(0, result["planned"] - result["cases"]) for result in results),
        "failures": failures,
        "seconds": round(time.monotonic() - begin, 1),
        "slowest": max((result["seconds"] for result in results), default=0.0),
        "details": [result for result in results if "rows" in result],
    }


def run_checks(run: Run, stages: Sequence[str], tell: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """Runs the stages in order, each up to its share of the time, and what those before it have left."""
    index = read_index(run.data)
    packed = packed_of(index)
    results = []
    whole, begin, share = run, time.monotonic(), 0.0
    for stage in stages:
        share += SHARES[stage] / sum(SHARES[each] for each in stages)
        run = replace(whole, deadline=begin + share * (whole.deadline - begin))
        if stage == "sanitizer":
            results.append(_run_sanitizer(run, next((each for each in packed if each.name == SANITIZED), None)))
        elif stage == "threads":
            chosen = [each for each in packed if each.stage == "samples"]
            results.append(run_stage(run, stage, [_part(run, "threads", each) for each in chosen], 1))
        elif stage == "timings":
            # One after the other: a device that two processes use has no time of its own.
            planned = {"ceilings": len(CEILINGS), "timings": len(index["timings"]), "peers": 0}
            parts = [_begin(run, part, part, count) for part, count in planned.items()]
            results.append(run_stage(run, stage, parts, 1))
        elif stage == "errors":
            results.append(run_stage(run, stage, [_begin(run, stage, stage, len(CHECKS))], 1))
        else:
            chosen = [each for each in packed if each.stage == stage]
            results.append(run_stage(run, stage, [_part(run, "check", each) for each in chosen], run.jobs))
        tell(results[-1])
    return results


def _part(run: Run, part: str, packed: Packed) -> Callable[[], dict[str, Any]]:
    return _begin(run, part, packed.name, len(packed.cases))


def _begin(run: Run, part: str, name: str, planned: int) -> Callable[[], dict[str, Any]]:
    return lambda: start_part(run, part, name, planned)


def find_sanitizer() -> str | None:
    places = [os.environ.get("CUDA_HOME", "/usr/local/cuda"), "/usr/local/cuda"]
    return shutil.which("compute-sanitizer") or next(
        (str(path) for place in places if (path := Path(place) / "bin" / "compute-sanitizer").exists()), None
    )


def _run_sanitizer(run: Run, packed: Packed | None) -> dict[str, Any]:
    found = find_sanitizer()
    if found is None or packed is None:
        return {
            "stage": "sanitizer",
            "parts": 0,
            "cases": 0,
            "not_run": 0,
            "failures": [],
            "seconds": 0.0,
            "slowest": 0.0,
            "skipped": ["compute-sanitizer: not found" if packed else f"{SANITIZED}: not packed"],
        }
    parts = [
        lambda command=[found, "--tool", tool, "--error-exitcode", "9"]: start_part(
            run, "check", SANITIZED, len(packed.cases), command
        )
        for tool in SANITIZERS
    ]
    return run_stage(run, "sanitizer", parts, len(SANITIZERS))
