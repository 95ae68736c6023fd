"""Attempts at the same cases in one child process: a fork for each would take longer than most attempts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

from ...validate.isolated import Died, Isolated, Progress
from .case import Case
from .failures import Answer, Compute, Examiner, Failure, failure_of

_Question = tuple[int, Examiner, Compute]
"""The number of the case, who examines it, and how."""


@contextmanager
def sharing(examiner: Examiner, cases: Sequence[Case]) -> Iterator[Examiner]:
    """Yields the same examiner, whose attempts at these cases share a child process until one of them ends it. Attempts
    at other cases, and calls of an artifact in every way, have children of their own."""
    if isinstance(examiner, _Sharing) and all(examiner.shared.holds(case) for case in cases):
        yield examiner
        return
    # A child that dies removes nothing, so the folder is its parent's.
    with (
        TemporaryDirectory(prefix="nacre-bisect-") as folder,
        closing(_Shared(cases, examiner.seconds, folder)) as shared,
    ):
        yield _Sharing(examiner.options, examiner.seconds, shared=shared)


class _Shared:
    """A child process for attempts at cases, which are numbered by their order."""

    def __init__(self, cases: Sequence[Case], seconds: float, folder: str) -> None:
        self._cases, self._folder = cases, folder
        self._numbers = {id(case): number for number, case in enumerate(cases)}
        self._isolated: Isolated[_Question, Answer | Failure | None] = Isolated(self._attempt, seconds)
        self._generates_code = False

    def holds(self, case: Case) -> bool:
        return id(case) in self._numbers

    def attempt(self, case: Case, examiner: Examiner, compute: Compute) -> Answer | Failure | None:
        found = self._isolated.ask((self._numbers[id(case)], examiner, compute))
        return failure_of(found) if isinstance(found, Died) else found

    def generate_code(self, examiner: Examiner) -> None:
        """Prepares attempts that generate code: the child shares what is ready when it is forked."""
        if not self._generates_code:
            examiner.prepare_code()
            self._isolated.close()
            self._generates_code = True

    def close(self) -> None:
        self._isolated.close()

    def _attempt(self, question: _Question, report: Progress) -> Answer | Failure | None:
        number, examiner, compute = question
        return examiner.attempt(self._cases[number], compute, self._folder, report)


@dataclass(frozen=True)
class _Sharing(Examiner):
    shared: _Shared = field(kw_only=True, compare=False)

    def run(self, cases: Sequence[Case], compute: Compute) -> Iterator[Answer | Failure | None]:
        if compute == self.call_in_ways or not all(self.shared.holds(case) for case in cases):
            yield from super().run(cases, compute)
            return
        if compute != self.interpret:
            self.shared.generate_code(self)
        for case in cases:
            yield self.shared.attempt(case, self, compute)

    def __reduce__(self) -> tuple[Any, ...]:
        # The child needs the options alone.
        return Examiner, (self.options, self.seconds)
