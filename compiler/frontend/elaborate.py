"""From the text of a model to a checked graph, or to everything that is wrong with it.

All faults of a file are told in one run. Whatever the input is, the answer is a result or diagnostics, in bounded time;
checkpoints are not read here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...dialect.diagnostics import Diagnostic, DiagnosticError, Span
from ...dialect.graph import Function, Module
from ..checkpoint import Checkpoint
from ..precision.policy import Policy
from . import syntax
from .context import Context, LimitError, Program, Reporter
from .examples import ModelBudget, ModelTest, read_budget, read_test
from .expressions import evaluate
from .imports import Loader, own_models
from .models import elaborate_model, unite_parameters
from .names import check_names
from .parse import normalise, parse, read_text
from .placeholders import check_unused_blocks
from .policies import read_policies
from .values import ERROR, AnyValue, FileScope, Kind
from .weights import check_parameters


@dataclass(frozen=True, slots=True)
class Elaborated:
    """A model file that has no faults.

    `weights` says for each function where its parameters are: a file or a folder, None where the source says nothing.
    `sources` holds the texts that spans point into; `constants` are the file's own, by name. `precision` says by what
    policy the graph was rounded, if it was; `written` is the model before that, with the policies that were followed.
    """

    module: Module
    file: str
    weights: Mapping[str, Path | None]
    tests: tuple[ModelTest, ...] = ()
    budgets: tuple[ModelBudget, ...] = ()
    policies: tuple[Policy, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, AnyValue] = field(default_factory=dict)
    warnings: tuple[Diagnostic, ...] = ()
    precision: str = "f32"
    written: Elaborated | None = None


def load_module(
    source: str | Path, *, text: bool = False, weights: str | Path | None = None, name: str | None = None
) -> Elaborated:
    """Reads a model: from a path, or, with `text`, from the source itself. Raises DiagnosticError.

    `weights` is a file or a folder that replaces what the source says; a configuration that does not lie beside the
    source may lie there. `name` is what the module and, for a text, its diagnostics are called.
    """
    override = None if weights is None else Path(weights)
    if text:
        content, file, folder, path = str(source), f"{name or 'model'}.nacre", Path.cwd(), None
    else:
        path = Path(source)
        content, file, folder = read_text(path), str(source), path.parent
    folders = () if override is None else (override if override.is_dir() else override.parent,)
    run = _Run(normalise(content), file, folder, path, folders)
    run.elaborate()
    diagnostics = run.diagnostics()
    if any(d.severity == "error" for d in diagnostics):
        raise DiagnosticError(diagnostics, run.reporter.sources)
    assert run.scope is not None
    if not run.functions:
        message = "the file has no model: there is nothing to compile"
        span = Span(file, 1, 1, 1, 1)
        raise DiagnosticError([Diagnostic("no-model", message, span)], run.reporter.sources)
    stem = name or (Path(file).stem if not text else "model")
    module = Module(
        re.sub(r"\W", "_", stem) or "model",
        tuple(symbol for symbol, _ in run.program.dims.values()),
        tuple(run.program.parameters.values()),
        tuple(run.functions),
    )
    return Elaborated(
        module,
        file,
        {m.name.name: _weights(m, folder, override) for m in own_models(run.scope)},
        tuple(run.tests),
        tuple(run.budgets),
        tuple(run.policies),
        dict(run.reporter.sources),
        {n: b.value for n, b in run.scope.names.items() if b.kind is Kind.CONSTANT},
        tuple(diagnostics),
    )


def check_source(text: str, file: str, root: Path | None = None) -> list[Diagnostic]:
    """Everything that is wrong with a source, in the order of its text. Files that it names are read below `root`."""
    run = _Run(normalise(text), file, root, None, ())
    run.elaborate()
    return run.diagnostics()


def check_weights(elaborated: Elaborated, checkpoint: Checkpoint) -> list[Diagnostic]:
    """Everything that keeps the parameters from being loaded from the checkpoint; its data is not read."""
    return check_parameters(elaborated.module.parameters, checkpoint)


def _weights(model: syntax.Model, folder: Path, override: Path | None) -> Path | None:
    said = next((s.path.value for s in model.body if isinstance(s, syntax.Weights)), None)
    if override is None:
        return None if said is None else folder / said
    if said is not None and override.is_dir() and (override / said).is_file():
        return override / said
    return override


@dataclass(slots=True)
class _Run:
    """One elaboration, as far as it gets."""

    text: str
    file: str
    folder: Path | None
    path: Path | None
    folders: tuple[Path, ...]
    reporter: Reporter = field(init=False)
    program: Program = field(init=False)
    scope: FileScope | None = None
    functions: list[Function] = field(default_factory=list)
    tests: list[ModelTest] = field(default_factory=list)
    budgets: list[ModelBudget] = field(default_factory=list)
    policies: list[Policy] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reporter = Reporter({self.file: self.text})
        self.program = Program(folders=self.folders)

    def diagnostics(self) -> list[Diagnostic]:
        """In the order of the text, the file itself before those it imports; warnings only where nothing is wrong."""
        found = self.reporter.diagnostics
        errors = [d for d in found if d.severity == "error"]

        def place(diagnostic: Diagnostic) -> tuple[bool, str, int, int]:
            span = diagnostic.span
            if span is None:
                return True, "", 0, 0
            return span.file != self.file, span.file, span.line, span.column

        return sorted(errors or found, key=place)

    def elaborate(self) -> None:
        try:
            tree = parse(self.text, self.file)
        except DiagnosticError as error:
            self.reporter.diagnostics += error.diagnostics
            return
        context = Context(self.reporter, self.program, evaluate)
        try:
            self._elaborate(context, tree)
        except LimitError:
            pass
        except RecursionError:
            self.reporter.admitted = None
            span = tree.items[0].span if tree.items else None
            self.reporter.diagnostics.append(Diagnostic("too-deep", "the program is nested too deeply", span))

    def _elaborate(self, context: Context, tree: syntax.File) -> None:
        path = None if self.path is None else self.path.resolve()
        self.scope = Loader(context).load(tree, self.file, self.folder, path)
        for model in own_models(self.scope):
            function = elaborate_model(context, self.scope, model)
            if function is not None:
                self.functions.append(function)
        self.functions = unite_parameters(self.program, self.functions)
        functions = {function.name: function for function in self.functions}
        for item in tree.items:
            if isinstance(item, syntax.Test):
                test = read_test(context, self.scope, functions, item)
                self.tests += [] if test is ERROR else [test]
            elif isinstance(item, syntax.Budget):
                self.budgets += read_budget(context, self.scope, functions, item)
        models = [model.name.name for model in own_models(self.scope)]
        self.policies = read_policies(context, self.scope, functions, self.program.parameters, models)
        check_names(context, self.scope)
        check_unused_blocks(context, self.scope)
