"""Checks graphs: builds them at a level, runs them in a child process, and says of each what was wrong with it.

A child that dies or hangs is a finding like any other: it tells what it begins before it begins it.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nacre.compiler.base.compiler_errors import CompilerError
from nacre.compiler.validate.inputs import KINDS, ORDINARY, OUTSIDE, made_up
from nacre.compiler.validate.isolated import TIMEOUT, Died, Progress, run_isolated
from nacre.compiler.validate.judge import Judge, run_trial
from nacre.compiler.validate.model_calls import is_in_blocks
from nacre.compiler.validate.native import Library, check_call
from nacre.dialect.interpreter import Interpreter

from .inputs import make_judge
from .maker import Binding, Graph
from .native import Level, build_library, kernels_of, lower


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
            return build_library(lowered, level), good
        except CompilerError as fault:
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
        build_library(lower([graph], level), level)
    except CompilerError:
        return True
    return False


# --- running ---


def _run_all(library: Library, graphs: Sequence[Graph], level: Level, failures: dict[str, Failure]) -> None:
    def task(graph: Graph) -> Callable[[Progress], Failure | None]:
        return lambda tell: _check_graph(library, graph, level, tell)

    answers = run_isolated([task(graph) for graph in graphs], TIMEOUT)
    for graph, found in zip(graphs, answers, strict=True):
        if isinstance(found, Died):
            failures[graph.name] = Failure(graph.name, graph.seed, level, found.kind, found.message)
        elif found is not None:
            failures[graph.name] = found


def kinds_of_runs(graph: Graph, in_blocks: bool) -> Iterator[tuple[Binding, str]]:
    """Special numbers with the first sizes, and indices out of range if they are checked; one kind for each of the
    others. What is computed in blocks spreads NaN
    over a block, so it gets ordinary numbers alone."""
    for place, binding in enumerate(graph.bindings):
        kinds = KINDS[place % 2 :][:1]
        if place == 0:
            kinds = (*KINDS, OUTSIDE) if any(limit.checked for limit in graph.limits.values()) else KINDS
        for kind in kinds:
            if not in_blocks or kind == ORDINARY:
                yield binding, kind


def _check_graph(library: Library, graph: Graph, level: Level, tell: Progress) -> Failure | None:
    in_blocks = is_in_blocks(level.optimize(graph.module))
    for binding, kind in kinds_of_runs(graph, in_blocks):
        tell(f"with {dict(binding)}, {kind} inputs")
        judge = make_judge(graph, binding, kind, in_blocks=in_blocks)
        found = check_run(library, graph, level, judge)
        if found is not None:
            return Failure(graph.name, graph.seed, level, *found, binding, kind)
    return None


def check_run(library: Library, graph: Graph, level: Level, judge: Judge) -> tuple[str, str] | None:
    """What is wrong with one graph for one set of sizes, as kind and message."""
    found = check_call(library, graph.function, judge)
    if found is None:
        return None
    passes = found.difference is not None and interpret(graph, level, judge) is not None
    return "passes" if passes else found.kind, found.message


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
