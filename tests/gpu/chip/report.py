"""The report of a run, as JSON and as tables of Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MOST_SHOWN = 40
MOST_NAMES = 4


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
    lines += [f"{count_not_run(results)} cases were not run.", ""] if count_not_run(results) else []
    lines += table(
        ("stage", "artifacts", "cases", "failures", "not run", "skipped", "seconds", "slowest artifact"),
        [
            (
                *(s["stage"], s["parts"], s["cases"], len(s["failures"]), s["not_run"]),
                *(describe_skipped(s["skipped"]), s["seconds"], s["slowest"]),
            )
            for s in results["stages"]
        ],
    )
    for stage in results["stages"]:
        lines += describe_timings(stage.get("details", []))
    failures = [f"{stage['stage']}: {failure}" for stage in results["stages"] for failure in stage["failures"]]
    if failures:
        lines += ["## Failures", "", *(f"- {' '.join(failure.split())}" for failure in failures[:MOST_SHOWN])]
        lines += [f"- and {len(failures) - MOST_SHOWN} more"] if len(failures) > MOST_SHOWN else []
        lines.append("")
    if results["refused"]:
        lines += ["## Without code for GPUs", ""]
        lines += [f"- `{name}`: {reason}" for name, reason in results["refused"].items()] + [""]
    return lines


def count_not_run(results: Mapping[str, Any]) -> int:
    """Returns the number of packed cases that were neither passed nor failed."""
    return sum(stage["not_run"] for stage in results["stages"])


def describe_skipped(skipped: Sequence[str]) -> str:
    """Returns the reasons, each with the artifacts that it concerns, or their number if they are many."""
    names: dict[str, list[str]] = {}
    for each in skipped:
        name, _, reason = each.partition(": ")
        names.setdefault(reason, []).append(name)
    shown = (
        f"{', '.join(of) if len(of) <= MOST_NAMES else f'{len(of)} artifacts'}: {reason}"
        for reason, of in names.items()
    )
    return "; ".join(shown) or "none"


def describe_timings(details: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a table of our times beside those of PyTorch. A ratio above 1 says that ours is faster."""
    ours = next((detail for detail in details if detail["name"] == "timings"), None)
    if ours is None:
        return []
    peers = next((detail for detail in details if detail["name"] == "peers"), {"rows": []})
    ceilings = next((detail for detail in details if detail["name"] == "ceilings"), {"rows": []})
    rates = {row["name"]: row["rate"] for row in ceilings["rows"]}
    copied = rates.get("copy")
    rows = []
    for row in ours["rows"]:
        seconds = row["seconds"]
        theirs: dict[str, Any] = {}
        for peer in peers["rows"]:
            theirs |= peer if peer["name"] == row["name"] else {}
        rate = row["bytes"] / seconds
        rows.append(
            (
                row["name"],
                f"{seconds * 1e6:.1f}",
                f"{rate / 1e9:.0f}",
                f"{100 * rate / copied:.0f} %" if copied else "",
                f"{row['flops'] / seconds / 1e12:.1f}" if row["flops"] else "",
                *(f"{theirs[kind] / seconds:.2f}" if kind in theirs else "" for kind in ("eager", "compiled")),
            )
        )
    head = ("call", "microseconds", "GB/s", "of a copy", "TFLOP/s", "torch / ours", "compiled torch / ours")
    about = "Medians by events."
    about += f" A copy within the device reads and writes {copied / 1e9:.0f} GB/s." if copied else ""
    products = rates.get("products")
    about += f" Products of bf16 on tensor cores reach {products / 1e12:.3g} TFLOP/s." if products else ""
    version = f" PyTorch {peers['torch']}." if "torch" in peers else " PyTorch was not there."
    return ["## Times", "", about + version, "", *table(head, rows)]


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = [f"| {' | '.join(map(str, head))} |", f"|{'|'.join('---' for _ in head)}|"]
    return [*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]
