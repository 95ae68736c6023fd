"""Tables of what `compare.py` measured: `python tests/bench/report.py one.json two.json > tests/bench/results.md`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

OURS = "nacre"
WORSE = 1.25
"""So many times the error of the nearest peer ours may have, or our time is void. Peers that are further off count."""
ROUNDING = 1e-3
"""Errors up to this one are all alike: those of f32."""


def format_reports(documents: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(_section(document) for document in documents)


def _section(document: Mapping[str, Any]) -> str:
    threads, machine = document["threads"], document["machine"]
    reports = document["reports"]
    small, huge = (machine["bandwidth"][kind] for kind in ("small pages", "huge pages"))
    options = "".join(f", {name}={value}" for name, value in document["options"].items())
    lines = [
        f"## {threads} thread{'s' * (threads > 1)}{options}",
        "",
        f"{machine['processor']}: {machine['peak']:.0f} GFLOP/s a core; {threads} of them read {small:.1f} GB/s from"
        f" memory, {huge:.1f} on huge pages. Float32, where a name says nothing else. {_join(document['versions'])}.",
        "",
    ]
    if document.get("cpu_time"):
        lines += ["Times are processor time: other work ran on the machine. Shares mean little then.", ""]
    if document["quick"]:
        lines += ["A quick run, which shows that all works; its figures mean nothing.", ""]
    for kind in dict.fromkeys(report["kind"] for report in reports):
        lines += [f"### {kind.capitalize()}s", "", *_table([r for r in reports if r["kind"] == kind]), ""]
    if costs := _variants(reports):
        lines += ["### Beside variants of the text", "", *costs, ""]
    if notes := _notes(document):
        lines += ["### What is missing", "", *notes, ""]
    return "\n".join(lines)


def _table(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    peers = list(dict.fromkeys(name for r in reports for name in _peers(r)))
    head = ["workload", "ours", "p10 to p90", "share", "best peer", *peers, "error, ours and worst peer's"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for report in reports:
        timings = report.get("timings")
        if timings is None:
            lines.append(f"| {report['workload']} | {'refused' if 'refused' in report else 'failed'} |")
            continue
        own = timings[OURS]
        share = "" if report["share"] is None else f"{report['share']:.0%}"
        ratios = {name: timings[name]["ratio"] for name in peers if name in timings}
        cells = [
            f"{ratios[name]:.2f}" if name in ratios else "failed" if name in report["failures"] else ""
            for name in peers
        ]
        errors = report["errors"]
        worst = max((errors[name] for name in ratios), default=None)
        error = f"{errors[OURS]:.0e}" + ("" if worst is None else f", {worst:.0e}")
        nearest = min((errors[name] for name in ratios), default=None)
        is_void = nearest is not None and errors[OURS] > max(WORSE * nearest, ROUNDING)
        best = "void" if is_void else f"**{min(ratios.values()):.2f}**" if ratios else ""
        spread = f"{_time(own['p10'])} to {_time(own['p90'])}"
        row = [report["workload"], _time(own["median"]), spread, share, best, *cells, error]
        lines.append(f"| {' | '.join(row)} |")
    return lines


def _peers(report: Mapping[str, Any]) -> list[str]:
    named = [*report.get("timings", {}), *report["failures"]]
    return [name for name in named if not name.startswith(OURS)]


def _variants(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Our time over that of each variant of the text."""
    rows = [
        f"| {r['workload']} | {name.removeprefix(f'{OURS}, ')} | {1 / timing['ratio']:.3f} |"
        for r in reports
        for name, timing in r.get("timings", {}).items()
        if name.startswith(OURS) and name != OURS
    ]
    return ["| workload | variant | our time over the variant's |", "|---|---|---|", *rows] if rows else []


def _notes(document: Mapping[str, Any]) -> list[str]:
    lines = [f"- {name} is not installed: {', '.join(packages)}" for name, packages in document["missing"].items()]
    reasons: dict[str, list[str]] = {}
    for report in document["reports"]:
        message = [f"{name} failed: {reason}" for name, reason in report["failures"].items()]
        for reason in [*message, *([f"refused: {report['refused']}"] if "refused" in report else [])]:
            reasons.setdefault(reason, []).append(report["workload"])
    return lines + [f"- {', '.join(workloads)}: {reason}" for reason, workloads in reasons.items()]


def _join(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


if __name__ == "__main__":
    print(format_reports([json.loads(Path(name).read_text()) for name in sys.argv[1:]]), end="")
