"""Ours against the peers, interleaved in one process: `python tests/bench/compare.py [WORKLOAD ...] --threads N`.

A workload is a name or a pattern such as `gemm-*`; without any, all are run. Every round times each contender in turn.
A ratio is the peer's time over ours: above 1 we are faster. The process is pinned to as many cores as there are
threads, and with more than one, a round counts only if the threads had a core each before and after it. On a busy
machine, `--cpu-time` counts the processor time of all threads of the process; every round counts then. Peers come with
the extra `nacre[bench]`; what is not installed is left out, and said.
"""

from __future__ import annotations

import argparse
import fnmatch
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import c_calls
import cold_starts
from machine import ALONE, Probe, pinned
from measure import Contender, NoQuietMomentError, Plan, interleave, summarize
from nacre.compiler.tools.profile.machine import processor
from peers import PEERS, ours
from prepare import Model, prepare
from report import format_reports
from workloads import Bound, Kind, Workload, all_workloads

FULL, QUICK = Plan(rounds=15, slot=0.05), Plan(rounds=3, slot=0.005)
QUIET = 0.9
"""A round counts if each core computed at least so much of the best of any, unless the run is a quick one."""

Report = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """How one run measures. `options` go to `nacre.compile`."""

    threads: int
    plan: Plan
    probe: Probe
    peers: Sequence[str]
    options: Mapping[str, Any]
    peak: float
    bandwidth: Mapping[str, float]
    strict: bool
    """Are rounds void in which the machine was busy?"""
    cpu_time: bool = False
    """Is processor time measured rather than time of the clock?"""


class Look:
    """Whether the machine is fit to be measured on, asked before and after every round."""

    def __init__(self, setting: Setting) -> None:
        self.probe, self.strict, self.best = setting.probe, setting.strict, setting.peak

    def __call__(self) -> float | None:
        count = len(self.probe.cores)
        together = sum(self.probe.together())
        alone = max(self.probe.alone()) if count > 1 else together
        self.best = max(self.best, alone)
        apart = count == 1 or together >= ALONE / 2 * count * alone
        quiet = not self.strict or together >= QUIET * count * self.best
        return together if apart and quiet else None


def run(workload: Workload, setting: Setting, folder: Path) -> Report:
    """The report of one workload, with its failures."""
    report: Report = {"workload": workload.name, "kind": workload.kind.value, "failures": {}}
    try:
        model = prepare(workload, folder)
        start = time.perf_counter()
        artifacts = ours.compile_all(model, setting.options)
        report["compile_seconds"] = time.perf_counter() - start
    except Exception as error:
        report["failures"][ours.NAME] = _reason(error)
        return report
    with pinned(setting.probe.cores):
        contenders = list(_contenders(model, artifacts, setting, report["failures"]))
        errors = {c.name: _error(model, c, report["failures"]) for c in contenders}
        contenders = [c for c in contenders if c.name not in report["failures"]]
        if setting.cpu_time:
            # A peer may compute on a thread of its own.
            contenders = [c if c.clock else c.timed_by(time.process_time) for c in contenders]
        if all(c.name != ours.NAME for c in contenders):
            return report
        try:
            look = (lambda: setting.peak) if setting.cpu_time else Look(setting)
            times = interleave(contenders, setting.plan, look)
        except NoQuietMomentError as error:
            report["refused"] = f"{error}: the machine was busy, or {setting.threads} threads had not a core each"
            return report
    timings = summarize(times.seconds, ours.NAME)
    report["timings"] = {name: asdict(timing) for name, timing in timings.items()}
    report["errors"] = {c.name: errors[c.name] for c in contenders}
    report["void_rounds"], report["peak"] = times.void, sorted(times.peaks)[len(times.peaks) // 2]
    report["operations"], report["bytes"] = model.operations, model.bytes
    rates = {
        Bound.COMPUTE: model.operations / report["peak"] / workload.precision.rate,
        Bound.MEMORY: model.bytes / setting.bandwidth["huge pages"],
    }
    report["share"] = rates[workload.bound] / 1e9 / timings[ours.NAME].median if workload.bound in rates else None
    return report


def _contenders(
    model: Model, artifacts: Mapping[str, Path], setting: Setting, failures: dict[str, str]
) -> Iterator[Contender]:
    if model.workload.kind is not Kind.CALL:
        others = {Kind.C_CALL: c_calls.contenders, Kind.COLD_START: cold_starts.contenders}
        yield from others[model.workload.kind](model, artifacts, setting.threads)
        return
    yield from ours.contenders(model, artifacts, setting.threads)
    for name in setting.peers:
        if model.workload.precision not in PEERS[name].precisions:
            continue
        try:
            yield PEERS[name].load()(model, setting.threads)
        except Exception as error:
            failures[name] = _reason(error)


def _error(model: Model, contender: Contender, failures: dict[str, str]) -> float:
    try:
        error = model.error(contender.results())
    except Exception as problem:
        failures[contender.name] = _reason(problem)
        return float("nan")
    if not error <= model.workload.precision.wrong:
        failures[contender.name] = f"wrong result: the error is {error:.1e}"
    return error


def _reason(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    marked = [line for line in lines if "error:" in line]
    return f"{type(error).__name__}: {(marked or lines or [''])[0].strip()[:200]}"


def select(names: Sequence[str], known: Mapping[str, Workload], refuse: Callable[[str], Any]) -> list[str]:
    chosen: dict[str, None] = {}
    for name in names or ["*"]:
        found = fnmatch.filter(known, name)
        if not found:
            refuse(f"no workload is called {name}; --list names them all")
        chosen |= dict.fromkeys(found)
    return list(chosen)


def _option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, json.loads(value or "true")


def parse(arguments: Sequence[str] | None = None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="WORKLOAD")
    parser.add_argument("--list", action="store_true", help="print the names of the workloads")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"default {FULL.rounds}")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: to see that all works")
    parser.add_argument("--cpu-time", action="store_true", help="processor time of the process, not of the clock")
    parser.add_argument("--peers", default=",".join(PEERS), metavar="NAMES", help=f"default {','.join(PEERS)}")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="all-MiniLM-L6-v2; made-up weights without it")
    parser.add_argument("--set", type=_option, action="append", default=[], metavar="NAME=JSON", help="for compile")
    parser.add_argument("--json", type=Path, metavar="FILE", help="written after each workload")
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file has already")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    return parser, parser.parse_args(arguments)


def measured(path: Path) -> list[Report]:
    """The reports in a file of an earlier run, without those that have no figures."""
    if not path.exists():
        return []
    return [report for report in json.loads(path.read_text())["reports"] if "timings" in report]


def main() -> int:
    parser, given = parse()
    known = all_workloads(given.checkpoint)
    chosen = select(given.names, known, parser.error)
    if given.list:
        print("\n".join(chosen))
        return 0
    asked = [name for name in given.peers.split(",") if name]
    if unknown := [name for name in asked if name not in PEERS]:
        parser.error(f"no peer is called {', '.join(unknown)}; there are {', '.join(PEERS)}")
    cores = sorted(os.sched_getaffinity(0))[-given.threads :]
    if given.resume and not given.json:
        parser.error("--resume needs --json")
    if given.threads < 1 or len(cores) < given.threads:
        parser.error(f"{given.threads} threads on {len(os.sched_getaffinity(0))} cores")
    probe = Probe(cores, cpu_time=given.cpu_time)
    plan = QUICK if given.quick else FULL
    setting = Setting(
        threads=given.threads,
        plan=Plan(given.rounds or plan.rounds, plan.slot),
        probe=probe,
        peers=[name for name in asked if not PEERS[name].missing()],
        options=dict(given.set),
        peak=max(probe.alone()),
        bandwidth={kind: probe.bandwidth(huge) for kind, huge in (("small pages", False), ("huge pages", True))},
        strict=not given.quick,
        cpu_time=given.cpu_time,
    )
    document = {
        "threads": given.threads,
        "quick": given.quick,
        "cpu_time": given.cpu_time,
        "options": dict(given.set),
        "machine": {"processor": processor(), "peak": setting.peak, "bandwidth": setting.bandwidth},
        "versions": {"nacre": version("nacre")} | {k: v for name in asked for k, v in PEERS[name].versions().items()},
        "missing": {name: missing for name in asked if (missing := PEERS[name].missing())},
        "reports": measured(given.json) if given.resume else [],
    }
    done = {report["workload"] for report in document["reports"]}
    for name in chosen:
        if name in done:
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        with TemporaryDirectory(prefix="nacre-bench-") as folder:
            document["reports"].append(run(known[name], setting, Path(folder)))
        gc.collect()
        if given.json:
            given.json.write_text(json.dumps(document, indent=1))
    text = format_reports([document])
    print(text)
    if given.markdown:
        given.markdown.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
