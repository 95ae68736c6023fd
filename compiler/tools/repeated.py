"""Calls that can be repeated: the states of a session have the same values before each of them.

A call with states may change its own cost, as it fills a cache, and may fail once the cache is full. Every measured
call therefore begins with the initial values, or with those of a file. Imports nothing of the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ...runtime.loader import Model

Restart = Callable[[], None]
"""A function that gives the states their values before a call."""


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
