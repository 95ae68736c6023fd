"""Reads a TFLite file: visits the operators of its first graph, and calls the converter of each.

Variables become states; the graph that `CALL_ONCE` names defines their initial values. If a file has several
signatures, only its first graph is read. All operators without a converter are reported together.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ....dialect.diagnostics import Collector, Diagnostic, DiagnosticError, Span
from ....dialect.dims import INFINITY, DimError, Size, Symbol
from ....dialect.graph import Function, Module, Parameter, State, Value
from ....dialect.operator import InferenceError
from ....dialect.types import TensorType
from ....dialect.verifier import verify
from ...base.shortened import shortened
from ...model.source import SourceModel, WeightSource
from ...weights import open_arrays
from ..flatbuffer import FormatError
from ..writing.graph_writer import GraphWriter, with_label
from ..writing.identifiers import identifier, unique
from ..writing.tensors import Tensor, known
from .convert import find_converter, operator_names
from .writing.records import GraphRecord, ModelRecord, OperatorRecord, TensorRecord, decode
from .writing.use import Use

_DEEPEST = 50
_MOST_CONVERTED = 200_000
"""The maximum number of converted operators: several operators may use the same graph, which is converted for each."""


def read_tflite(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Reads a `.tflite` file. Raises DiagnosticError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _error("missing-file", f"`{path}` cannot be read: {error.strerror or error}") from error
    file = str(path)
    record = decode(data, file)
    sources = {file: record.listing}
    errors = _find_unsupported(record, file)
    if errors:
        raise DiagnosticError(errors, sources)
    entry = _word(path.stem) or "model"
    run = _Run(record, file)
    try:
        module = run.module(entry)
    except DiagnosticError as error:
        raise DiagnosticError(error.diagnostics, {**sources, **error.sources}) from None
    except FormatError as error:
        raise _error("bad-tflite", f"`{file}` is damaged: {error}") from None
    try:
        verify(module)
    except DiagnosticError as error:
        raise DiagnosticError(error.diagnostics, {**sources, **error.sources}) from None
    stored = open_arrays(run.writer.arrays) if run.writer.arrays else None
    return SourceModel(module, file, {entry: stored if weights is None else weights}, sources=sources)


def _find_unsupported(model: ModelRecord, file: str) -> list[Diagnostic]:
    """Returns one error for each operator that has no converter, with the operators that use it."""
    unknown: dict[str, list[OperatorRecord]] = {}
    for graph in model.graphs:
        for operator in graph.operators:
            if operator.name not in _OF_VARIABLES and find_converter(operator.name) is None:
                unknown.setdefault(operator.name, []).append(operator)
    errors = []
    for name, uses in unknown.items():
        close = difflib.get_close_matches(name, [*operator_names(), *_OF_VARIABLES], 1, cutoff=0.6)
        help_text = f"the nearest supported name is `{close[0]}`" if close else ""
        lines = shortened([use.line for use in uses])
        message = f"the operator `{name}` is not supported; operators: {lines}"
        errors.append(Diagnostic("unsupported-operator", message, _span(model, file, uses[0]), help=help_text))
    return errors


_OF_VARIABLES = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")
_Environment = dict[int, Tensor]


@dataclass
class _Run:
    model: ModelRecord
    file: str
    writer: GraphWriter = field(default_factory=lambda: GraphWriter(inline_integers=16))
    errors: Collector = field(default_factory=Collector)
    states: dict[str, tuple[State, Value]] = field(default_factory=dict)
    current: dict[str, Tensor] = field(default_factory=dict)  # the values of variables at this point of a call
    initial: dict[str, Tensor] | None = None  # initial values, while the graph of CALL_ONCE is read
    depth: int = 0
    converted: int = 0

    def module(self, name: str) -> Module:
        graph = self.model.graphs[0]
        self._read_initial(graph)
        names: set[str] = set()
        arguments, given = [], []
        for position, number in enumerate(graph.inputs):
            record = graph.tensors[number]
            wanted = self.model.names[0][position] if self.model.names[0] else record.name
            value = Value(unique(_word(wanted) or "input", names), self._argument_type(record))
            arguments.append(value)
            given.append(Tensor(value.type, value))
        self.errors.raise_if_any()
        outputs = self.graph(0, given, {})
        results, result_names = [], []
        taken: set[str] = set()
        for position, tensor in enumerate(outputs):
            wanted = (
                self.model.names[1][position] if self.model.names[1] else graph.tensors[graph.outputs[position]].name
            )
            results.append(self.writer.value(tensor))
            result_names.append(unique(_word(wanted) or "output", taken))
        if not outputs:
            raise _error("bad-tflite", f"the graph of `{self.file}` has no outputs")
        for state, argument in self.states.values():
            arguments.append(argument)
            results.append(self.writer.value(self.current[state.name]))
            result_names.append(state.result_name)
        body = (*self.writer.prologue, *self.writer.builder.nodes)
        function = Function(
            name, tuple(arguments), body, tuple(results), tuple(result_names), states=tuple(self.states)
        )
        states = tuple(state for state, _ in self.states.values())
        return Module(name, function.symbols(), tuple(self.writer.parameters.values()), (function,), states)

    def _argument_type(self, record: TensorRecord) -> TensorType:
        if record.dtype is None:
            message = f"the input `{record.name}` is {record.element}, which is not supported"
            raise _error("unsupported-dtype", message)
        word = _word(record.name) or "input"
        sizes: list[Size] = [
            Symbol(f"{word}_{axis}", 1, INFINITY).size if size is None else size
            for axis, size in enumerate(record.shape)
        ]
        return TensorType(record.dtype, tuple(sizes))

    # --- variables ---

    def _read_initial(self, graph: GraphRecord) -> None:
        """Finds the values that variables have before the first call."""
        for operator in graph.operators:
            if operator.name != "CALL_ONCE":
                continue
            table = operator.options
            number = table.integer(0) if table is not None else 0
            if not 0 < number < len(self.model.graphs):
                raise self._failure(operator, f"calls graph {number} of {len(self.model.graphs)}", "bad-tflite")
            self.initial = {} if self.initial is None else self.initial
            kept, self.current = self.current, {}
            self.graph(number, [], {})
            self.initial |= self.current
            self.current = kept
        found, self.initial = self.initial or {}, None
        for name, tensor in found.items():
            if tensor.array is None:
                message = f"the initial value of the variable `{name}` is not a constant"
                raise _error("unsupported-attribute", message)
            initial = None
            if np.any(tensor.array):
                initial = f"{name}.initial"
                self.writer.parameters[initial] = Parameter(initial, tensor.type)
                self.writer.arrays[initial] = tensor.array
            value = Value(f"state.{name}", tensor.type)
            self.states[name] = State(name, tensor.type, initial), value
            self.current[name] = Tensor(tensor.type, value)

    def _variable(
        self, graph: GraphRecord, operator: OperatorRecord, held: _Environment, names: dict[int, str]
    ) -> None:
        """Runs an operator on variables. `names` are those of the handles of this graph."""
        if operator.name == "CALL_ONCE":
            return  # the values are known already
        if operator.name == "VAR_HANDLE":
            name = "" if operator.options is None else operator.options.text(1)
            if not name or len(operator.outputs) != 1:
                raise self._failure(operator, "has no name", "wrong-operands")
            names[operator.outputs[0]] = _word(name) or "variable"
            return
        wanted = 1 if operator.name == "READ_VARIABLE" else 2
        if len(operator.inputs) != wanted or len(operator.outputs) != 2 - wanted:
            raise self._failure(operator, f"takes {wanted} operands", "wrong-operands")
        variable = names.get(operator.inputs[0])
        if variable is None:
            raise self._failure(operator, "has a handle that `VAR_HANDLE` does not give", "wrong-operands")
        if wanted == 2:
            tensor = self._operand(graph, operator, operator.inputs[1], held)
            before = self.current.get(variable)
            if self.initial is None and (before is None or before.type != tensor.type):
                kind = "no initial value" if before is None else f"the type {before.type}"
                message = f"assigns {tensor.type} to the variable `{variable}` with {kind}"
                raise self._failure(operator, message, "type-mismatch")
            self.current[variable] = tensor
        elif variable in self.current:
            held[operator.outputs[0]] = self.current[variable]
        else:
            raise self._failure(operator, f"reads the variable `{variable}`, which has no value", "wrong-operands")

    # --- graphs ---

    def graph(self, number: int, given: Sequence[Tensor], names: dict[int, str]) -> list[Tensor]:
        """Converts the operators of a graph and returns its outputs."""
        graph = self.model.graphs[number]
        if self.depth >= _DEEPEST:
            raise _error("too-deep", f"graphs of `{self.file}` are nested more than {_DEEPEST} deep")
        if len(given) != len(graph.inputs):
            raise _error("wrong-operands", f"graph {number} has {len(graph.inputs)} inputs, and gets {len(given)}")
        self.depth += 1
        held: _Environment = dict(zip(graph.inputs, given, strict=True))
        for operator in graph.operators:
            self.converted += 1
            if self.converted > _MOST_CONVERTED:
                raise _error("too-large", f"`{self.file}` has more than {_MOST_CONVERTED} operators in nested graphs")
            self.writer.at("", _span(self.model, self.file, operator))
            if operator.name in _OF_VARIABLES:
                self._variable(graph, operator, held, names)
            else:
                results = self._convert(graph, operator, held)
                held.update(zip(operator.outputs, results, strict=True))
        self.depth -= 1
        outputs = []
        for number in graph.outputs:
            found = held.get(number) or _constant(graph.tensors[number])
            if found is None:
                message = f"the output `{graph.tensors[number].name}` is not computed by any operator"
                raise _error("bad-tflite", message)
            outputs.append(found)
        return outputs

    def _operand(self, graph: GraphRecord, operator: OperatorRecord, number: int, held: _Environment) -> Tensor:
        found = held.get(number)
        if found is None:
            found = _constant(graph.tensors[number])
            if found is None:
                message = f"reads `{graph.tensors[number].name}`, which no earlier operator computes"
                raise self._failure(operator, message, "wrong-operands")
            held[number] = found
        return found

    def _convert(self, graph: GraphRecord, operator: OperatorRecord, held: _Environment) -> Sequence[Tensor]:
        span = _span(self.model, self.file, operator)
        operands = tuple(None if n < 0 else self._operand(graph, operator, n, held) for n in operator.inputs)
        records = tuple(None if n < 0 else graph.tensors[n] for n in operator.inputs)
        results = tuple(graph.tensors[n] for n in operator.outputs)

        def run_graph(number: int, arguments: Sequence[Tensor]) -> list[Tensor]:
            if not 0 < number < len(self.model.graphs):
                use.fail(f"uses graph {number} of {len(self.model.graphs)}", code="bad-tflite")
            made = self.graph(number, arguments, {})
            self.writer.at("", span)
            return made

        use = Use(operator, self.writer, operands, records, results, span, run_graph)
        converter = find_converter(operator.name)
        assert converter is not None, operator.name
        try:
            made = converter(use)
        except InferenceError as error:
            raise DiagnosticError([Diagnostic(error.code, f"`{operator.name}`: {error.message}", span)]) from None
        except DimError as error:
            raise DiagnosticError([Diagnostic("bad-size", f"`{operator.name}`: {error}", span)]) from None
        if len(made) != len(operator.outputs):
            use.fail(f"has {len(operator.outputs)} results, expected {len(made)}", code="wrong-operands")
        for tensor, result in zip(made, results, strict=True):
            if tensor.dtype != result.dtype:
                use.fail(f"gives {tensor.type}, and is declared {result.element}", code="type-mismatch")
        return made

    def _failure(self, operator: OperatorRecord, message: str, code: str) -> DiagnosticError:
        span = _span(self.model, self.file, operator)
        return DiagnosticError([Diagnostic(code, f"`{operator.name}` {message}", span)])


def _constant(record: TensorRecord) -> Tensor | None:
    return None if record.array is None else with_label(known(record.array), _label(record.name))


def _label(name: str) -> str:
    """Returns the name of a parameter from the name of a tensor, in which exporters join several names by `;`."""
    parts = [re.sub(r"[^\w.]+", "_", part).strip("_") for part in name.split(";")[0].split("/")]
    return ".".join(part for part in parts if part)


def _span(model: ModelRecord, file: str, operator: OperatorRecord) -> Span:
    text = model.listing.split("\n", operator.line)[operator.line - 1] if operator.line < 1000 else ""
    return Span(file, operator.line, 1, operator.line, max(len(text), 1) + 1)


def _word(name: str) -> str:
    """Returns a name of the file as an identifier; exporters append the number of a result to names, as in `:0`."""
    return identifier(name.removesuffix(":0"))


def _error(code: str, message: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message)])
