"""The memory of states in an entry: which values are written into a state's memory, and which copies remain.

A state's memory is both an input and an output of the entry. The value after a call is computed there if nothing reads
the old value once it may be overwritten, and no check of indices follows:

    keys_2 = update_slice(keys, k, at)      only the box is written
    n_2 = n + 1                             every element is read before it is written
    a_2 = b;  b_2 = a                       both are copied, since each is read after the other could be written

The entry copies other values after all kernels have run. The report of the build lists each copy with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...dialect.dims import Size
from ...dialect.lazy_dataclass import dataclass
from ...passes.analysis.liveness import Step
from ..lower.lowered import LoweredFunction
from ..lower.state_values import StateValue
from ..lower.storage import Input, Output, Storage


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a whole tensor by the entry."""

    source: Storage
    target: Storage
    size: Size


@dataclass(frozen=True, slots=True)
class StateReport:
    """The bytes that a call copies for a state, and the reason; 0 bytes if its value is computed in its memory."""

    name: str
    copied: Size = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Pending:
    """A copy at the end of an entry: the tensor named `source` is copied to the memory of a state."""

    state: StateValue
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class StatePlan:
    """The tensors computed in the memory of states, the remaining copies in their order, and the additional tensors of
    the workspace: old values that must be saved before their states are overwritten, each with the state's name."""

    placed: Mapping[str, Output]
    pending: tuple[Pending, ...]
    saved: Mapping[str, str]
    sizes: Mapping[str, Size]


def state_tensor(number: int) -> str:
    """Returns the name of the tensor with a state's value before the call, by its number among the inputs."""
    return f"state {number}"


def old_values(function: LoweredFunction) -> dict[int, str]:
    """Returns the names, by number, of the inputs that the copies of states read or overwrite: the values before the
    call of the states that the function changes, and the inputs that become values of states."""
    sources = (state.source.number for state in function.states if isinstance(state.source, Input))
    return {n: state_tensor(n) for n in (*(state.argument for state in function.states), *sources)}


def plan_states(
    function: LoweredFunction, steps: Sequence[Step], sizes: Mapping[str, Size], last_check: int
) -> StatePlan:
    """Decides which values are computed in the memory of states. `last_check` is the last step of a kernel that checks
    indices, -1 if there is none."""
    placed: dict[str, Output] = {}
    pending: list[Pending] = []
    read_later = {s.source.number for s in function.states if isinstance(s.source, Input)}
    lives = _lives(steps)
    for state in function.states:
        old = state_tensor(state.argument)
        if isinstance(state.source, Input):
            old_of_other = state_tensor(state.source.number)
            pending.append(Pending(state, old_of_other, "its new value is an argument or the old value of a state"))
            continue
        name = state.source.name
        if name in function.outputs or name in placed:
            pending.append(Pending(state, name, "its new value is a result as well"))
            continue
        chain: tuple[str, ...] = ()
        reason = "the new value of another state is its old one"
        if state.argument not in read_later:
            free = {t: s for t, s in sizes.items() if t not in placed and t not in function.outputs}
            chain, reason = _find_chain(name, old, state.size, steps, lives, free, last_check)
        if chain:
            placed |= dict.fromkeys(chain, Output(state.result))
        else:
            pending.append(Pending(state, name, reason))
    return StatePlan(placed, *_order(pending, function))


def _lives(steps: Sequence[Step]) -> Mapping[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for name in step.tensors:
            found[name] = found.get(name, (number, number))[0], number
    return found


def _find_chain(
    name: str,
    old: str,
    size: Size,
    steps: Sequence[Step],
    lives: Mapping[str, tuple[int, int]],
    free: Mapping[str, Size],
    last_check: int,
) -> tuple[tuple[str, ...], str]:
    """Returns the tensors to compute in the state's memory, or the reason why there are none. The last tensor is the
    new value. A chain that begins by overwriting the old value element by element needs no copy of it."""
    last_read = lives[old][1] if old in lives else -1

    def over_old(tensor: str) -> tuple[str, ...]:
        first = lives[tensor][0]
        for written, read in steps[first].in_place:
            if written != tensor:
                continue
            if read == old and last_read == first:
                return (tensor,)
            if free.get(read) == size and lives[read][1] == first and lives[read][0] < first:
                before = over_old(read)
                if before:
                    return (*before, tensor)
        return ()

    chain = over_old(name) or ((name,) if lives[name][0] > last_read else ())
    if not chain:
        return (), "its old value is read after its new value is computed"
    if lives[chain[0]][0] <= last_check:
        return (), "a check of indices follows, which may fail the call"
    return chain, ""


def _order(
    pending: Sequence[Pending], function: LoweredFunction
) -> tuple[tuple[Pending, ...], dict[str, str], dict[str, Size]]:
    """Orders the copies such that each old value is read before it is overwritten. Where that is impossible, the value
    is read from a saved copy: returns the old value that each of these holds, and its bytes."""
    changed = {state_tensor(state.argument) for state in function.states}
    rest, ordered, saved, sizes = list(pending), list[Pending](), dict[str, str](), dict[str, Size]()
    while rest:
        read = {p.source for p in rest if p.source in changed}
        ready = next((p for p in rest if state_tensor(p.state.argument) not in read - {p.source}), None)
        if ready is None:
            # A cycle, as in a_2 = b; b_2 = a: the value that the first copy overwrites is saved.
            old = state_tensor(rest[0].state.argument)
            name = f"saved {rest[0].state.argument}"
            saved[name], sizes[name] = old, rest[0].state.size
            rest = [replace(p, source=name) if p.source == old else p for p in rest]
            continue
        ordered.append(ready)
        rest.remove(ready)
    return tuple(ordered), saved, sizes


def write_copies(plan: StatePlan, storages: Mapping[str, Storage]) -> tuple[Copy, ...]:
    """Returns the copies at the end of the entry."""
    first = [Copy(storages[old], storages[name], plan.sizes[name]) for name, old in plan.saved.items()]
    return (*first, *(Copy(storages[p.source], Output(p.state.result), p.state.size) for p in plan.pending))


def report_states(
    function: LoweredFunction, plan: StatePlan, before: Sequence[tuple[str, Size]]
) -> Iterator[StateReport]:
    """Yields a report for each state that the function changes. `before` are the tensors that are copied before a part
    of them is overwritten, with their bytes."""
    reasons = {p.state.name: p.reason for p in plan.pending}
    for state in function.states:
        old = state_tensor(state.argument)
        copied = [size for tensor, size in before if tensor == old]
        if state.name in reasons:
            copied.append(state.size)
        total: Size = 0
        for size in copied:
            total = total + size
        reason = reasons.get(state.name, "a part of it is overwritten while the rest is still read" if copied else "")
        yield StateReport(state.name, total, reason)
