"""Does a case fail, and how? Its graph goes through the passes, is interpreted, compiled and called; the first thing
that goes wrong is its failure.

What a failure is like stays the same while the case is made small; what it says does not. The first half, the passes,
costs nothing but the interpreter.
"""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ...dialect.graph import Module, Node
from ...dialect.interpreter import Interpreter, load_parameter
from ...dialect.types import Array
from ...runtime.loader import load
from ..checking.alone import Alone, Part, cut_kernels, way_of
from ..checking.inputs import SPECIAL, Trial
from ..checking.isolated import Died, Tell, run_each_isolated
from ..checking.judge import Difference
from ..checking.trials import is_in_blocks
from ..codegen.child import KERNEL_WORKER, NO_ANSWER
from ..codegen.nursery import start_ahead
from ..codegen.objects import Program
from ..faults import CompilerFault
from ..lower.lowered import PackingError
from ..pipeline import Build, Options
from . import smaller
from .case import Case

CRASH, NUMBERS, TIMEOUT, MEMORY = "crash", "numbers", "timeout", "memory"
KINDS = (CRASH, NUMBERS, TIMEOUT, MEMORY)
PASSES, CODE, ALONE = "passes", "code", "a kernel alone"
"""Where numbers go wrong; of a kernel alone, what the whole may not show."""
PACKING = "stage pack"
"""Where weights cannot be stored as kernels read them."""


@dataclass(frozen=True, slots=True)
class Failure:
    """`kind` is one of KINDS; `place` says where. Failures of one kind at one place are
    alike. `difference` is how numbers are wrong, `kernel` the symbol of one that cannot be compiled,
    `weight` the name of one that cannot be packed. `memory` is what a
    kernel touches that is not its own, whether numbers show it or not."""

    kind: str
    place: str
    message: str
    difference: Difference | None = field(default=None, compare=False)
    kernel: str = field(default="", compare=False)
    weight: str = field(default="", compare=False)

    def is_like(self, other: Failure | None) -> bool:
        return other is not None and (self.kind, self.place) == (other.kind, other.place)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was computed. `in_blocks`: convolutions were, which rounds more."""

    results: tuple[Array, ...]
    in_blocks: bool = False


Compute = Callable[[Case, Tell], Answer | Failure | None]
"""Runs a case in a child: what it computes, or how it fails; None where that is known to be right."""


@dataclass(frozen=True)
class Examiner:
    """Finds failures of cases that are built with `options`. What is tried may take so many `seconds`."""

    options: Options
    seconds: float = 600.0

    def limited(self, limit: int) -> Examiner:
        """The same, with so many rewrites of the passes at most."""
        return replace(self, options=replace(self.options, rewrite_limit=limit))

    def passes(self, case: Case) -> Failure | None:
        """The failure of the passes, if it is theirs."""
        return self.first([case], self.interpret, PASSES)

    def code(self, case: Case) -> Failure | None:
        return self.first([case], self.compile_and_call, CODE)

    def alone(self, case: Case) -> Failure | None:
        """The failure of a kernel by itself, on watched memory."""
        return self.first([case], self.run_alone, ALONE)

    def each(self, cases: Sequence[Case], compute: Compute, place: str) -> Iterator[Failure | None]:
        """How each case fails, where it does; they are tried one after another, and no further than is asked for."""
        for case, answer in zip(cases, self.run(cases, compute), strict=True):
            if not isinstance(answer, Answer):
                yield answer
                continue
            if answer.in_blocks and case.kind == SPECIAL:
                yield None  # a block spreads NaN over all of its elements
                continue
            found = case.judge(in_blocks=answer.in_blocks).difference(answer.results)
            yield None if found is None else Failure(NUMBERS, place, str(found), found)

    def first(self, cases: Sequence[Case], compute: Compute, place: str) -> Failure | None:
        return next((failure for failure in self.each(cases, compute, place) if failure is not None), None)

    def run(self, cases: Sequence[Case], compute: Compute) -> Iterator[Answer | Failure | None]:
        """What each case computes, or how it fails to. What is left of a fault goes."""
        with TemporaryDirectory(prefix="nacre-blame-") as folder:
            tasks = [partial(self._guarded, case, compute, folder) for case in cases]
            for answer in run_each_isolated(tasks, self.seconds):
                if isinstance(answer, Died):
                    yield _failure_of(answer)
                else:
                    yield answer

    def _guarded(self, case: Case, compute: Compute, folder: str, tell: Tell) -> Answer | Failure | None:
        tempfile.tempdir = folder
        try:
            return compute(case, tell)
        except CompilerFault as fault:
            if isinstance(cause := fault.__cause__ or fault.__context__, PackingError):
                return Failure(CRASH, PACKING, _first_line(str(cause)), weight=cause.weight)
            kind = TIMEOUT if fault.what.startswith(NO_ANSWER) else CRASH
            return Failure(kind, f"stage {fault.stage}", _first_line(fault.what), kernel=fault.kernel)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {_first_line(str(error))}"
            return Failure(CRASH, f"{type(error).__name__} in {frame.name}", said)

    # --- what a child does ---

    def interpret(self, case: Case, tell: Tell) -> Answer:
        """Runs what the passes leave."""
        tell("the passes")
        module = Build(case.elaborated, self.options).optimize()
        tell("the interpreter on what the passes left")
        trial = case.trial
        results = Interpreter(module, case.load).run(trial.function, trial.arguments, trial.dims)
        return Answer(results, is_in_blocks(module))

    def compile_and_call(self, case: Case, tell: Tell) -> Answer:
        """Builds the artifact and calls it."""
        tell("the compiler")
        build = Build(case.elaborated, self.options)
        module = build.optimize()
        program = build.generate(build.lower(module))
        # The file goes before it is called, which may be the end of this process.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "case.so"
            assemble(build, program, case, path)
            artifact = load(path)
        # The next case will want one.
        start_ahead(KERNEL_WORKER)
        tell("the artifact")
        results = artifact.entries[case.function.name](*case.trial_arrays)
        arrays = results if isinstance(results, tuple) else (results,)
        return Answer(tuple(map(np.asarray, arrays)), is_in_blocks(module))

    def run_alone(self, case: Case, tell: Tell) -> Failure | None:
        """Runs every kernel by itself on what the interpreter gives it, between pages that cannot be touched."""
        tell("the compiler")
        build = Build(case.elaborated, self.options)
        module = build.optimize()
        program = build.generate(build.lower(module))
        parts = cut_kernels(module, program.lowered)
        way = way_of(self.options.code(), pack=self.options.packs)
        trials = part_trials(case, module)
        found = Alone(parts, program, way, case.load, trials).check(lambda what: tell(f"{ALONE}: {what}"))
        start_ahead(KERNEL_WORKER)
        if found is None:
            return None
        what = found.wrong.difference
        return Failure(MEMORY if found.in_memory else NUMBERS, ALONE, str(what), what)


def assemble(build: Build, program: Program, case: Case, path: Path) -> None:
    """Writes the artifact of the case's function, whose kernels are compiled."""
    objects = build.generate_entries(program)
    build.assemble(build.specify(program, lambda p: load_parameter(p, case.load)), objects, path)


def part_trials(case: Case, module: Module) -> Callable[[Part], list[Trial]]:
    """What parts of the case's function, as the passes left it, are called with in the call that the case is."""
    values: dict[str, Array] = dict(case.arguments)

    def observe(node: Node, results: Sequence[Array]) -> None:
        values.update((v.name, array) for v, array in zip(node.outputs, results, strict=True))

    Interpreter(module, case.load, observe=observe).run(smaller.only_function(module), case.trial_arrays)

    def trials(part: Part) -> list[Trial]:
        names = tuple(v.name for v in part.function.arguments)
        return [Trial(part.function.name, case.dims, case.kind, names, tuple(values[name] for name in names))]

    return trials


def _failure_of(died: Died) -> Failure:
    if died.kind == "hang":
        return Failure(TIMEOUT, died.doing, died.message)
    if died.doing.startswith(ALONE):
        return Failure(MEMORY, ALONE, died.message)
    return Failure(CRASH, died.doing, died.message)


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]
