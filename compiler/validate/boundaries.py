"""Sizes on both sides of the boundaries at which code or memory changes.

A loop with a step of 64 runs its first full iteration at size 64. At size 65, it leaves one element to the remainder
loop:

    steps 8, 64; x: f32[B, T]      T = 7, 8, 9, 63, 64, 65, and B likewise

The tiler reports the steps of each kernel (`codegen/workers/job.py`). A memory plan has boundaries too: sizes at which
two tensors are exchanged in the order of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations, islice

from ...dialect.dims import Size, Symbol, evaluate, product, symbols
from ...dialect.graph import Function, Value, walk
from ...dialect.remembered import by_identity
from ...dialect.requirements import call_requirements
from ..codegen.objects import Program
from ..lower.cost import count_operations
from .inputs import nearest_size

_MOST_OPERATIONS = 1 << 22
_MOST_BYTES = 1 << 22
"""Maximum bytes of a call: some milliseconds of work."""
_MOST_SIZES = 24
"""Maximum number of sizes of each dim of a kernel at which another extent is near a step."""
_MOST_WORK = 1 << 25
"""Maximum operations, and maximum bytes, of all calls at the boundaries of a kernel."""
_MOST_CROSSINGS = 8
_LARGEST = 1 << 16
_SMALL = 3


def steps_of(program: Program) -> dict[str, tuple[int, ...]]:
    """Returns the steps of each kernel's loops, for all targets."""
    found: dict[str, set[int]] = {}
    for kernels in program.kernels.values():
        for symbol, code in kernels.items():
            found.setdefault(symbol, set()).update(code.report.steps)
    return {symbol: tuple(sorted(steps)) for symbol, steps in found.items()}


def random_boundary_dims(function: Function, steps: Collection[int]) -> list[dict[str, int]]:
    """Returns sizes just below, at and just above all steps, for each dim, and for other extents that depend on dims
    with a limited number of further sizes. All dims vary together if the call stays short, otherwise one at a time. A
    limit of work bounds all calls together, so that the sizes do not depend on the load of the machine."""
    small = _small(function)
    extents = _extents(function)
    sizes: dict[Symbol, tuple[int, ...]] = {}
    for s in function.symbols():
        own = _sizes_at(s, [s.size], sorted(steps), small)
        others = (n for n in _sizes_at(s, extents, sorted(steps), small) if n not in own)
        sizes[s] = (*own, *islice(others, _MOST_SIZES))
    sampled: list[dict[str, int]] = []
    for number in range(max(map(len, sizes.values()), default=0)):
        # Shifted, so that not all dims are at the same step.
        chosen = {s.name: v[(number + 4 * i) % len(v)] for i, (s, v) in enumerate(sizes.items()) if v}
        together = {**small, **chosen}
        apart = [{**small, name: value} for name, value in chosen.items()]
        sampled += [together] if is_short(function, together) else [dims for dims in apart if is_short(function, dims)]
    return _within(function, _unique(sampled), _MOST_WORK)


def random_reaching_dims(function: Function, steps: Collection[int]) -> list[dict[str, int]]:
    """Returns the sizes at the boundaries of loops with these steps, then the largest sizes of a short call; none for a
    function without dims."""
    largest = random_largest_dims(function) if function.symbols() else None
    return [*random_boundary_dims(function, steps), *([largest] if largest is not None else [])]


def random_crossing_dims(function: Function, planned: Function) -> list[dict[str, int]]:
    """Returns sizes of the dims on both sides of each point where the order of tensor sizes in `planned` changes.
    `function` has the same dims; its calls must stay short."""
    small = _small(function)
    sizes = [s for s in dict.fromkeys(v.type.bytes for v in _values(planned)) if not isinstance(s, int)]
    sampled: list[dict[str, int]] = []
    for left, right in combinations(sizes, 2):
        for symbol in symbols(left) | symbols(right):
            at = _crossing(symbol, left, right, small)
            if at is not None:
                sampled += [{**small, symbol.name: each} for each in _beyond(symbol, at)]
    return [dims for dims in _unique(sampled) if is_short(function, dims, 4)][:_MOST_CROSSINGS]


def _beyond(symbol: Symbol, at: int) -> tuple[int, ...]:
    """Returns values with the other order: directly at the boundary, and well beyond."""
    return nearest_size(symbol, at + 1), nearest_size(symbol, 2 * at)


def random_largest_dims(function: Function) -> dict[str, int] | None:
    """Returns the largest sizes of a short call, by doubling the dims in turn; None if no call is short."""
    dims = {s.name: nearest_size(s, 1) for s in function.symbols()}
    if not is_short(function, dims):
        return None
    grows = True
    while grows:
        grows = False
        for symbol in function.symbols():
            larger = {**dims, symbol.name: nearest_size(symbol, 2 * dims[symbol.name] + 1)}
            if larger != dims and is_short(function, larger):
                dims, grows = larger, True
    return dims


def is_short(function: Function, dims: Mapping[str, int], times: int = 1) -> bool:
    """Returns whether a call with these sizes takes some milliseconds at most, or `times` times as much. A call with a
    size that does not fit in 64 bits is refused, and not short. Negative extents are raised when a trial is made."""
    operations, bytes = _work(function, dims)
    if operations > times * _MOST_OPERATIONS or bytes > times * _MOST_BYTES:
        return False
    return all(requirement.extent or requirement.holds(dims) for requirement in call_requirements(function))


def _work(function: Function, dims: Mapping[str, int]) -> tuple[int, int]:
    """Returns the operations and the bytes of a call."""
    operations, sizes = _costs(function)
    return evaluate(operations, dims), sum(evaluate(size, dims) for size in sizes)


@by_identity
def _costs(function: Function) -> tuple[Size, tuple[Size, ...]]:
    """Returns the operations of a function, and the bytes of each of its tensors."""
    return count_operations(function.body), tuple(v.type.bytes for v in _values(function))


def _within(function: Function, sampled: Iterable[dict[str, int]], most: int) -> list[dict[str, int]]:
    """Returns sizes whose calls together stay within a limit of operations and of bytes: those that still fit, in their
    order."""
    kept, operations, bytes = [], 0, 0
    for dims in sampled:
        work = _work(function, dims)
        if operations + work[0] <= most and bytes + work[1] <= most:
            operations, bytes = operations + work[0], bytes + work[1]
            kept.append(dims)
    return kept


def _values(function: Function) -> list[Value]:
    return [*function.arguments, *(v for node in walk(function.body) for v in node.outputs)]


def _small(function: Function) -> dict[str, int]:
    return {s.name: nearest_size(s, _SMALL) for s in function.symbols()}


def _unique(sampled: Iterable[dict[str, int]]) -> list[dict[str, int]]:
    return list({tuple(sorted(dims.items())): dims for dims in sampled}.values())


def _extents(function: Function) -> list[Size]:
    """Returns the extents that loops may have: axes, with bare dims before expressions, the elements of tensors, and
    the elements of neighbouring axes, which the tiler merges into one loop."""
    shapes = list(dict.fromkeys(v.type.shape for v in _values(function)))
    axes = sorted({s for shape in shapes for s in shape if not isinstance(s, int)}, key=lambda s: len(str(s)))
    runs = [shape[i:j] for shape in shapes for i, j in combinations(range(len(shape) + 1), 2) if j - i > 1]
    return list(dict.fromkeys([*axes, *(product(shape) for shape in shapes), *map(product, runs)]))


def _sizes_at(
    symbol: Symbol, extents: Sequence[Size], steps: Sequence[int], small: Mapping[str, int]
) -> tuple[int, ...]:
    """Returns values of the symbol at which one of the extents is near one of the steps."""
    found: dict[int, None] = {}
    for extent in extents:
        if symbol in symbols(extent):
            for step in steps:
                at = _least(symbol, _reaches(extent, symbol, small, step))
                if at is not None:
                    near = (at - symbol.multiple, at, at + symbol.multiple)
                    found |= {n: None for n in near if symbol.low <= n <= symbol.high}
    return tuple(found)


def _reaches(extent: Size, symbol: Symbol, small: Mapping[str, int], step: int) -> Callable[[int], bool]:
    return lambda value: evaluate(extent, {**small, symbol.name: value}) >= step


def _crossing(symbol: Symbol, left: Size, right: Size, small: Mapping[str, int]) -> int | None:
    """Returns the least value from which on the order of the two sizes differs from that at the smallest value."""

    def order(value: int) -> bool:
        dims = {**small, symbol.name: value}
        return evaluate(left, dims) > evaluate(right, dims)

    first = order(nearest_size(symbol, 1))
    return _least(symbol, lambda value: order(value) != first)


def _least(symbol: Symbol, holds: Callable[[int], bool]) -> int | None:
    """Returns the least value of the symbol for which a monotonic predicate holds."""
    low, high = nearest_size(symbol, symbol.low) // symbol.multiple, int(min(symbol.high, _LARGEST)) // symbol.multiple
    if high < low or not holds(high * symbol.multiple):
        return None
    while low < high:
        middle = (low + high) // 2
        if holds(middle * symbol.multiple):
            high = middle
        else:
            low = middle + 1
    return high * symbol.multiple
