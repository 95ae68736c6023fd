"""Checks the runtime of an artifact: every way to call it gives the bits of a first call, or a specified rejection.

    model(x); model(x)                 a second call, with a cached plan
    model(x.T.copy().T)                other strides
    model(x, out=y), model(x, out=x)   results in given arrays, and over an argument
    api->run(...)                      the C interface: dense tensors, transposed views, overlapping tensors
    model(other); model(x)             calls with other sizes, in between
    model(small), model(large)         refused: sizes beside the range of a dim, or that are no multiples
    threads=2                          sizes that two threads share, the last chunk included

The first call, the kernels and the memory plan have been checked before, so a difference is an error of the runtime.
This module does not compute reference results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ...dialect.dims import INFINITY, Symbol, evaluate, symbols
from ...dialect.graph import Function
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import Array
from ...runtime.library import ArgumentError, NacreError, OutOfRangeError
from ...runtime.loader import Entry
from ...runtime.loader import load as load_artifact
from .array_errors import same_bits
from .boundaries import is_short, random_largest_dims
from .c_calls import RefusedError, empty_like, open_session
from .inputs import OUTSIDE, Trial, nearest_size, random_dims, random_trial
from .isolated import Died, Progress, run_isolated
from .judge import may_be_endless
from .stateful import call_function, check_session

RUNTIME = "runtime"
"""The stage of the error: the C runtime in the artifact, or the Python loader."""

_SHARES = (1.0, 0.83, 0.71)
"""Shares of the largest sizes: chunks depend on measured times; most sizes, but not all, have a shorter last chunk."""


_MOST_REFUSED = 1 << 22
"""The most bytes of the arguments of a call that is to be refused."""


class _FoundError(Exception):
    """Ends a check with its message."""


def check_use(
    artifact: Path, function: Function, trial: Trial, report: Progress, initial: Sequence[Array] = ()
) -> str | None:
    """Returns the error of the first wrong way to call the artifact, in this process. Entries with states are called in
    one way only: a call changes the states that a repeated one would begin with. Their `initial` values are those of
    new sessions; if none are given, sessions are not checked."""
    if function.states:
        return check_session(artifact, function.name, trial.dims, initial, report) if initial else None
    found = _check_ways(artifact, trial, report)
    if may_be_endless(function):
        return found  # other arguments may never end a loop
    found = found or _check_sizes(artifact, function, trial, report) or _check_refusals(artifact, function, report)
    shared = (random_trial(function, dims) for dims in random_shared_dims(function))
    return found or next((wrong for each in shared if (wrong := _check_threads(artifact, each, report))), None)


def is_right_in_one_thread(artifact: Path, trial: Trial, is_right: Callable[[tuple[Array, ...]], bool]) -> bool:
    """Returns whether the results are correct with one thread, in a first call and in a later one. Another number of
    threads need not be wrong again: the division of a kernel among them depends on measured times."""

    def call(report: Progress) -> list[tuple[Array, ...]]:
        report("one thread")
        model = load_artifact(artifact, threads=1)
        return [call_function(model, trial.function, trial.arguments, trial.dims) for _ in range(2)]

    # This process judges, so that it keeps the samples of a wrong result for what it judges next.
    (found,) = run_isolated([call])
    return not isinstance(found, Died) and all(map(is_right, found))


def random_shared_dims(function: Function) -> list[dict[str, int]]:
    """Returns sizes at which a call is long enough for several threads; odd numbers, which few chunk sizes divide."""
    largest = random_largest_dims(function)
    if largest is None:
        return []
    symbols = function.symbols()
    sampled = [{s.name: nearest_size(s, int(largest[s.name] * share) | 1) for s in symbols} for share in _SHARES]
    return [each for i, each in enumerate(sampled) if each not in sampled[:i] and is_short(function, each)]


# --- calls ---


def _results(given: object) -> tuple[Array, ...]:
    return tuple(np.asarray(x) for x in given) if isinstance(given, tuple) else (np.asarray(given),)


@dataclass(frozen=True)
class _Calls:
    """One call of an entry, with the results of its first execution."""

    artifact: Path
    entry: Entry
    trial: Trial
    expected: tuple[Array, ...]

    def compare(self, results: Sequence[Array]) -> None:
        for name, x, y in zip((r.name for r in self.entry.results), results, self.expected, strict=True):
            if x.shape != y.shape or not same_bits(x, y):
                wrong = int(np.count_nonzero(x != y)) if x.shape == y.shape else y.size
                raise _FoundError(f"gives another `{name}` than the first call: {wrong} of {y.size} elements differ")

    def with_argument(self, number: int, x: Array) -> list[Array]:
        return [x if i == number else given for i, given in enumerate(self.trial.arguments)]

    def views(self) -> Iterator[list[Array]]:
        """Yields the arguments, with other strides for one of them."""
        for number, x in enumerate(self.trial.arguments):
            for view in _views(x):
                yield self.with_argument(number, view)

    def overlapping(self) -> Iterator[tuple[list[Array], list[Array], str]]:
        """Yields arguments, result arrays and a description; one result overlaps an argument."""
        for number, x in enumerate(self.trial.arguments):
            for position, y in enumerate(self.expected):
                if x.nbytes and y.nbytes:
                    for start in (0, (x.nbytes - 1) // 64 * 64):
                        memory = empty_like([np.empty(x.nbytes + y.nbytes + 64, np.uint8)])[0]
                        argument = np.ndarray(x.shape, x.dtype, memory)
                        argument[...] = x
                        outs = empty_like(self.expected)
                        outs[position] = np.ndarray(y.shape, y.dtype, memory, start)
                        names = self.entry.results[position].name, self.entry.arguments[number].name
                        yield self.with_argument(number, argument), outs, "writes `{}` over `{}`".format(*names)


def _views(x: Array) -> Iterator[Array]:
    """Yields views of the same elements with other strides."""
    turned = np.asfortranarray(x)
    if not turned.flags.c_contiguous:
        yield turned
    if x.ndim and x.size:
        wide = np.repeat(x[..., ::-1], 2, axis=-1)
        wide[..., ::2] = x
        if not wide[..., ::2].flags.c_contiguous:
            yield wide[..., ::2]


def _call_again(calls: _Calls) -> None:
    for _ in range(2):
        calls.compare(_results(calls.entry(*calls.trial.arguments)))  # arrays that the loader allocates


def _call_views(calls: _Calls) -> None:
    for arguments in calls.views():
        try:
            results = _results(calls.entry(*arguments))
        except ArgumentError:
            continue
        calls.compare(results)
    _call_again(calls)


def _call_into(calls: _Calls) -> None:
    for form in (tuple, list):
        outs = empty_like(calls.expected)
        results = _results(calls.entry(*calls.trial.arguments, out=form(outs)))
        calls.compare(outs)
        if any(x is not y for x, y in zip(results, outs, strict=True)):
            raise _FoundError("gives other arrays than those of `out`")


def _call_over(calls: _Calls) -> None:
    for form in (tuple, list):
        for arguments, outs, said in calls.overlapping():
            try:
                calls.entry(*arguments, out=form(outs))
            except ArgumentError:
                continue
            raise _FoundError(f"{said}, and is not refused")


def _run_dense(calls: _Calls) -> None:
    for dense in (True, False):
        with open_session(calls.artifact, calls.trial.function) as session:
            arguments = [np.ascontiguousarray(x).reshape(x.shape) for x in calls.trial.arguments]
            for _ in range(2):
                outs = empty_like(calls.expected)
                session.run(arguments, outs, dense=dense)
                calls.compare(outs)


def _run_views(calls: _Calls) -> None:
    with open_session(calls.artifact, calls.trial.function) as session:
        for arguments in calls.views():
            outs = empty_like(calls.expected)
            try:
                session.run(arguments, outs)
            except RefusedError:
                continue
            calls.compare(outs)


def _run_over(calls: _Calls) -> None:
    with open_session(calls.artifact, calls.trial.function) as session:
        for arguments, outs, said in calls.overlapping():
            try:
                session.run(arguments, outs)
            except RefusedError:
                continue
            raise _FoundError(f"{said}, and is not refused")


WAYS: Mapping[str, Callable[[_Calls], None]] = {
    "a second call": _call_again,
    "a call with other strides": _call_views,
    "a call with `out`": _call_into,
    "a call with `out` over an argument": _call_over,
    "`run` of the C interface": _run_dense,
    "`run` of the C interface with other strides": _run_views,
    "`run` of the C interface with a result over an argument": _run_over,
}


def _check_ways(artifact: Path, trial: Trial, report: Progress) -> str | None:
    """Returns the error of the first wrong way to call the artifact."""
    if trial.kind == OUTSIDE:
        return None
    entry = load_artifact(artifact).entries[trial.function]
    report("the first call")
    try:
        calls = _Calls(artifact, entry, trial, _results(entry(*trial.arguments)))
    except OutOfRangeError:
        return None
    except NacreError as error:
        return f"the first call fails: {error}"
    for name, way in WAYS.items():
        report(name)
        try:
            way(calls)
        except _FoundError as found:
            return f"{name} {found}"
        except NacreError as error:
            return f"{name} is refused: {error}"
    return None


def _check_sizes(artifact: Path, function: Function, trial: Trial, report: Progress) -> str | None:
    """Returns the error if a call depends on the sizes of the calls before it."""
    sampled = (dims for dims in random_dims(function.symbols()) if dims != trial.dims and is_short(function, dims))
    others = [random_trial(function, dims) for dims in sampled]
    entry = load_artifact(artifact).entries[trial.function]
    for each in (trial, *others, trial) if others and trial.kind != OUTSIDE else ():
        report(f"a call with {each} between others")
        try:
            first = _results(load_artifact(artifact).entries[trial.function](*each.arguments))
        except (ArgumentError, OutOfRangeError):
            continue  # the model does not accept these sizes, or these indices
        try:
            _Calls(artifact, entry, each, first).compare(_results(entry(*each.arguments)))
        except _FoundError as found:
            return f"a call with {each}, after calls with other sizes, {found}"
        except NacreError as error:
            return f"a call with {each}, after calls with other sizes, is refused: {error}"
    return None


def _check_refusals(artifact: Path, function: Function, report: Progress) -> str | None:
    """Returns the error if sizes are accepted that a dim does not allow. Nothing is computed."""
    entry = load_artifact(artifact).entries[function.name]
    shapes = [value.type.shape for value in function.arguments]
    for symbol in function.symbols():
        others = {s.name: nearest_size(s, 1) for s in function.symbols()}
        telling = [size for shape in shapes for size in shape if symbol in symbols(size)]
        if not telling or any(size != symbol.size for size in telling):
            continue  # no size of an argument, or not each one, is that of the dim itself
        for wrong in _wrong_sizes(symbol):
            dims = [[wrong if size == symbol.size else evaluate(size, others) for size in shape] for shape in shapes]
            if any(size < 0 for shape in dims for size in shape):
                continue
            arguments = [
                np.broadcast_to(np.zeros((), v.type.dtype.numpy), d)
                for v, d in zip(function.arguments, dims, strict=True)
            ]
            if sum(x.nbytes for x in arguments) > _MOST_REFUSED:
                continue
            report(f"a call with {symbol.name}={wrong}")
            try:
                entry.bind(*map(np.ascontiguousarray, arguments))
            except ArgumentError:
                continue
            return f"a call with {symbol.name}={wrong} is accepted: {symbol}"
    return None


def _wrong_sizes(symbol: Symbol) -> list[int]:
    """Returns sizes that a dim does not have: just outside its range, and between its multiples."""
    step, below = symbol.multiple, nearest_size(symbol, 0) - symbol.multiple
    above = [nearest_size(symbol, symbol.high) + step] if symbol.high < INFINITY else []
    return [*([below] if below >= 0 else []), *above, *([nearest_size(symbol, 0) + 1] if step > 1 else [])]


def _check_threads(artifact: Path, trial: Trial, report: Progress) -> str | None:
    """Returns the error if two threads give other bits than one."""
    try:
        one, two = (load_artifact(artifact, threads=n).entries[trial.function] for n in (1, 2))
        report("a long call with one thread")
        try:
            calls = _Calls(artifact, two, trial, _results(one(*trial.arguments)))
        except ArgumentError:
            return None  # the model does not accept these sizes
        for _ in range(2):  # the first call measures kernels, the second divides them
            report("a long call with two threads")
            # New arrays may reuse the memory of the first results, and still contain them.
            outs = empty_like(calls.expected)
            two(*trial.arguments, out=tuple(outs))
            calls.compare(outs)
    except OutOfRangeError:
        return None
    except _FoundError as found:
        return f"a call with two threads and {trial} {found}"
    return None
