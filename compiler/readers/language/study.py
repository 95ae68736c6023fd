"""A source file by position: the value of each expression, and the definition of each name. Editors use them.

block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {
  param weight: f32[outputs, inputs]          # `weight` is defined here; `inputs` and `outputs` in the header
  return x @ weight.T                         # `x @ weight.T` has a value for each call of an instance
}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ....dialect.diagnostics import Diagnostic, Span
from ....dialect.graph import Value
from ...model.source import SourceModel
from . import syntax
from .context import Context, Program, Reporter
from .elaborate import Elaboration
from .expressions import evaluate
from .names import expression_names
from .parse import normalise
from .provenance import size_notes, trace_axes
from .values import (
    ERROR,
    AnyValue,
    Binding,
    BlockValue,
    FileScope,
    Frame,
    Instance,
    InstanceArray,
    Kind,
    ModuleValue,
)
from .writer import Writer

_MOST_VALUES = 4
"""The most values of one expression that are kept: a block called in a loop has one for each call."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A name in the text, with the first span of what it stands for, which may lie in another file."""

    name: str
    span: Span
    definition: Span
    kind: Kind


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A value of an expression, in one call of its block."""

    value: AnyValue
    frame: Frame
    writer: Writer


@dataclass(slots=True)
class Study:
    """A source file, as far as it can be read.

    tree: the statements without syntax errors; None if the text cannot be read to its end.
    model: None if the source has errors, or no model.
    """

    file: str
    text: str
    diagnostics: list[Diagnostic]
    tree: syntax.File | None
    scope: FileScope | None
    model: SourceModel | None
    program: Program
    occurrences: dict[Span, Occurrence]
    evaluations: dict[Span, list[Evaluation]]

    @property
    def has_errors(self) -> bool:
        return any(d.severity == "error" for d in self.diagnostics)

    def origins(self, evaluation: Evaluation, text: str) -> list[str]:
        """Returns sentences on the sizes of a tensor that `text` shows: a hyper-parameter or a dim, and its source
        location."""
        if not isinstance(evaluation.value, Value):
            return []
        context = Context(Reporter({}), self.program, evaluate, evaluation.writer)
        sizes = trace_axes(context, evaluation.frame, [evaluation.value])
        return [note.message for note in size_notes(context, sizes, text)]


@dataclass(slots=True)
class _Record:
    """The listener of the elaboration of one file."""

    file: str
    occurrences: dict[Span, Occurrence] = field(default_factory=dict)
    evaluations: dict[Span, list[Evaluation]] = field(default_factory=dict)

    def evaluated(self, node: syntax.Expression, frame: Frame, value: AnyValue, writer: Writer) -> None:
        if node.span.file != self.file:
            return
        found = self.evaluations.setdefault(node.span, [])
        if value is not ERROR and len(found) < _MOST_VALUES and all(each.value != value for each in found):
            found.append(Evaluation(value, frame, writer))

    def named(self, name: syntax.Name, binding: Binding) -> None:
        value = binding.value
        # The binding of an imported block has the span of the import.
        span = value.block.name.span if isinstance(value, BlockValue) else binding.span
        self.add(name, span, binding.kind)

    def add(self, name: syntax.Name, definition: Span, kind: Kind) -> None:
        if name.span.file == self.file:
            self.occurrences.setdefault(name.span, Occurrence(name.name, name.span, definition, kind))


def study(text: str, path: Path, checkpoint: Path | None = None) -> Study:
    """Reads the text of a file that may differ from the file on disk; files that it imports are read from disk.

    `checkpoint` is a file or a folder, and replaces the one that the source names.
    """
    record = _Record(str(path))
    folders = () if checkpoint is None else (checkpoint if checkpoint.is_dir() else checkpoint.parent,)
    run = Elaboration(
        normalise(text),
        str(path),
        path.parent,
        path,
        folders,
        has_checkpoint=checkpoint is not None,
        listener=record,
    )
    run.elaborate()
    diagnostics = run.diagnostics()
    failed = any(d.severity == "error" for d in diagnostics)
    model = run.model(path.stem, path.parent, checkpoint) if run.functions and not failed else None
    tree = None if run.scope is None else run.scope.tree
    if run.scope is not None:
        _add_items(record, run.scope)
        _add_members(record, run.scope)
    return Study(
        str(path), run.text, diagnostics, tree, run.scope, model, run.program, record.occurrences, record.evaluations
    )


def _add_items(record: _Record, scope: FileScope) -> None:
    """Adds the names of the items of a file, and those that items outside of blocks look up."""
    for item in scope.tree.items:
        if isinstance(item, (syntax.Block, syntax.Dim, syntax.Config)):
            record.add(item.name, item.name.span, _kind(scope, item.name))
        elif isinstance(item, syntax.Import) and item.name is not None:
            record.add(item.name, item.name.span, Kind.IMPORT)
        elif isinstance(item, syntax.Assign):
            for target in item.targets:
                record.add(target, target.span, Kind.CONSTANT)
        elif isinstance(item, (syntax.Test, syntax.Budget, syntax.Quantize)):
            _look_up(record, scope, item.model)
        if not isinstance(item, syntax.Block):
            for node in syntax.walk(item):
                if isinstance(node, syntax.Name) and node.span not in record.occurrences:
                    _look_up(record, scope, node)
    for node in syntax.walk(scope.tree):
        if isinstance(node, syntax.Comprehension):
            for name, _ in expression_names((node.value, node.condition)):
                if name.name == node.variable.name:
                    record.add(name, node.variable.span, Kind.LOOP)
            record.add(node.variable, node.variable.span, Kind.LOOP)


def _kind(scope: FileScope, name: syntax.Name) -> Kind:
    binding = scope.names.get(name.name)
    return Kind.BLOCK if binding is None else binding.kind


def _look_up(record: _Record, scope: FileScope, name: syntax.Name) -> None:
    binding = scope.names.get(name.name)
    if binding is not None:
        record.named(name, binding)


def _add_members(record: _Record, scope: FileScope) -> None:
    """Adds names that are looked up in a block or a file: `layer.weight`, `m.Linear`, `<width=4>` and `f(x=1)`."""
    for node in syntax.walk(scope.tree):
        if isinstance(node, syntax.Attribute):
            for value in _values(record, node.value):
                _add_member(record, value, node.name)
        elif isinstance(node, syntax.Call):
            for block in _blocks(record, node.function):
                _add_keywords(record, node.hypers or (), _hyper_name, block)
                _add_keywords(record, node.arguments, _argument_name, block)
        elif isinstance(node, syntax.BlockReference):
            referred = _referred(record, scope, node.path)
            if referred is not None:
                _add_keywords(record, node.hypers or (), _hyper_name, referred)


def _values(record: _Record, node: syntax.Expression) -> Iterator[AnyValue]:
    return (each.value for each in record.evaluations.get(node.span, ()))


def _add_member(record: _Record, value: AnyValue, name: syntax.Name) -> None:
    if isinstance(value, ModuleValue) and name.name in value.file.names:
        binding = value.file.names[name.name]
        record.named(name, binding)
    elif isinstance(value, Instance):
        for statement in syntax.walk(value.block.block.body):
            if isinstance(statement, (syntax.Param, syntax.State, syntax.Instance)) and statement.name == name:
                kinds = {syntax.Param: Kind.PARAMETER, syntax.State: Kind.STATE, syntax.Instance: Kind.INSTANCE}
                record.add(name, statement.name.span, kinds[type(statement)])


def _blocks(record: _Record, function: syntax.Expression) -> Iterator[BlockValue]:
    for value in _values(record, function):
        if isinstance(value, InstanceArray):
            value = value.element
        if isinstance(value, Instance):
            yield value.block
        elif isinstance(value, BlockValue):
            yield value


def _referred(record: _Record, scope: FileScope, path: tuple[syntax.Name, ...]) -> BlockValue | None:
    """Returns the block that a `use` names: `Linear` or `module.Linear`."""
    names = scope.names
    for number, name in enumerate(path):
        binding = names.get(name.name)
        if binding is None:
            return None
        record.named(name, binding)
        if isinstance(binding.value, ModuleValue):
            names = binding.value.file.names
        elif number == len(path) - 1 and isinstance(binding.value, BlockValue):
            return binding.value
    return None


def _add_keywords(
    record: _Record,
    arguments: tuple[syntax.Argument, ...],
    find: Callable[[syntax.Block, str], tuple[syntax.Name, Kind] | None],
    block: BlockValue,
) -> None:
    for argument in arguments:
        found = None if argument.name is None else find(block.block, argument.name.name)
        if found is not None and argument.name is not None:
            record.add(argument.name, found[0].span, found[1])


def _hyper_name(block: syntax.Block, name: str) -> tuple[syntax.Name, Kind] | None:
    return next(((h.name, Kind.HYPER) for h in block.hypers if h.name.name == name), None)


def _argument_name(block: syntax.Block, name: str) -> tuple[syntax.Name, Kind] | None:
    return next(((p.name, Kind.ARGUMENT) for p in block.parameters if p.name.name == name), None)
