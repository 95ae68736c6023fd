"""Calls that can be repeated: the states of a session have the same values before each of them.

A call with states may change its own cost, as it fills a cache, and may fail once the cache is full. Every measured
call therefore begins with the initial values, or with those of a file. Imports nothing of the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ...runtime.arguments import Array
from ...runtime.loader import Model, NacreError


class MissingDimsError(NacreError):
    """An exception for dims of a session that neither the inputs nor the user gives: `names`."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(f"the model has states, and no input has the dims of its session: {', '.join(names)}")


Restart = Callable[[], None]
"""A function that gives the states their values before a call."""


def find_session_dims(
    model: Model, entry: str, inputs: Sequence[Array], dims: Mapping[str, int]
) -> dict[str, int] | None:
    """Returns the dims of a session for calls of an entry with these inputs, None for an entry without states. A dim is
    given by `dims`, or is the size of an input. Raises MissingDimsError."""
    called = model.entries[entry]
    if not called.states:
        return None
    sizes = {
        size: length
        for argument, array in zip(called.arguments, inputs, strict=True)
        for size, length in zip(argument.shape, array.shape, strict=False)
        if isinstance(size, str)
    }
    wanted = [str(d["name"]) for d in model.describe()["session"]["dims"]]
    missing = [name for name in wanted if name not in dims and name not in sizes]
    if missing:
        raise MissingDimsError(missing)
    return {name: dims.get(name, sizes.get(name, 0)) for name in wanted}


def new_session(
    model: Model, entry: str, inputs: Sequence[Array], dims: Mapping[str, int] = MappingProxyType({})
) -> Model:
    """Returns a new session for one call with these inputs, or the model itself for an entry without states."""
    return begin_session(model, find_session_dims(model, entry, inputs, dims))[0]


def begin_session(model: Model, dims: Mapping[str, int] | None, states: Path | None = None) -> tuple[Model, Restart]:
    """Returns a new session of these dims, whose states are the initial ones or those of a file that `Session.save`
    wrote; without dims, the model itself. Raises NacreError for a file that does not fit."""
    if dims is None:
        return model, lambda: None
    session = model.session(**dims)
    if states is None:
        return session, session.reset
    session.restore(states)
    values = dict(session.states)

    def restart() -> None:
        session.states.update(values)

    return session, restart
