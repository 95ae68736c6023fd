"""Elaborates the text of a model to a checked graph, or to diagnostics.

All errors of a file are reported in one run. Every input gives a result or diagnostics in bounded time. Checkpoints are
not read here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError, Span, failure
from ....dialect.graph import Function, Module
from ....dialect.lazy_dataclass import dataclass
from ...model.checks import ModelBudget, ModelTest
from ...model.policy import Policy
from ...model.source import SourceModel, WeightSource
from ...weights import Checkpoint, open_checkpoint
from ...weights.header_checks import check_parameters
from . import syntax
from .context import DIAGNOSTICS, Context, LimitError, Listener, Program, Reporter
from .divided_steps import divide_step, entry_names, exchanged_states, twice_read
from .examples import read_budget, read_test
from .expressions import evaluate
from .imports import OPTIMIZERS, Loader, own_models
from .models import check_dims, elaborate_model, unite_parameters
from .names import check_names
from .parse import normalise, parse_recovered, read_text
from .placeholders import check_unused_blocks, unchecked_blocks
from .policies import read_policies
from .settings import Settings, check_settings
from .values import ERROR, FileScope


class NoModelError(DiagnosticError):
    """The error of a file without a model. `unchecked` are the names of its blocks whose shapes are unknown without a
    model."""

    unchecked: tuple[str, ...] = ()


def load_module(
    source: str | Path,
    *,
    text: bool = False,
    weights: str | WeightSource | None = None,
    name: str | None = None,
    settings: Settings | None = None,
    configs: Mapping[str, Any] | None = None,
) -> SourceModel:
    """Reads a model: from a path, or, with `text`, from the source itself. Raises DiagnosticError.

    `weights` is a checkpoint, a file or a folder, and replaces the one that the source names. A configuration that does
    not lie beside the source may lie there. `name` is the name of the module and, for a text, of the file in its
    diagnostics. `settings` are values for the hyper-parameters of models. `configs` are the contents of
    configurations that are in no file, by the path that the source gives.
    """
    override = Path(weights) if isinstance(weights, str) else weights
    if text:
        content, file, folder, path = str(source), f"{name or 'model'}.nacre", Path.cwd(), None
    else:
        path = Path(source)
        content, file, folder = read_text(path), str(source), path.parent
    folders = (override if override.is_dir() else override.parent,) if isinstance(override, Path) else ()
    run = Elaboration(
        normalise(content), file, folder, path, folders, settings or {}, configs or {}, override is not None, override
    )
    run.elaborate()
    diagnostics = run.diagnostics()
    if any(d.severity == "error" for d in diagnostics):
        raise failure(diagnostics, run.reporter.sources)
    if not run.functions:
        message = "the file defines no model"
        span = Span(file, 1, 1, 1, 1)
        error = NoModelError([Diagnostic("no-model", message, span)], run.reporter.sources)
        error.unchecked = tuple(run.unchecked)
        raise error
    return run.model(name or (Path(file).stem if not text else "model"), folder, override)


def check_source(text: str, file: str, root: Path | None = None) -> list[Diagnostic]:
    """Returns all errors of a source, in the order of its text. Files that it names are read below `root`."""
    run = Elaboration(normalise(text), file, root, None, ())
    run.elaborate()
    return run.diagnostics()


def check_weights(source_model: SourceModel, checkpoint: Checkpoint) -> list[Diagnostic]:
    """Returns all errors that prevent loading the parameters from the checkpoint; its data is not read."""
    return check_parameters(source_model.module.parameters, checkpoint)


def _weights(model: syntax.Model, folder: Path, override: WeightSource | None) -> WeightSource | None:
    said = next((s.path.value for s in model.body if isinstance(s, syntax.Weights)), None)
    if override is None:
        return None if said is None else folder / said
    if said is not None and isinstance(override, Path) and override.is_dir() and (override / said).is_file():
        return override / said
    return override


@dataclass(slots=True)
class Elaboration:
    """One elaboration, possibly incomplete."""

    text: str
    file: str
    folder: Path | None
    path: Path | None
    folders: tuple[Path, ...]
    settings: Settings = field(default_factory=dict)
    configs: Mapping[str, Any] = field(default_factory=dict)
    has_checkpoint: bool = False
    override: WeightSource | None = None
    listener: Listener | None = None
    reporter: Reporter = field(init=False)
    program: Program = field(init=False)
    scope: FileScope | None = None
    functions: list[Function] = field(default_factory=list)
    tests: list[ModelTest] = field(default_factory=list)
    budgets: list[ModelBudget] = field(default_factory=list)
    policies: list[Policy] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reporter = Reporter({self.file: self.text})
        self.program = Program(folders=self.folders, settings=self.settings, configs=self.configs)

    def diagnostics(self) -> list[Diagnostic]:
        """Sorts diagnostics by the order of the text, the file itself before its imports; warnings only if there is no
        error."""
        found = self.reporter.diagnostics
        errors = [d for d in found if d.severity == "error"]

        def order_of(diagnostic: Diagnostic) -> tuple[bool, str, int, int]:
            span = diagnostic.span
            if span is None:
                return True, "", 0, 0
            return span.file != self.file, span.file, span.line, span.column

        omitted = self.reporter.counts.get("warning", 0) - DIAGNOSTICS
        more = f"{omitted} more warning{'s are' if omitted > 1 else ' is'} not listed"
        last = [Diagnostic("too-many-warnings", more, severity="warning")] if omitted > 0 and not errors else []
        return [*sorted(errors or found, key=order_of), *last]

    def model(self, name: str, folder: Path, override: WeightSource | None = None) -> SourceModel:
        """Returns the model of a source without errors; `folder` contains the checkpoints that it names."""
        assert self.scope is not None and self.functions
        module = Module(
            re.sub(r"\W", "_", name) or "model",
            tuple(symbol for symbol, _ in self.program.dims.values()),
            tuple(self.program.parameters.values()),
            tuple(self.functions),
            tuple(self.program.states.values()),
        )
        return SourceModel(
            module,
            self.file,
            {
                name: _weights(m, folder, override)
                for m in own_models(self.scope)
                for name in (m.name.name, *(entry_names(m.name.name) if m.name.name in self.program.divisions else ()))
            },
            tuple(self.tests),
            tuple(self.budgets),
            tuple(self.policies),
            dict(self.reporter.sources),
            tuple(self.diagnostics()),
        )

    def elaborate(self) -> None:
        """Reads the text. With a listener, the statements without syntax errors are read in spite of such errors."""
        tree, errors = parse_recovered(self.text, self.file)
        self.reporter.diagnostics += errors
        if tree is None or (errors and self.listener is None):
            return
        context = Context(self.reporter, self.program, evaluate, listener=self.listener)
        try:
            self._elaborate(context, tree)
        except LimitError:
            pass
        except RecursionError:
            self.reporter.admitted = None
            span = tree.items[0].span if tree.items else None
            self.reporter.diagnostics.append(Diagnostic("too-deep", "the program is nested too deeply", span))
        if errors:
            # A statement that was dropped would cause further errors in the others.
            self.reporter.diagnostics[:] = errors

    def _divide_steps(self, context: Context, order: list[str]) -> None:
        """Adds the two entries of each step with `exchange`, after it."""
        for step in [f for f in self.functions if f.name in self.program.divisions]:
            division = self.program.divisions[step.name]
            for name in entry_names(step.name):
                if name in order:
                    message = f"`exchange` makes the entry `{name}`, and a model has this name"
                    self.reporter.error("duplicate-name", message, division.span)
            parts = divide_step(step, division)
            for name in twice_read(step, division, parts[1]):
                message = f"an update of `{step.name}` reads the state `{name}`, which the step changes before it"
                self.reporter.error("misplaced-state", message, division.span)
            self.program.states |= {state.name: state for state in exchanged_states(division)}
            for part in parts:
                check_dims(context, part, [step.span or division.span] * len(part.inputs))
            self.functions += parts
            position = order.index(step.name) + 1
            order[position:position] = entry_names(step.name)

    def _stored_keys(self, models: Sequence[syntax.Model]) -> frozenset[str] | None:
        """Returns the keys of all checkpoints; None if one of them is not there, or cannot be read."""
        found: set[str] = set()
        for model in models:
            source = self.override if self.folder is None else _weights(model, self.folder, self.override)
            try:
                if source is not None:
                    found |= set((open_checkpoint(source) if isinstance(source, Path) else source).names())
            except DiagnosticError:
                return None  # it is reported when the weights are read
        return frozenset(found) if found else None

    def _elaborate(self, context: Context, tree: syntax.File) -> None:
        path = None if self.path is None else self.path.resolve()
        loader = Loader(context)
        self.scope = loader.load(tree, self.file, self.folder, path)
        models = own_models(self.scope)
        self.program.stored = self.has_checkpoint or any(isinstance(s, syntax.Weights) for m in models for s in m.body)
        self.program.stored_keys = self._stored_keys(models)
        if any(isinstance(model, syntax.Train) for model in models):
            self.program.optimizers = loader.load_library(OPTIMIZERS)
        check_settings(context, models, None)
        # Training steps come first: they decide which parameters are states, in all models.
        for model in sorted(models, key=lambda model: not isinstance(model, syntax.Train)):
            function = elaborate_model(context, self.scope, model)
            if function is not None:
                self.functions.append(function)
        order = [model.name.name for model in models]
        self._divide_steps(context, order)
        self.functions.sort(key=lambda function: order.index(function.name))
        self.functions = unite_parameters(self.program, self.functions)
        functions = {function.name: function for function in self.functions}
        for item in tree.items:
            if isinstance(item, syntax.Test):
                test = read_test(context, self.scope, functions, item)
                self.tests += [] if test is ERROR else [test]
            elif isinstance(item, syntax.Budget):
                self.budgets += read_budget(context, self.scope, functions, item)
        self.policies = read_policies(context, self.scope, functions, self.program.parameters, order)
        check_names(context, self.scope)
        check_unused_blocks(context, self.scope)
        self.unchecked = unchecked_blocks(context, self.scope)
