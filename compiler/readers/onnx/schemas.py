"""The schemas of the standard: the number of operands and the kinds of attributes of each operator, and whether the
standard defines it by others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ..writing.tensors import Held, Tensor
from .onnx_package import load_onnx
from .writing.records import NodeRecord

_LISTED: Mapping[tuple[str, str], Sequence[int | bytes]] = {
    **{(op, "layout"): (0, 1) for op in ("RNN", "GRU", "LSTM")},
    ("Attention", "is_causal"): (0, 1),
    ("NegativeLogLikelihoodLoss", "reduction"): (b"none", b"sum", b"mean"),
    ("SoftmaxCrossEntropyLoss", "reduction"): (b"none", b"sum", b"mean"),
    ("Attention", "qk_matmul_output_mode"): (0, 1, 2, 3),
    **{(op, "round_mode"): (b"up", b"down", b"nearest") for op in ("Cast", "CastLike")},
    **{
        (f"{kind}Normalization", "stash_type"): (1, 10, 11, 16)  # float, float16, double, bfloat16
        for kind in ("Layer", "Group", "RMS")
    },
}
"""The values of the attributes of an operator of the standard that takes only these."""


@lru_cache(maxsize=1024)
def schema_of(op: str, domain: str, version: int) -> Any:
    """Returns the standard's schema of an operator in a version of its set, or None."""
    defs = load_onnx("defs")
    try:
        return defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None


def has_definition(op: str, domain: str, version: int) -> bool:
    """Returns whether the standard defines the operator by others."""
    schema = schema_of(op, domain, version)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def find_misuse(node: NodeRecord, version: int) -> tuple[str, str] | None:
    """Returns the way in which a node contradicts its schema, such as `has 3 operands`, and the code of the error."""
    schema = schema_of(node.op, node.domain, version)
    if schema is None:
        return None
    count = len(node.inputs)
    if not schema.min_input <= count <= schema.max_input:
        return f"has {count} operands, and takes {_range(schema.min_input, schema.max_input)}", "wrong-operands"
    if not schema.min_output <= len(node.outputs) <= schema.max_output:
        message = f"has {len(node.outputs)} results, and gives {_range(schema.min_output, schema.max_output)}"
        return message, "wrong-operands"
    single = load_onnx("defs").OpSchema.FormalParameterOption.Single
    for name, formal in zip(node.inputs, schema.inputs, strict=False):
        if not name and formal.option == single:
            return f"lacks the operand `{formal.name}`", "wrong-operands"
    for name, attribute in schema.attributes.items():
        given = node.attributes.get(name)
        if given is None:
            if attribute.required:
                return f"lacks the attribute `{name}`", "missing-attribute"
        elif not given.reference and given.proto.type != int(attribute.type.value):
            expected = attribute.type.name.lower()
            return f"has an attribute `{name}` that is not of kind {expected}", "bad-attribute"
        elif not given.reference and not node.domain:
            listed = _LISTED.get((node.op, name))
            value = given.proto.s if listed is not None and isinstance(listed[0], bytes) else given.proto.i
            if listed is not None and value not in listed:
                shown = ", ".join(each.decode() if isinstance(each, bytes) else str(each) for each in listed)
                return f"has `{name}` = {value!r}, expected one of {shown}", "bad-attribute"
    return None


def with_elements(
    node: NodeRecord, version: int, operands: Sequence[Held | None], results: Sequence[Held]
) -> Sequence[Held]:
    """Returns the results with the element type of an operand for which the schema has the same type variable. This
    propagates element types without a dtype of the graph, such as INT4."""
    if not any(isinstance(held, Tensor) and held.element for held in operands):
        return results
    schema = schema_of(node.op, node.domain, version)
    if schema is None:
        return results
    elements: dict[str, str] = {}
    for number, held in enumerate(operands):
        if isinstance(held, Tensor) and held.element:
            elements.setdefault(schema.inputs[min(number, len(schema.inputs) - 1)].type_str, held.element)
    made: list[Held] = []
    for number, held in enumerate(results):
        element = elements.get(schema.outputs[min(number, len(schema.outputs) - 1)].type_str, "")
        made.append(replace(held, element=element) if isinstance(held, Tensor) and element else held)
    return made


def _range(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low} to {high}" if high < 1 << 20 else f"at least {low}"
