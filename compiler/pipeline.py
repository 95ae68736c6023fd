"""The stages of a build, in order: text -> graph -> passes -> linalg -> machine code -> artifact.

1. `load_module`      text to a checked graph                    frontend/
2. `open_parameters`  checkpoint headers against the graph       parameters.py, checkpoint/
3. `GRAPH_PASSES`     graph to graph                             ../passes/
4. `lower_module`     graph to kernels, and calls of them        lower/
5. `compile_kernels`  linalg to machine code, in children        codegen/
6. `plan_entries`     where every tensor lives                   lower/plan.py, ../passes/plan_memory.py
7. `check_budgets`    what the model may cost                    budgets.py
8. `compile_entries`  what calls the kernels, to machine code    codegen/
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
from ..dialect.types import Array
from ..passes.check_indices import has_unchecked_indices
from ..passes.manager import FoldedConstant, Pass, PassManager, Remark, Rewrite, Stage
from ..passes.pipeline import parse_pipeline
from .artifact.assemble import Placement, build_artifact
from .artifact.link import find_linker, merge_objects
from .artifact.spec import ArgumentSpec, ArtifactSpec, CallSpec, Constraint, EntrySpec, LevelSpec, WeightSpec
from .budgets import Costs, check_budgets
from .cache_folder import object_folder
from .calls import describe_calls
from .codegen.job import MadeFor
from .codegen.objects import CodeGenerator, CodeOptions, Program
from .codegen.routes import FIRST, code_stages
from .codegen.target import Target
from .dumps import Dumps
from .dumps.dumps import plain_name
from .dumps.parts import Part
from .files import check_writable
from .frontend import Elaborated
from .lower.module import Lowered, LoweredWeight, lower_module
from .lower.plan import LoweredEntry
from .observer import Observer
from .parameters import ParameterReader, open_parameters
from .points import name_points
from .precision.require import check_requirements
from .report import FunctionReport, report_kernels
from .sizes import SizeBound, WeightSizes, bound_of, measure_weights, too_large, with_most_bytes
from .spans import relative_to, without_spans
from .stage_faults import contained
from .version import __version__

_BLOCKS = "split-blocks,fold-parameters{blocks-only=true}"


def _optimizing(convolutions: str, parameters: str) -> str:
    # Parameters are folded last, when all that can be told of them stands there.
    blocks = "split-blocks{contract=true},fold-parameters{blocks-only=true}"
    first = f"check-indices,canonicalize,unroll-repeat,fold-constants,{blocks},decompose{{having=attention}}"
    return f"{first},{convolutions},canonicalize,fold-constants,dce,{parameters},canonicalize,cse,dce,fuse"


GRAPH_PASSES: Mapping[int, str] = {
    # The oracle: what cannot be left out, and nothing else.
    0: f"check-indices,unroll-repeat,fold-constants,{_BLOCKS},dce",
    1: f"check-indices,canonicalize,unroll-repeat,fold-constants,{_BLOCKS},fold-parameters{{moves-only=true}},cse,dce",
    2: _optimizing("propagate,narrow-weights,fold-batch-norm,sub-pixel,channels-last,winograd", "fold-parameters"),
    3: _optimizing("propagate,narrow-weights,fold-batch-norm,sub-pixel,channels-last,winograd", "fold-parameters"),
}
"""The passes of each optimisation level."""

STRICT_PASSES: Mapping[int, str] = {
    **GRAPH_PASSES,
    2: _optimizing(
        "propagate{requantize=false},narrow-weights,sub-pixel,channels-last", "fold-parameters{stepwise=true}"
    ),
    3: _optimizing(
        "propagate{requantize=false},narrow-weights,sub-pixel,channels-last", "fold-parameters{stepwise=true}"
    ),
}
"""The same without what changes how results are rounded by more than another order of sums."""


@dataclass(frozen=True, slots=True)
class Options:
    """What changes the artifact. `passes` replaces those of the level; code generation may take `timeout` seconds.

    `strict` leaves out the passes that change how results are rounded by more than another order of sums. After
    `rewrite_limit` changes the passes make no more, so that a wrong one can be found. `cache` changes nothing of it:
    objects that were made before are taken, and those that are made are kept. `debug` adds what debuggers and profilers
    read, and leaves the code as it is. `start` is the stage of code generation whose texts the build is given. `size`
    bounds the weights of the artifact.
    """

    targets: tuple[Target, ...] = (Target(),)
    level: int = 2
    weights: Placement = "embedded"
    passes: str | None = None
    strict: bool = False
    cc: str | None = None
    timeout: float = 600.0
    cache: bool = True
    debug: bool = False
    start: str = FIRST
    rewrite_limit: int | None = None
    size: SizeBound | None = None

    @property
    def pipeline(self) -> str:
        levels = STRICT_PASSES if self.strict else GRAPH_PASSES
        return levels[self.level] if self.passes is None else self.passes

    @property
    def packs(self) -> bool:
        """Are weights stored as contractions read them?"""
        return self.level >= 2

    def code(self) -> CodeOptions:
        return CodeOptions(
            self.targets,
            self.level,
            self.timeout,
            cache=self.cache,
            strict=self.strict,
            debug=self.debug,
            start=self.start,
        )

    @property
    def flags(self) -> tuple[str, ...]:
        """The options of the command that builds with these, but for what only changes how it is done."""
        chosen = {"--strict": self.strict, "-g": self.debug, "--weights=external": self.weights == "external"}
        passes = [] if self.passes is None else ["--passes", self.passes]
        targets = ",".join(target.name for target in self.targets)
        flags = (flag for flag, wanted in chosen.items() if wanted)
        size = [] if self.size is None else ["--size", str(self.size)]
        return (f"-O{self.level}", "--target", targets, *flags, *passes, *size, "--timeout", f"{self.timeout:g}")

    @property
    def stages(self) -> tuple[str, ...]:
        """Every stage whose text can be dumped, in order; a pass may stand there more than once."""
        code = list(code_stages(self.level))
        return ("graph", *(step.name for step in parse_pipeline(self.pipeline)), *code[code.index(self.start) :])

    def language(self, stage: str) -> str:
        """The language of a stage's text, which is also the suffix of its file."""
        return code_stages(self.level).get(plain_name(stage), "graph")


def source_hash(module: Module) -> str:
    """What tells one model from another: not comments, nor where it lies."""
    return hashlib.sha256(print_module(without_spans(module)).encode()).hexdigest()


@dataclass
class Build:
    """One build, stage by stage; every stage takes what the one before left. Times are in seconds, by stage; what the
    passes made, their remarks and the kernels are kept for a report. The observer may refuse what a stage made.
    `kernels` are texts in place of those that the graph is lowered to, by symbol."""

    elaborated: Elaborated
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
        with contained(stage, self.elaborated, self.optimized or self.elaborated.module, self.options.flags):
            yield
        self.times[stage] = self.times.get(stage, 0.0) + time.perf_counter() - start

    def read_parameters(self) -> ParameterReader:
        with self._timed("parameters"):
            return open_parameters(self.elaborated)

    def optimize(self) -> Module:
        """The graph after the passes of the level."""

        def watch(stage: Stage) -> None:
            if self.dumps.active:
                name = "graph" if stage.number == 0 else stage.name
                self.dumps.write_graph(name, stage.text, collect_elided(stage.module))

        self._check_sizes()
        with self._timed("passes"):
            passes = self._bounded_passes()
        accept = self.observer.accept_graph
        manager = PassManager(passes, watch=watch, accept=accept, rewrite_limit=self.options.rewrite_limit)
        with self._timed("passes"):
            self.optimized = manager.run(relative_to(self.elaborated.module, self.elaborated.file))
        self.remarks, self.rewrites, self.stages = manager.context.remarks, manager.context.rewrites, manager.stages
        self.grown = manager.context.grown
        return self.optimized

    def _check_sizes(self) -> None:
        """Raises DiagnosticError for a size that 64 bits cannot hold in any call."""
        faults: list[Diagnostic] = []
        for function in self.elaborated.module.functions:
            found = find_impossible(function)
            if found is not None:
                size, node = found
                message = (
                    f"the size {format_size(size)} is at least {max(map(abs, bounds(size)))}, 64 bits cannot hold it"
                )
                notes = tuple(Note(f"the dims are: {symbol}") for symbol in sorted(symbols(size)))
                faults.append(Diagnostic("size-too-large", message, node.span if node else function.span, notes=notes))
        if faults:
            raise DiagnosticError(faults, self.elaborated.sources)

    def _bounded_passes(self) -> tuple[Pass, ...]:
        """The passes of the level, which store as many transformed weights as the bound of the size allows. Raises
        DiagnosticError where the other weights alone are more."""
        passes, bound = parse_pipeline(self.options.pipeline), self.options.size
        budget = bound_of(self.elaborated.budgets, self.elaborated.module)
        bounds = [each for each in (bound, budget) if each is not None]
        if not bounds or self.options.rewrite_limit is not None:
            return passes
        sizes, tried = self._sizes_after(passes), passes
        limit = min(each.bytes(sizes.parameters) for each in bounds)
        most = sizes.transformed
        while sizes.weights > limit and most > 0:
            fitting = sizes.transformed - (sizes.weights - limit)
            # No transform is stored if a smaller bound does not make them fewer: every turn has to come nearer.
            most = fitting if 0 < fitting < most else 0
            tried = with_most_bytes(passes, most)
            sizes = self._sizes_after(tried)
        if bound is not None and sizes.weights > bound.bytes(sizes.parameters):
            raise too_large(sizes, bound)
        return tried

    def _sizes_after(self, passes: Sequence[Pass]) -> WeightSizes:
        module = PassManager(passes).run(self.elaborated.module)
        _check_lowerable(module)
        return self._measure(lower_module(module, pack=self.options.packs))

    def _measure(self, lowered: Lowered) -> WeightSizes:
        return measure_weights((self.elaborated.written or self.elaborated).module, lowered)

    @property
    def sizes(self) -> WeightSizes | None:
        """How large the weights are, once the graph has been lowered."""
        return None if self.lowered is None else self._measure(self.lowered)

    def lower(self, module: Module) -> Lowered:
        """Raises DiagnosticError where the passes left what cannot be lowered."""
        _check_lowerable(module)
        with self._timed("lower"):
            self.lowered = lower_module(module, pack=self.options.packs, debug=self.options.debug)
        return self.lowered

    def report(self, dims: Mapping[str, int] | None = None) -> tuple[FunctionReport, ...]:
        """What the kernels are, at sizes of the dims, once the graph has been optimized; and what memory their calls
        need, once there is code."""
        assert self.optimized is not None, "there is nothing to report yet"
        lowered = self.lowered or self.lower(self.optimized)
        entries, untiled = (self.program.entries, self.program.untiled) if self.program is not None else ((), ())
        return report_kernels(self.optimized, lowered, self.remarks, dims, entries, untiled)

    def generate(self, lowered: Lowered) -> Program:
        """The code of the kernels, and where all tensors live. Raises CompilerFault."""
        with self._generator("kernels") as generator:
            program = self.program = generator.compile_kernels(lowered)
            assert self.optimized is not None, "nothing was optimized yet"
            self.observer.accept_kernels(self.optimized, program)
        return program

    def generate_entries(self, program: Program) -> tuple[bytes, ...]:
        """All object files. Raises CompilerFault."""
        with self._generator("entries") as generator:
            return generator.compile_entries(program)

    @contextmanager
    def _generator(self, stage: str) -> Iterator[CodeGenerator]:
        generator = CodeGenerator(self.options.code(), self.dumps, self.kernels)
        with self._timed(stage):
            yield generator
        self.times |= {f"{stage}: {name}": seconds for name, seconds in generator.times.items()}

    def costs(self, module: Module, program: Program) -> Costs:
        return Costs(self.elaborated.module, module, program)

    def check_budgets(self, module: Module, program: Program) -> None:
        """What can be told before there is an artifact. Raises DiagnosticError."""
        faults = check_budgets(self.elaborated.budgets, self.costs(module, program))
        if faults:
            raise DiagnosticError(faults, self.elaborated.sources)

    def merge(self, objects: Sequence[bytes]) -> bytes:
        """One object file that is all of them."""
        with self._timed("link"):
            return merge_objects(find_linker(self.options.cc, self.options.targets[0].triple), objects)

    def _accept(self, artifact: Path) -> None:
        """Looks at an artifact before it takes its place."""
        self.observer.accept_artifact(artifact)
        runs_here = any(target.runs_here for target in self.options.targets)
        check_requirements(self.elaborated, artifact, self._compile_written, runs_here=runs_here)

    def _compile_written(self, written: Elaborated, output: Path) -> None:
        """The model before it was rounded, for this artifact to be compared with."""
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
        """What the artifact says of itself, and its weights."""
        lowered = program.lowered
        assert self.optimized is not None, "nothing was compiled yet"
        functions = {f.name: f for f in self.elaborated.module.functions}
        # Points are values of the model, whatever its precision.
        written = (self.elaborated.written or self.elaborated).module
        calls = []
        for function, entry in zip(lowered.functions, program.entries, strict=True):
            optimized = self.optimized.function(entry.name)
            calls.append(
                describe_calls(optimized, function, entry, name_points(written.function(entry.name), optimized))
            )
        return ArtifactSpec(
            name=lowered.name,
            entries=tuple(
                _specify_entry(entry, functions[entry.name], self.optimized.function(entry.name), described)
                for entry, described in zip(program.entries, calls, strict=True)
            ),
            weights=tuple(WeightSpec(w.name, w.type, w.offset, partial(_data, w, reader)) for w in lowered.weights),
            levels=tuple(_specify_level(program, target) for target in self.options.targets),
            triple=_made_for(program, self.options.targets[0]).triple,
            compiler_version=__version__,
            source_hash=source_hash(self.elaborated.module),
            options={
                "precision": self.elaborated.precision,
                **{name: getattr(self.options, name) for name in ("level", "passes", "strict", "debug")},
            },
        )

    def run(self, output: Path) -> None:
        """All stages. Raises DiagnosticError for a fault of the input, CompilerFault for one of the compiler."""
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
    """Raises DiagnosticError where the passes left what cannot be lowered."""
    if any(node.op == "repeat" for function in module.functions for node in walk(function.body)):
        help_text = "`unroll-repeat` takes loops apart, as long as the graph does not become too large"
        raise DiagnosticError([Diagnostic("repeat-left", "the passes leave a loop in the graph", help=help_text)])
    if any(OPERATORS[n.op].has("blocked") for function in module.functions for n in walk(function.body)):
        help_text = "`split-blocks` and `fold-parameters` make codes and scales of them"
        message = "the passes leave values in blocks in the graph"
        raise DiagnosticError([Diagnostic("blocks-left", message, help=help_text)])
    if any(has_unchecked_indices(function.body) for function in module.functions):
        message = "the passes leave indices in the graph that are not checked"
        raise DiagnosticError([Diagnostic("indices-unchecked", message, help="`check-indices` is the first pass")])


def _requirements(entry: LoweredEntry, written: Function, optimized: Function) -> tuple[Requirement, ...]:
    """What the two graphs require of the dims, besides what a call checks anyway."""
    known = [v.type.bytes for v in (*written.arguments, *written.results)]
    found = {r: None for graph in (written, optimized) for r in requirements(graph, [*known, entry.workspace])}
    return tuple(found)


def _specify_entry(
    entry: LoweredEntry, function: Function, optimized: Function, calls: tuple[CallSpec, ...]
) -> EntrySpec:
    symbol, observed = entry.symbols()
    return EntrySpec(
        name=entry.name,
        symbol=symbol,
        arguments=tuple(ArgumentSpec(v.name, v.type) for v in function.arguments),
        results=tuple(
            ArgumentSpec(name, v.type) for name, v in zip(function.result_names, function.results, strict=True)
        ),
        dims=entry.dims,
        workspace=entry.workspace,
        constraints=tuple(
            Constraint(r.size, ">=" if r.extent else "fits", 0) for r in _requirements(entry, function, optimized)
        ),
        observed=observed,
        calls=calls,
        checks=entry.checks,
    )


def _data(weight: LoweredWeight, reader: Load) -> Array:
    return weight.store(weight.source.data if isinstance(weight.source, Constant) else reader(weight.source))
