"""Operators that are defined by nodes: the functions of a file, and those of the standard's own definitions.

A use of a function becomes its nodes. Names of values inside are its own; references to attributes are replaced by the
attributes of the use. The standard defines many operators by others; the reader uses such a definition if an operator
has no converter.

    function f(a) -> b {scale}      t = Constant {value_float = @scale};  b = Mul(a, t)
    y = f(x) {scale = 2}            t' = Constant {value_float = 2};      y = Mul(x, t')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....dialect.types import TensorType
from ..writing.tensors import Held, Tensor
from .onnx_package import load_onnx
from .proto import Decoder
from .schemas import schema_of
from .writing.narrow import element_of
from .writing.records import AttributeRecord, FunctionRecord, GraphRecord, NodeRecord
from .writing.use import ELEMENT_NUMBERS


def find_definition(
    node: NodeRecord, opsets: Mapping[str, int], operands: Sequence[Held | None], file: str
) -> FunctionRecord | None:
    """Returns the standard's definition of a node by other nodes, or None if there is none."""
    version = opsets.get(node.domain, 1)
    schema = schema_of(node.op, node.domain, version)
    if schema is None:
        return None
    proto = load_onnx().FunctionProto()
    if schema.has_function:
        body = schema.get_function_with_opset_version(_latest(schema.function_opset_versions, version))
    elif schema.has_context_dependent_function:
        types = [_type_proto(held).SerializeToString() for held in operands]
        number = _latest(schema.context_dependent_function_opset_versions, version)
        body = schema.get_context_dependent_function_with_opset_version(number, _bound_proto(node), types)
    else:
        return None
    if not body:
        return None
    proto.ParseFromString(body)
    decoder = Decoder(file, None)
    record = decoder.function(proto)
    defaults = {
        name: decoder.attribute(attribute.default_value, 0, None)
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }
    decoder.raise_if_any()
    # The body's own set may be older than the version in which the operator is used.
    nodes = tuple(_on_line(inner, node) for inner in record.nodes)
    return replace(record, opsets={**opsets, **record.opsets}, nodes=nodes, defaults=defaults)


def _bound_proto(node: NodeRecord) -> bytes:
    """Returns the message of a node with the attributes of its record: inside a function, references to attributes are
    replaced by the values of the use."""
    proto = load_onnx().NodeProto()
    proto.CopyFrom(node.proto)
    del proto.attribute[:]
    for name, attribute in node.attributes.items():
        added = proto.attribute.add()
        added.CopyFrom(attribute.proto)
        added.name = name
    return bytes(proto.SerializeToString())


def _latest(versions: Sequence[int], version: int) -> int:
    return max((v for v in versions if v <= version), default=min(versions))


def _on_line(inner: NodeRecord, outer: NodeRecord) -> NodeRecord:
    """Returns a node of a definition with the line of the use, so that diagnostics point there."""
    attributes = {name: _attribute_on_line(a, outer) for name, a in inner.attributes.items()}
    return replace(inner, line=outer.line, name=outer.name, attributes=attributes)


def _attribute_on_line(attribute: AttributeRecord, outer: NodeRecord) -> AttributeRecord:
    graph = attribute.value
    if not isinstance(graph, GraphRecord):
        return attribute
    return replace(attribute, value=replace(graph, nodes=tuple(_on_line(n, outer) for n in graph.nodes)))


def _type_proto(held: Held | None) -> Any:
    onnx = load_onnx()
    proto = onnx.TypeProto()
    if isinstance(held, Tensor):
        proto.tensor_type.elem_type = ELEMENT_NUMBERS[element_of(held)]
        proto.tensor_type.shape.SetInParent()
        for size in _shape(held.type):
            dim = proto.tensor_type.shape.dim.add()
            if size is not None:
                dim.dim_value = size
    return proto


def _shape(type: TensorType) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in type.shape]


@dataclass(frozen=True, slots=True)
class Bindings:
    """The attributes of a use, for the nodes of the function."""

    given: dict[str, AttributeRecord]

    def bind(self, node: NodeRecord) -> NodeRecord:
        """Returns a node of the function with references to attributes replaced; one without a value is left out."""
        attributes: dict[str, AttributeRecord] = {}
        for name, attribute in node.attributes.items():
            if attribute.reference:
                found = self.given.get(attribute.reference)
                if found is not None:
                    attributes[name] = replace(found, name=name)
            elif isinstance(attribute.value, GraphRecord):
                graph = attribute.value
                inner = replace(graph, nodes=tuple(self.bind(each) for each in graph.nodes))
                attributes[name] = replace(attribute, value=inner)
            else:
                attributes[name] = attribute
        return replace(node, attributes=attributes)


def bind_function(function: FunctionRecord, node: NodeRecord) -> tuple[NodeRecord, ...]:
    """Returns the nodes of a function for one use."""
    bindings = Bindings({**function.defaults, **node.attributes})
    return tuple(bindings.bind(inner) for inner in function.nodes)
