"""The stages of a build, in order: text -> graph -> passes -> linalg -> machine code -> artifact.

1. `load_module`      text to a checked graph                    frontend/
2. `open_parameters`  checkpoint headers against the graph       parameters.py, checkpoint/
3. `GRAPH_PASSES`     graph to graph                             ../passes/
4. `lower_module`     graph to kernels, entries, memory plan     lower/
5. `check_budgets`    what the model may cost                    budgets.py
6. `generate_object`  linalg to machine code, in a child         codegen/
7. `build_artifact`   object, weights, runtime to one library    artifact/
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from ..dialect.diagnostics import Diagnostic, DiagnosticError
from ..dialect.graph import Constant, Function, Module, walk
from ..dialect.printer import print_module
from ..dialect.types import Array
from ..passes.manager import PassManager, Stage
from ..passes.pipeline import parse_pipeline
from .artifact.assemble import Placement, build_artifact
from .artifact.spec import ArgumentSpec, ArtifactSpec, EntrySpec, WeightSpec
from .budgets import Costs, check_budgets
from .codegen.object import generate_object
from .codegen.routes import LEVELS, ROUTES
from .codegen.target import Target
from .dumps import Dumps
from .files import check_writable
from .frontend import Elaborated
from .lower.module import Lowered, LoweredEntry, LoweredWeight, lower_module
from .parameters import ParameterReader, open_parameters
from .spans import relative_to, without_spans
from .version import __version__

GRAPH_PASSES: Mapping[int, str] = {
    # The oracle: what cannot be left out, and nothing else.
    0: "unroll-repeat,fold-constants,dce",
    1: "canonicalize,unroll-repeat,fold-constants,transpose-parameters,cse,dce",
    2: "canonicalize,unroll-repeat,fold-constants,transpose-parameters,canonicalize,cse,dce,fuse-elementwise",
    3: "canonicalize,unroll-repeat,fold-constants,transpose-parameters,canonicalize,cse,dce,fuse-elementwise",
}
"""The passes of each optimisation level."""


@dataclass(frozen=True, slots=True)
class Options:
    """What changes the artifact. `passes` replaces those of the level; code generation may take `timeout` seconds."""

    target: Target = field(default_factory=Target)
    level: int = 2
    weights: Placement = "embedded"
    passes: str | None = None
    cc: str | None = None
    timeout: float = 600.0

    @property
    def pipeline(self) -> str:
        return GRAPH_PASSES[self.level] if self.passes is None else self.passes

    @property
    def stages(self) -> tuple[str, ...]:
        """Every stage whose text can be dumped, in order; a pass may stand there more than once."""
        passes = (step.name for step in parse_pipeline(self.pipeline))
        route = (stage.name for stage in ROUTES[LEVELS[self.level]].stages)
        return ("graph", *passes, "linalg", *route, "llvm-ir", "optimized", "assembly")


def source_hash(module: Module) -> str:
    """What tells one model from another: not comments, nor where it lies."""
    return hashlib.sha256(print_module(without_spans(module)).encode()).hexdigest()


@dataclass
class Build:
    """One build, stage by stage; every stage takes what the one before left. Times are in seconds, by stage."""

    elaborated: Elaborated
    options: Options = field(default_factory=Options)
    dumps: Dumps = field(default_factory=Dumps)
    times: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.times[stage] = self.times.get(stage, 0.0) + time.perf_counter() - start

    def read_parameters(self) -> ParameterReader:
        with self._timed("parameters"):
            return open_parameters(self.elaborated)

    def optimize(self) -> Module:
        """The graph after the passes of the level."""

        def watch(stage: Stage) -> None:
            if self.dumps.active:
                self.dumps.write("graph" if stage.number == 0 else stage.name, "graph", stage.text)

        manager = PassManager(parse_pipeline(self.options.pipeline), watch=watch)
        with self._timed("passes"):
            return manager.run(relative_to(self.elaborated.module, self.elaborated.file))

    def lower(self, module: Module) -> Lowered:
        """Raises DiagnosticError where the passes left what cannot be lowered."""
        if any(node.op == "repeat" for function in module.functions for node in walk(function.body)):
            help_text = "`unroll-repeat` takes loops apart, as long as the graph does not become too large"
            raise DiagnosticError([Diagnostic("repeat-left", "the passes leave a loop in the graph", help=help_text)])
        with self._timed("lower"):
            return lower_module(module)

    def costs(self, module: Module, lowered: Lowered) -> Costs:
        return Costs(self.elaborated.module, module, lowered)

    def check_budgets(self, module: Module, lowered: Lowered) -> None:
        """What can be told before machine code is made. Raises DiagnosticError."""
        faults = check_budgets(self.elaborated.budgets, self.costs(module, lowered))
        if faults:
            raise DiagnosticError(faults, self.elaborated.sources)

    def generate(self, lowered: Lowered) -> bytes:
        """The object file. Raises CompilerFault."""
        with TemporaryDirectory(prefix="nacre-dump-") as name:
            folder = Path(name) if self.dumps.active else None
            try:
                with self._timed("codegen"):
                    result = generate_object(
                        lowered, self.options.target, self.options.level, folder, timeout=self.options.timeout
                    )
            finally:
                # Where it failed, the stages before are what one wants to see.
                for path in sorted(Path(name).iterdir()):
                    stage = path.stem.split("-", 1)[1]
                    self.dumps.write(stage, path.suffix.removeprefix("."), path.read_text(encoding="utf-8"))
        self.times |= {f"codegen: {stage}": seconds for stage, seconds in result.times.items()}
        return result.code

    def assemble(self, spec: ArtifactSpec, code: bytes, output: Path) -> None:
        with self._timed("link"):
            build_artifact(spec, [code], output, weights=self.options.weights, cc=self.options.cc)

    def specify(self, lowered: Lowered, reader: ParameterReader) -> ArtifactSpec:
        """What the artifact says of itself, and its weights."""
        functions = {f.name: f for f in self.elaborated.module.functions}
        target = self.options.target
        return ArtifactSpec(
            name=lowered.name,
            entries=tuple(_specify_entry(e, functions[e.name]) for e in lowered.entries),
            weights=tuple(WeightSpec(w.name, w.type, w.offset, _data(w, reader)) for w in lowered.weights),
            target={"cpu": target.cpu, "triple": target.triple, "features": target.features},
            compiler_version=__version__,
            source_hash=source_hash(self.elaborated.module),
            options={"level": self.options.level, "passes": self.options.passes},
        )

    def run(self, output: Path) -> None:
        """All stages. Raises DiagnosticError for a fault of the input, CompilerFault for one of the compiler."""
        check_writable(output)
        reader = self.read_parameters()
        module = self.optimize()
        lowered = self.lower(module)
        self.check_budgets(module, lowered)
        code = self.generate(lowered)
        self.assemble(self.specify(lowered, reader), code, output)


def _specify_entry(entry: LoweredEntry, function: Function) -> EntrySpec:
    return EntrySpec(
        name=entry.name,
        symbol=entry.symbol,
        arguments=tuple(ArgumentSpec(v.name, v.type) for v in function.arguments),
        results=tuple(
            ArgumentSpec(name, v.type) for name, v in zip(function.result_names, function.results, strict=True)
        ),
        dims=entry.dims,
        workspace=entry.workspace,
    )


def _data(weight: LoweredWeight, reader: ParameterReader) -> Array:
    return weight.source.data if isinstance(weight.source, Constant) else reader(weight.source)
