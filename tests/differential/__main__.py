"""Random graphs against the reference interpreter: `python -m differential --seeds 0:2000`, from the folder `tests`.

Every failure is printed, and shrunk to a small graph that fails alike if `--shrink` is given. A file that this leaves
shows the failure again: `python -m differential --replay FILE`.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .check import Failure, check_graphs, interpret_graphs
from .generator import random_graph
from .maker import Graph
from .native import Level
from .shrink import Check, shrink
from .storage import describe, load_graph, save_graph

BATCH = 25


def _levels(text: str) -> list[Level]:
    parts = (part.partition("@") for part in text.split(","))
    return [Level(int(level), cpu or "native") for level, _, cpu in parts]


def _seeds(text: str) -> range:
    first, *rest = (int(part) for part in text.split(":"))
    return range(first, *rest) if rest else range(first, first + 1)


def _report(graph: Graph, failure: Failure, check: Check, folder: Path | None, attempts: int) -> None:
    print(f"FAILED {failure}", flush=True)
    if attempts:
        shrunk = shrink(graph, failure, check, attempts=attempts)
        graph, failure = shrunk.graph, shrunk.failure
        print(f"shrunk to: {failure}")
    print(describe(graph), flush=True)
    if folder is not None:
        path = save_graph(graph, failure, folder)
        print(f"again: python -m differential --replay {path} --levels {failure.level.text}", flush=True)


def run(
    batches: Sequence[Sequence[Graph]], levels: Sequence[Level], check: Check, folder: Path | None, attempts: int
) -> int:
    failed = 0
    for graphs in batches:
        by_name = {g.name: g for g in graphs}
        for level in levels:
            for failure in check(graphs, level):
                failed += 1
                _report(by_name[failure.name], failure, check, folder, attempts)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=_seeds, default=range(100), help="FIRST:LAST or FIRST:LAST:STEP, LAST left out")
    parser.add_argument("--levels", type=_levels, default=_levels("0,2"), help="such as 0,2,2@x86-64-v3")
    parser.add_argument("--passes", default="", help="graph passes, in place of those of the level")
    parser.add_argument("--interpret", action="store_true", help="compile nothing: interpret what the passes leave")
    parser.add_argument("--quick", action="store_true", help="leave out LLVM's optimisations")
    parser.add_argument("--replay", type=Path, help="a file of a failed graph")
    parser.add_argument("--shrink", type=int, default=0, metavar="N", help="attempts for each failure; 0: none")
    parser.add_argument("--save", type=Path, help="a folder for failed graphs")
    parser.add_argument("--print", action="store_true", help="print the graphs, and run nothing")
    options = parser.parse_args()
    # What numpy has to say about NaN is what is asked for.
    warnings.simplefilter("ignore")
    seeds = options.seeds
    batches = [[random_graph(s) for s in seeds[i : i + BATCH]] for i in range(0, len(seeds), BATCH)]
    if options.replay is not None:
        batches = [[load_graph(options.replay)]]
    if options.print:
        print("\n".join(describe(g) for graphs in batches for g in graphs))
        return 0
    start = time.monotonic()
    check = interpret_graphs if options.interpret else check_graphs
    levels = [replace(level, passes=options.passes, quick=options.quick) for level in options.levels]
    failed = run(batches, levels, check, options.save, options.shrink)
    count = sum(map(len, batches))
    print(f"{count} graphs at {', '.join(map(str, levels))}: {failed} failed, {time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
