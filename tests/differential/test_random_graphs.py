"""Random graphs at -O0 and -O2 against the reference interpreter, a slice of them unless more are asked for.

Some run as code for x86-64-v3 too, which has no masks and no instructions for bf16. `NACRE_RANDOM_GRAPHS=2000` runs so
many of each. A failure shows the seed and a small graph that fails alike.
"""

from __future__ import annotations

import os
import warnings

import pytest

from .check import Failure, check_graphs
from .generator import random_graph
from .maker import Graph
from .native import Level
from .shrink import shrink
from .storage import describe

BATCH = 25
ASKED = int(os.environ.get("NACRE_RANDOM_GRAPHS", "0"))
# The default level is what changes most; the oracle is slower to build than it is likely to break.
COUNTS = {Level(2): ASKED or 125, Level(0): ASKED or 25, Level(2, "x86-64-v3", quick=True): ASKED or 25}
SLICES = [(level, first) for level, count in COUNTS.items() for first in range(0, count, BATCH)]
SHRINKING = 200
"""The attempts to shrink the first failure of a slice."""


def explain(graphs: list[Graph], failures: list[Failure]) -> str:
    first = failures[0]
    shrunk = shrink(next(g for g in graphs if g.name == first.name), first, check_graphs, attempts=SHRINKING)
    lines = [f"{len(failures)} of {len(graphs)} graphs fail", *map(str, failures), "the first one, shrunk:"]
    lines += [str(shrunk.failure), describe(shrunk.graph)]
    again = f"python -m differential --seeds {first.seed} --levels {first.level.text} --shrink 200"
    return "\n".join([*lines, f"again, in `tests`: {again}"])


@pytest.mark.parametrize(("level", "first"), SLICES, ids=lambda item: str(getattr(item, "text", item)))
def test_random_graphs(level: Level, first: int) -> None:
    graphs = [random_graph(seed) for seed in range(first, min(first + BATCH, COUNTS[level]))]
    with warnings.catch_warnings():
        # What numpy has to say about NaN is what is asked for.
        warnings.simplefilter("ignore")
        failures = check_graphs(graphs, level)
        assert not failures, explain(graphs, failures)
