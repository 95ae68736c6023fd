"""The stages of a build, in order: text -> graph -> passes -> linalg -> machine code -> artifact.

1. `load_module`      text to a checked graph                    readers/
2. `open_parameters`  checkpoint headers against the graph       model/parameters.py, weights/
3. `GRAPH_PASSES`     graph to graph                             ../passes/
4. `lower_module`     graph to kernels, and calls of them        lower/
5. `compile_kernels`  linalg to machine code, in children        codegen/
6. `plan_entries`     buffer offsets of every tensor             host/plan.py, ../passes/analysis/plan_memory.py
7. `check_budgets`    model costs against the budgets            budgets.py
8. `compile_entries`  functions that call the kernels            codegen/
9. `build_artifact`   objects, weights, runtime to one library   artifact/
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ..dialect.diagnostics import Diagnostic, DiagnosticError, Note
from ..dialect.dims import bounds, format_size, symbols
from ..dialect.graph import Constant, Function, Module, walk
from ..dialect.interpreter import Load
from ..dialect.ops import OPERATORS
from ..dialect.printer import collect_elided, print_module
from ..dialect.requirements import Requirement, find_impossible, requirements
from ..dialect.states import session_dims, used_states
from ..dialect.types import Array
from ..passes.manager import FoldedConstant, Pass, PassManager, Remark, Rewrite, Stage
from ..passes.pipeline import parse_pipeline
from ..passes.simplify.check_indices import has_unchecked_indices
from .artifact.assemble import build_artifact
from .artifact.link import find_linker, merge_objects
from .artifact.spec import ArgumentSpec, ArtifactSpec, CallSpec, Constraint, EntrySpec, LevelSpec, StateSpec, WeightSpec
from .base.cache_folder import object_folder
from .base.files import check_writable
from .base.spans import relative_to, without_spans
from .budgets import Costs, check_budgets
from .codegen.objects import CodeGenerator, Program
from .dumps import Dumps
from .dumps.parts import Part
from .host.calls import describe_calls
from .host.plan import LoweredEntry
from .host.points import name_points
from .lower.module import Lowered, LoweredWeight, lower_module
from .model.parameters import ParameterReader, open_parameters
from .model.source import SourceModel
from .observer import Observer
from .options import Options
from .report import FunctionReport, report_kernels
from .sizes import WeightSizes, bound_of, measure_weights, too_large, with_most_bytes
from .stage_faults import contained
from .targets.target import MadeFor, Target
from .version import __version__


def source_hash(module: Module) -> str:
    """Returns a hash that identifies the model; comments and source locations do not change it."""
    return hashlib.sha256(print_module(without_spans(module)).encode()).hexdigest()


@dataclass
class Build:
    """One build, stage by stage; each stage takes the result of the previous one. Times are in seconds, by stage. The
    results of the passes, their remarks and the kernels are kept for a report. The observer may reject the result of a
    stage. `kernels` are texts that replace lowered kernels, by symbol."""

    source_model: SourceModel
    options: Options = field(default_factory=Options)
    dumps: Dumps = field(default_factory=Dumps)
    observer: Observer = field(default_factory=Observer)
    kernels: Mapping[str, Part] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    optimized: Module | None = None
    lowered: Lowered | None = None
    program: Program | None = None
    remarks: list[Remark] = field(default_factory=list)
    grown: list[FoldedConstant] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dumps.begin(self.options.stages)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        with contained(stage, self.source_model, self.optimized or self.source_model.module, self.options.flags):
            yield
        self.times[stage] = self.times.get(stage, 0.0) + time.perf_counter() - start

    def read_parameters(self) -> ParameterReader:
        with self._timed("parameters"):
            return open_parameters(self.source_model)

    def optimize(self) -> Module:
        """Runs the passes of the level and returns the resulting graph."""

        def watch(stage: Stage) -> None:
            if self.dumps.active:
                name = "graph" if stage.number == 0 else stage.name
                self.dumps.write_graph(name, stage.text, collect_elided(stage.module))

        self._check_sizes()
        with self._timed("passes"):
            passes = self.bounded_passes()
        accept = self.observer.accept_graph
        manager = PassManager(passes, watch=watch, accept=accept, rewrite_limit=self.options.rewrite_limit)
        with self._timed("passes"):
            self.optimized = manager.run(relative_to(self.source_model.module, self.source_model.file))
        self.remarks, self.rewrites, self.stages = manager.context.remarks, manager.context.rewrites, manager.stages
        self.grown = manager.context.grown
        return self.optimized

    def _check_sizes(self) -> None:
        """Raises DiagnosticError for a size that exceeds 64 bits in every call."""
        faults: list[Diagnostic] = []
        for function in self.source_model.module.functions:
            found = find_impossible(function)
            if found is not None:
                size, node = found
                message = (
                    f"the size {format_size(size)} is at least {max(map(abs, bounds(size)))}, which exceeds 64 bits"
                )
                notes = tuple(Note(f"the dims are: {symbol}") for symbol in sorted(symbols(size)))
                faults.append(Diagnostic("size-too-large", message, node.span if node else function.span, notes=notes))
        if faults:
            raise DiagnosticError(faults, self.source_model.sources)

    def bounded_passes(self) -> tuple[Pass, ...]:
        """Returns the passes of the level, limited to as many transformed weights as the size bound allows. Raises
        DiagnosticError if the other weights alone exceed the bound."""
        passes, bound = parse_pipeline(self.options.pipeline), self.options.size
        budget = bound_of(self.source_model.budgets, self.source_model.module)
        bounds = [each for each in (bound, budget) if each is not None]
        if not bounds or self.options.rewrite_limit is not None:
            return passes
        sizes, tried = self._sizes_after(passes), passes
        limit = min(each.bytes(sizes.parameters) for each in bounds)
        most = sizes.transformed
        while sizes.weights > limit and most > 0:
            fitting = sizes.transformed - (sizes.weights - limit)
            # Every iteration must lower `most`; if a smaller value does not reduce the transforms, none is stored.
            most = fitting if 0 < fitting < most else 0
            tried = with_most_bytes(passes, most)
            sizes = self._sizes_after(tried)
        if bound is not None and sizes.weights > bound.bytes(sizes.parameters):
            raise too_large(sizes, bound)
        return tried

    def _sizes_after(self, passes: Sequence[Pass]) -> WeightSizes:
        module = PassManager(passes).run(self.source_model.module)
        _check_lowerable(module)
        return self._measure(lower_module(module, pack=self.options.packs))

    def _measure(self, lowered: Lowered) -> WeightSizes:
        return measure_weights((self.source_model.written or self.source_model).module, lowered)

    @property
    def sizes(self) -> WeightSizes | None:
        """The sizes of the weights, once the graph has been lowered."""
        return None if self.lowered is None else self._measure(self.lowered)

    def lower(self, module: Module) -> Lowered:
        """Lowers the graph. Raises DiagnosticError if it still contains operators that cannot be lowered."""
        _check_lowerable(module)
        with self._timed("lower"):
            self.lowered = lower_module(module, pack=self.options.packs, debug=self.options.debug)
        return self.lowered

    def report(self, dims: Mapping[str, int] | None = None) -> tuple[FunctionReport, ...]:
        """Returns the report on the kernels at sizes of the dims, once the graph has been optimized. It includes the
        memory of calls if code has been generated."""
        assert self.optimized is not None, "there is nothing to report yet"
        lowered = self.lowered or self.lower(self.optimized)
        entries, untiled = (self.program.entries, self.program.untiled) if self.program is not None else ((), ())
        return report_kernels(self.optimized, lowered, self.remarks, dims, entries, untiled)

    def generate(self, lowered: Lowered) -> Program:
        """Generates the code of the kernels and plans the memory of all tensors. Raises CompilerFault."""
        with self._generator("kernels") as generator:
            program = self.program = generator.compile_kernels(lowered)
            assert self.optimized is not None, "nothing was optimized yet"
            self.observer.accept_kernels(self.optimized, program)
        return program

    def generate_entries(self, program: Program) -> tuple[bytes, ...]:
        """Returns all object files. Raises CompilerFault."""
        with self._generator("entries") as generator:
            return generator.compile_entries(program)

    @contextmanager
    def _generator(self, stage: str) -> Iterator[CodeGenerator]:
        generator = CodeGenerator(self.options.code(), self.dumps, self.kernels)
        with self._timed(stage):
            yield generator
        self.times |= {f"{stage}: {name}": seconds for name, seconds in generator.times.items()}

    def costs(self, module: Module, program: Program) -> Costs:
        return Costs(self.source_model.module, module, program)

    def check_budgets(self, module: Module, program: Program) -> None:
        """Checks the budgets that do not need an artifact. Raises DiagnosticError."""
        faults = check_budgets(self.source_model.budgets, self.costs(module, program))
        if faults:
            raise DiagnosticError(faults, self.source_model.sources)

    def merge(self, objects: Sequence[bytes]) -> bytes:
        """Merges the object files into one."""
        with self._timed("link"):
            return merge_objects(find_linker(self.options.cc, self.options.targets[0].triple), objects)

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
        with self._timed("link"):
            kept = object_folder() if self.options.cache else None
            build_artifact(
                spec,
                objects,
                output,
                weights=self.options.weights,
                cc=self.options.cc,
                kept=kept,
                triple=self.options.targets[0].triple,
                accept=self._accept,
            )

    def specify(self, program: Program, reader: Load) -> ArtifactSpec:
        """Returns the description of the artifact and its weights."""
        lowered = program.lowered
        assert self.optimized is not None, "nothing was compiled yet"
        functions = {f.name: f for f in self.source_model.module.functions}
        # Named values belong to the source model, whatever its precision.
        written = (self.source_model.written or self.source_model).module
        calls = []
        for function, entry in zip(lowered.functions, program.entries, strict=True):
            optimized = self.optimized.function(entry.name)
            calls.append(
                describe_calls(optimized, function, entry, name_points(written.function(entry.name), optimized))
            )
        return ArtifactSpec(
            name=lowered.name,
            entries=tuple(
                _specify_entry(entry, functions[entry.name], self.optimized, described)
                for entry, described in zip(program.entries, calls, strict=True)
            ),
            weights=tuple(WeightSpec(w.name, w.type, w.offset, partial(_data, w, reader)) for w in lowered.weights),
            levels=tuple(_specify_level(program, target) for target in self.options.targets),
            states=tuple(StateSpec(s.name, s.type, s.initial or 0, s.initial_bytes) for s in lowered.states),
            triple=_made_for(program, self.options.targets[0]).triple,
            compiler_version=__version__,
            source_hash=source_hash(self.source_model.module),
            options={
                "precision": self.source_model.precision,
                **{name: getattr(self.options, name) for name in ("level", "passes", "strict", "debug")},
            },
        )

    def run(self, output: Path) -> None:
        """Runs all stages. Raises DiagnosticError for an error in the input, CompilerFault for an internal error."""
        check_writable(output)
        reader = self.read_parameters()
        module = self.optimize()
        program = self.generate(self.lower(module))
        self.check_budgets(module, program)
        objects = self.generate_entries(program)
        self.assemble(self.specify(program, reader), objects, output)


def _made_for(program: Program, target: Target) -> MadeFor:
    return next(iter(program.kernels[target].values())).report.made_for


def _specify_level(program: Program, target: Target) -> LevelSpec:
    made_for = _made_for(program, target)
    suffix = target.suffix if len(program.kernels) > 1 else ""
    untiled = tuple((left.kernel, left.reason) for left in program.untiled if left.target == target)
    return LevelSpec(target.name, suffix, made_for.features, made_for.cpu, untiled)


def _check_lowerable(module: Module) -> None:
    """Raises DiagnosticError if the graph still contains operators that cannot be lowered."""
    if any(node.op == "repeat" for function in module.functions for node in walk(function.body)):
        help_text = "`unroll-repeat` unrolls loops unless the graph becomes too large"
        raise DiagnosticError([Diagnostic("repeat-left", "a loop remains after the passes", help=help_text)])
    if any(OPERATORS[n.op].has("blocked") for function in module.functions for n in walk(function.body)):
        help_text = "`split-blocks` and `fold-parameters` replace them by quantized values and scales"
        message = "block-quantized values remain after the passes"
        raise DiagnosticError([Diagnostic("blocks-left", message, help=help_text)])
    if any(has_unchecked_indices(function.body) for function in module.functions):
        message = "unchecked indices remain after the passes"
        raise DiagnosticError([Diagnostic("indices-unchecked", message, help="`check-indices` is the first pass")])


def _requirements(entry: LoweredEntry, written: Function, optimized: Function) -> tuple[Requirement, ...]:
    """Returns the requirements of both graphs on the dims, without those that every call checks anyway."""
    known = [v.type.bytes for v in (*written.arguments, *written.results)]
    found = {r: None for graph in (written, optimized) for r in requirements(graph, [*known, entry.workspace])}
    return tuple(found)


def _specify_entry(entry: LoweredEntry, function: Function, module: Module, calls: tuple[CallSpec, ...]) -> EntrySpec:
    symbol, observed = entry.symbols()
    optimized = module.function(entry.name)
    positions = {state.name: position for position, state in enumerate(module.states)}
    bound = session_dims(used_states(module, function))
    return EntrySpec(
        name=entry.name,
        symbol=symbol,
        arguments=tuple(ArgumentSpec(v.name, v.type) for v in function.inputs),
        results=tuple(
            ArgumentSpec(name, v.type) for name, v in zip(function.result_names, function.outputs, strict=False)
        ),
        dims=entry.dims,
        workspace=entry.workspace,
        constraints=tuple(
            Constraint(r.size, ">=" if r.extent else "fits", 0) for r in _requirements(entry, function, optimized)
        ),
        observed=observed,
        calls=calls,
        checks=entry.checks,
        states=tuple(positions[name] for name in function.states),
        session_dims=bound,
    )


def _data(weight: LoweredWeight, reader: Load) -> Array:
    return weight.store(weight.source.data if isinstance(weight.source, Constant) else reader(weight.source))
