"""Finds the rewrite that makes a case wrong: rewrites are numbered across passes, and their number is limited.

limit 0, 1, 2, 4: correct   limit 8: wrong   bisection: 5 correct, 6 wrong   ->   rewrite 6, and its pass
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from ....dialect.types import Array
from ....passes.manager import PassManager, Rewrite
from ....passes.pass_list import parse_pipeline
from ...options import Options
from ...validate.array_errors import absolute_errors
from ...validate.halving import first_wrong
from ...validate.isolated import Progress as Say
from ...validate.judge import Judge
from .case import Case
from .culprit import Culprit
from .failures import Answer, Examiner, Failure
from .sharing import sharing

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Step:
    """The last rewrite of a limited run, if any, and the number of the pass that the run reached."""

    rewrite: Rewrite | None
    number: int


def triage_rewrite(case: Case, examiner: Examiner, failure: Failure, report: Progress = lambda text: None) -> Culprit:
    """Returns the rewrite that causes the failure: the passes fail with it and not without it."""
    with sharing(examiner, [case]) as shared:
        return _triage_pass(case, shared, failure, _find_rewrite(case, shared, failure, report))


def _find_rewrite(case: Case, examiner: Examiner, failure: Failure, report: Progress) -> int:
    """Returns the number of the first rewrite with which the passes fail; 0 if they fail without any."""

    def is_wrong(limit: int) -> bool:
        return failure.is_like(examiner.limited(limit).passes(case))

    if is_wrong(0):
        return 0
    count = 1
    while not is_wrong(count):
        report(f"more than {count} rewrites are needed")
        count *= 2
    left = (count - 1).bit_length()

    def tried(limit: int) -> bool:
        nonlocal left
        report(f"halving {count} rewrites: {left} more tries")
        left -= 1
        return is_wrong(limit)

    return first_wrong(count, tried)


def _triage_pass(case: Case, examiner: Examiner, failure: Failure, number: int) -> Culprit:
    step = _look(case, examiner.limited(number))
    passes = parse_pipeline(examiner.options.pipeline)
    name = passes[step.number - 1].name
    does = "changes what is computed" if failure.difference is not None else f"fails: {failure.message}"
    which = f", number {step.number} of {len(passes)}," if [p.name for p in passes].count(name) > 1 else ""
    return Culprit(
        name,
        f"the pass `{name}`{which} {does}",
        step.number,
        step.rewrite,
        values=() if step.rewrite is None else step.rewrite.results,
        error_before=_error(case, examiner.limited(number - 1)) if number > 0 else None,
        error_after=_error(case, examiner.limited(number)),
    )


def _error(case: Case, examiner: Examiner) -> float | None:
    """Returns the largest error of the graph after the passes; None if it gives no results."""
    (answer,) = examiner.run([case], examiner.interpret)
    return largest_error(case.judge(in_blocks=answer.in_blocks), answer) if isinstance(answer, Answer) else None


def largest_error(judge: Judge, answer: Answer) -> float:
    def apart(actual: Array, expected: Array) -> float:
        return float(absolute_errors(actual, expected).max(initial=0.0)) if actual.shape == expected.shape else np.inf

    return max((apart(a, e.exact) for a, e in zip(answer.results, judge.expected, strict=True)), default=0.0)


def _look(case: Case, examiner: Examiner) -> _Step:
    """Runs the passes to find the last rewrite and pass that they reach."""
    (answer,) = examiner.run([case], partial(_run_passes, examiner.options))
    if isinstance(answer, _Step):
        return answer
    # A child that ends before its first message has reached no pass: the first one is next.
    return _Step(None, int(answer.origin) if answer.origin.isdecimal() else 1)


def _run_passes(options: Options, case: Case, say: Say) -> _Step:
    passes = parse_pipeline(options.pipeline)
    manager = PassManager(
        passes, rewrite_limit=options.rewrite_limit, watch=lambda stage: say(str(min(stage.number + 1, len(passes))))
    )
    with suppress(Exception):
        manager.run(case.module)
    rewrites = manager.context.rewrites
    counts = np.cumsum([stage.rewrites for stage in manager.stages])
    # The pass of the last rewrite, finished or not; without any rewrite, the next pass.
    reached = int(np.searchsorted(counts, len(rewrites))) if rewrites else len(manager.stages)
    last = rewrites[-1] if rewrites else None
    return _Step(last, max(1, min(reached, len(passes))))
