"""Reduces a failing case: first bisects for the failing part of the graph; then removes nodes and parameters and
reduces sizes one by one; finally replaces irrelevant numbers by ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ....dialect.graph import Module, walk
from ....dialect.types import Array
from . import smaller
from .case import Case
from .search import Search, Way

Weight = tuple[int, int, int]
Progress = Callable[[str], None]
Find = Callable[[Sequence[Case]], Case | None]
"""Returns the first of several cases with the required failure."""

_AT_ONCE = 8


def weigh(case: Case) -> Weight:
    """Returns the weight that reduction minimizes: nodes and results, then sizes, then tensors other than ones."""
    nodes = list(walk(case.function.body))
    stored = sum(n.op == "parameter" for n in nodes)
    types = [v.type for n in nodes for v in n.outputs] + [a.type for a in case.function.arguments]
    sizes = sum(sum(t.concrete(case.dims)) for t in types) + len(case.module.dims)
    arrays = [*case.arguments.values(), *case.parameters.values()]
    # A parameter costs more than another source of a tensor: a checkpoint must hold it.
    return (
        2 * (len(nodes) + len(case.function.results)) + stored,
        sizes,
        sum(not _are_ones(a) for a in arrays),
    )


def _are_ones(array: Array) -> bool:
    return bool((array == np.ones((), array.dtype)).all())


# --- ways to reduce a case ---


def _parts(make: Callable[[Module], Iterator[Module]]) -> Callable[[Case], Iterator[Case]]:
    """Converts a reduction of graphs to a reduction of cases."""

    def cut(case: Case) -> Iterator[Case]:
        for module in make(case.module):
            yield case.cut(module)

    return cut


def _fixed_dims(case: Case) -> Iterator[Case]:
    module = smaller.fixed_dims(case.module, case.dims)
    if module is not None:
        yield replace(case, module=module)


def _smaller_dims(case: Case) -> Iterator[Case]:
    for symbol in case.function.symbols():
        value, step = case.dims[symbol.name], symbol.multiple
        for less in smaller.smaller_values(value, step):
            if symbol.low <= less < value:
                found = case.cropped(case.module, {**case.dims, symbol.name: less})
                if found is not None:
                    yield found


def _smaller_sizes(case: Case) -> Iterator[Case]:
    for change in smaller.size_changes(case.module):
        module = smaller.resized(case.module, change)
        found = None if module is None else case.cropped(module, case.dims)
        if found is not None:
            yield found


def _plain_numbers(case: Case) -> Iterator[Case]:
    """Yields the case with each of the tensors replaced by ones."""
    for name, array in case.arguments.items():
        if not _are_ones(array):
            yield replace(case, arguments={**case.arguments, name: np.ones_like(array)})
    for name, array in case.parameters.items():
        if not _are_ones(array):
            yield replace(case, parameters={**case.parameters, name: np.ones_like(array)})


WAYS: tuple[Way[Case], ...] = (
    Way("one result", _parts(smaller.single_results), nested=True),
    Way("a later start", _parts(smaller.later_starts), nested=True),
    Way("one result", _parts(smaller.single_results)),
    Way("fewer nodes", _parts(smaller.values_as_arguments)),
    Way("nodes left out", _parts(smaller.bypassed_nodes)),
    Way("random parameters", _parts(smaller.made_up_parameters)),
    Way("smaller dims", _smaller_dims),
    Way("fixed dims", _fixed_dims),
    Way("smaller sizes", _smaller_sizes),
    Way("plain numbers", _plain_numbers),
)


def reduce_case(
    case: Case, find: Find, *, attempts: int, near: Collection[str] = (), report: Progress = lambda text: None
) -> Case:
    """Returns the smallest case found within the attempts that fails as `find` requires. The search starts at the
    values `near`."""
    plain = case.unrolled()
    if plain.nodes != case.nodes:
        case = find([plain]) or case
    case = _around(case, find, near) or case

    def reported(best: Case, way: str, left: int) -> None:
        report(f"{best.nodes} nodes are left; {way}: {left} more tries")

    return Search(weigh, find, attempts, _AT_ONCE, reported).run(case, WAYS)


def _around(case: Case, find: Find, near: Collection[str]) -> Case | None:
    """Returns the smallest failing neighbourhood."""
    for reach in (0, 1, 2, 4):
        module = smaller.around(case.module, near, reach)
        if module is None:
            return None
        found = find([case.cut(module)])
        if found is not None:
            return found
    return None
