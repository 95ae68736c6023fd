"""States that move into the blocks of their instances: the value that each call enters with, and the one it leaves.

    func f(%x) with (%h = "cell.h") -> (%3, %3)        cell: f(%x) with (%h = "h") -> (%1, %1)
      %1 = add(%x, %h) @cell        a call       ->      %1 = add(%x, %h)
      %3 = add(%1, %1) @cell        another call

The first call enters with the value before the function's call, each other one with the value that the call before it
leaves, and the last one leaves the value after the function's call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

from ....dialect.graph import Formula, Function, Module, Value
from ....dialect.lazy_dataclass import dataclass
from .model_bodies import Body, with_braces


@dataclass(frozen=True, slots=True)
class MovedStates:
    """The states of one element of an array: their names relative to the instance, by their names in the module.

    slots: the positions in the names of a body at which each state enters; None if nothing reads the state.

    exits: the positions of the values that a call leaves in the states; None if the state is unchanged, -1 for another
    value.

    others: the values at -1, which the only call takes as further arguments.

    consumed: how often the states use the results of calls.
    """

    names: Mapping[str, str]
    forms: Sequence[object] = ()
    slots: Sequence[int | None] = ()
    exits: Sequence[int | None] = ()
    before: tuple[Value, ...] = ()
    others: tuple[Value, ...] = ()
    consumed: Counter[str] = field(default_factory=Counter)
    moved: frozenset[str] | set[str] = frozenset()

    def around(self, body: Body, others: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """Returns the values of the states before and after a call; `others` are its further arguments."""
        entering = [
            value if slot is None else body.value(slot) for slot, value in zip(self.slots, self.before, strict=True)
        ]
        further = iter(others)
        leaving = [
            value if exit is None else next(further) if exit == -1 else body.value(exit)
            for exit, value in zip(self.exits, entering, strict=True)
        ]
        return entering, leaving

    def agrees(self, other: MovedStates) -> bool:
        """Returns whether the block treats the states of two elements of an array alike."""
        mine, its = ([list(m.names.values()), m.forms, m.slots, m.exits, len(m.others)] for m in (self, other))
        return mine == its


def follow_states(
    module: Module, function: Function, own: Mapping[str, str], calls: Sequence[Body], uses: Mapping[str, int]
) -> MovedStates | None:
    """Returns the states `own` of an instance through its calls; None if something else reads or changes them."""
    before = dict(zip(function.states, function.state_arguments, strict=True))
    after = dict(zip(function.states, function.state_results, strict=True))
    top = {id(node) for node in function.body}
    if own and not all(id(call.call.nodes[0]) in top for call in calls):
        return None
    forms: list[object] = []
    slots: list[int | None] = []
    exits: list[int | None] = []
    consumed: Counter[str] = Counter()
    for name in own:
        exit = None if after[name] == before[name] else _position(calls[-1], after[name].name)
        form = _form(module, name, own[name])
        if exit is None and after[name] != before[name] and len(calls) == 1:
            exit = -1 if _is_known_before(calls[0], after[name], function) else None
        if form is None or (exit is None and after[name] != before[name]):
            return None
        chain = [before[name]]
        for call in calls:
            chain.append(chain[-1] if exit is None else after[name] if exit == -1 else call.value(exit))
        slot = _common_slot(calls, chain)
        if slot is not None:
            for call, value in zip(calls, chain, strict=False):
                consumed[value.name] += call.uses_at(slot)
        consumed[after[name].name] += 1
        if chain[-1] != after[name] or uses[before[name].name] != consumed[before[name].name]:
            return None
        if slot is not None and slot in slots:
            return None
        slots.append(slot)
        exits.append(exit)
        forms.append(form)
    others = [after[name] for name, exit in zip(own, exits, strict=True) if exit == -1]
    if len(set(others)) < len(others):
        return None
    values = tuple(before[name] for name in own)
    return MovedStates(dict(own), forms, slots, exits, values, tuple(others), consumed, set(own))


def _common_slot(calls: Sequence[Body], values: Sequence[Value]) -> int | None:
    """Returns the position among the names at which each call reads its value; None if there is none."""
    found = [
        {number for number, name in enumerate(call.names) if name == value.name}
        for call, value in zip(calls, values, strict=False)
    ]
    return min(set.intersection(*found), default=None)


def _is_known_before(call: Body, value: Value, function: Function) -> bool:
    """Returns whether a value is defined before the call."""
    if value in function.inputs:
        return True
    first = next(number for number, node in enumerate(function.body) if node is call.call.nodes[0])
    return any(value in node.outputs for node in function.body[:first])


def _position(call: Body, name: str) -> int | None:
    return call.names.index(name) if name in call.names else None


def _form(module: Module, name: str, relative: str) -> object:
    """Returns the type and the initial value of a state; elements of one array agree in both. None if the initial value
    depends on tensors outside the instance."""
    state = next(state for state in module.states if state.name == name)
    if state.initial is None:
        return state.type, None
    prefix = name.removesuffix(relative)
    parameter = module.parameter_index[state.initial]
    if parameter.formula is not None:
        form = _formula_form(parameter.formula, prefix)
        return None if form is None else (state.type, form)
    key = with_braces(parameter.key, [part for part in prefix.split(".") if part.isdecimal()])
    return None if key is None else (state.type, key)


def _formula_form(formula: Formula, prefix: str) -> object:
    if not all(parameter.name.startswith(prefix) for parameter in formula.parameters):
        return None
    numbers = {v.name: number for number, v in enumerate(v for node in formula.body for v in node.outputs)}
    return [
        (
            node.op,
            [
                value.removeprefix(prefix) if node.op == "parameter" and isinstance(value, str) else value
                for _, value in node.attributes
            ],
            [numbers[v.name] for v in node.inputs],
            [v.type for v in node.outputs],
        )
        for node in formula.body
    ]
