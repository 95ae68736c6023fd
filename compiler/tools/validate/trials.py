"""The calls for checking a complete model, and their admissible results.

There are few, small calls: each runs several times to estimate the rounding error. If a call takes long at all sizes of
the dims, there is only one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.dims import evaluate
from ....dialect.graph import Function, Module, walk
from ....dialect.interpreter import Interpreter, Load
from ...lower.cost import count_operations
from .inputs import (
    EDGES,
    ORDINARY,
    OUTSIDE,
    SPECIAL,
    UNUSUAL,
    Trial,
    has_checked_indices,
    random_dims,
    random_large_dims,
    random_trial,
)
from .judge import Difference, Judge, run_trial

MOST_OPERATIONS = 1 << 30
"""Maximum operations of a call, unless it is the only call."""
MOST_OF_LARGE = 1 << 24
"""Maximum operations of a call with large sizes."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A call with a result that is not admissible."""

    trial: Trial
    difference: Difference


def random_trials(function: Function) -> Iterator[Trial]:
    """Yields trials with ordinary numbers at odd sizes; with a NaN, an infinity, edges, and an index out of range; and
    with ordinary numbers at the least sizes and at large ones, at which tensors may overlap in memory that do not at
    small sizes."""
    sizes = random_dims(function.symbols())
    chosen = [(sizes[0], ORDINARY, 0), (sizes[0], SPECIAL, 0), (sizes[0], SPECIAL, 1)]
    chosen += [(sizes[0], EDGES, 0), (sizes[0], EDGES, 1)]
    chosen += [(dims, ORDINARY, 0) for dims in sizes[1:2]]
    chosen += [(sizes[0], OUTSIDE, 0)] if has_checked_indices(function) else []
    operations = count_operations(function.body)
    for number, (dims, kind, seed) in enumerate(chosen):
        if number == 0 or evaluate(operations, dims) <= MOST_OPERATIONS:
            yield random_trial(function, dims, kind, seed=seed)
    for dims in random_large_dims(function.symbols())[:1]:
        if evaluate(operations, dims) <= MOST_OF_LARGE:
            yield random_trial(function, dims)


def check_is_bounded(module: Module) -> None:
    """Raises DiagnosticError for a `while`. It may never end for random arguments, and its number of iterations depends
    on rounding, so that no error bound holds."""
    loops = [node for function in module.functions for node in walk(function.body) if node.op == "while"]
    tools = "`--check-passes`, `nacre bisect` and `nacre reduce`"
    message = f"{tools} cannot check a `while`, which may never end for random arguments"
    help_text = "`nacre test` compares the results of arguments in the model file"
    if loops:
        raise DiagnosticError([Diagnostic("unsupported", message, loop.span, help=help_text) for loop in loops])


def is_in_blocks(module: Module) -> bool:
    """Returns whether convolutions are computed in blocks, which spread NaN and round more than sums do."""
    return any(node.op == "winograd_output" for function in module.functions for node in walk(function.body))


class Trials:
    """The trials of every function of a module, which is assumed to be correct."""

    def __init__(self, module: Module, load: Load) -> None:
        check_is_bounded(module)
        self.module, self.load = module, load
        self.trials = [trial for function in module.functions for trial in random_trials(function)]
        self._judges: dict[tuple[int, bool], Judge] = {}

    def first_trials(self) -> Iterator[Trial]:
        """Yields one ordinary call of each function."""
        for function in self.module.functions:
            yield next(trial for trial in self.trials if trial.function == function.name)

    def add(self, function: str, sizes: Iterable[Mapping[str, int]]) -> None:
        """Adds ordinary calls of a function."""
        known = [trial.dims for trial in self.trials if (trial.function, trial.kind) == (function, ORDINARY)]
        self.trials += [random_trial(self.module.function(function), dims) for dims in sizes if dims not in known]

    def judges(self, *, in_blocks: bool) -> Iterator[Judge]:
        """Yields a judge for each applicable trial, created on demand."""
        for number, trial in enumerate(self.trials):
            if in_blocks and trial.kind in UNUSUAL:
                continue
            key = number, in_blocks
            if key not in self._judges:
                self._judges[key] = Judge(self.module, trial, self.load, in_blocks=in_blocks)
            yield self._judges[key]

    def find_wrong(self, module: Module) -> Wrong | None:
        """Returns the first trial for which another module, run by the interpreter, has other results."""
        return next((w for j in self.judges(in_blocks=is_in_blocks(module)) if (w := self.judge(j, module))), None)

    def judge(self, judge: Judge, module: Module) -> Wrong | None:
        found = judge.difference(run_trial(Interpreter(module, self.load), judge.trial))
        return None if found is None else Wrong(judge.trial, found)

    def is_wrong(self, trial: Trial) -> Callable[[Module], bool]:
        """Returns a predicate: whether a module has other results in this trial."""

        def is_wrong(module: Module) -> bool:
            judges = self.judges(in_blocks=is_in_blocks(module))
            return any(self.judge(j, module) is not None for j in judges if j.trial is trial)

        return is_wrong
