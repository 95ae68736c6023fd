"""The calls that a whole model is tried with, and what each of them may give.

They are few and small: a model is run several times for each to find out what rounding does to it. Where a call would
take long whatever the sizes of the dims, there is one only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...dialect.dims import evaluate
from ...dialect.graph import Function, Module, walk
from ...dialect.interpreter import Interpreter, Load
from ..lower.cost import count_operations
from .inputs import (
    ORDINARY,
    OUTSIDE,
    SPECIAL,
    Trial,
    draw_dims,
    draw_large_dims,
    draw_trial,
    has_checked_indices,
)
from .judge import Difference, Judge, run_trial

MOST_OPERATIONS = 1 << 30
"""Of a call, if it is not to be the only one."""
MOST_OF_LARGE = 1 << 24
"""Of a call with large sizes."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A call with a result that it may not have."""

    trial: Trial
    difference: Difference


def draw_trials(function: Function) -> Iterator[Trial]:
    """Trials with ordinary numbers at odd sizes; with a NaN, an infinity, and an index out of range; and with ordinary
    numbers at the least sizes and at large ones, at which tensors may overlap in memory that do not when they are
    small."""
    sizes = draw_dims(function.symbols())
    chosen = [(sizes[0], ORDINARY, 0), (sizes[0], SPECIAL, 0), (sizes[0], SPECIAL, 1)]
    chosen += [(dims, ORDINARY, 0) for dims in sizes[1:2]]
    chosen += [(sizes[0], OUTSIDE, 0)] if has_checked_indices(function) else []
    operations = count_operations(function.body)
    for number, (dims, kind, seed) in enumerate(chosen):
        if number == 0 or evaluate(operations, dims) <= MOST_OPERATIONS:
            yield draw_trial(function, dims, kind, seed=seed)
    for dims in draw_large_dims(function.symbols())[:1]:
        if evaluate(operations, dims) <= MOST_OF_LARGE:
            yield draw_trial(function, dims)


def is_in_blocks(module: Module) -> bool:
    """Are convolutions computed in blocks, which spread NaN and round more than sums do?"""
    return any(node.op == "winograd_output" for function in module.functions for node in walk(function.body))


class Trials:
    """Those of every function of a module, which is taken to be right."""

    def __init__(self, module: Module, load: Load) -> None:
        self.module, self.load = module, load
        self.trials = [trial for function in module.functions for trial in draw_trials(function)]
        self._judges: dict[tuple[int, bool], Judge] = {}

    def judges(self, *, in_blocks: bool) -> Iterator[Judge]:
        """One for each trial that makes sense, made when it is asked for."""
        for number, trial in enumerate(self.trials):
            if in_blocks and trial.kind == SPECIAL:
                continue
            key = number, in_blocks
            if key not in self._judges:
                self._judges[key] = Judge(self.module, trial, self.load, in_blocks=in_blocks)
            yield self._judges[key]

    def find_wrong(self, module: Module) -> Wrong | None:
        """The first trial of which another module makes something else, as the interpreter runs it."""
        return next((w for j in self.judges(in_blocks=is_in_blocks(module)) if (w := self.judge(j, module))), None)

    def judge(self, judge: Judge, module: Module) -> Wrong | None:
        found = judge.difference(run_trial(Interpreter(module, self.load), judge.trial))
        return None if found is None else Wrong(judge.trial, found)

    def is_wrong(self, trial: Trial) -> Callable[[Module], bool]:
        """Whether a module makes something else of this one trial."""

        def is_wrong(module: Module) -> bool:
            judges = self.judges(in_blocks=is_in_blocks(module))
            return any(self.judge(j, module) is not None for j in judges if j.trial is trial)

        return is_wrong
