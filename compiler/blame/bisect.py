"""`nacre bisect`: who makes the numbers of a case wrong, and the smallest model that shows it.

The measure is the reference interpreter on the graph of the source. Passes are looked at before code: where they are
wrong, so is everything after them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .case import Case
from .code import blame_code
from .culprit import Culprit
from .failures import ALONE, PASSES, Examiner, Failure
from .reduce import Find, reduce_case
from .rewrites import blame_rewrite

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Found:
    """Who is to blame, how the case fails, and the smallest case that fails alike."""

    culprit: Culprit
    failure: Failure
    small: Case


def find_failing(cases: Sequence[Case], examiner: Examiner, tell: Tell) -> tuple[Case, Failure] | None:
    """The first case that fails; if none does, the first in which a kernel touches what is not its own."""
    for case in cases:
        tell("comparing what the passes leave with the source")
        failure = examiner.passes(case)
        if failure is None:
            tell("comparing the artifact with the source")
            failure = examiner.code(case)
        if failure is not None:
            return case, failure
    for case in cases:
        tell("running every kernel on watched memory")
        failure = examiner.alone(case)
        if failure is not None:
            return case, failure
    return None


def bisect(case: Case, failure: Failure, examiner: Examiner, *, seconds: float, tell: Tell) -> Found:
    """Blames, and makes small for so many seconds at most."""
    in_passes = failure.place == PASSES or examiner.passes(case) is not None
    culprit = (blame_rewrite if in_passes else blame_code)(case, examiner, failure, tell)
    alike = _alike_in_passes(examiner, failure, culprit) if in_passes else alike_in_code(examiner, failure)
    small = reduce_case(case, alike, seconds=seconds, near=culprit.values, tell=tell)
    return Found(culprit, failure, small)


def alike_in_passes(examiner: Examiner, failure: Failure) -> Find:
    """The first case whose passes fail as they did."""

    def find(cases: Sequence[Case]) -> Case | None:
        return next((case for case in cases if failure.is_like(examiner.passes(case))), None)

    return find


def alike_in_code(examiner: Examiner, failure: Failure) -> Find:
    """The first case whose code fails as it did."""
    compute = examiner.run_alone if failure.place == ALONE else examiner.compile_and_call

    def find(cases: Sequence[Case]) -> Case | None:
        failures = examiner.each(cases, compute, failure.place)
        return next((c for c, found in zip(cases, failures, strict=False) if failure.is_like(found)), None)

    return find


def _alike_in_passes(examiner: Examiner, failure: Failure, culprit: Culprit) -> Find:
    """The same, and the same rule of the same pass is to blame: a small graph may fail for another reason."""
    alike = alike_in_passes(examiner, failure)

    def find(cases: Sequence[Case]) -> Case | None:
        return next((c for c in cases if alike([c]) is not None and is_same(blame_rewrite(c, examiner, failure))), None)

    def is_same(other: Culprit) -> bool:
        rules = [None if c.rewrite is None else c.rewrite.rule for c in (culprit, other)]
        return culprit.stage == other.stage and rules[0] == rules[1]

    return find
