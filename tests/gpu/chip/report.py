"""The report of a run, as JSON and as tables of Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MOST_SHOWN = 40


def write_report(folder: Path, results: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "results.md").write_text("\n".join(describe(results)) + "\n")


def describe(results: Mapping[str, Any]) -> list[str]:
    lines = ["# Checks on a GPU", ""]
    device = results["device"]
    lines += [
        f"{device['name']}, sm_{device['capability']}, {device['processors']} processors, "
        f"{device['bytes'] / 2**30:.0f} GiB. {results['seconds']:.0f} seconds.",
        "",
    ]
    lines += table(
        ("stage", "artifacts", "cases", "failures", "skipped", "seconds"),
        [
            (s["stage"], s["parts"], s["cases"], len(s["failures"]), ", ".join(s["skipped"]) or "none", s["seconds"])
            for s in results["stages"]
        ],
    )
    failures = [f"{stage['stage']}: {failure}" for stage in results["stages"] for failure in stage["failures"]]
    if failures:
        lines += ["## Failures", "", *(f"- {' '.join(failure.split())}" for failure in failures[:MOST_SHOWN])]
        lines += [f"- and {len(failures) - MOST_SHOWN} more"] if len(failures) > MOST_SHOWN else []
        lines.append("")
    if results["refused"]:
        lines += ["## Without code for GPUs", ""]
        lines += [f"- `{name}`: {reason}" for name, reason in results["refused"].items()] + [""]
    return lines


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = [f"| {' | '.join(map(str, head))} |", f"|{'|'.join('---' for _ in head)}|"]
    return [*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]
