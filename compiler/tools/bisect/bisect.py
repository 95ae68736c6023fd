"""`nacre bisect`: finds the cause of wrong results of a case, and the smallest model that shows the error.

The reference is the interpreter on the graph of the source. Passes are examined before code: an error in the passes
makes all later stages wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...validate.usage import RUNTIME
from .case import NO_STATES, Case, SessionStates
from .code import triage_code
from .culprit import Culprit
from .failures import ALONE, MEMORY, PASSES, Attempt, Examiner, Failure
from .reduce import Find, reduce_case
from .rewrites import triage_rewrite
from .sharing import sharing

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Found:
    """The cause of a failure, the failure, and the smallest case with the same failure; a case with states is the given
    one."""

    culprit: Culprit
    failure: Failure
    small: Case


def find_failing(
    cases: Sequence[Case],
    examiner: Examiner,
    report: Progress,
    kept: SessionStates = NO_STATES,
    further: Callable[[], Sequence[Case]] = tuple,
) -> tuple[Case, Failure] | None:
    """Returns the first case that fails; if none does, the first in which a kernel alone gives wrong numbers, or in
    which another way to call the runtime gives wrong results. `further` cases are asked for if no other one fails. The
    cases have the states of the function as arguments and results; if none of them fails, the first one is tried with
    states of a session, `kept`, and new and forked sessions are compared.

    Kernels run alone, on guarded memory, before the artifact: an access outside of a tensor may end the process in the
    artifact, or go unseen.
    """
    hidden: list[tuple[Case, Failure]] = []
    groups: tuple[Callable[[], Sequence[Case]], ...] = (lambda: cases, further)
    for find in groups:
        group = find()
        with sharing(examiner, group) as shared:
            failing = _first_failing(group, shared, report, hidden)
        if failing is not None:
            return failing
    if hidden:
        return hidden[0]
    for case in cases[:1] if kept.states else ():
        report("comparing the artifact with states in a session")
        stateful = case.with_states(kept)
        failure = examiner.code(stateful) or examiner.runtime(stateful)
        if failure is not None:
            return stateful, failure
    for case in cases[:1]:
        report("calling the artifact in every way")
        failure = examiner.runtime(case)
        if failure is not None:
            return case, failure
    return None


def _first_failing(
    cases: Sequence[Case], examiner: Examiner, report: Progress, hidden: list[tuple[Case, Failure]]
) -> tuple[Case, Failure] | None:
    """Returns the first case whose passes, kernels or artifact fail. Adds to `hidden` those in which a kernel alone
    gives wrong numbers, and the artifact does not."""
    for case in cases:
        report("comparing the graph after the passes with the source")
        failure = examiner.passes(case)
        if failure is None:
            report("running every kernel on guarded memory")
            alone = examiner.alone(case)
            if alone is not None and alone.kind == MEMORY:
                return case, alone
            report("comparing the artifact with the source")
            failure = examiner.code(case)
            if failure is None and alone is not None:
                hidden.append((case, alone))
        if failure is not None:
            return case, failure
    return None


def bisect(case: Case, failure: Failure, examiner: Examiner, *, attempts: int, report: Progress) -> Found:
    """Finds the cause of the failure, and reduces the case in at most `attempts` attempts."""
    with sharing(examiner, [case]) as shared:
        in_passes = failure.origin == PASSES or (failure.origin != RUNTIME and shared.passes(case) is not None)
        culprit = (triage_rewrite if in_passes else triage_code)(case, shared, failure, report)
        alike = _alike_in_passes(shared, failure, culprit) if in_passes else alike_in_code(shared, failure)
        # A smaller model with states would be another one: its states depend on each other.
        is_reduced = not case.function.states
        small = reduce_case(case, alike, attempts=attempts, near=culprit.values, report=report) if is_reduced else case
    return Found(culprit, failure, small)


def alike_in_passes(examiner: Examiner, failure: Failure) -> Find:
    """Returns a search for the first case whose passes fail in the same way."""

    def find(cases: Sequence[Case]) -> Case | None:
        with sharing(examiner, cases) as shared:
            return next((case for case in cases if failure.is_like(shared.passes(case))), None)

    return find


def alike_in_code(examiner: Examiner, failure: Failure) -> Find:
    """Returns a search for the first case whose code fails in the same way."""
    computes = {ALONE: examiner.run_alone, RUNTIME: examiner.call_in_ways}
    compute: Attempt = computes.get(failure.origin, examiner.compile_and_call)

    def find(cases: Sequence[Case]) -> Case | None:
        failures = examiner.each(cases, compute, failure.origin)
        return next((c for c, found in zip(cases, failures, strict=False) if failure.is_like(found)), None)

    return find


def _alike_in_passes(examiner: Examiner, failure: Failure, culprit: Culprit) -> Find:
    """Returns the same search, limited to the same rule of the same pass: a small graph may fail for another reason."""

    def find(cases: Sequence[Case]) -> Case | None:
        with sharing(examiner, cases) as shared:
            alike = (c for c in cases if failure.is_like(shared.passes(c)))
            return next((c for c in alike if is_same(triage_rewrite(c, shared, failure))), None)

    def is_same(other: Culprit) -> bool:
        rules = [None if c.rewrite is None else c.rewrite.rule for c in (culprit, other)]
        return culprit.stage == other.stage and rules[0] == rules[1]

    return find
