"""The tests that reach each mutant, and their times, recorded by a run with probes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Reach:
    """`seconds` has each recorded test; `reaching` the tests in which a mutant computes something else, by number;
    `failed` the tests that fail without a mutant, which kill none."""

    seconds: Mapping[str, float]
    reaching: Mapping[int, Sequence[str]]
    failed: frozenset[str] = frozenset()

    @staticmethod
    def read(path: Path) -> Reach:
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        seconds = {line["test"]: line["seconds"] for line in lines if line["test"]}
        failed = frozenset(line["test"] for line in lines if line.get("failed"))
        reaching: dict[int, list[str]] = {}
        for line in lines:
            for number in line["infected"] if line["test"] and line["test"] not in failed else ():
                reaching.setdefault(number, []).append(line["test"])
        return Reach(seconds, reaching, failed)

    def tests_of(self, number: int, near: Sequence[str], budget: float) -> list[str]:
        """Returns tests that reach a mutant, as many as fit into so many seconds: half of the time for those of the
        nearest files, and the rest for others, the shortest first."""
        tests = sorted(self.reaching.get(number, ()), key=lambda test: self.seconds[test])
        first = self._within([test for test in tests if test.split("::")[0] in near], budget / 2)
        rest = self._within([test for test in tests if test not in first], budget / 2)
        return [*first, *rest]

    def _within(self, tests: Sequence[str], budget: float) -> list[str]:
        chosen: list[str] = []
        for test in tests:
            budget -= self.seconds[test] + 0.02
            if budget < 0 and chosen:
                break
            chosen.append(test)
        return chosen

    def files_within(self, files: Sequence[str], budget: float) -> list[str]:
        """Returns as many of the files as fit into so many seconds, the shortest first; files that were not recorded
        are left out."""
        times: dict[str, float] = {}
        for test, seconds in self.seconds.items():
            file = test.split("::")[0]
            if file in files:
                times[file] = times.get(file, 0.0) + seconds
        chosen = []
        for file in sorted(times, key=times.__getitem__):
            budget -= times[file]
            if budget < 0:
                break
            chosen.append(file)
        return chosen
