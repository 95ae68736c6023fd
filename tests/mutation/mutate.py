"""Plants small faults, one at a time, and reports which of them no test notices.

    python tests/mutation/mutate.py --count 300 --seed 1 --minutes 120 --log mutants.jsonl

A mutant is killed if a test fails, does not end, or cannot begin. It survives if every circle of tests passes: the
nearest ones, those of the files, the quick ones, then models and operators. The log has a line for each mutant and is
read again, so that a run continues where an earlier one with the same seed ended. `--again` runs the survivors of a log
anew, for example after a test was added. The tree is copied: the checkout does not change.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock, local

import c_mutants
import python_mutants
from nearest import WIDER, nearest_tests
from python_mutants import Mutant

ROOT = Path(__file__).parents[2]
AREAS = ("passes", "compiler/lower", "compiler/codegen/tiler", "runtime", "compiler/readers")
ROOMS = ("compiler", "dialect", "passes", "runtime")


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


def find_mutants(path: Path) -> list[Mutant]:
    find = python_mutants.find_mutants if path.suffix == ".py" else c_mutants.find_mutants
    return find(path.read_text())


def choose(areas: Sequence[str], count: int, seed: int) -> list[tuple[str, Mutant]]:
    """Returns so many mutants, as many of each area, and in an area each place as likely as another."""
    chooser, chosen = random.Random(seed), []
    for number, area in enumerate(areas):
        paths = sorted(path for suffix in ("py", "c") for path in (ROOT / area).rglob(f"*.{suffix}"))
        found = [(str(path.relative_to(ROOT)), mutant) for path in paths for mutant in find_mutants(path)]
        share = count // len(areas) + (number < count % len(areas))
        chosen += chooser.sample(found, min(share, len(found)))
    chooser.shuffle(chosen)
    return chosen


class Tree:
    """A copy of the checkout, in which one mutant at a time is tested."""

    def __init__(self, folder: Path) -> None:
        self.root, self.view = folder / "tree", folder / "view"
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).exists():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        package = self.view / "nacre"
        package.mkdir(parents=True)
        for room in ROOMS:
            (package / room).symlink_to(self.root / room)
        for path in (self.root / "compiler" / "nacre").iterdir():
            (package / path.name).symlink_to(path)

    def judge(self, file: str, mutant: Mutant, limit: float) -> Verdict:
        """Runs the circles of tests until one fails, each for at most `limit` seconds."""
        path, begin = self.root / file, time.monotonic()
        original = path.read_text()
        killed_by, failure = "", ""
        try:
            path.write_text(mutant.apply(original))
            circles = [("nearest", [*nearest_tests(Path(file), self.root)]), *WIDER]
            for name, arguments in circles:
                failure = self.fails(arguments, limit) if arguments else ""
                if failure:
                    killed_by = name
                    break
        finally:
            path.write_text(original)
        seconds = round(time.monotonic() - begin, 1)
        return Verdict(file, mutant.kind, mutant.line, mutant.start, mutant.replacement, killed_by, failure, seconds)

    def fails(self, arguments: Sequence[str], limit: float) -> str:
        """Returns how the tests fail: the first failing one, or "time"; "" if they pass, or if all that ran within the
        limit did."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(self.view), "PYTHONDONTWRITEBYTECODE": "1"}
        with subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                # Dots say that tests go on passing; without one, the first test does not end.
                return "" if "." in output else "time"
        lines = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        if process.returncode in (0, 5):  # 5: no test was selected
            return ""
        return lines[0][:200] if lines else output.strip().splitlines()[-1][:200] if output.strip() else "it ended"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="mutants; default 300")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=120, help="start no further mutant after so many minutes")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a circle of tests; default 300")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="mutants that are tested at a time")
    parser.add_argument("--areas", nargs="+", default=AREAS, help=f"folders; default {' '.join(AREAS)}")
    parser.add_argument("--log", type=Path, default=Path("mutants.jsonl"), help="verdicts, one in a line")
    parser.add_argument("--again", action="store_true", help="test the survivors of the log once more")
    options = parser.parse_args()
    verdicts = read_log(options.log)
    if options.again:
        verdicts = {key: verdict for key, verdict in verdicts.items() if verdict.killed_by}
    wanted = choose(options.areas, options.count, options.seed)
    left = [(file, mutant) for file, mutant in wanted if (file, mutant.start, mutant.replacement) not in verdicts]
    end = time.monotonic() + 60 * options.minutes
    lock, trees = Lock(), local()

    with tempfile.TemporaryDirectory(prefix="nacre-mutants-") as folder, options.log.open("a") as log:

        def work(each: tuple[str, Mutant]) -> None:
            if time.monotonic() > end:
                return
            if not hasattr(trees, "tree"):
                trees.tree = Tree(Path(tempfile.mkdtemp(dir=folder)))
            verdict = trees.tree.judge(*each, options.limit)
            with lock:
                verdicts[(verdict.file, verdict.start, verdict.replacement)] = verdict
                log.write(json.dumps(asdict(verdict)) + "\n")
                log.flush()
                print(
                    f"{verdict.killed_by or 'SURVIVED':8}  {verdict.kind:10}  {verdict.file}:{verdict.line}", flush=True
                )

        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(work, left))
    summarize(list(verdicts.values()), len(wanted))


def read_log(path: Path) -> dict[tuple[str, int, str], Verdict]:
    """Returns the last verdict on each mutant."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [Verdict(**json.loads(line)) for line in lines]
    return {(verdict.file, verdict.start, verdict.replacement): verdict for verdict in found}


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
