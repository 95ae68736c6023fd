"""Runs a complete artifact as a user does: in a child process, and if it is wrong, kernel by kernel.

Every kernel is known to be correct alone, so the error is in their combination: the positions of tensors in memory, the
order and the operands of calls, or the weights in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...dialect.control_flow import walk_control
from ...dialect.graph import Function, Module, Node, Value
from ...dialect.interpreter import Load
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import Array
from ...runtime.library import NacreError, OutOfRangeError
from ...runtime.loader import load as load_artifact
from ...runtime.observe import Event, observe
from ..lower.lowered import LoweredCall, LoweredFunction
from ..lower.nodes import Computed
from .cut import cut_function
from .devices import CPU, select_device
from .inputs import Trial
from .isolated import Died, Progress, Task, run_each_isolated, run_isolated
from .judge import Difference, Judge
from .model_calls import Wrong
from .stateful import call_function
from .usage import RUNTIME, check_use, is_right_in_one_thread

_Answer = TypeVar("_Answer")
_CALL = "call "
"""The prefix of the messages of a watched process; the number of a call of a kernel follows it."""


@dataclass(frozen=True, slots=True)
class Overwritten:
    """A tensor that call number `by` of a kernel overwrites before call `reader`, the same or a later one, reads it."""

    name: str
    by: int
    reader: int


@dataclass(frozen=True, slots=True)
class Watched:
    """The tensors that every kernel of a call wrote, by name, and those that were overwritten. `results` are those of
    the call; None if it failed, with the message `failure`, or if an index is out of range. `reached` is the number
    of the first call of a kernel that did not complete."""

    values: Mapping[str, Array]
    lost: tuple[Overwritten, ...]
    results: tuple[Array, ...] | None = None
    failure: str = ""
    reached: int = 0

    def find_lost(self, number: int | None) -> Overwritten | None:
        """Returns the tensor whose loss makes the results of call `number` the first wrong ones. A tensor may be
        overwritten by its own reader if that reads each element before."""
        stale = (each for each in self.lost if each.by < each.reader)
        return next(stale, None) or next((each for each in self.lost if each.by == number), None)


Use = tuple[Function, Trial, Sequence[Array]]
"""A function, the arguments of a call, and the initial values of its states."""


@dataclass(frozen=True, slots=True)
class WrongCall:
    """A call of an artifact with wrong results. `judge` found them; it is None if the first call of the function is
    right, but another way to call it is wrong."""

    wrong: Wrong
    judge: Judge | None = None


def find_wrong(
    artifact: Path, judges: Sequence[Judge], uses: Sequence[Use] = (), device: str = CPU
) -> WrongCall | None:
    """Returns the first trial with wrong results, or at which the process crashes; then the first wrong way to call one
    of the functions in `uses`, with sessions on `device`. All calls run in one child process: to fork a large process
    takes tens of milliseconds."""
    tasks: list[Task[tuple[Array, ...] | Died | str | None]] = [
        partial(_call, artifact, judge.trial) for judge in judges
    ]
    tasks += [partial(check_use, artifact, function, trial, initial=initial) for function, trial, initial in uses]
    tasks = [partial(_on_device, device, task) for task in tasks]
    answers = run_each_isolated(tasks)
    for judge, results in zip(judges, answers, strict=False):
        assert not isinstance(results, str), results
        found = Difference(0, results.message) if isinstance(results, Died) else judge.difference(results)
        if found is not None:
            return WrongCall(Wrong(judge.trial, found), judge)
    for (_, trial, _), used in zip(uses, answers, strict=True):
        assert not isinstance(used, tuple), used
        message = used.message if isinstance(used, Died) else used
        if message is not None:
            return WrongCall(Wrong(trial, Difference(0, f"is wrong: {message}")))
    return None


def _on_device(device: str, task: Task[_Answer], report: Progress) -> _Answer:
    select_device(device)
    return task(report)


def _call(artifact: Path, trial: Trial, report: Progress) -> tuple[Array, ...] | Died | None:
    """Returns the results of a call; None if an index is out of range. A failure of a GPU is like a crash."""
    report(str(trial))
    try:
        return call_function(load_artifact(artifact), trial.function, trial.arguments, trial.dims)
    except OutOfRangeError:
        return None
    except NacreError as error:
        return Died("failure", str(error), str(trial))


def watch_call(artifact: Path, lowered: LoweredFunction, trial: Trial, device: str = CPU) -> Watched | Died:
    """Runs a call and records the tensors between kernels. Tensors of loops and branches are written several times or
    never, and are omitted. Of a GPU's memory, only what kernels return is seen: a tensor that the scratch memory of a
    kernel overwrites is not known to be lost."""
    last_read = {s.name: i for i, call in enumerate(lowered.calls) for s in call.inputs if isinstance(s, Computed)}
    once = {
        name for item in lowered.items if isinstance(item, LoweredCall) for name in item.outputs if not item.is_move
    }

    def task(report: Progress) -> Watched:
        arrays: dict[str, Array] = {}
        values: dict[str, Array] = {}
        lost: list[Overwritten] = []
        reached = 0

        def see(event: Event) -> None:
            nonlocal reached
            number = event.call.number
            reached = number + 1
            report(f"{_CALL}{reached}")
            for name, before in values.items():
                reader = last_read.get(name, -1)
                if reader >= number and arrays[name].tobytes() != before.tobytes():
                    lost.append(Overwritten(name, number, reader))
            for value in (v for v in event.call.values if v.name in once):
                arrays[value.name] = event.array(value)
                values[value.name] = arrays[value.name].copy()

        report(f"{_CALL}{reached}")
        model, results, failure = load_artifact(artifact), None, ""
        try:
            results = call_function(
                model, trial.function, trial.arguments, trial.dims, lambda session: observe(session, see)
            )
        except OutOfRangeError:
            pass
        except NacreError as error:
            failure = str(error)
        return Watched(values, tuple(lost), results, failure, reached)

    return run_isolated([partial(_on_device, device, task)])[0]


def first_wrong_value(module: Module, function: Function, watched: Watched, trial: Trial, load: Load) -> Value | None:
    """Returns the first tensor, in the order of the nodes, that differs from the graph's value."""
    written = [v for node in function.body for v in node.outputs if v.name in watched.values]
    part = cut_function(module, function, written)
    judge = Judge(part, trial.select(part.functions[0]), load)
    found = judge.difference([watched.values[v.name] for v in written])
    return None if found is None else written[found.result]


@dataclass(frozen=True, slots=True)
class Assembly:
    """The cause of an error in the combination of kernels, which is `plan-memory`, `runtime` or else `entry`.

    `node` computes the first tensor that is wrong or lost; a lost tensor is overwritten by `overwriter` before `reader`
    reads it. Copies have no node. `died` describes the end of a watched call that crashed or failed, at the kernel of
    `node` if there is one.
    """

    stage: str
    node: Node | None = None
    lost: str = ""
    overwriter: Node | None = None
    reader: Node | None = None
    died: str = ""


def triage_assembly(
    artifact: Path, module: Module, lowered: LoweredFunction, judge: Judge, load: Load, device: str = CPU
) -> Assembly:
    """Finds the cause in an artifact whose kernels are correct alone, for a call on `device` with results that `judge`
    found wrong; it has the samples for them. `module` is the graph after the passes."""
    trial, function = judge.trial, module.function(judge.trial.function)
    # One thread runs the same code in the same memory, so an error that appears only sometimes is in the division of
    # work.
    if device == CPU and is_right_in_one_thread(artifact, trial, lambda given: judge.difference(given) is None):
        return Assembly(RUNTIME)
    watched = watch_call(artifact, lowered, trial, device)
    if isinstance(watched, Died):
        number = watched.doing.removeprefix(_CALL)
        node = _node_of_call(function, lowered, int(number)) if number.isdecimal() else None
        return Assembly("entry", node, died=watched.message)
    value = first_wrong_value(module, function, watched, trial, load)
    numbers = (i for i, call in enumerate(lowered.calls) if value is not None and value.name in call.outputs)
    lost = watched.find_lost(next(numbers, None))
    if lost is None and value is None:
        if watched.failure:
            return Assembly("entry", _node_of_call(function, lowered, watched.reached), died=watched.failure)
        wrong = None if watched.results is None else judge.difference(watched.results)
        # Values of loops and branches are not watched, but their results may be those of the call.
        node = None if wrong is None else maker_of(function, function.results[wrong.result].name)
        return Assembly("entry", node)
    if lost is None:
        assert value is not None
        return Assembly("entry", maker_of(function, value.name))
    by, reader = (maker_of(function, lowered.calls[number].outputs[0]) for number in (lost.by, lost.reader))
    return Assembly("plan-memory", maker_of(function, lost.name), lost.name, by, reader)


def _node_of_call(function: Function, lowered: LoweredFunction, number: int) -> Node | None:
    """Returns the node of the call that follows those before `number`; None after the last call, and where a loop or a
    branch decides which one follows."""
    if not all(isinstance(item, LoweredCall) for item in lowered.items) or number >= len(lowered.calls):
        return None
    return maker_of(function, lowered.calls[number].outputs[0])


def maker_of(function: Function, name: str) -> Node | None:
    """Returns the node that computes a value, given the name of the value or of a copy."""
    makers = {v.name: node for node in walk_control(function.body) for v in node.outputs}
    return makers.get(name) or makers.get(name.rpartition(".")[0])
