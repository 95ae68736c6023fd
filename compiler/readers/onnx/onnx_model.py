"""Reads an ONNX file: walks its nodes, and gives each to its converter.

Every error of a file is reported in one run: unknown operators first, then nodes that cannot be converted. A result of
such a node is missing, and nodes that read it are left out without a separate error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Collector, Diagnostic, DiagnosticError, Span
from ....dialect.dims import DimError
from ....dialect.graph import Function, Module, Value
from ....dialect.operator import InferenceError
from ....dialect.types import TensorType
from ....dialect.verifier import verify
from ...model.source import SourceModel, WeightSource
from ...weights import open_arrays
from ..writing.graph_writer import GraphWriter, with_label
from ..writing.identifiers import identifier, unique
from ..writing.tensors import BoundedTensor, Held, Strings, Tensor, TensorSequence
from .convert import find_converter
from .functions import bind_function, find_definition
from .inputs import Dims, declared_type, dim_names, with_deduced
from .mapped_data import Data, split_file
from .proto import decode_model, parse_model
from .schemas import find_misuse, with_elements
from .stated import Statement, read_argument
from .supported import find_unsupported
from .writing.narrow import ELEMENTS
from .writing.records import FunctionRecord, GraphRecord, ModelRecord, NodeRecord, ValueRecord, ValueType
from .writing.use import Use, held_of

_DEEPEST = 100


def read_onnx(
    path: Path, weights: WeightSource | None = None, settings: Mapping[str, Any] | None = None
) -> SourceModel:
    """Reads the model of an ONNX file; `weights` replace its initializers, by name; `settings` state values of
    arguments, see `stated`. Raises DiagnosticError."""
    try:
        data, mapped = split_file(path)
    except OSError as error:
        message = f"`{path}` cannot be read: {error.strerror or error}"
        raise DiagnosticError([Diagnostic("missing-file", message)]) from error
    model = parse_model(data, str(path))
    return read_proto(model, path.stem, str(path), path.parent, weights, settings, mapped)


def read_proto(
    model: object,
    name: str,
    file: str,
    folder: Path | None,
    weights: WeightSource | None = None,
    settings: Mapping[str, Any] | None = None,
    mapped: Mapping[int, Data] | None = None,
) -> SourceModel:
    """Reads a parsed `ModelProto`. `name` becomes the name of the entry. `mapped` is the data of initializers that the
    message lacks."""
    record = decode_model(model, file, folder, mapped or {})
    sources = {file: record.listing}
    errors = find_unsupported(record, file)
    if errors:
        raise DiagnosticError(errors, sources)
    entry = identifier(name) or "model"
    try:
        run, function = _convert(record, file, entry, settings or {})
    except RecursionError:
        raise DiagnosticError([Diagnostic("too-deep", f"the graphs of `{file}` are nested too deeply")]) from None
    run.errors.raise_if_any(sources)
    dims = function.symbols()
    module = Module(entry, dims, tuple(run.writer.parameters.values()), (function,))
    try:
        verify(module)
    except DiagnosticError as error:
        raise DiagnosticError(error.diagnostics, {**sources, **error.sources}) from None
    stored = open_arrays(run.writer.arrays) if run.writer.arrays else None
    return SourceModel(module, file, {entry: stored if weights is None else weights}, sources=sources)


def _convert(record: ModelRecord, file: str, entry: str, settings: Mapping[str, Any]) -> tuple[_Run, Function]:
    """Converts the graph. If a node requires that two unnamed sizes are equal, or that a size is bounded, the
    conversion restarts with this fact."""
    same: dict[str, str] = {}
    most: dict[str, int] = {}
    while True:
        run = _Run(record, file, settings, dims=Dims(same=same, most=most))
        try:
            return run, run.function(entry)
        except _EqualSizesError as error:
            first, second = error.names
            same = {**same, second: first}
        except _BoundedSizeError as error:
            most = {**most, error.name: error.most}


@dataclass
class _Missing:
    """The result of a node that was not converted."""


@dataclass
class _Empty:
    """An optional value without content."""


MISSING = _Missing()
Environment = dict[str, Held | _Missing | _Empty]


@dataclass
class _Run:
    model: ModelRecord
    file: str
    settings: Mapping[str, Any]
    writer: GraphWriter = field(default_factory=GraphWriter)
    errors: Collector = field(default_factory=Collector)
    dims: Dims = field(default_factory=Dims)
    depth: int = 0
    lines: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.lines = self.model.listing.split("\n")

    def function(self, name: str) -> Function:
        graph = self.model.graph
        arguments, environment = [], Environment()
        names: set[str] = set()
        records = [record for record in graph.inputs if record.name not in graph.initializers]
        named = dim_names(records) - {record.name for record in records}
        unknown = sorted(set(self.settings) - {record.name for record in records} - named)
        if unknown:
            listed = ", ".join(f"`{record.name}`" for record in records)
            message = f"`{unknown[0]}` is set, but is neither an argument nor a size of the model"
            self.errors.report(Diagnostic("bad-setting", message, help=f"its arguments are {listed}"))
        stated = {name: self.settings[name] for name in sorted(named & set(self.settings))}
        for size, value in stated.items():
            if type(value) is not int or not 0 <= value < 1 << 47:
                message = f"the size `{size}` is stated as {value!r}"
                self.errors.report(Diagnostic("bad-setting", message, help="state a number of at least 0"))
        self.errors.raise_if_any({self.file: self.model.listing})
        self.dims.stated = stated

        def new_argument(wanted: str, type: TensorType) -> Value:
            arguments.append(Value(unique(identifier(wanted) or "input", names), type))
            return arguments[-1]

        for record in records:
            statement = Statement(self.settings[record.name]) if record.name in self.settings else None
            try:
                value = read_argument(record, statement, self.dims, self.writer, new_argument)
                environment[record.name] = _Empty() if value is None else value
            except DiagnosticError as error:
                for diagnostic in error.diagnostics:
                    self.errors.report(diagnostic)
        self.errors.raise_if_any({self.file: self.model.listing})
        outputs = self._graph(graph, [environment], self.model.opsets)
        results, result_names = [], []
        taken: set[str] = set()
        for record, held in zip(graph.outputs, outputs, strict=True):
            parts: dict[str, Tensor] = {}
            if isinstance(held, Tensor):
                self._check_declared(record, held)
                parts[record.name] = held
            elif isinstance(held, Strings):
                parts[record.name] = held.data
            elif isinstance(held, TensorSequence):
                parts = {f"{record.name}_{number}": item for number, item in enumerate(held.items)}
            elif isinstance(held, BoundedTensor):
                parts = {record.name: held.tensor, f"{record.name}_size": held.size}
            elif isinstance(held, _Empty):
                message = f"the output `{record.name}` is an empty optional value; an entry returns tensors"
                self.errors.report(Diagnostic("unsupported-type", message))
            for part, tensor in parts.items():
                results.append(self.writer.value(with_label(tensor, part)))
                result_names.append(unique(identifier(part) or "output", taken))
        if not graph.outputs:
            self.errors.report(Diagnostic("bad-onnx", f"the graph of `{self.file}` has no outputs"))
        body = (*self.writer.prologue, *self.writer.builder.nodes)
        return Function(name, tuple(arguments), body, tuple(results), tuple(result_names))

    def _check_declared(self, record: ValueRecord, held: Tensor) -> None:
        declared = declared_type(record.type)
        if declared is None:
            if record.type is not None and ELEMENTS.get(record.type.element, held.dtype) != held.dtype:
                message = (
                    f"the output `{record.name}` is declared {record.type.element}, and its node computes {held.type}"
                )
                self.errors.report(Diagnostic("type-mismatch", message))
            return
        fixed = [
            (a, b)
            for a, b in zip(declared.shape, held.shape, strict=False)
            if isinstance(a, int) and isinstance(b, int)
        ]
        if declared.dtype != held.dtype or len(declared.shape) != held.rank or any(a != b for a, b in fixed):
            message = f"the output `{record.name}` is declared {declared}, and its node computes {held.type}"
            self.errors.report(Diagnostic("type-mismatch", message))

    # --- graphs ---

    def _graph(
        self, graph: GraphRecord, environments: list[Environment], opsets: Mapping[str, int]
    ) -> list[Held | _Missing | _Empty]:
        """Converts the nodes of a graph in the innermost environment and returns the outputs."""
        inner = environments[-1]
        for name, stored in graph.initializers.items():
            try:
                inner[name] = held_of(stored, None)
            except DiagnosticError as error:
                inner[name] = MISSING
                for diagnostic in error.diagnostics:
                    self.errors.report(diagnostic)
        self._nodes(graph.nodes, with_deduced(graph.nodes, graph.types), environments, opsets)
        found: list[Held | _Missing | _Empty] = []
        for record in graph.outputs:
            held = _look_up(record.name, environments)
            if held is None:
                message = f"the output `{record.name}` of the graph `{graph.name}` is computed by no node"
                self.errors.report(Diagnostic("undefined-value", message))
            found.append(MISSING if held is None else held)
        return found

    def _nodes(
        self,
        nodes: Sequence[NodeRecord],
        types: Mapping[str, ValueType],
        environments: list[Environment],
        opsets: Mapping[str, int],
    ) -> None:
        inner = environments[-1]
        for node in nodes:
            made: Sequence[Held | _Missing]
            try:
                made = self._node(node, types, environments, opsets)
            except DiagnosticError as error:
                for diagnostic in error.diagnostics:
                    self.errors.report(diagnostic)
                made = ()
            if made and any(node.outputs[len(made) :]):
                message = f"`{node.op}` names {len(node.outputs)} results; in this form, it has {len(made)}"
                self.errors.report(Diagnostic("wrong-operands", message, self._span(node)))
            for number, name in enumerate(node.outputs):
                if name:
                    held = made[number] if number < len(made) else MISSING
                    inner[name] = with_label(held, name) if isinstance(held, Tensor) else held

    def _node(
        self,
        node: NodeRecord,
        types: Mapping[str, ValueType],
        environments: list[Environment],
        opsets: Mapping[str, int],
    ) -> Sequence[Held | _Missing]:
        span = self._span(node)
        operands: list[Held | None] = []
        for name in node.inputs:
            held = _look_up(name, environments) if name else None
            if name and held is None:
                message = f"`{node.op}` reads `{name}`, which no node computes"
                raise DiagnosticError([Diagnostic("undefined-value", message, span)])
            if isinstance(held, _Missing):
                return ()
            operands.append(None if isinstance(held, _Empty) else held)
        declared = tuple(declared_type(types.get(name)) for name in node.outputs)
        version = opsets.get(node.domain, 1)
        self.writer.at(_scope(node.name), span)

        def look_up(name: str) -> Held | None:
            found = _look_up(name, environments)
            return None if isinstance(found, (_Missing, _Empty)) else found

        def run_graph(inside: GraphRecord, arguments: Sequence[Tensor]) -> list[Held]:
            names = [record.name for record in inside.inputs]
            new: Environment = dict(zip(names, arguments, strict=False))
            found = self._graph(inside, [*environments, new], opsets)
            self.writer.at(_scope(node.name), span)
            if any(isinstance(held, _Missing) for held in found):
                raise _IncompleteError
            if any(isinstance(held, _Empty) for held in found):
                use.fail("has a branch that gives an empty optional value", code="unsupported-type")
            return [held for held in found if not isinstance(held, (_Missing, _Empty))]

        use = Use(node, version, self.writer, tuple(operands), declared, span, run_graph, look_up)
        function = self.model.functions.get((node.domain, node.op))
        try:
            if function is not None:
                return self._expand(function, node, operands, types)
            misuse = find_misuse(node, version)
            if misuse is not None:
                message, code = misuse
                use.fail(message, code=code)
            has_strings = any(isinstance(held, Strings) for held in operands)
            converter = find_converter(node.op, node.domain, version, has_strings)
            if converter is not None:
                return with_elements(node, version, operands, converter(use))
            definition = find_definition(node, opsets, operands, self.file)
            if definition is None:
                use.fail("has no definition by other operators in this form", code="unsupported-attribute")
            return self._expand(definition, node, operands, types)
        except _IncompleteError:
            return ()
        except InferenceError as error:
            equal = self.dims.find_equal(self.writer.checked) if error.code == "shape-mismatch" else None
            if equal is not None:
                raise _EqualSizesError(equal) from None
            bound = self.dims.find_bound(self.writer.checked) if error.code == "shape-mismatch" else None
            if bound is not None:
                raise _BoundedSizeError(*bound) from None
            raise DiagnosticError([_described(error, use)]) from None
        except DimError as error:
            raise DiagnosticError([Diagnostic("bad-size", f"{_title(use)}: {error}", span)]) from None

    def _expand(
        self,
        function: FunctionRecord,
        node: NodeRecord,
        operands: Sequence[Held | None],
        types: Mapping[str, ValueType],
    ) -> Sequence[Held | _Missing]:
        if self.depth >= _DEEPEST:
            message = f"the function `{node.full_name}` uses itself, or functions are nested more than {_DEEPEST} deep"
            raise DiagnosticError([Diagnostic("too-deep", message, self._span(node))])
        environment: Environment = {}
        for name, held in zip(function.inputs, operands, strict=False):
            if held is not None:
                environment[name] = held
        nodes = bind_function(function, node)
        omitted = set(function.inputs) - set(environment)
        nodes = tuple(_without(inner, omitted) for inner in nodes)
        self.depth += 1
        try:
            declared = {a: types[b] for a, b in zip(function.outputs, node.outputs, strict=False) if b in types}
            self._nodes(nodes, with_deduced(nodes, declared), [environment], function.opsets)
        finally:
            self.depth -= 1
        made = [environment.get(name, MISSING) for name in function.outputs]
        return [MISSING if isinstance(held, _Empty) else held for held in made]

    def _span(self, node: NodeRecord) -> Span:
        text = self.lines[node.line - 1] if 0 < node.line <= len(self.lines) else ""
        start = len(text) - len(text.lstrip())
        return Span(self.file, node.line, start + 1, node.line, max(len(text), start + 1) + 1)


class _EqualSizesError(Exception):
    """An operator requires that two unnamed sizes are equal."""

    def __init__(self, names: tuple[str, str]) -> None:
        super().__init__(names)
        self.names = names


class _BoundedSizeError(Exception):
    """An operator requires an upper bound of a size."""

    def __init__(self, name: str, most: int) -> None:
        super().__init__(name, most)
        self.name, self.most = name, most


class _IncompleteError(Exception):
    """A graph inside a node could not be converted; its errors are reported."""


def _title(use: Use) -> str:
    return f"`{use.node.op}`" + (f" of node `{use.node.name}`" if use.node.name else "")


def _described(error: InferenceError, use: Use) -> Diagnostic:
    operand = ""
    if error.operand is not None and error.operand < len(use.node.inputs) and use.node.inputs[error.operand]:
        operand = f" (operand `{use.node.inputs[error.operand]}`)"
    message = f"{_title(use)}: {error.message}{operand}"
    return Diagnostic(error.code, message, use.span, error.label, help=error.help)


def _scope(name: str) -> str:
    """Returns the path of the block around a node: `/encoder/layer.0/Conv` is in `encoder.layer.0`."""
    parts = [part for part in name.split("/") if part][:-1]
    return re.sub(r"[^\w.{}]", "_", ".".join(parts)).replace("{", "_").replace("}", "_")


def _look_up(name: str, environments: Sequence[Environment]) -> Held | _Missing | _Empty | None:
    for environment in reversed(environments):
        if name in environment:
            return environment[name]
    return None


def _without(node: NodeRecord, omitted: set[str]) -> NodeRecord:
    """Returns a node of a function without the operands that the use of the function omits."""
    if not omitted.intersection(node.inputs):
        return node
    return replace(node, inputs=tuple("" if name in omitted else name for name in node.inputs))
