"""Bisects the rewrites of a pass for the first one that makes a result wrong."""

from __future__ import annotations

from collections.abc import Callable

from ...dialect.graph import Module
from ...passes.manager import Context, Pass, Rewrite


def first_wrong(count: int, is_wrong: Callable[[int], bool]) -> int:
    """Returns the least number from 1 to `count` that is wrong, given that 0 is correct and `count` is wrong.

    If correctness is not monotonic, returns one of the numbers at which it changes to wrong.
    """
    right, wrong = 0, count
    while wrong - right > 1:
        middle = (right + wrong) // 2
        if is_wrong(middle):
            wrong = middle
        else:
            right = middle
    return wrong


def run_limited(step: Pass, module: Module, limit: int | None = None) -> tuple[Module, list[Rewrite]]:
    """Runs the pass with at most `limit` rewrites; returns the module and the rewrites."""
    context = Context(limit)
    return step.run(module, context), context.rewrites


def find_rewrite(step: Pass, module: Module, is_wrong: Callable[[Module], bool]) -> Rewrite:
    """Returns the rewrite of the pass that makes a correct module wrong; the complete pass is known to do so."""
    _, rewrites = run_limited(step, module)
    number = first_wrong(len(rewrites), lambda limit: is_wrong(run_limited(step, module, limit)[0]))
    return run_limited(step, module, number)[1][-1]
