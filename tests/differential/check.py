"""Checks graphs: builds them at a level, runs them in a child process, and says of each what was wrong with it.

A child that dies or hangs is a finding like any other: it tells what it begins before it begins it.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import select
import signal
import struct
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nacre.compiler.checking.inputs import KINDS, ORDINARY, made_up
from nacre.compiler.checking.judge import Judge, run_trial
from nacre.compiler.codegen.faults import CompilerFault
from nacre.dialect.graph import Module, walk
from nacre.dialect.interpreter import Interpreter

from .inputs import make_judge
from .maker import Binding, Graph
from .native import Level, Library, kernels_of, lower, make_team

TIMEOUT = 60.0
"""Seconds that one run of one graph may take on a busy machine."""


@dataclass(frozen=True)
class Failure:
    """`kind` is one of passes, lower, codegen, crash, hang, memory, repeat, numbers."""

    name: str
    seed: int
    level: Level
    kind: str
    message: str
    binding: Binding | None = None
    inputs: str = ""

    def __str__(self) -> str:
        sizes = f" with {dict(self.binding)}, {self.inputs} inputs" if self.binding is not None else ""
        return f"seed {self.seed} at {self.level}{sizes}: {self.kind}: {self.message}"


def check_graphs(graphs: Sequence[Graph], level: Level) -> list[Failure]:
    """The first failure of each graph, in order; graphs without one are left out."""
    failures: dict[str, Failure] = {}
    library, built = _build(graphs, level, failures)
    if library is not None:
        _run_all(library, built, level, failures)
    return [failures[g.name] for g in graphs if g.name in failures]


def _message(error: BaseException) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}:{place.lineno})"


def _build(
    graphs: Sequence[Graph], level: Level, failures: dict[str, Failure]
) -> tuple[Library | None, Sequence[Graph]]:
    """A library of all graphs that can be compiled. One at a time is left out until the others can."""
    good = []
    for graph in graphs:
        kind = "passes"
        try:
            level.optimize(graph.module)
            kind = "lower"
            lower([graph], level)
            good.append(graph)
        except Exception as error:
            failures[graph.name] = Failure(graph.name, graph.seed, level, kind, _message(error))
    while good:
        lowered = lower(good, level)
        try:
            return Library(lowered, level), good
        except CompilerFault as fault:
            # The symbol may tell the target too.
            users = frozenset(u for name, us in kernels_of(lowered) if fault.kernel.startswith(name) for u in us)
            # Without a kernel to blame, every graph is tried alone.
            culprits = [g for g in good if g.name in users] or (good if len(good) == 1 else [])
            if not culprits:
                culprits = [g for g in good if _is_faulty(g, level)] or good
            for graph in culprits:
                failures[graph.name] = Failure(graph.name, graph.seed, level, "codegen", str(fault))
            good = [g for g in good if g not in culprits]
    return None, []


def _is_faulty(graph: Graph, level: Level) -> bool:
    try:
        Library(lower([graph], level), level)
    except CompilerFault:
        return True
    return False


# --- running ---

Message = tuple[int, Failure | str | None]
"""The number of a graph with what was found: a failure, none, or (text) what is about to be done."""


def _run_all(library: Library, graphs: Sequence[Graph], level: Level, failures: dict[str, Failure]) -> None:
    start = 0
    while start < len(graphs):
        start = _run_child(library, graphs, start, level, failures)


def _run_child(
    library: Library, graphs: Sequence[Graph], start: int, level: Level, failures: dict[str, Failure]
) -> int:
    """Runs graphs from number `start` in a child until it ends; gives the number of the graph to go on with."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        # Dying is an answer here.
        faulthandler.disable()
        try:
            for number in range(start, len(graphs)):
                _send(writer, (number, "start"))
                _send(writer, (number, _check_graph(library, graphs[number], level, writer, number)))
        except BaseException:
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    os.close(writer)
    number, doing, hung = start, "start", False
    while True:
        ready, _, _ = select.select([reader], [], [], TIMEOUT)
        if not ready:
            os.kill(child, signal.SIGKILL)
            hung = True
            break
        message = _receive(reader)
        if message is None:
            break
        number, said = message
        if isinstance(said, str):
            doing = said
        else:
            if said is not None:
                failures[graphs[number].name] = said
            number, doing = number + 1, "start"
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if number < len(graphs):
        assert status < 0, f"the child ended with {status} at {graphs[number].name}"
        kind = "hang" if hung else "crash"
        died = "no answer" if hung else signal.Signals(-status).name
        graph = graphs[number]
        failures[graph.name] = Failure(graph.name, graph.seed, level, kind, f"{died} while running {doing}")
    return number + 1


def _send(pipe: int, message: Message) -> None:
    data = pickle.dumps(message)
    os.write(pipe, struct.pack("<I", len(data)) + data)


def _receive(pipe: int) -> Message | None:
    header = _read(pipe, 4)
    if header is None:
        return None
    data = _read(pipe, struct.unpack("<I", header)[0])
    return None if data is None else pickle.loads(data)


def _read(pipe: int, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        more = os.read(pipe, size - len(data))
        if not more:
            return None
        data += more
    return data


def kinds_of_runs(graph: Graph, in_blocks: bool) -> Iterator[tuple[Binding, str]]:
    """Special numbers with the first sizes; one kind for each of the others. What is computed in blocks spreads NaN
    over a block, so it gets ordinary numbers alone."""
    for place, binding in enumerate(graph.bindings):
        for kind in KINDS if place == 0 else KINDS[place % 2 :][:1]:
            if not in_blocks or kind == ORDINARY:
                yield binding, kind


def is_in_blocks(module: Module) -> bool:
    """Does the optimized module compute convolutions in blocks?"""
    return any(node.op == "winograd_output" for function in module.functions for node in walk(function.body))


def _check_graph(library: Library, graph: Graph, level: Level, pipe: int, number: int) -> Failure | None:
    in_blocks = is_in_blocks(level.optimize(graph.module))
    for binding, kind in kinds_of_runs(graph, in_blocks):
        _send(pipe, (number, f"with {dict(binding)}, {kind} inputs"))
        judge = make_judge(graph, binding, kind, in_blocks=in_blocks)
        found = check_run(library, graph, level, binding, judge)
        if found is not None:
            return Failure(graph.name, graph.seed, level, *found, binding, kind)
    return None


def check_run(library: Library, graph: Graph, level: Level, binding: Binding, judge: Judge) -> tuple[str, str] | None:
    """What is wrong with one graph for one set of sizes, as kind and message."""
    first = library.run(graph.function, judge.trial.arguments, binding, at_end=True)
    if first.damage:
        return "memory", first.damage
    found = judge.difference(first.results)
    if found is not None:
        return ("passes" if interpret(graph, level, judge) else "numbers"), str(found)
    for chunk, threads, at_end in ((1, 1, False), (3, 2, True)):
        team = make_team(chunk, threads)
        again = library.run(graph.function, judge.trial.arguments, binding, team=team, at_end=at_end)
        how = f"with units by {chunk} from the last to the first, in {threads} threads"
        if again.damage:
            return "memory", f"{again.damage} {how}"
        for i, (a, b) in enumerate(zip(first.results, again.results, strict=True)):
            if a.tobytes() != b.tobytes():
                return "repeat", f"result {i} differs {how}"
    return None


def interpret(graph: Graph, level: Level, judge: Judge) -> str | None:
    """What is wrong with the graph after the passes of the level, as the reference interpreter runs it."""
    module = level.optimize(graph.module)
    found = judge.difference(run_trial(Interpreter(module, made_up), judge.trial))
    return None if found is None else str(found)


def interpret_graphs(graphs: Sequence[Graph], level: Level) -> list[Failure]:
    """As `check_graphs`, but nothing is compiled: the passes alone are at fault."""
    failures = []
    for graph in graphs:
        failure = None
        try:
            in_blocks = is_in_blocks(level.optimize(graph.module))
            for binding, kind in kinds_of_runs(graph, in_blocks):
                message = interpret(graph, level, make_judge(graph, binding, kind, in_blocks=in_blocks))
                if message is not None:
                    failure = Failure(graph.name, graph.seed, level, "passes", message, binding, kind)
                    break
        except Exception as error:
            failure = Failure(graph.name, graph.seed, level, "passes", _message(error))
        failures += [failure] if failure is not None else []
    return failures
