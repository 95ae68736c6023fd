"""The backend tests of the package `onnx`, through the reader, -O2 and calls of artifacts.

    python tests/onnx/suite.py                         all tests; compares with results.txt, 1 if a passed test is lost
    python tests/onnx/suite.py --only 'resize|conv'  some of them
    python tests/onnx/suite.py --update              writes results.txt; with --only, the results of these tests alone

`results.txt` lists every test: those that pass, and the others by the kind of their failure, each with its reason. A
test passes if a compiled entry, called with the inputs of the test, gives the expected dtypes, shapes and numbers.
Where arguments decide shapes or are no tensors, their values or contents are stated to the reader; the list names them.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from backend_cases import BackendCase, DataSet, all_cases
from batches import Outcome, ReadCase, can_be_united, run_batch
from nacre.compiler.model.source import SourceModel
from nacre.compiler.readers.onnx.onnx_model import read_proto
from nacre.dialect.diagnostics import Diagnostic, DiagnosticError

RESULTS = Path(__file__).with_name("results.txt")
_BATCH = 32
_TIME_LIMIT = 60.0


def read_case(case: BackendCase) -> ReadCase | Outcome:
    """Reads the model of a test; if arguments decide shapes, or are no tensors, with statements about them."""
    model, sets = case.load()

    def read(settings: dict[str, Any]) -> SourceModel | Diagnostic:
        try:
            return read_proto(model, case.name.split("/")[1], "model.onnx", None, settings=settings)
        except DiagnosticError as error:
            return error.diagnostics[0]

    settings: dict[str, Any] = {}
    made = first = read(settings)
    if isinstance(made, Diagnostic) and made.code in ("data-dependent", "unsupported-type"):
        settings = statements(model, sets[0])
        made = read(settings)
        # As few arguments as possible are stated.
        for argument in list(settings):
            fewer = {name: value for name, value in settings.items() if name != argument}
            found = read(fewer)
            if isinstance(made, SourceModel) and isinstance(found, SourceModel):
                made, settings = found, fewer
    if isinstance(made, SourceModel):
        return ReadCase(case, made, sets, tuple(settings))
    assert isinstance(first, Diagnostic)
    return Outcome(case.name, first.code, " ".join(first.message.split())[:200])


def statements(model: onnx.ModelProto, data: DataSet) -> dict[str, Any]:
    """Returns the settings that state vectors of integers, scalars, sizes with a name, and the content of arguments
    that are no tensors."""
    stored = {each.name for each in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in stored]
    found: dict[str, Any] = {}
    for argument, value in zip(inputs, data.inputs, strict=True):
        if not argument.type.HasField("tensor_type"):
            shapes = [list(np.shape(item)) for item in value] if isinstance(value, list) else value is not None or None
            found[argument.name] = shapes
        elif np.asarray(value).dtype == object:
            continue
        elif np.ndim(value) == 0 or (np.ndim(value) == 1 and np.asarray(value).dtype.kind in "iu"):
            found[argument.name] = np.asarray(value).tolist()
    for argument, value in zip(inputs, data.inputs, strict=True):
        if argument.type.HasField("tensor_type"):
            for dim, size in zip(argument.type.tensor_type.shape.dim, np.shape(value), strict=False):
                if dim.dim_param:
                    found[dim.dim_param] = size
    return found


def run_cases(
    cases: Iterable[BackendCase], report: Callable[[Sequence[Outcome]], None] = lambda outcomes: None
) -> list[Outcome]:
    """Runs tests in batches and returns their outcomes."""
    outcomes: list[Outcome] = []
    waiting: list[ReadCase] = []
    with tempfile.TemporaryDirectory(prefix="onnx-suite-") as name:

        def run(batch: Sequence[ReadCase]) -> None:
            if batch:
                done = run_batch(batch, Path(name), _TIME_LIMIT)
                outcomes.extend(done)
                report(done)

        for case in cases:
            read = read_case(case)
            if isinstance(read, Outcome):
                outcomes.append(read)
                report([read])
            elif not can_be_united(read):
                run([read])
            else:
                waiting.append(read)
                if len(waiting) == _BATCH:
                    run(waiting)
                    waiting = []
        run(waiting)
    return outcomes


def format_results(outcomes: Sequence[Outcome]) -> str:
    """Returns the text of results.txt."""
    counts = Counter(outcome.kind for outcome in outcomes)
    kinds = ["pass", *sorted(kind for kind in counts if kind != "pass")]
    lines = [f"# {len(outcomes)} tests: " + ", ".join(f"{counts[kind]} {kind}" for kind in kinds)]
    for kind in kinds:
        lines += ["", f"[{kind}] {counts[kind]}"]
        for outcome in outcomes:
            if outcome.kind == kind:
                lines.append(f"{outcome.name}  {outcome.reason}".rstrip())
    return "\n".join(lines) + "\n"


def read_outcomes(text: str) -> dict[str, Outcome]:
    """Returns the listed outcome of each test, by its name."""
    outcomes: dict[str, Outcome] = {}
    kind = ""
    for line in text.splitlines():
        if line.startswith("["):
            kind = line[1 : line.index("]")]
        elif line and not line.startswith("#"):
            name, _, reason = line.partition("  ")
            outcomes[name] = Outcome(name, kind, reason)
    return outcomes


def read_results(text: str) -> dict[str, str]:
    """Returns the kind of each listed test, by its name."""
    return {name: outcome.kind for name, outcome in read_outcomes(text).items()}


def find_lost(outcomes: Sequence[Outcome], listed: dict[str, str]) -> list[Outcome]:
    """Returns the outcomes of tests that passed and do not any more."""
    return [outcome for outcome in outcomes if outcome.kind != "pass" and listed.get(outcome.name) == "pass"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression that a name must contain")
    parser.add_argument("--update", action="store_true", help="write results.txt")
    chosen = parser.parse_args(arguments)
    start = time.time()
    done = 0

    def report(outcomes: Sequence[Outcome]) -> None:
        nonlocal done
        done += len(outcomes)
        for outcome in outcomes:
            print(f"{outcome.kind:20} {outcome.name}  {outcome.reason}".rstrip(), flush=True)
        print(f"... {done} after {time.time() - start:.0f} s", file=sys.stderr, flush=True)

    cases = all_cases()
    outcomes = run_cases((case for case in cases if re.search(chosen.only, case.name)), report)
    print(Counter(outcome.kind for outcome in outcomes).most_common())
    listed = read_outcomes(RESULTS.read_text()) if RESULTS.exists() else {}
    if chosen.update:
        known = listed | {outcome.name: outcome for outcome in outcomes}
        RESULTS.write_text(format_results([known[case.name] for case in cases if case.name in known]))
        return 0
    lost = find_lost(outcomes, {name: outcome.kind for name, outcome in listed.items()})
    for outcome in lost:
        print(f"lost: {outcome.name}: {outcome.kind}: {outcome.reason}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
