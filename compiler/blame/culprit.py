"""Who is to blame: a rewrite of a pass, a kernel at a stage of code generation, or what puts kernels together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...dialect.diagnostics import Span
from ...passes.manager import Rewrite
from ..artifact.spec import OperationSpec


@dataclass(frozen=True, slots=True)
class Culprit:
    """`stage` is a pass, a stage of code generation, `plan-memory` or `entry`, which stands for all that puts kernels
    together; `what` says in a sentence what it does.

    `number` is the place of a pass among the passes, which may run more than once. `values` are what its results are
    called in the graph. Errors are the largest absolute ones of all results, without it and with it.
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

    @property
    def spans(self) -> tuple[Span, ...]:
        """The lines of the source that it is about, each once."""
        found = [self.rewrite.span] if self.rewrite is not None else [o.span for o in self.operations]
        return tuple(dict.fromkeys(span for span in found if span is not None))

    @property
    def places(self) -> list[str]:
        return [f"{span.file}:{span.line}" for span in self.spans]


def describe(culprit: Culprit) -> list[str]:
    """The lines of a report."""
    lines = [culprit.what]
    rewrite = culprit.rewrite
    if rewrite is not None:
        lines.append(f"  rewrite {rewrite.number}, rule `{rewrite.rule}`, of {rewrite.node}")
    if culprit.operations:
        lines.append(f"  it computes {', '.join(dict.fromkeys(o.op for o in culprit.operations))}")
    if culprit.places:
        lines.append(f"  at {', '.join(dict.fromkeys(culprit.places))}")
    if culprit.error_after is not None:
        before = "" if culprit.error_before is None else f"{culprit.error_before:.3g} before, "
        lines.append(f"  largest error: {before}{culprit.error_after:.3g} after")
    return lines


def culprit_data(culprit: Culprit) -> dict[str, Any]:
    """The same for other programs."""
    rewrite = culprit.rewrite
    return {
        "stage": culprit.stage,
        "number": culprit.number,
        "what": culprit.what,
        "rewrite": None
        if rewrite is None
        else {"number": rewrite.number, "rule": rewrite.rule, "node": rewrite.node, "scope": rewrite.scope},
        "kernel": culprit.kernel or None,
        "operations": [{"op": o.op, "scope": o.scope} for o in culprit.operations],
        "at": list(dict.fromkeys(culprit.places)),
        "error_before": culprit.error_before,
        "error_after": culprit.error_after,
    }
