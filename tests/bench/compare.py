"""Ours against the peers, interleaved in one process: `python tests/bench/compare.py [WORKLOAD ...]`.

Every round times each contender in turn, so that a change of the machine's speed meets all of them; medians are
compared. A ratio is the peer's time over ours: above 1 we are faster. One thread each. Needs the extra `nacre[bench]`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nacre
import numpy as np
import onnxruntime
import openvino
from machine import Probe
from workloads import Array, Workload, workloads

ROUND_SECONDS = 0.05
Run = Callable[[], Any]


def nacre_run(workload: Workload, folder: Path) -> Run:
    path = folder / f"{workload.name}.so"
    model = nacre.compile(workload.source, path, weights=workload.checkpoint)
    entry = next(iter(model.entries.values()))
    inputs = list(workload.inputs.values())
    return lambda: entry(*inputs)


def onnxruntime_run(workload: Workload) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(workload.onnx, options, providers=["CPUExecutionProvider"])
    inputs = dict(workload.inputs)
    return lambda: session.run(None, inputs)[0]


def openvino_run(workload: Workload) -> Run:
    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(core.read_model(workload.onnx), "CPU", settings).create_infer_request()
    inputs = dict(workload.inputs)
    return lambda: request.infer(inputs)[0]


def seconds(run: Run, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count


def compare(workload: Workload, folder: Path, rounds: int, probe: Probe) -> dict[str, Any]:
    runs = {
        "nacre": nacre_run(workload, folder),
        "onnxruntime": onnxruntime_run(workload),
        "openvino": openvino_run(workload),
    }
    results: dict[str, Array] = {name: np.asarray(run()) for name, run in runs.items()}
    difference = max(float(np.abs(results["nacre"] - r).max()) for r in results.values())
    counts = {name: max(1, int(ROUND_SECONDS / seconds(run, 2))) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    peaks: list[float] = []
    for _ in range(rounds):
        peaks.append(probe.peak())
        for name, run in runs.items():
            times[name].append(seconds(run, counts[name]))
    medians = {name: statistics.median(t) for name, t in times.items()}
    ours = medians["nacre"]
    return {
        "workload": workload.name,
        "milliseconds": {name: value * 1e3 for name, value in medians.items()},
        "spread": {name: (max(t) - min(t)) / statistics.median(t) for name, t in times.items()},
        "ratio": {name: value / ours for name, value in medians.items() if name != "nacre"},
        "share_of_peak": workload.operations / ours / 1e9 / statistics.median(peaks),
        "largest_difference": difference,
    }


def table(reports: list[dict[str, Any]]) -> str:
    lines = [
        "| workload | ours, ms | of peak | onnxruntime | openvino | largest difference |",
        "|---|---|---|---|---|---|",
    ]
    for r in reports:
        share = f"{r['share_of_peak']:.0%}" if r["share_of_peak"] else ""
        ratios = " | ".join(f"{r['ratio'][name]:.2f}" for name in ("onnxruntime", "openvino"))
        ours = r["milliseconds"]["nacre"]
        lines.append(f"| {r['workload']} | {ours:.3f} | {share} | {ratios} | {r['largest_difference']:.1e} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="WORKLOAD")
    parser.add_argument("--checkpoint", type=Path, help="all-MiniLM-L6-v2")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    known = workloads(arguments.checkpoint)
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(known)}")
    probe = Probe()
    with TemporaryDirectory() as folder:
        reports = [compare(known[name](), Path(folder), arguments.rounds, probe) for name in arguments.names or known]
    packages = ("nacre", "onnxruntime", "openvino", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    text = f"{table(reports)}\n\nOne thread, {platform.machine()}, peak {probe.peak():.0f} GFLOP/s; {versions}.\n"
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text)
    if arguments.json:
        arguments.json.write_text(json.dumps(reports, indent=2))


if __name__ == "__main__":
    main()
