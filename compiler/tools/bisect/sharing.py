"""Attempts in one child process: a fork for each would take longer than most attempts.

The child has the cases that are known when it is forked. A smaller case of a search is sent to it, if it is light and
its passes alone are tried: code that is wrong may damage the memory of the child, and with it later attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from ...validate.isolated import Died, Isolated, Progress
from .case import Case
from .failures import Compute, Examiner, Failure, failure_of

Found = TypeVar("Found")
_Question = tuple[int | Case, Examiner, Compute[Any]]
"""The number of the case or itself, who examines it, and how."""
_MOST_SENT = 1 << 20
"""The most bytes of data of a case that is sent to a child. A fork takes as long as some megabytes in a pipe."""


@contextmanager
def sharing(examiner: Examiner, cases: Sequence[Case]) -> Iterator[Examiner]:
    """Yields the same examiner, whose attempts at these cases share a child process until one of them ends it. The
    passes of other cases share it too, if these are light. Further attempts at other cases, and calls of an artifact in
    every way, have children of their own."""
    if isinstance(examiner, _Sharing) and all(map(examiner.shared.takes, cases)):
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
        self._isolated: Isolated[_Question, Any] = Isolated(self._attempt, seconds)
        self._generates_code = False

    def holds(self, case: Case) -> bool:
        return id(case) in self._numbers

    def takes(self, case: Case) -> bool:
        """Returns whether the child has the case, or can be sent it."""
        return self.holds(case) or case.bytes <= _MOST_SENT

    def attempt(self, case: Case, examiner: Examiner, compute: Compute[Found]) -> Found | Failure:
        found = self._isolated.ask((self._numbers.get(id(case), case), examiner, compute))
        return failure_of(found) if isinstance(found, Died) else found

    def generate_code(self, examiner: Examiner) -> None:
        """Prepares attempts that generate code: the child shares what is ready when it is forked."""
        if not self._generates_code:
            examiner.prepare_code()
            self._isolated.close()
            self._generates_code = True

    def close(self) -> None:
        self._isolated.close()

    def _attempt(self, question: _Question, report: Progress) -> Any:
        given, examiner, compute = question
        case = given if isinstance(given, Case) else self._cases[given]
        return examiner.attempt(case, compute, self._folder, report)


@dataclass(frozen=True)
class _Sharing(Examiner):
    shared: _Shared = field(kw_only=True, compare=False)

    def run(self, cases: Sequence[Case], compute: Compute[Found]) -> Iterator[Found | Failure]:
        needs_code = self.needs_code(compute)
        is_shared = all(map(self.shared.holds if needs_code else self.shared.takes, cases))
        if compute == self.call_in_ways or not is_shared:
            yield from super().run(cases, compute)
            return
        if needs_code:
            self.shared.generate_code(self)
        for case in cases:
            yield self.shared.attempt(case, self, compute)

    def __reduce__(self) -> tuple[Any, ...]:
        # The child needs the options alone.
        return Examiner, (self.options, self.seconds)
