"""The calls for checking a complete model, and their admissible results.

There are few, small calls: each runs several times to estimate the rounding error. If a call takes long at all sizes of
the dims, there is only one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.dims import evaluate
from ...dialect.graph import Function, Module, walk
from ...dialect.interpreter import EndlessError, Interpreter, Load
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.remembered import KeptParameters, KeptResults
from ..lower.cost import count_operations
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
from .judge import MOST_ITERATIONS, PATIENCE, UNBOUNDED, Difference, Judge, ends, run_trial

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


def ending_trials(module: Module, trials: Sequence[Trial], load: Load) -> list[Trial]:
    """Returns the calls of a function in which every `while` ends. Raises DiagnosticError if there are none: then
    nothing can be compared."""
    ending = [trial for trial in trials if ends(module, trial, load)]
    if trials and not ending:
        function = module.function(trials[0].function)
        loop = next(node for node in walk(function.body) if node.op in UNBOUNDED)
        calls = "the call" if len(trials) == 1 else f"any of {len(trials)} calls"
        message = f"this `{loop.op}` does not end within {MOST_ITERATIONS} iterations in {calls}"
        help_text = (
            "`nacre test` compares results for arguments in the model file, and `nacre bisect --input` for others"
        )
        raise DiagnosticError([Diagnostic("endless-loop", message, loop.span, help=help_text)])
    return ending


def is_in_blocks(module: Module) -> bool:
    """Returns whether convolutions or transforms are computed in blocks, which spread NaN and round more than sums
    do."""
    nodes = (node for function in module.functions for node in walk(function.body))
    return any(node.op == "winograd_output" or OPERATORS[node.op].has("spreading") for node in nodes)


class Trials:
    """The trials of every function of a module, which is assumed to be correct."""

    def __init__(self, module: Module, load: Load) -> None:
        self.module, self.load = module, load
        sampled = (list(random_trials(function)) for function in module.functions)
        self.trials = [trial for trials in sampled for trial in ending_trials(module, trials, load)]
        self._judges: dict[tuple[int, bool], Judge] = {}
        self._kept, self._results = KeptParameters(), KeptResults()

    def first_trials(self) -> Iterator[Trial]:
        """Yields one ordinary call of each function."""
        for function in self.module.functions:
            yield next(trial for trial in self.trials if trial.function == function.name)

    def add(self, function: str, sizes: Iterable[Mapping[str, int]]) -> None:
        """Adds ordinary calls of a function."""
        known = [trial.dims for trial in self.trials if (trial.function, trial.kind) == (function, ORDINARY)]
        added = (random_trial(self.module.function(function), dims) for dims in sizes if dims not in known)
        self.trials += [trial for trial in added if ends(self.module, trial, self.load)]

    def judges(self, *, in_blocks: bool) -> Iterator[Judge]:
        """Yields a judge for each applicable trial, created on demand."""
        for number, trial in enumerate(self.trials):
            if in_blocks and trial.kind in UNUSUAL:
                continue
            key = number, in_blocks
            if key not in self._judges:
                self._judges[key] = Judge(self.module, trial, self.load, in_blocks=in_blocks, kept=self._kept)
            yield self._judges[key]

    def find_wrong(self, module: Module) -> Wrong | None:
        """Returns the first trial for which another module, run by the interpreter, has other results."""
        self._results.next_graph()
        return next((w for j in self.judges(in_blocks=is_in_blocks(module)) if (w := self.judge(j, module))), None)

    def judge(self, judge: Judge, module: Module) -> Wrong | None:
        most = PATIENCE * MOST_ITERATIONS
        interpreter = Interpreter(module, self.load, most_iterations=most, kept=self._kept, results=self._results)
        try:
            found = judge.difference(run_trial(interpreter, judge.trial))
        except EndlessError as error:
            found = Difference(0, f"is missing: {error.diagnostics[0].message}")
        return None if found is None else Wrong(judge.trial, found)

    def is_wrong(self, trial: Trial) -> Callable[[Module], bool]:
        """Returns a predicate: whether a module has other results in this trial."""

        def is_wrong(module: Module) -> bool:
            judges = self.judges(in_blocks=is_in_blocks(module))
            return any(self.judge(j, module) is not None for j in judges if j.trial is trial)

        return is_wrong
