"""Each kernel of a build alone, for every target that this machine runs, against the nodes that it computes: with sizes
0, 1 and odd, ordinary and special numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...dialect.dims import evaluate
from ...dialect.graph import Function, Module
from ...dialect.interpreter import Load
from ..codegen.objects import Program
from ..lower.cost import count_operations
from .alone import Alone, Part, Way, WrongPart, cut_kernels, find_stage
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

MOST_OPERATIONS = 1 << 28
"""Of a call of a kernel, if it is not to be the only one."""
MOST_OF_LARGE = 1 << 24
"""Of a call with large sizes, of which there are more elements to judge."""


@dataclass(frozen=True, slots=True)
class WrongKernel:
    """A kernel that is wrong, the stage that made it so, and how that is known."""

    found: WrongPart
    stage: str
    how: str


def draw_trials(function: Function) -> Iterator[Trial]:
    """Trials with ordinary numbers at all sizes, then with a NaN, an infinity, and an index out of range; then at sizes
    that reach main loops."""
    sizes = draw_dims(function.symbols())
    chosen = [(dims, ORDINARY, 0) for dims in sizes]
    chosen += [(sizes[0], SPECIAL, 0), (sizes[-1], SPECIAL, 1)]
    chosen += [(sizes[0], OUTSIDE, 0)] if has_checked_indices(function) else []
    operations = count_operations(function.body)
    for number, (dims, kind, seed) in enumerate(chosen):
        if number == 0 or evaluate(operations, dims) <= MOST_OPERATIONS:
            yield draw_trial(function, dims, kind, seed=seed)
    for dims in draw_large_dims(function.symbols()):
        if evaluate(operations, dims) <= MOST_OF_LARGE:
            yield draw_trial(function, dims)


def _trials_of(part: Part) -> Iterator[Trial]:
    return draw_trials(part.function)


def find_wrong_kernel(module: Module, program: Program, way: Way, load: Load) -> WrongKernel | None:
    """The first kernel, in the order of calls, that is wrong."""
    parts = cut_kernels(module, program.lowered) if way.targets else []
    found = Alone(parts, program, way, load, _trials_of).find_wrong()
    return None if found is None else WrongKernel(found, *find_stage(found, way, load))
