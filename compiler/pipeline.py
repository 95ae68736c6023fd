"""A build: it runs the stages of `stages.py`, keeps their results, and reports on them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ..dialect.diagnostics import DiagnosticError
from ..dialect.graph import Module
from ..dialect.interpreter import Load
from ..dialect.lazy_dataclass import dataclass
from ..dialect.printer import collect_elided
from ..passes.fusion.recompute import Recompute
from ..passes.manager import FoldedConstant, Pass, PassError, PassManager, Remark, Rewrite, Stage
from .artifact.assemble import build_artifact, check_placement
from .artifact.link import merge_objects
from .artifact.spec import ArtifactSpec
from .base.cache_folder import object_folder
from .base.files import check_writable
from .base.spans import relative_to
from .budgets import Costs, check_budgets, recompute_cost
from .codegen.objects import LOGGER, CodeGenerator, Program
from .describe import join_device, specify
from .dumps import Dumps
from .dumps.kernel_texts import Part
from .lower.module import Lowered
from .model.parameters import ParameterReader, absent_checkpoints, open_parameters
from .model.policy import TF32
from .model.source import SourceModel
from .observer import Observer
from .options import Options
from .packed_weights import packable, unread_note, with_packed_floats
from .report import FunctionReport, report_kernels
from .size_bounds import bounded_passes, check_sizes, lower_graph, sizes_of
from .stage_errors import contained
from .stages import (
    BUDGETS,
    DESCRIPTION,
    ENTRIES,
    GRAPH,
    KERNELS,
    LINK,
    LOWER,
    PARAMETERS,
    PASSES,
    BuildStage,
    needed_stages,
)
from .weight_sizes import WeightSizes

_LOG = logging.getLogger(LOGGER)


@dataclass
class Build:
    """One build, stage by stage: `make` runs the stages that give the wanted results, which are kept here. Times are in
    seconds, by stage. The observer may reject the result of a stage. `kernels` are texts that replace lowered kernels,
    by symbol. `output` is the path of the library."""

    source_model: SourceModel
    options: Options = field(default_factory=Options)
    dumps: Dumps = field(default_factory=Dumps)
    observer: Observer = field(default_factory=Observer)
    kernels: Mapping[str, Part] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    output: Path | None = None
    reader: ParameterReader | None = None
    optimized: Module | None = None
    lowered: Lowered | None = None
    program: Program | None = None
    within_budget: bool | None = None
    objects: tuple[bytes, ...] | None = None
    spec: ArtifactSpec | None = None
    library: Path | None = None
    remarks: list[Remark] = field(default_factory=list)
    grown: list[FoldedConstant] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)
    recomputed: list[str] = field(default_factory=list)
    unpacked: list[str] = field(default_factory=list)
    further: tuple[Build, ...] = ()
    """The builds of the same model for the other families of targets; their code becomes part of the same library."""

    def __post_init__(self) -> None:
        self.dumps.begin(self.options.stages)
        self.further = tuple(
            Build(self.source_model, options, observer=self.observer.of_further(options))
            for options in self.options.further
        )

    @contextmanager
    def _timed(self, stage: BuildStage) -> Iterator[None]:
        start = time.perf_counter()
        with contained(stage.name, self.source_model, self.optimized or self.source_model.module, self.options.flags):
            yield
        self.times[stage.name] = self.times.get(stage.name, 0.0) + time.perf_counter() - start

    def make(self, *results: str) -> None:
        """Runs the stages that give the results, unless they were run before. Raises DiagnosticError for an error in
        the input, CompilerError for an internal error."""
        for stage in needed_stages(results):
            if getattr(self, stage.gives) is None:
                _LOG.info("compiling `%s`: %s", self.source_model.module.name, stage.name)
                taken = [getattr(self, name) for name in stage.takes]
                setattr(self, stage.gives, _RUN[stage.name](self, *taken))

    def read_parameters(self) -> ParameterReader:
        with self._timed(PARAMETERS):
            return open_parameters(self.source_model)

    def optimize(self) -> Module:
        """Runs the passes of the level and returns the resulting graph."""

        before: list[Module] = [self.source_model.module]

        def watch(stage: Stage) -> None:
            if isinstance(stage.step, Recompute) and stage.changed:
                self.recomputed.append(recompute_cost(before[0], stage.module, stage.step))
            before[0] = stage.module
            if self.dumps.active:
                name = GRAPH if stage.number == 0 else stage.name
                self.dumps.write_graph(name, stage.text, collect_elided(stage.module))

        check_sizes(self.source_model)
        with self._timed(PASSES):
            passes: Sequence[Pass] = bounded_passes(self.source_model, self.options)
        passes = self._with_packed_floats(passes)
        accept = self.observer.accept_graph
        manager = PassManager(passes, watch=watch, accept=accept, rewrite_limit=self.options.rewrite_limit)
        with self._timed(PASSES):
            try:
                self.optimized = manager.run(relative_to(self.source_model.module, self.source_model.file))
            except PassError:
                # A wrong graph may be the cause.
                self.observer.accept_passes()
                raise
            self.observer.accept_passes()
        self.remarks, self.rewrites, self.stages = manager.context.remarks, manager.context.rewrites, manager.stages
        self.grown = manager.context.grown
        return self.optimized

    def _with_packed_floats(self, passes: Sequence[Pass]) -> Sequence[Pass]:
        """Returns the passes with the choice of weights that are packed, for which the parameters are read. If their
        data is absent, `unpacked` becomes a note."""
        targets = self.options.targets
        chosen = packable(passes, self.source_model.module, targets)
        if not chosen:
            return passes
        if self.reader is None and absent_checkpoints(self.source_model):
            self.unpacked.append(unread_note(chosen))
            return passes
        self.make(PARAMETERS.gives)
        assert self.reader is not None, "the parameters were not read"
        with self._timed(PASSES):
            return with_packed_floats(passes, chosen, targets, self.reader)

    @property
    def sizes(self) -> WeightSizes | None:
        """The sizes of the weights, once the graph has been lowered."""
        return None if self.lowered is None else sizes_of(self.source_model, self.lowered)

    def lower(self, module: Module) -> Lowered:
        """Lowers the graph. Raises DiagnosticError if it still contains operators that cannot be lowered."""
        with self._timed(LOWER):
            self.lowered = lower_graph(module, self.options)
        if self.dumps.active:
            with self._generator(LOWER) as generator:
                generator.write_kernels(self.lowered)
        return self.lowered

    def report(self, dims: Mapping[str, int] | None = None) -> tuple[FunctionReport, ...]:
        """Returns the report on the kernels at sizes of the dims, once the graph has been optimized. It includes the
        memory of calls if code has been generated."""
        assert self.optimized is not None, "there is nothing to report yet"
        lowered = self.lowered or self.lower(self.optimized)
        return report_kernels(self.optimized, lowered, self.remarks, dims, self.program)

    def generate(self, lowered: Lowered) -> Program:
        """Generates the code of the kernels and plans the memory of all tensors. Raises CompilerError."""
        with self._generator(KERNELS) as generator:
            program = self.program = generator.compile_kernels(lowered)
            assert self.optimized is not None, "nothing was optimized yet"
            self.observer.accept_kernels(self.optimized, program)
        return program

    def generate_entries(self, program: Program) -> tuple[bytes, ...]:
        """Returns all object files. Raises CompilerError."""
        with self._generator(ENTRIES) as generator:
            objects = generator.compile_entries(program)
        for build in self.further:
            build.reader = self.reader
            build.make(ENTRIES.gives)
            objects += build.objects or ()
        return objects

    @contextmanager
    def _generator(self, stage: BuildStage) -> Iterator[CodeGenerator]:
        code = replace(self.options.code(), tf32=self.source_model.precision == TF32)
        generator = CodeGenerator(code, self.dumps, self.kernels)
        with self._timed(stage):
            yield generator
        self.times |= {f"{stage.name}: {name}": seconds for name, seconds in generator.times.items()}

    def costs(self, module: Module, program: Program) -> Costs:
        return Costs(self.source_model.module, module, program)

    def check_budgets(self, module: Module, program: Program) -> bool:
        """Checks the budgets that do not need an artifact. Raises DiagnosticError if one is exceeded."""
        errors = check_budgets(self.source_model.budgets, self.costs(module, program))
        if errors:
            raise DiagnosticError(errors, self.source_model.sources)
        return True

    def merge(self, objects: Sequence[bytes]) -> bytes:
        """Merges the object files into one."""
        with self._timed(LINK):
            return merge_objects(self.options.linker(), objects)

    def _accept(self, artifact: Path) -> None:
        """Checks an artifact before it is renamed to its final path."""
        self.observer.accept_artifact(artifact)
        if self.source_model.acceptance is not None:
            runs_here = any(target.runs_here for target in self.options.targets)
            self.source_model.acceptance(self.source_model, artifact, self._compile_written, runs_here)

    def _compile_written(self, written: SourceModel, output: Path) -> None:
        """Builds the model before quantization, for a comparison with this artifact."""
        Build(replace(written, policies=(), budgets=()), replace(self.options, weights="embedded")).run(output)

    def assemble(self, spec: ArtifactSpec, objects: Sequence[bytes], output: Path) -> None:
        with self._timed(LINK):
            kept = object_folder() if self.options.cache else None
            build_artifact(
                spec,
                objects,
                output,
                weights=self.options.weights,
                kept=kept,
                find=self.options.linker,
                accept=self._accept,
            )

    def specify(self, program: Program, reader: Load) -> ArtifactSpec:
        """Returns the description of the artifact and its weights."""
        assert self.optimized is not None, "nothing was compiled yet"
        with self._timed(DESCRIPTION):
            spec = specify(self.source_model, self.optimized, self.options, program, reader)
        for build in self.further:
            build.reader = self.reader
            build.make(DESCRIPTION.gives)
            assert build.spec is not None
            spec = join_device(spec, build.spec)
        return spec

    def link(self, spec: ArtifactSpec, objects: Sequence[bytes]) -> Path:
        assert self.output is not None, "no path was given"
        self.assemble(spec, objects, self.output)
        return self.output

    def run(self, output: Path) -> None:
        """Builds the library. Raises DiagnosticError and CompilerError."""
        check_writable(output)
        self.output, self.library = output, None
        self.make(PARAMETERS.gives, LOWER.gives)
        assert self.lowered is not None, "nothing was lowered yet"
        # Large models take the longest to generate code for, so the limit comes before that.
        check_placement(self.options.weights, self.lowered.weight_bytes)
        self.make(BUDGETS.gives, LINK.gives)


_RUN: Mapping[str, Callable[..., Any]] = {
    PARAMETERS.name: Build.read_parameters,
    PASSES.name: Build.optimize,
    LOWER.name: Build.lower,
    KERNELS.name: Build.generate,
    BUDGETS.name: Build.check_budgets,
    ENTRIES.name: Build.generate_entries,
    DESCRIPTION.name: Build.specify,
    LINK.name: Build.link,
}
"""The function of each stage: it takes the results that the stage names, and returns the one that it gives."""
