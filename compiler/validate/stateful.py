"""Calls of artifacts with the signature of their graph, in which the states are the last arguments and the last
results.

Each call creates a session, writes the given states, calls the entry, and reads the states. Any comparison with the
interpreter therefore covers the states after the call. `check_session` covers the states of sessions that nothing was
written to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np

from ...dialect.dims import Symbol, evaluate, parse_size
from ...dialect.types import Array
from ...runtime.arguments import DTypes
from ...runtime.loader import Entry, Model, Session
from ...runtime.loader import load as load_artifact
from .c_calls import patterned
from .isolated import Progress

_CLOSE = 2.0**-7
"""The relative difference of initial values that is none: a build may compute their formulas in another precision."""


def session_sizes(model: Model, dims: Mapping[str, int]) -> dict[str, int]:
    """Returns the session dims for calls of an entry with these dims. Other session dims occur only in states that the
    entry does not use; they get their minimum."""
    return {d["name"]: dims.get(d["name"], d["low"]) for d in model.describe()["session"]["dims"]}


def result_memory(entry: Entry, arguments: Sequence[Array]) -> list[Array]:
    """Returns arrays for the results of a call, filled with a byte pattern that no result has. Memory that the loader
    allocates may still contain equal results of an earlier call, or of the interpreter in the same process: elements
    that a kernel leaves out would then be right."""
    dims = entry.bind(*arguments)
    symbols = {name: Symbol(name) for name in dims}

    def extent(size: int | str) -> int:
        return size if isinstance(size, int) else int(evaluate(parse_size(size, symbols), dims))

    return [patterned(tuple(map(extent, r.shape)), np.dtype(DTypes().of(r))) for r in entry.results]


def call_function(
    model: Model,
    name: str,
    arguments: Sequence[Array],
    dims: Mapping[str, int],
    around: Callable[[Model], AbstractContextManager[None]] = lambda session: nullcontext(),
) -> tuple[Array, ...]:
    """Returns the results of an entry, and the states after the call. `arguments` includes the states before it; `dims`
    are the sizes of the function's dims; `around` returns the context of the call."""
    entry = model.entries[name]
    count = len(entry.arguments)
    caller = model
    if entry.states:
        session = model.session(**session_sizes(model, dims))
        for state, value in zip(entry.states, arguments[count:], strict=True):
            session.states[state] = value
        caller = session
    outs = result_memory(caller.entries[name], arguments[:count])
    with around(caller):
        caller.entries[name](*arguments[:count], out=tuple(outs))
    results = tuple(outs)
    return results if not entry.states else (*results, *(session.states[state] for state in entry.states))


def check_session(
    artifact: Path, name: str, dims: Mapping[str, int], initial: Sequence[Array], report: Progress
) -> str | None:
    """Returns the error of the states of an entry in a new session, in a fork, or after a reset. `initial` are the
    values with which they begin."""
    report("a new session")
    model = load_artifact(artifact)
    session, names = model.session(**session_sizes(model, dims)), model.entries[name].states
    other = {
        n: (np.arange(x.size) % 7 + 1).astype(x.dtype).reshape(x.shape) for n, x in zip(names, initial, strict=True)
    }
    begun = dict(zip(names, initial, strict=True))
    found = _wrong_state(session, begun)
    if found:
        return f"a new session does not begin with the initial value of `{found}`"
    for state, value in other.items():
        session.states[state] = value
    fork = session.fork()
    session.reset()
    found = _wrong_state(fork, other)
    if found:
        return f"a fork has another `{found}` than its session"
    found = _wrong_state(session, begun)
    return f"a reset does not restore the initial value of `{found}`" if found else None


def _wrong_state(session: Session, expected: Mapping[str, Array]) -> str | None:
    for name, value in expected.items():
        actual = np.asarray(session.states[name])
        if not _is_close(actual, value):
            return name
    return None


def _is_close(actual: Array, expected: Array) -> bool:
    if expected.dtype.kind in "biu" or actual.shape != expected.shape:
        return np.array_equal(actual, expected)
    x, y = actual.astype(np.float64), expected.astype(np.float64)
    return np.allclose(x, y, rtol=_CLOSE, atol=0, equal_nan=True)
