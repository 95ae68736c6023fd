"""Finds the failure of a case: runs the passes and the interpreter, compiles and calls the artifact; the first error is
the failure.

Reduction preserves the kind and the origin of a failure, not its message. The passes need only the interpreter and are
therefore checked first.
"""

from __future__ import annotations

import json
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np

from ....dialect.diagnostics import DiagnosticError
from ....dialect.graph import Module, Node, Region
from ....dialect.interpreter import EndlessError, Interpreter, Load, Observe, load_parameter
from ....dialect.types import Array
from ....passes.manager import PassError
from ....passes.pass_list import format_pipeline
from ....runtime.library import NacreError
from ....runtime.loader import load
from ...artifact.link import prepare_runtime
from ...base.cache_folder import object_folder
from ...base.compiler_errors import NO_ANSWER, CompilerError
from ...codegen.objects import Program
from ...codegen.workers.child import ENTRY_WORKER, KERNEL_WORKER
from ...codegen.workers.pool import prestart
from ...lower.lowered import PackingError
from ...model.parameters import open_parameters
from ...model.source import SourceModel
from ...options import Options
from ...pipeline import Build
from ...size_bounds import bounded_passes
from ...validate.alone import Alone, Part, cut_kernels, way_of
from ...validate.boundaries import random_crossing_dims, random_reaching_dims, steps_of
from ...validate.inputs import UNUSUAL, Trial, random_trial
from ...validate.isolated import HANG, Died, Progress, allow_reserved_memory, run_each_isolated
from ...validate.judge import MOST_ITERATIONS, PATIENCE, Difference, Judge, ends
from ...validate.model_calls import is_in_blocks
from ...validate.stateful import call_function
from ...validate.usage import RUNTIME, check_use
from . import smaller
from .case import Case

CRASH, NUMBERS, TIMEOUT, MEMORY = "crash", "numbers", "timeout", "memory"
KINDS = (CRASH, NUMBERS, TIMEOUT, MEMORY)
PASSES, CODE, ALONE = "passes", "code", "a kernel alone"
"""The origins of wrong numbers. An error of a kernel alone may not be visible in the complete artifact. Errors in ways
to call an artifact have the origin `RUNTIME`."""
PACKING = "stage pack"
"""The origin of a failure to store weights in the layout of their kernels."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure. Failures of the same `kind`, one of KINDS, and the same `origin` are alike.

    `difference` describes wrong numbers, `kernel` is the symbol of a kernel that cannot be compiled, `weight` the name
    of a weight that cannot be packed. The kind `memory` is an access outside of a kernel's tensors, even if the results
    are correct."""

    kind: str
    origin: str
    message: str
    difference: Difference | None = field(default=None, compare=False)
    kernel: str = field(default="", compare=False)
    weight: str = field(default="", compare=False)

    def is_like(self, other: Failure | None) -> bool:
        return other is not None and (self.kind, self.origin) == (other.kind, other.origin)


@dataclass(frozen=True, slots=True)
class Answer:
    """The computed results. `in_blocks`: convolutions were computed in blocks, which rounds more."""

    results: tuple[Array, ...]
    in_blocks: bool = False


Found = TypeVar("Found")
Compute = Callable[[Case, Progress], Found]
"""Runs a case in a child, and supports pickling."""
Attempt = Compute[Answer | Failure | None]
"""Returns the results of a case, or its failure; None if it is known to be correct."""


@dataclass(frozen=True)
class Examiner:
    """Finds failures of cases that are built with `options`. Each attempt has a time limit of `seconds`."""

    options: Options
    seconds: float = 600.0

    def limited(self, limit: int) -> Examiner:
        """Returns the same examiner with at most `limit` rewrites of the passes."""
        return replace(self, options=replace(self.options, rewrite_limit=limit))

    def bounded(self, source_model: SourceModel) -> Examiner:
        """Returns the same examiner with passes that respect the size bound of the whole model, for examining its
        parts. If a pass fails, so that the bound cannot be computed, the passes are unchanged."""
        if self.options.size is None and not source_model.budgets:
            return self

        def bound(report: Progress) -> str:
            report("the passes")
            with suppress(PassError, DiagnosticError):
                return format_pipeline(bounded_passes(source_model, self.options))
            return self.options.pipeline

        (found,) = run_each_isolated([bound], self.seconds)
        passes = self.options.pipeline if isinstance(found, Died) else found
        return self if passes == self.options.pipeline else self._with_passes(passes)

    def failing_sizes(self, source_model: SourceModel, name: str) -> list[dict[str, int]]:
        """Returns the first sizes at which a complete artifact gives wrong results: those at the boundaries of loops,
        the largest ones of a short call, and those at the boundaries of memory. All are tried with one artifact."""
        function = source_model.module.function(name)
        reader, tried = open_parameters(source_model), list[dict[str, int]]()

        def first_wrong(folder: str, report: Progress) -> list[dict[str, int]]:
            self._prepare(folder)
            report("the compiler")
            build, model = Build(source_model, self.options), None
            with suppress(CompilerError, DiagnosticError):
                build.run(Path(folder) / "model.so")
                model = load(Path(folder) / "model.so")
            if build.program is None or build.optimized is None or model is None:
                return []  # the build fails, and each case reports how
            steps = {step for each in steps_of(build.program).values() for step in each}
            tried.extend(random_reaching_dims(function, steps))
            tried.extend(random_crossing_dims(function, build.optimized.function(name)))
            for dims in tried:
                report(f"sizes {json.dumps(dims)}")
                trial = random_trial(function, dims)
                if not ends(source_model.module, trial, reader):
                    continue
                judge = Judge(source_model.module, trial, reader, in_blocks=is_in_blocks(build.optimized))
                try:
                    results = call_function(model, name, trial.arguments, dims)
                except NacreError:
                    return [dims]  # as a GPU fails that meets an illegal address
                if judge.difference(results) is not None:
                    return [dims]
            return []

        self.prepare_code()
        # A child that dies removes nothing, so the folder is its parent's.
        with TemporaryDirectory(prefix="nacre-bisect-") as folder:
            (found,) = run_each_isolated([partial(first_wrong, folder)], self.seconds)
        if isinstance(found, Died):
            return [json.loads(found.doing.removeprefix("sizes "))] if found.doing.startswith("sizes ") else []
        return found

    def _with_passes(self, passes: str) -> Examiner:
        return replace(self, options=replace(self.options, passes=passes, size=None))

    def passes(self, case: Case) -> Failure | None:
        """Returns the failure of the passes, or None."""
        return self.first([case], self.interpret, PASSES)

    def code(self, case: Case) -> Failure | None:
        return self.first([case], self.compile_and_call, CODE)

    def alone(self, case: Case) -> Failure | None:
        """Returns the failure of a kernel run alone, on guarded memory."""
        return self.first([case], self.run_alone, ALONE)

    def runtime(self, case: Case) -> Failure | None:
        """Returns the failure of another way to call the artifact, whose first call is correct."""
        return self.first([case], self.call_in_ways, RUNTIME)

    def each(self, cases: Sequence[Case], compute: Attempt, origin: str) -> Iterator[Failure | None]:
        """Yields the failure of each case, or None; cases are tried lazily, one after another. A case whose loops do
        not end has no failure."""
        for case, answer in zip(cases, self.run(cases, compute), strict=True):
            if not case.ends:
                yield None
                continue
            if not isinstance(answer, Answer):
                yield answer
                continue
            if answer.in_blocks and case.kind in UNUSUAL:
                yield None  # a block spreads NaN over all of its elements
                continue
            found = case.judge(in_blocks=answer.in_blocks).difference(answer.results)
            yield None if found is None else Failure(NUMBERS, origin, str(found), found)

    def first(self, cases: Sequence[Case], compute: Attempt, origin: str) -> Failure | None:
        return next((failure for failure in self.each(cases, compute, origin) if failure is not None), None)

    def needs_code(self, compute: Compute[Any]) -> bool:
        return compute in (self.compile_and_call, self.call_in_ways, self.run_alone)

    def run(self, cases: Sequence[Case], compute: Compute[Found]) -> Iterator[Found | Failure]:
        """Yields what is found of each case, or its failure. Temporary files of a failed case are removed."""
        if self.needs_code(compute):
            self.prepare_code()
        with TemporaryDirectory(prefix="nacre-bisect-") as folder:
            tasks = [partial(self.attempt, case, compute, folder) for case in cases]
            for answer in run_each_isolated(tasks, self.seconds):
                if isinstance(answer, Died):
                    yield failure_of(answer)
                else:
                    yield answer

    def prepare_code(self) -> None:
        """Starts the servers of code generation and compiles the runtime before a fork, so that all children share
        them."""
        prestart(KERNEL_WORKER)
        prestart(ENTRY_WORKER)
        with suppress(DiagnosticError):  # without a linker, each case reports that there is none
            prepare_runtime(self.options.linker(), object_folder() if self.options.cache else None)

    def _prepare(self, folder: str) -> None:
        """Prepares a child process, whose temporary files are in a folder of its parent."""
        tempfile.tempdir = folder
        if self.options.family.device:
            allow_reserved_memory()

    def attempt(self, case: Case, compute: Compute[Found], folder: str, report: Progress) -> Found | Failure:
        """Runs a case in a child process, whose temporary files are in a folder of its parent."""
        self._prepare(folder)
        try:
            return compute(case, report)
        except CompilerError as error:
            if isinstance(cause := error.__cause__ or error.__context__, PackingError):
                return Failure(CRASH, PACKING, _first_line(str(cause)), weight=cause.weight)
            kind = TIMEOUT if error.what.startswith(NO_ANSWER) else CRASH
            return Failure(kind, f"stage {error.stage}", _first_line(error.what), kernel=error.kernel)
        except EndlessError as error:
            return Failure(TIMEOUT, PASSES, error.diagnostics[0].message)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {_first_line(str(error))}"
            return Failure(CRASH, f"{type(error).__name__} in {frame.name}", said)

    # --- tasks of a child process ---

    def interpret(self, case: Case, report: Progress) -> Answer:
        """Runs the interpreter on the graph after the passes."""
        report("the passes")
        module = Build(case.source_model, self.options).optimize()
        report("the interpreter on what the passes left")
        trial = case.trial
        interpreter = Interpreter(module, case.load, most_iterations=PATIENCE * MOST_ITERATIONS)
        results = interpreter.run(trial.function, trial.arguments, trial.dims)
        return Answer(results, is_in_blocks(module))

    def compile_and_call(self, case: Case, report: Progress) -> Answer:
        """Builds the artifact and calls it."""
        # The file is removed before the call, which may end this process.
        with self._compiled(case, report) as (path, module):
            artifact = load(path)
        report("the artifact")
        results = call_function(artifact, case.function.name, case.trial_arrays, case.dims)
        return Answer(results, is_in_blocks(module))

    def call_in_ways(self, case: Case, report: Progress) -> Failure | None:
        """Builds the artifact and calls it in every way."""
        with self._compiled(case, report) as (path, _):
            message = check_use(
                path, case.function, case.trial, lambda what: report(f"{RUNTIME}: {what}"), case.initial
            )
        prestart(KERNEL_WORKER)
        return None if message is None else Failure(NUMBERS, RUNTIME, message)

    @contextmanager
    def _compiled(self, case: Case, report: Progress) -> Iterator[tuple[Path, Module]]:
        """Yields the artifact of a case, and the graph after the passes."""
        report("the compiler")
        build = Build(case.source_model, self.options)
        module = build.optimize()
        program = build.generate(build.lower(module))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "case.so"
            assemble(build, program, case, path)
            yield path, module

    def run_alone(self, case: Case, report: Progress) -> Failure | None:
        """Runs every kernel alone on its inputs from the interpreter, between inaccessible pages."""
        report("the compiler")
        build = Build(case.source_model, self.options)
        module = build.optimize()
        program = build.generate(build.lower(module))
        parts = cut_kernels(module, program.lowered)
        way = way_of(self.options.code(), pack=self.options.panels)
        trials = part_trials(case, module)
        found = Alone(parts, program, way, case.load, trials).check(lambda what: report(f"{ALONE}: {what}"))
        if found is None:
            return None
        what = found.wrong.difference
        return Failure(MEMORY if found.in_memory else NUMBERS, ALONE, str(what), what)


def assemble(build: Build, program: Program, case: Case, path: Path) -> None:
    """Writes the artifact of the case's function, given its compiled kernels."""
    objects = build.generate_entries(program)
    build.assemble(build.specify(program, lambda p: load_parameter(p, case.load)), objects, path)


class _Watching(Interpreter):
    """An interpreter that also records the arguments of regions, of the last iteration of each loop."""

    def __init__(self, module: Module, load: Load, observe: Observe, values: dict[str, Array]) -> None:
        super().__init__(module, load, observe=observe)
        self._seen = values

    def _run_region(
        self, region: Region, inputs: Sequence[Array], values: Mapping[str, Array], dims: Mapping[str, int]
    ) -> list[Array]:
        self._seen.update((v.name, np.asarray(a)) for v, a in zip(region.arguments, inputs, strict=True))
        return super()._run_region(region, inputs, values, dims)


def part_trials(case: Case, module: Module) -> Callable[[Part], list[Trial]]:
    """Returns a function that maps parts of the function after the passes to their inputs in the case's call."""
    values: dict[str, Array] = dict(case.arguments)

    def observe(node: Node, results: Sequence[Array]) -> None:
        values.update((v.name, array) for v, array in zip(node.outputs, results, strict=True))

    _Watching(module, case.load, observe, values).run(smaller.only_function(module), case.trial_arrays)

    def trials(part: Part) -> list[Trial]:
        names = tuple(v.name for v in part.function.arguments)
        if any(name not in values for name in names):
            return []  # a part of a loop or branch that did not run
        return [Trial(part.function.name, case.dims, case.kind, names, tuple(values[name] for name in names))]

    return trials


def failure_of(died: Died) -> Failure:
    """Returns the failure of a case that ended its child process."""
    if died.kind == HANG:
        return Failure(TIMEOUT, died.doing, died.message)
    if died.doing.startswith(ALONE):
        return Failure(MEMORY, ALONE, died.message)
    if died.doing.startswith(RUNTIME):
        return Failure(CRASH, RUNTIME, died.message)
    return Failure(CRASH, died.doing, died.message)


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]
