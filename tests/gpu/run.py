"""Checks and times the code for GPUs on a machine that has one, where the compiler is not.

    python tests/gpu/run.py pack FOLDER      here: builds artifacts, inputs and expected results
    python FOLDER/run.py run RESULTS         there: needs Python and NumPy, and the folder; writes tables to RESULTS

The second command exits with status 1 if a check fails, and with status 2 if some were not run, since the time that
`--minutes` gives was over: the report lists them.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chip.cases import DATA, read_index, unpack_data
from chip.driver import Driver, device_number
from chip.records import DeviceLostError, append_record
from chip.report import count_not_run, describe, write_report
from chip.stages import LOST, SHARES, Run, run_checks, run_part

HERE = Path(__file__).resolve().parent


def pack(arguments: argparse.Namespace) -> int:
    packing = importlib.import_module("packing")
    amount = packing.Amount(arguments.graphs, arguments.everything, arguments.quick)
    made = packing.pack_all(arguments.folder, amount, jobs=arguments.jobs)
    size = sum(path.stat().st_size for path in arguments.folder.rglob("*") if path.is_file())
    cases = sum(len(each.cases) for each in made.packed)
    print("\n".join(made.estimate))
    print(f"{cases} cases in {len(made.packed)} artifacts, {size / 2**20:.1f} MiB; {len(made.refused)} are refused")
    for name, reason in made.refused.items():
        print(f"  {name}: {reason}")
    for name, reason in made.failed.items():
        print(f"{name} is not packed: {reason}")
    if size > arguments.most_mib * 2**20:
        print(f"error: the folder has more than the {arguments.most_mib:g} MiB that --most-mib allows", file=sys.stderr)
    return 1 if made.failed or size > arguments.most_mib * 2**20 else 0


def run(arguments: argparse.Namespace) -> int:
    begin = time.monotonic()
    if arguments.driver:
        os.environ["NACRE_CUDA_DRIVER"] = str(arguments.driver.resolve())
    device = Driver().open(device_number(arguments.device))
    parts = arguments.results / "parts"
    if parts.exists():
        shutil.rmtree(parts)
    parts.mkdir(parents=True)
    stages: list[dict[str, Any]] = []
    results: dict[str, Any] = {"device": asdict(device), "stages": stages}

    def tell(stage: dict[str, Any]) -> None:
        """Writes the report after every stage, since the run may be ended from outside."""
        failed, passed = len(stage["failures"]), stage["cases"]
        left = f"{stage['not_run']} not run, " if stage["not_run"] else ""
        print(f"{stage['stage']}: {passed} cases, {failed} failures, {left}{stage['seconds']} s", flush=True)
        stages.append(stage)
        results["seconds"] = round(time.monotonic() - begin, 1)
        write_report(arguments.results, results)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        data = Path(temporary)
        unpack_data(HERE / DATA, data)
        results["refused"] = read_index(data)["refused"]
        deadline = begin + 60 * arguments.minutes
        whole = Run(HERE / "run.py", data, parts, arguments.device, arguments.jobs, deadline, arguments.part_seconds)
        run_checks(whole, arguments.stages.split(","), tell)
    print("\n".join(describe(results)))
    if any(stage["failures"] for stage in stages):
        return 1
    return 2 if count_not_run(results) else 0


def part(arguments: argparse.Namespace) -> int:
    given = arguments.data, arguments.part, arguments.name, arguments.device, arguments.deadline, arguments.first
    try:
        for record in run_part(*given):
            append_record(arguments.records, record)
    except DeviceLostError:
        return LOST
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    packing = commands.add_parser("pack", help="build what travels, where the compiler is")
    packing.add_argument("folder", type=Path)
    packing.add_argument("--graphs", type=int, default=1000, help="random graphs")
    packing.add_argument("--everything", action="store_true", help="all cases of operators in all dtypes")
    packing.add_argument("--quick", action="store_true", help="a few cases, for a device in C")
    packing.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="artifacts that are made at a time")
    packing.add_argument("--most-mib", type=float, default=60, help="the size of the folder that is still a success")
    packing.set_defaults(action=pack)
    running = commands.add_parser("run", help="check the folder that this file is in")
    running.add_argument("results", type=Path, help="the folder for the tables")
    running.add_argument("--driver", type=Path, help="a library in place of the CUDA driver")
    running.add_argument("--device", default="cuda:0")
    running.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1), help="processes at a time")
    running.add_argument("--minutes", type=float, default=7.5, help="the time after which no check begins")
    running.add_argument("--part-seconds", type=float, default=120, help="the time of an artifact")
    running.add_argument("--stages", default=",".join(SHARES))
    running.set_defaults(action=run)
    inner = commands.add_parser("part", help="one artifact, in the process that `run` starts for it")
    inner.add_argument("part")
    inner.add_argument("name")
    inner.add_argument("data", type=Path)
    inner.add_argument("records", type=Path)
    inner.add_argument("--first", type=int, default=0)
    inner.add_argument("--device", default="cuda:0")
    inner.add_argument("--deadline", type=float, default=float("inf"))
    inner.set_defaults(action=part)
    arguments = parser.parse_args()
    return int(arguments.action(arguments))


if __name__ == "__main__":
    sys.exit(main())
