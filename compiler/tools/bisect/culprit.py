"""The cause of an error: a rewrite of a pass, a kernel at a stage of code generation, or the combination of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....dialect.diagnostics import Span
from ....passes.manager import Rewrite
from ...artifact.spec import OperationSpec


@dataclass(frozen=True, slots=True)
class Culprit:
    """The cause of an error. `stage` is a pass, a stage of code generation, `plan-memory`, `runtime`, or `entry` for
    any other part that combines kernels; `what` describes the error in a sentence. `called` is the source location of
    the function that is called, if no operation of it is the cause.

    `number` is the position of a pass in the list of passes, from 1; the list may name a pass more than once. `values`
    are the names of its results in the graph. Errors are the maximum absolute errors of all results, without and with
    the cause.
    """

    stage: str
    what: str
    number: int | None = None
    rewrite: Rewrite | None = None
    kernel: str = ""
    operations: tuple[OperationSpec, ...] = ()
    values: tuple[str, ...] = ()
    error_before: float | None = None
    error_after: float | None = None
    called: Span | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        """The source locations of the cause, each once."""
        found = [self.rewrite.span] if self.rewrite is not None else [o.span for o in self.operations]
        return tuple(dict.fromkeys(span for span in (*found, self.called) if span is not None))

    @property
    def locations(self) -> list[str]:
        return [f"{span.file}:{span.line}" for span in self.spans]


def describe(culprit: Culprit) -> list[str]:
    """Returns the lines of a report."""
    lines = [culprit.what]
    rewrite = culprit.rewrite
    if rewrite is not None:
        lines.append(f"  rewrite {rewrite.number}, rule `{rewrite.rule}`, of {rewrite.node}")
    if culprit.operations:
        lines.append(f"  it computes {', '.join(dict.fromkeys(o.op for o in culprit.operations))}")
    if culprit.locations:
        lines.append(f"  at {', '.join(dict.fromkeys(culprit.locations))}")
    if culprit.error_after is not None:
        before = "" if culprit.error_before is None else f"{culprit.error_before:.3g} before, "
        lines.append(f"  largest error: {before}{culprit.error_after:.3g} after")
    return lines


def culprit_data(culprit: Culprit) -> dict[str, Any]:
    """Returns the cause as JSON data."""
    rewrite = culprit.rewrite
    return {
        "stage": culprit.stage,
        "number": culprit.number,
        "message": culprit.what,
        "rewrite": None
        if rewrite is None
        else {"number": rewrite.number, "rule": rewrite.rule, "node": rewrite.node, "scope": rewrite.scope},
        "kernel": culprit.kernel or None,
        "operations": [{"op": o.op, "scope": o.scope} for o in culprit.operations],
        "at": list(dict.fromkeys(culprit.locations)),
        "error_before": culprit.error_before,
        "error_after": culprit.error_after,
    }
