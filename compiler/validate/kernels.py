"""Checks each kernel of a build alone, for every target that this machine runs, against the nodes that it computes:
with sizes 0, 1, odd and at the boundaries of its loops, ordinary and special numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...dialect.dims import evaluate
from ...dialect.graph import Function, Module, walk
from ...dialect.interpreter import Load
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ..codegen.objects import Program
from ..lower.cost import count_operations
from .alone import Alone, Part, Way, WrongPart, cut_kernels, find_stage
from .boundaries import random_reaching_dims, steps_of
from .inputs import (
    EDGES,
    ORDINARY,
    OUTSIDE,
    SPECIAL,
    Trial,
    has_checked_indices,
    random_dims,
    random_large_dims,
    random_trial,
)
from .passed import Passed, under_one_name

MOST_OPERATIONS = 1 << 28
"""Maximum operations of a call of a kernel, unless it is the only call."""
MOST_OF_LARGE = 1 << 24
"""Maximum operations of a call with large sizes, which has more elements to judge."""


@dataclass(frozen=True, slots=True)
class WrongKernel:
    """A kernel that is wrong, the stage that causes it, and the evidence."""

    found: WrongPart
    stage: str
    how: str


def random_trials(function: Function, steps: Sequence[int] = ()) -> Iterator[Trial]:
    """Yields trials with ordinary numbers at all sizes, then with a NaN, an infinity, rows and columns of edges, and an
    index out of range; then at sizes that reach main loops, on both sides of the boundaries of loops with these steps,
    and at the largest sizes of a short call."""
    sizes = random_dims(function.symbols())
    chosen = [(dims, ORDINARY, 0) for dims in sizes]
    if not any(OPERATORS[node.op].has("spreading") for node in walk(function.body)):
        chosen += [(sizes[0], SPECIAL, 0), (sizes[-1], SPECIAL, 1), (sizes[0], EDGES, 0), (sizes[0], EDGES, 1)]
    chosen += [(sizes[0], OUTSIDE, 0)] if has_checked_indices(function) else []
    operations = count_operations(function.body)
    for number, (dims, kind, seed) in enumerate(chosen):
        if number == 0 or evaluate(operations, dims) <= MOST_OPERATIONS:
            yield random_trial(function, dims, kind, seed=seed)
    for dims in random_large_dims(function.symbols()):
        if evaluate(operations, dims) <= MOST_OF_LARGE:
            yield random_trial(function, dims)
    for dims in random_reaching_dims(function, steps):
        yield random_trial(function, dims)


def find_wrong_kernel(
    module: Module, program: Program, way: Way, load: Load, passed: Passed | None = None
) -> WrongKernel | None:
    """Returns the first wrong kernel, in the order of calls. Kernels that passed the check before are left out."""
    passed = passed or Passed(None, load)
    cut = cut_kernels(module, program.lowered) if way.targets else []
    keys = {part.symbol: _key(part, program, way, passed) for part in cut}
    parts = [part for part in cut if not passed.has(keys[part.symbol])]
    steps = steps_of(program)

    def trials(part: Part) -> Iterator[Trial]:
        return random_trials(part.function, steps[part.symbol])

    found = Alone(parts, program, way, load, trials).find_wrong()
    if found is None:
        passed.add(keys[part.symbol] for part in parts)
        return None
    return WrongKernel(found, *find_stage(found, way, load))


def _key(part: Part, program: Program, way: Way, passed: Passed) -> str:
    if not passed.active:
        return ""
    made = [(target.name, kernels[part.symbol]) for target, kernels in program.kernels.items()]
    subject = [each for name, code in made for each in (name, code.code, repr(code.report))]
    return passed.key(under_one_name(part.module), "kernel", repr(way), *subject)
