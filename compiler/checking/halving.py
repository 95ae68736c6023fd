"""Which of the changes that a pass makes is the first after which something is wrong."""

from __future__ import annotations

from collections.abc import Callable

from ...dialect.graph import Module
from ...passes.manager import Context, Pass, Rewrite


def first_wrong(count: int, is_wrong: Callable[[int], bool]) -> int:
    """The least number from 1 to `count` with which it is wrong, where it is right with 0 and wrong with `count`.

    If it is wrong, right and wrong again in between, one of the numbers at which it becomes wrong.
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
    """What the pass makes of the module with so many rewrites, and these."""
    context = Context(limit)
    return step.run(module, context), context.rewrites


def find_rewrite(step: Pass, module: Module, is_wrong: Callable[[Module], bool]) -> Rewrite:
    """The rewrite of the pass that makes a right module a wrong one; the pass as a whole is known to."""
    _, rewrites = run_limited(step, module)
    number = first_wrong(len(rewrites), lambda limit: is_wrong(run_limited(step, module, limit)[0]))
    return run_limited(step, module, number)[1][-1]
