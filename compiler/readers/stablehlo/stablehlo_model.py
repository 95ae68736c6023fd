"""Reads StableHLO: visits the operations of the main function, and calls the converter of each."""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ....dialect.diagnostics import Collector, Diagnostic, DiagnosticError, Span
from ....dialect.dims import INFINITY, DimError, Size, Symbol, substitute
from ....dialect.graph import Function, Module, Value
from ....dialect.operator import InferenceError
from ....dialect.types import TensorType
from ....dialect.verifier import verify
from ...base.shortened import shortened
from ...model.source import SourceModel, WeightSource
from ...weights import open_arrays
from ..writing.graph_writer import GraphWriter
from ..writing.identifiers import identifier
from ..writing.tensors import Tensor
from .convert import find_converter, find_converter_of, is_elementwise, operation_names
from .writing.assertions import DimsRestricted
from .writing.items import ComplexTensor, Item, ItemTuple, Token, describe
from .writing.records import ELEMENTS, BlockRecord, FunctionRecord, OperationRecord, TypeRecord, decode
from .writing.use import Use

_DEEPEST = 100
_RETURNS = ("func.return", "return")
_TOKEN = "!stablehlo.token"


def read_mlir(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Reads a file of StableHLO, text or bytecode. Raises DiagnosticError."""
    if not path.is_file():
        raise _error("missing-file", f"`{path}` cannot be read: no such file")
    return read_functions(parse(path), path.stem, str(path), _text_of(path), weights=weights)


def parse(path: Path) -> list[FunctionRecord]:
    """Returns the functions of a file, parsed in a child process. Raises DiagnosticError."""
    command = [sys.executable, "-m", f"{__package__}.parsing_child", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["the parser ended without a message"])[-1]
        if "out of memory" in done.stderr or "MemoryError" in done.stderr:
            reason = "the parser needs more memory than a file of this size may take"
        raise _error("bad-mlir", f"`{path}` cannot be parsed: {reason}")
    return decode(json.loads(done.stdout))


def read_functions(
    functions: Sequence[FunctionRecord],
    name: str,
    file: str,
    text: str,
    shapes: Sequence[Sequence[Size]] | None = None,
    weights: WeightSource | None = None,
) -> SourceModel:
    """Returns the model of a file. `shapes` are those of the arguments; by default, dynamic sizes are dims."""
    by_name = {function.name: function for function in functions}
    public = [function for function in functions if not function.private]
    if not public:
        raise _error("no-function", f"`{file}` has no public function")
    main = by_name.get("main", public[0])
    walk = _Walk(file, by_name)
    walk.check_supported(functions)
    arguments = walk.argument_types(main, shapes)
    walk.errors.raise_if_any({file: text})
    entry = identifier(main.name if main.name != "main" else name) or "model"
    while True:
        try:
            function = walk.entry(main, entry, arguments)
            break
        except DimsRestricted as found:
            # The file is read again with these dims. Each time, one dim has fewer values or is replaced by others.
            arguments = [each.with_shape(_with_values(each.shape, found.values)) for each in arguments]
            walk = _Walk(file, by_name)
    walk.errors.raise_if_any({file: text})
    module = Module(entry, function.symbols(), tuple(walk.writer.parameters.values()), (function,))
    try:
        verify(module)
    except DiagnosticError as error:
        raise DiagnosticError(error.diagnostics, {file: text, **error.sources}) from None
    stored = open_arrays(walk.writer.arrays) if walk.writer.arrays else None
    return SourceModel(module, file, {entry: stored if weights is None else weights}, sources={file: text})


@dataclass
class _Walk:
    file: str
    functions: Mapping[str, FunctionRecord]
    writer: GraphWriter = field(default_factory=GraphWriter)
    errors: Collector = field(default_factory=Collector)
    depth: int = 0
    is_elementwise: bool = False
    """Whether operations on single elements are converted to operations on whole tensors."""

    def check_supported(self, functions: Sequence[FunctionRecord]) -> None:
        """Reports one error for each operation that has no converter."""
        unknown: dict[str, list[int]] = {}
        for function in functions:
            for operation in _operations(function.body):
                if operation.name not in _RETURNS and find_converter(operation.name) is None:
                    unknown.setdefault(operation.name, []).append(operation.line)
        for name, lines in unknown.items():
            close = difflib.get_close_matches(name, operation_names(), 1, cutoff=0.6)
            help_text = f"the nearest supported name is `{close[0]}`" if close else ""
            message = f"the operation `{name}` is not supported; lines: {shortened(lines)}"
            self.errors.report(Diagnostic("unsupported-operator", message, self._span(lines[0]), help=help_text))

    def argument_types(self, main: FunctionRecord, shapes: Sequence[Sequence[Size]] | None) -> list[TensorType]:
        return [
            self._argument_type(record, number, None if shapes is None else shapes[number])
            for number, (_, record) in enumerate(main.body.arguments)
        ]

    def entry(self, main: FunctionRecord, name: str, types: Sequence[TensorType]) -> Function:
        """Returns the graph of the main function. Raises DimsRestricted if an assertion restricts the arguments."""
        arguments = [Value(f"arg{number}", found) for number, found in enumerate(types)]
        results: tuple[Value, ...] = ()
        try:
            made = self.block(main.body, [Tensor(value.type, value) for value in arguments], {})
            results = tuple(self.writer.value(self._result(item)) for item in made)
        except DiagnosticError as error:
            for diagnostic in error.diagnostics:
                self.errors.report(diagnostic)
        names = tuple(f"output_{i}" for i in range(len(results))) if len(results) > 1 else ("output",) * len(results)
        body = (*self.writer.prologue, *self.writer.builder.nodes)
        return Function(name, tuple(arguments), body, results, names)

    def _result(self, item: Item) -> Tensor:
        if not isinstance(item, Tensor):
            advice = "return the results of `real` and `imag`" if isinstance(item, ComplexTensor) else ""
            message = f"the entry returns {describe(item)}, which is not supported"
            raise DiagnosticError([Diagnostic("unsupported-dtype", message, help=advice)])
        return item

    def _argument_type(self, record: TypeRecord, number: int, shape: Sequence[Size] | None) -> TensorType:
        if record.other or record.element not in ELEMENTS:
            message = f"argument {number} is {record.other or record.element}, which is not supported"
            self.errors.report(Diagnostic("unsupported-dtype", message))
            return TensorType(ELEMENTS["f32"])
        sizes = tuple(
            Symbol(f"arg{number}_{axis}", 1, INFINITY).size if size is None else size
            for axis, size in enumerate(record.shape)
        )
        return TensorType(ELEMENTS[record.element], sizes if shape is None else tuple(shape))

    def block(self, block: BlockRecord, given: Sequence[Item], outer: Mapping[int, Item]) -> list[Item]:
        """Converts the operations of a block and returns the items that it returns."""
        held = dict(outer)
        held.update((number, tensor) for (number, _), tensor in zip(block.arguments, given, strict=True))
        for operation in block.operations:
            if operation.name in _RETURNS:
                return [held[number] for number in operation.operands]
            results = self._operation(operation, held)
            for (number, _), tensor in zip(operation.results, results, strict=True):
                held[number] = tensor
        return []

    def _operation(self, operation: OperationRecord, held: Mapping[int, Item]) -> Sequence[Item]:
        span = self._span(operation.line)
        self.writer.at("", span)

        def run_block(block: BlockRecord, arguments: Sequence[Item]) -> list[Item]:
            made = self.block(block, arguments, held)
            self.writer.at("", span)
            return made

        def run_elementwise(block: BlockRecord, arguments: Sequence[Item]) -> list[Item]:
            for inner in block.operations:
                if inner.name not in _RETURNS and not is_elementwise(inner.name):
                    use.fail(f"has `{inner.name}` in its body, which is not elementwise")
            was_elementwise, self.is_elementwise = self.is_elementwise, True
            try:
                return run_block(block, arguments)
            finally:
                self.is_elementwise = was_elementwise

        items = tuple(held[number] for number in operation.operands)
        use = Use(operation, self.writer, items, span, held, run_block, run_elementwise, self._call, self._body_of)
        converter = find_converter_of(operation, items)
        assert converter is not None, operation.name
        for _, record in operation.results:
            if not _is_supported(record):
                use.fail(f"gives {record.other or record.element}, which is not supported", code="unsupported-dtype")
        try:
            made = converter(use)
        except InferenceError as error:
            raise DiagnosticError([Diagnostic(error.code, f"`{operation.name}`: {error.message}", span)]) from None
        except DimError as error:
            raise DiagnosticError([Diagnostic("bad-size", f"`{operation.name}`: {error}", span)]) from None
        for item, (_, record) in zip(made, operation.results, strict=True):
            if record.is_complex and not isinstance(item, ComplexTensor):
                use.fail("is not supported for complex numbers", code="unsupported-dtype")
            assert self.is_elementwise or _fits(item, record), f"{operation.name} gives {item}, expected {record}"
        return made

    def _body_of(self, name: str) -> BlockRecord:
        function = self.functions.get(name)
        if function is None:
            raise _error("bad-call", f"the function `{name}` is not in the file")
        return function.body

    def _call(self, name: str, operands: Sequence[Item]) -> list[Item]:
        body = self._body_of(name)
        if self.depth >= _DEEPEST:
            raise _error("bad-call", f"the function `{name}` is called more than {_DEEPEST} deep")
        self.depth += 1
        try:
            return self.block(body, operands, {})
        finally:
            self.depth -= 1

    def _span(self, line: int) -> Span | None:
        return Span(self.file, line, 1, line, 2) if line else None


def _with_values(shape: Sequence[Size], values: Mapping[str, Size]) -> tuple[Size, ...]:
    return tuple(substitute(size, values) for size in shape)


def _is_supported(record: TypeRecord) -> bool:
    """Returns whether a result may have a type; the items of a tuple are results of other operations."""
    return record.other == _TOKEN or record.other.startswith("tuple<") or record.part.element in ELEMENTS


def _fits(item: Item, record: TypeRecord) -> bool:
    """Returns whether an item has a declared type; sizes that depend on dims may be declared as dynamic."""
    if isinstance(item, (ItemTuple, Token)):
        return bool(record.other)
    if isinstance(item, ComplexTensor):
        return record.is_complex and all(_fits(part, record.part) for part in item.parts)
    sizes = zip(item.shape, record.shape, strict=True) if item.rank == len(record.shape) else [(0, 1)]
    fixed = all(b is None or not isinstance(a, int) or a == b for a, b in sizes)
    return item.dtype == ELEMENTS[record.element] and fixed


def _operations(block: BlockRecord) -> Iterator[OperationRecord]:
    for operation in block.operations:
        yield operation
        for region in operation.regions:
            yield from _operations(region)


def _text_of(path: Path) -> str:
    data = path.read_bytes()
    return "" if data[:4] == b"ML\xefR" else data.decode(errors="replace")


def _error(code: str, message: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message)])
