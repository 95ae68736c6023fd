"""Plants small faults, one at a time, and reports which of them no test notices.

    python tests/mutation/mutate.py --record --reach reach.jsonl
    python tests/mutation/mutate.py --count 300 --seed 1 --minutes 120 --log mutants.jsonl --reach reach.jsonl

The first command runs tests once, with a probe for each mutant, and records which tests reach which mutants. The second
plants each mutant. A mutant is killed if a test fails, does not end, or cannot begin. It survives if every circle of
tests passes: those that reach it, the shortest first, or the nearest files if none does; with `--wide` also the nearest
files, the files, the quick tests, models and operators. The log has a line for each mutant and is read again, so that a
run continues where an earlier one with the same seed ended. `--again` tests the survivors of a log once more, for
example after a test was added; `--at runtime/pool.c:141` tests all mutants of a line; `--since COMMIT` chooses among
lines that changed. Tests run on a copy of the checkout: the checkout does not change.

A circle of tests may use five times the CPU time that it uses without a mutant. A mutant with which it uses more, or
which stops it, is killed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from pathlib import Path

import c_mutants
import forks
import probes
import python_mutants
from nearest import SMALL, WIDER, nearest_tests
from python_mutants import Mutant
from reach import Reach
from tree import ROOT, Tree

AREAS = ("passes", "compiler/lower", "compiler/codegen/tiler", "runtime", "compiler/readers")
PYTEST = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=--strict-markers", "--tb=line"),
    # Its parent has imported the packages that plugins of pytest bring.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
SOUND = ("tests/mutation/test_mutants.py",)
"""Tests that pass without a mutant, unless tests cannot run at all."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A mutant of a file, and the circle of tests that killed it: "" if none did."""

    file: str
    kind: str
    line: int
    start: int
    replacement: str
    killed_by: str
    failure: str
    seconds: float

    @property
    def key(self) -> tuple[str, int, str]:
        return self.file, self.start, self.replacement


def candidates(path: Path) -> list[Mutant]:
    find = python_mutants.candidates if path.suffix == ".py" else c_mutants.find_mutants
    return find(path.read_text())


def choose(
    areas: Sequence[str], count: int, seed: int, lines: Mapping[str, AbstractSet[int]] | None = None
) -> list[tuple[str, Mutant]]:
    """Returns so many mutants, as many of each area, and in an area each place as likely as another. With `lines`, by
    file, mutants of other lines are not chosen."""
    chooser = random.Random(seed)
    chosen: list[tuple[str, Mutant]] = []
    for number, area in enumerate(areas):
        paths = sorted(path for suffix in ("py", "c") for path in (ROOT / area).rglob(f"*.{suffix}"))
        found = [(str(path.relative_to(ROOT)), mutant) for path in paths for mutant in candidates(path)]
        if lines is not None:
            found = [(file, mutant) for file, mutant in found if mutant.line in lines.get(file, ())]
        share = count // len(areas) + (number < count % len(areas))
        chooser.shuffle(found)
        valid = (each for each in found if is_valid(*each))
        chosen += itertools.islice(valid, share)
    chooser.shuffle(chosen)
    return chosen


def changed_lines(commit: str, areas: Sequence[str]) -> dict[str, set[int]]:
    """Returns the lines of the areas that differ from those of a commit, by file."""
    command = ("git", "diff", "-U0", "--no-color", commit, "--", *areas)
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: dict[str, set[int]] = {}
    file = ""
    for line in text.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif place := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(place[1]), int(place[2] or 1)
            found.setdefault(file, set()).update(range(first, first + count))
    return found


def mutants_at(places: Sequence[str]) -> list[tuple[str, Mutant]]:
    """Returns all mutants of lines, `FILE:LINE` each."""
    found = []
    for place in places:
        file, _, line = place.rpartition(":")
        found += [(file, mutant) for mutant in candidates(ROOT / file) if mutant.line == int(line)]
    return [each for each in found if is_valid(*each)]


def is_valid(file: str, mutant: Mutant) -> bool:
    return not file.endswith(".py") or python_mutants.parses(mutant.apply((ROOT / file).read_text()))


class Tester:
    """Runs tests on a copy of the checkout, one mutant at a time."""

    def __init__(self, folder: Path, reach: Reach) -> None:
        self.tree, self.folder, self.reach = Tree(folder), folder, reach
        self._sound: dict[tuple[str, ...], float] = {}

    def run(self, tests: Sequence[str], limit: float, *more: str, **variables: str) -> forks.Ending:
        left_out = [part for test in self.reach.failed for part in ("--deselect", test)]
        arguments = [*PYTEST, *left_out, "-p", "reach_cache", f"--basetemp={self.folder / 'run'}", *more, *tests]
        environment = {"PYTHONPATH": str(self.tree.view), "NACRE_SHARED_CACHE": str(self.tree.cache), **variables}
        return forks.run_pytest(arguments, self.tree.root, environment, limit, self.folder / "output")

    def require_sound(self) -> None:
        """Ends the program if tests fail without a mutant: every mutant would count as killed."""
        ending = self.run(SOUND, 120)
        if ending.status != 0:
            raise SystemExit(f"tests fail without a mutant:\n{ending.output[-2000:]}")

    def record(self, wanted: Sequence[tuple[str, Mutant]], log: Path, tests: Sequence[str], limit: float) -> None:
        """Runs the tests once with a probe for each mutant, and writes into `log` which tests reach which mutants."""
        numbered: dict[str, list[tuple[int, Mutant]]] = {}
        for number, (file, mutant) in enumerate(wanted):
            numbered.setdefault(file, []).append((number, mutant))
        texts = {file: (self.tree.root / file).read_text() for file in numbered if file.endswith(".py")}
        bytes_of_mutants = self.folder / "reached"
        bytes_of_mutants.write_bytes(bytes(len(wanted)))
        for file, text in texts.items():
            self.tree.write(file, probes.insert_probes(text, numbered[file])[0])
        variables = {"NACRE_REACHED": str(bytes_of_mutants), "NACRE_REACH_LOG": str(log)}
        ending = self.run(tests, limit, "-p", "reach_plugin", **variables)
        print("\n".join(ending.output.splitlines()[-30:]), f"\n{ending.seconds:.0f} seconds")
        for file, text in texts.items():
            self.tree.write(file, text)

    def limit_of(self, arguments: Sequence[str]) -> float:
        """The CPU time that tests may use with a mutant. Tests that were not recorded run once without one."""
        key = tuple(arguments)
        if key not in self._sound and all(test in self.reach.seconds for test in key):
            self._sound[key] = sum(self.reach.seconds[test] for test in key)
        elif key not in self._sound:
            ending = self.run(key, math.inf)
            if ending.failure:
                raise SystemExit(f"tests fail without a mutant:\n{ending.output[-2000:]}")
            self._sound[key] = ending.seconds
        return 20 + 5 * self._sound[key]

    def judge(self, file: str, mutant: Mutant, circles: Sequence[tuple[str, Sequence[str]]]) -> Verdict:
        """Runs the circles of tests until one fails."""
        limits = [self.limit_of(arguments) for _, arguments in circles]
        original = (self.tree.root / file).read_text()
        killed_by, failure, seconds = "", "", 0.0
        self.tree.write(file, mutant.apply(original))
        try:
            for (name, arguments), limit in zip(circles, limits, strict=True):
                ending = self.run(arguments, limit, "-x")
                failure, seconds = ending.failure, seconds + ending.seconds
                if failure:
                    killed_by = name
                    break
        finally:
            self.tree.write(file, original)
        return Verdict(
            file, mutant.kind, mutant.line, mutant.start, mutant.replacement, killed_by, failure, round(seconds, 1)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="mutants; default 300")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=120, help="start no further mutant after so many minutes")
    parser.add_argument("--budget", type=float, default=20, help="seconds of tests that reach a mutant; default 20")
    parser.add_argument("--areas", nargs="+", default=AREAS, help=f"folders; default {' '.join(AREAS)}")
    parser.add_argument("--only", nargs="+", default=("",), help="test the chosen mutants of these folders alone")
    parser.add_argument("--log", type=Path, default=Path("mutants.jsonl"), help="verdicts, one in a line")
    parser.add_argument("--reach", type=Path, default=Path("reach.jsonl"), help="which tests reach which mutants")
    parser.add_argument("--record", nargs="*", metavar="TESTS", help="write the file of --reach, from these tests")
    parser.add_argument("--tests", nargs="+", default=[], help="further tests for each mutant")
    parser.add_argument("--again", action="store_true", help="test the survivors of the log once more")
    parser.add_argument("--at", nargs="+", metavar="FILE:LINE", help="test all mutants of these lines, not chosen ones")
    parser.add_argument("--since", metavar="COMMIT", help="choose among the lines that changed since a commit")
    parser.add_argument("--wide", action="store_true", help="also run the files, the quick tests, models and operators")
    options = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    forks.prepare()
    lines = changed_lines(options.since, options.areas) if options.since else None
    wanted = mutants_at(options.at) if options.at else choose(options.areas, options.count, options.seed, lines)
    with tempfile.TemporaryDirectory(prefix="nacre-mutants-") as folder:
        tester = Tester(Path(folder), Reach.read(options.reach))
        tester.require_sound()
        if options.record is not None:
            tester.record(wanted, options.reach.resolve(), options.record or SMALL, 60 * options.minutes)
        else:
            test_all(tester, wanted, options)


def test_all(tester: Tester, wanted: Sequence[tuple[str, Mutant]], options: argparse.Namespace) -> None:
    verdicts = read_log(options.log)
    if options.again:
        verdicts = {key: verdict for key, verdict in verdicts.items() if verdict.killed_by}
    reach, end = tester.reach, time.monotonic() + 60 * options.minutes
    with options.log.open("a") as log:
        for number, (file, mutant) in enumerate(wanted):
            known = (file, mutant.start, mutant.replacement) in verdicts
            if known or time.monotonic() > end or not file.startswith(tuple(options.only)):
                continue
            near = nearest_tests(Path(file), tester.tree.root)
            circles = [("reaching", [] if options.at else reach.tests_of(number, near, options.budget))]
            if options.wide or not circles[0][1]:
                circles.append(("nearest", reach.files_within(near, 3 * options.budget)))
            if options.at and options.tests:
                circles = []
            circles += [("named", options.tests), *(WIDER if options.wide else ())]
            circles = [each for each in circles if each[1]]
            if not circles:
                print(f"UNTESTED  {mutant.kind:10}  {file}:{mutant.line}  no recorded test is near")
                continue
            verdict = tester.judge(file, mutant, circles)
            verdicts[verdict.key] = verdict
            log.write(json.dumps(asdict(verdict)) + "\n")
            log.flush()
            print(f"{verdict.killed_by or 'SURVIVED':8}  {verdict.kind:10}  {file}:{verdict.line}  {verdict.seconds}")
    summarize(list(verdicts.values()), len(wanted))


def read_log(path: Path) -> dict[tuple[str, int, str], Verdict]:
    """Returns the last verdict on each mutant."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [Verdict(**json.loads(line)) for line in lines]
    return {verdict.key: verdict for verdict in found}


def summarize(verdicts: Sequence[Verdict], wanted: int) -> None:
    killed = [verdict for verdict in verdicts if verdict.killed_by]
    print(f"\n{len(verdicts)} of {wanted} mutants tested, {len(killed)} killed")
    for name, number in Counter(verdict.killed_by for verdict in killed).most_common():
        print(f"  {number:4} by {name}")
    for verdict in verdicts:
        if not verdict.killed_by:
            text = (ROOT / verdict.file).read_text().splitlines()
            source = text[verdict.line - 1].strip() if verdict.line <= len(text) else ""
            print(f"survivor: {verdict.file}:{verdict.line}  {verdict.kind}: {verdict.replacement!r} in `{source}`")


if __name__ == "__main__":
    main()
