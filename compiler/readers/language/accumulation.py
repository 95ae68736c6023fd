"""Gradient accumulation, `accumulate n`: parameters are updated in every n-th call of a training step, with the mean of
the gradients of n calls.

The sums of gradients and the number of calls are states. Updates are elaborated as without accumulation. At the end,
each state that an update changes keeps its old value in the other calls:

    total = accumulated.w + gradient            calls = accumulated.calls + 1        due = calls == n
    w = where(due, update(w, total / n), w)     accumulated.w = where(due, 0, total)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ....dialect.diagnostics import Span
from ....dialect.graph import State, Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import I64, TensorType
from .context import Context
from .nodes import Maker
from .values import Frame
from .writer import KeptState

STATES = "accumulated"
"""The first component of the names of the states."""
CALLS = f"{STATES}.calls"


@dataclass(slots=True)
class Accumulation:
    context: Context
    frame: Frame
    span: Span
    count: int
    before: dict[str, Value] = field(default_factory=dict)
    totals: dict[str, Value] = field(default_factory=dict)
    calls: Value | None = None

    def add(self, gradients: Mapping[str, Value | None]) -> list[Value | None]:
        """Adds the gradients of this call to the sums, and returns the means of the sums, for the updates.
        `gradients` has the gradients of the parameters by name, None for a parameter without one."""
        if self.count == 1:
            return list(gradients.values())
        make = Maker(self.context, self.frame, self.span)
        self.before = {name: kept.current for name, kept in self.context.writer.states.items()}
        self.calls = make("add", self._state(CALLS, TensorType(I64)).argument, make.number(1, I64))
        found: list[Value | None] = []
        for name, gradient in gradients.items():
            if gradient is not None:
                kept = self._state(f"{STATES}.{name}", gradient.type)
                self.totals[name] = make("add", kept.argument, gradient)
                gradient = make("multiply", self.totals[name], make.number(1 / self.count, gradient.type.dtype))
            found.append(gradient)
        return found

    def finish(self) -> None:
        """Keeps all states as they were, unless an update is due."""
        if self.calls is None:
            return
        make, states = Maker(self.context, self.frame, self.span), self.context.writer.states
        due = make("equal", self.calls, make.number(self.count, I64))
        for name, kept in states.items():
            old = self.before.get(name, kept.argument)
            if kept.current is not old:
                kept.current = make("where", due, kept.current, old)
        states[CALLS].current = make("where", due, make.number(0, I64), self.calls)
        for name, total in self.totals.items():
            zeros = make("full", shape=total.type.shape, value=0.0, dtype=total.type.dtype)
            states[f"{STATES}.{name}"].current = make("where", due, zeros, total)

    def _state(self, name: str, type: TensorType) -> KeptState:
        writer = self.context.writer
        self.context.program.states.setdefault(name, State(name, type, None, self.span))
        value = Value(writer.name(name.rpartition(".")[2]), type)
        writer.states[name] = KeptState(value, value)
        return writer.states[name]
