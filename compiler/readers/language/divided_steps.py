"""`exchange`: a training step as two further entries, between which processes may average the gradients.

    step             loss, and all updates
    step_gradients   loss; the gradients become states, `gradients.hidden.weight`
    step_update      the updates, by the gradients in these states, with the arguments that they read

Both entries consist of nodes of the step, so the two calls compute the bits of the one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ....dialect.diagnostics import Span
from ....dialect.graph import Function, State, Value, needed_nodes, read_values, result_of_state
from ....dialect.lazy_dataclass import dataclass

STATES = "gradients"
"""The first component of the names of the states."""
ENTRIES = ("gradients", "update")
"""The suffixes of the names of the two entries."""


@dataclass(frozen=True, slots=True)
class Division:
    """The point at which a step is divided: its gradients by the names of parameters, the placeholder values of their
    states, and the values of all states before the updates."""

    span: Span
    gradients: Mapping[str, Value]
    given: Mapping[str, Value]
    forward: Mapping[str, Value]


def entry_names(step: str) -> tuple[str, str]:
    return f"{step}_{ENTRIES[0]}", f"{step}_{ENTRIES[1]}"


def state_name(parameter: str) -> str:
    return f"{STATES}.{parameter}"


def parts_of(functions: Mapping[str, Function], step: str) -> tuple[str, ...]:
    """Returns the names of the entries that a step is divided into; none for other functions."""
    names = entry_names(step)
    states = [functions[name].states if name in functions else () for name in names]
    return names if all(any(state.startswith(f"{STATES}.") for state in each) for each in states) else ()


def exchanged_states(division: Division) -> list[State]:
    return [State(state_name(name), value.type, None, division.span) for name, value in division.gradients.items()]


def divide_step(step: Function, division: Division) -> tuple[Function, Function]:
    """Returns the entry that computes gradients, and the one that applies them."""
    gradients = {state_name(name): value for name, value in division.gradients.items()}
    arguments = dict(zip(step.states, step.state_arguments, strict=True))
    before = {name: division.forward.get(name, argument) for name, argument in arguments.items()}
    first, second = entry_names(step.name)
    given = {state_name(name): value for name, value in division.given.items()}
    count = len(step.outputs)
    gather = _part(first, step, step.outputs, step.result_names[:count], arguments, before, (given, gradients))
    after = dict(zip(step.states, step.state_results, strict=True))
    after = {name: value for name, value in after.items() if value is not before[name]}
    update = _part(second, step, (), (), arguments, after, (gradients, gradients))
    return gather, update


def _part(
    name: str,
    step: Function,
    outputs: Sequence[Value],
    names: Sequence[str],
    arguments: Mapping[str, Value],
    changed: Mapping[str, Value],
    exchanged: tuple[Mapping[str, Value], Mapping[str, Value]],
) -> Function:
    """Returns the nodes of a step that the outputs and the values of states need. `exchanged` are the states of
    gradients before and after the call; a value among those before it is not computed."""
    before, after = exchanged
    known = {value.name for value in before.values()}
    wanted = {value.name for value in (*outputs, *after.values())}
    wanted |= {value.name for state, value in changed.items() if value is not arguments[state]}
    body = needed_nodes(step.body, wanted, known)
    needed = (wanted | {value.name for node in body for value in read_values(node)}) - known
    used = [state for state, value in arguments.items() if value.name in needed or _differs(changed, arguments, state)]
    # A gradient entry takes the arguments of the step; an update those that it reads.
    inputs = step.inputs if outputs else tuple(value for value in step.inputs if value.name in needed)
    states = [*used, *before]
    return Function(
        name,
        (*inputs, *(arguments[state] for state in used), *before.values()),
        body,
        (*outputs, *(changed.get(state, arguments[state]) for state in used), *after.values()),
        (*names, *map(result_of_state, states)),
        step.span,
        tuple(states),
    )


def _differs(changed: Mapping[str, Value], arguments: Mapping[str, Value], state: str) -> bool:
    return state in changed and changed[state] is not arguments[state]


def twice_read(step: Function, division: Division, update: Function) -> Iterable[str]:
    """Yields the states that the forward computation changes and the `update` reads. This second entry would read their
    new values."""
    arguments = dict(zip(step.states, step.state_arguments, strict=True))
    read = {value.name for node in update.body for value in read_values(node)}
    for name, value in division.forward.items():
        if value is not arguments[name] and arguments[name].name in read:
            yield name
