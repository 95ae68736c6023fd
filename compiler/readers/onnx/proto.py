"""Decodes an ONNX file to records, and checks its form: names, types of attributes, sizes of data.

Every damaged file gives a diagnostic. The parser of protobufs rejects files of other formats, truncated files and
invalid UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError, Span
from .limits import MOST_FIELDS, has_too_many_fields
from .mapped_data import Data
from .onnx_package import load_onnx
from .stored_tensors import element_name, file_error, read_stored
from .writing import records
from .writing.records import (
    AttributeRecord,
    FunctionRecord,
    GraphRecord,
    ModelRecord,
    NodeRecord,
    StoredArray,
    ValueRecord,
    ValueType,
)

_DOMAINS = {"ai.onnx": ""}
_MOST_NESTED = 64


def domain_of(name: str) -> str:
    """Returns the name of an operator set; the standard one has two names."""
    return _DOMAINS.get(name, name)


def parse_model(data: bytes, file: str) -> Any:
    """Returns the `ModelProto` of a file. Raises DiagnosticError."""
    model = load_onnx().ModelProto()
    if has_too_many_fields(data, model.DESCRIPTOR):
        raise file_error("too-large", f"`{file}` has more than {MOST_FIELDS:,} fields")
    try:
        model.ParseFromString(data)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise file_error("bad-onnx", f"`{file}` is not an ONNX model, or is damaged: {reason}") from error
    _check_text(model)
    if not model.HasField("graph"):
        raise file_error("bad-onnx", f"`{file}` is not an ONNX model: it has no graph")
    return model


def _check_text(message: Any) -> None:
    """Checks that all strings are UTF-8; the parser gives others as bytes. Raises DiagnosticError."""
    for described, value in message.ListFields():
        if described.cpp_type == described.CPPTYPE_STRING and described.type == described.TYPE_STRING:
            for text in value if _is_repeated(described) else (value,):
                if isinstance(text, bytes):
                    shown = text.decode("utf-8", "replace")
                    owner = message.DESCRIPTOR.name
                    raise file_error("bad-onnx", f"`{shown}`, a `{described.name}` of a {owner}, is not UTF-8")
        elif described.cpp_type == described.CPPTYPE_MESSAGE:
            for inner in value if _is_repeated(described) else (value,):
                _check_text(inner)


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def decode_model(model: Any, file: str, folder: Path | None, mapped: Mapping[int, Data]) -> ModelRecord:
    """Returns the records of a `ModelProto`. External data is in `folder`, and `mapped` the data that initializers of
    the graph lack. Raises DiagnosticError."""
    decoder = Decoder(file, folder, mapped)
    opsets = _opsets(model.opset_import)
    graph = decoder.graph(model.graph, 0)
    functions = {}
    for function in model.functions:
        record = decoder.function(function)
        functions[record.domain, record.name] = record
    decoder.raise_if_any()
    return ModelRecord(graph, opsets, functions, model.doc_string, "\n".join(decoder.lines))


def _opsets(imports: Iterable[Any]) -> Mapping[str, int]:
    opsets = {domain_of(each.domain): int(each.version) for each in imports}
    for domain, version in opsets.items():
        if not -(1 << 31) < version < 1 << 31:
            raise file_error("bad-onnx", f"the file uses version {version} of the operator set `{domain}`")
    # A file without versions is from before operator sets: version 1.
    return opsets or {"": 1}


@dataclass(slots=True)
class Decoder:
    """Makes records, collects errors, and writes the listing."""

    file: str
    folder: Path | None
    mapped: Mapping[int, Data] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    errors: list[Diagnostic] = field(default_factory=list)

    def raise_if_any(self) -> None:
        if self.errors:
            raise DiagnosticError(self.errors, {self.file: "\n".join(self.lines)})

    def graph(self, proto: Any, depth: int) -> GraphRecord:
        if depth > _MOST_NESTED:
            raise file_error("bad-onnx", f"the graphs of `{self.file}` are nested more than {_MOST_NESTED} deep")
        inputs = tuple(ValueRecord(v.name, value_type(v.type, v.name)) for v in proto.input)
        outputs = tuple(ValueRecord(v.name, value_type(v.type, v.name)) for v in proto.output)
        types = {v.name: value_type(v.type, v.name) for v in proto.value_info}
        types |= {v.name: v.type for v in (*inputs, *outputs)}
        initializers: dict[str, StoredArray] = {}
        for number, tensor in enumerate(proto.initializer):
            try:
                initializers[tensor.name] = read_stored(tensor, self.folder, None if depth else self.mapped.get(number))
            except DiagnosticError as error:
                self.errors += error.diagnostics
        if len(proto.sparse_initializer):
            name = proto.sparse_initializer[0].values.name
            self.errors.append(Diagnostic("unsupported-type", f"the initializer `{name}` is sparse"))
        nodes = tuple(self.node(node, depth) for node in proto.node)
        known = {name: type for name, type in types.items() if type is not None}
        return GraphRecord(proto.name, nodes, inputs, outputs, initializers, known)

    def function(self, proto: Any) -> FunctionRecord:
        nodes = tuple(self.node(node, 0) for node in proto.node)
        defaults = {a.name: self.attribute(a, 0, None) for a in proto.attribute_proto}
        opsets = _opsets(proto.opset_import)
        return FunctionRecord(
            domain_of(proto.domain), proto.name, nodes, tuple(proto.input), tuple(proto.output), opsets, defaults
        )

    def node(self, proto: Any, depth: int) -> NodeRecord:
        self.lines.append("  " * depth + _line(proto))
        line = len(self.lines)
        span = Span(self.file, line, 1 + 2 * depth, line, len(self.lines[-1]) + 1)
        attributes: dict[str, AttributeRecord] = {}
        for attribute in proto.attribute:
            if attribute.name in attributes:
                message = f"the attribute `{attribute.name}` occurs twice"
                self.errors.append(Diagnostic("bad-attribute", message, span))
            try:
                attributes[attribute.name] = self.attribute(attribute, depth, span)
            except DiagnosticError as error:
                self.errors += [d if d.span else _at(d, span) for d in error.diagnostics]
        return NodeRecord(
            proto.op_type,
            domain_of(proto.domain),
            proto.name,
            proto.doc_string,
            tuple(proto.input),
            tuple(proto.output),
            attributes,
            proto,
            line,
        )

    def attribute(self, proto: Any, depth: int, span: Span | None) -> AttributeRecord:
        kind = proto.type
        types = load_onnx().AttributeProto
        if proto.ref_attr_name:
            return AttributeRecord(proto.name, "reference", None, proto, proto.ref_attr_name)
        simple: dict[int, tuple[str, Callable[[], Any]]] = {
            types.FLOAT: (records.FLOAT, lambda: float(proto.f)),
            types.INT: (records.INTEGER, lambda: int(proto.i)),
            types.STRING: (records.STRING, lambda: _text(proto.s, proto.name)),
            types.TENSOR: (records.TENSOR, lambda: read_stored(proto.t, self.folder)),
            types.GRAPH: (records.GRAPH, lambda: self.graph(proto.g, depth + 1)),
            types.FLOATS: (f"{records.FLOAT}s", lambda: tuple(map(float, proto.floats))),
            types.INTS: (f"{records.INTEGER}s", lambda: tuple(map(int, proto.ints))),
            types.STRINGS: (f"{records.STRING}s", lambda: tuple(_text(s, proto.name) for s in proto.strings)),
            types.TENSORS: (f"{records.TENSOR}s", lambda: tuple(read_stored(t, self.folder) for t in proto.tensors)),
        }
        if kind not in simple:
            return AttributeRecord(proto.name, "other", None, proto)
        word, read = simple[kind]
        return AttributeRecord(proto.name, word, read(), proto)


def _at(diagnostic: Diagnostic, span: Span) -> Diagnostic:
    return Diagnostic(diagnostic.code, diagnostic.message, span, help=diagnostic.help)


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise file_error("bad-onnx", f"the attribute `{name}` is not UTF-8") from None


def _line(proto: Any) -> str:
    """Returns the line of a node in the listing: `y = Conv(x, w) {strides = [2, 2]}  "conv1"`."""
    domain = domain_of(proto.domain)
    shown = ", ".join(f"{a.name} = {_shown(a)}" for a in proto.attribute)
    text = f"{', '.join(proto.output)} = {f'{domain}::' if domain else ''}{proto.op_type}({', '.join(proto.input)})"
    text += f" {{{shown}}}" if shown else ""
    text += f'  "{proto.name}"' if proto.name else ""
    return text.replace("\n", " ").replace("\r", " ")


def _shown(attribute: Any) -> str:
    types = load_onnx().AttributeProto
    if attribute.type == types.INT:
        return str(attribute.i)
    if attribute.type == types.FLOAT:
        return f"{attribute.f:g}"
    if attribute.type == types.INTS and len(attribute.ints) <= 8:
        return str(list(attribute.ints))
    if attribute.type == types.STRING and len(attribute.s) <= 32:
        return f'"{attribute.s.decode("utf-8", "replace")}"'
    return "..."


def value_type(proto: Any, name: str) -> ValueType | None:
    """Returns the declared type of a value, or None if there is none. Raises DiagnosticError."""
    kind = proto.WhichOneof("value")
    if kind is None:
        return None
    if kind in ("sequence_type", "optional_type"):
        return ValueType(kind.removesuffix("_type"), inner=value_type(getattr(proto, kind).elem_type, name))
    if kind != "tensor_type":
        return ValueType(kind.removesuffix("_type"))
    tensor = proto.tensor_type
    if tensor.elem_type == 0:
        return None
    element = element_name(tensor.elem_type)
    if not tensor.HasField("shape"):
        return ValueType("tensor", element)
    shape: list[int | str | None] = []
    for dim in tensor.shape.dim:
        which = dim.WhichOneof("value")
        if which == "dim_value":
            if dim.dim_value < 0:
                # Some exporters write -1 for an unknown size.
                shape.append(None)
                continue
            shape.append(int(dim.dim_value))
        else:
            shape.append(dim.dim_param or None if which == "dim_param" else None)
    return ValueType("tensor", element, tuple(shape))
