"""The text of a graph. `parser` reads it back to an equal graph, and equal text means equal graphs.

    module minilm

    dim B in 1..64
    dim T in 1..512 multiple 8

    param "layer.{}.weight" [6] : f32[384, 384] from "h.{}.w" transpose (1, 0) loc(minilm.nacre:3:2-3:30)

    func embed(%x: f32[B, T, 384]) -> (embedding: f32[B, T, 384]) {
      %3 = repeat(%x) {count = 6} : f32[B, T, 384] @encoder do (%i: i64, %h: f32[B, T, 384]) {
        %1 = parameter(%i) {name = "layer.{}.weight"} : f32[384, 384] @encoder.layer.{}
        %2 = matmul(%h, %1) : f32[B, T, 384] @encoder.layer.{} loc(minilm.nacre:14:10-14:22)
        yield %2
      }
      return %3
    }

A state may have an initial value, which is a parameter. A function lists the states that it uses after its arguments,
and returns their values after the call after its results.

    state "attention.keys" : f16[B, 4, S, 32]
    state "count" : i64 = "count.initial"

    func step(%x: f32[B, 32]) with (%keys: f16[B, 4, S, 32] = "attention.keys") -> (y: f32[B, 32]) {
      ...
      return %4, %keys_2
    }

A parameter that is computed from others is printed with its formula: those others, then nodes.

    param "conv.weight.folded" : f32[3, 3, 64, 64] = {
      param "conv.weight" : f32[64, 64, 3, 3]
      %1 = parameter() {name = "conv.weight"} : f32[64, 64, 3, 3]
      %2 = transpose(%1) {axes = (2, 3, 1, 0)} : f32[3, 3, 64, 64]
      yield %2
    }

An attribute is omitted if its value and its default are `none`. Names that are not plain words are quoted. Big
constants print as a hash and a shape, never as data; small ones print exactly. `//` begins a comment. This module
prints any graph, valid or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

import numpy as np

from .diagnostics import Span
from .dims import Poly, format_size
from .graph import Attribute, Constant, Formula, Function, Module, Node, Parameter, Region, State, Value, walk
from .ops import OPERATORS
from .ops.structure import ELEMENTS_INLINE
from .types import BLOCK_DTYPES, DTYPES, Array, DType

WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
VALUE_NAME = re.compile(r"[\w.$]+", re.ASCII)
SCOPE = re.compile(r"[\w.{}]+", re.ASCII)
FILE_NAME = re.compile(r"[\w./+<>~-]+", re.ASCII)

LITERALS: Mapping[str, bool | float | DType | None] = {
    "none": None,
    "true": True,
    "false": False,
    "inf": float("inf"),
    "-inf": float("-inf"),
    "nan": float("nan"),
    **DTYPES,
    **BLOCK_DTYPES,
}
"""Attributes that are words. A size that would read like one of them is written as a product."""


def quote(text: str) -> str:
    return json.dumps(text)


def bare_or_quoted(text: str, bare: re.Pattern[str]) -> str:
    return text if bare.fullmatch(text) else quote(text)


def format_float(value: float) -> str:
    """Returns the text of a float, which reads back as the same float and never as an integer."""
    text = float.__repr__(value)
    return text if re.search(r"[.einf]", text) else text + ".0"


def format_bits(element: Array) -> int:
    """Returns the bits of a single element as a number."""
    return int.from_bytes(element.tobytes(), "little")


def _format_float_element(element: Array) -> str:
    """Returns the shortest text that rounds to the same element of its dtype, or the bits of a non-default NaN."""
    value = float(element)
    if np.isnan(value):
        usual = np.asarray(np.nan).astype(element.dtype)
        return "nan" if usual.tobytes() == element.tobytes() else hex(format_bits(element))
    with np.errstate(over="ignore"):
        for digits in range(1, 17):
            rounded = float(f"{value:.{digits}g}")
            if np.asarray(rounded).astype(element.dtype) == element:
                return format_float(rounded)
    return format_float(value)


def format_element(element: Array, dtype: DType) -> str:
    """Returns the exact text of one element of a constant."""
    if dtype.is_float:
        return _format_float_element(element)
    return str(element.item()).lower()


def format_constant(constant: Constant) -> str:
    if constant.array is None or constant.array.size > ELEMENTS_INLINE:
        return f"constant<{constant.type}, #{constant.digest}>"
    flat = constant.array.reshape(-1)
    elements = [format_element(flat[i : i + 1].reshape(()), constant.type.dtype) for i in range(flat.size)]
    data = f"[{', '.join(elements)}]" if constant.type.rank else elements[0]
    return f"constant<{constant.type}, {data}>"


def format_attribute(value: Attribute) -> str:
    """Returns the text of an attribute. Attributes of different kinds never have the same text: `1`, `1.0`, `true`,
    `-0.0`."""
    if isinstance(value, tuple):
        return f"({', '.join(map(format_attribute, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, Constant):
        return format_constant(value)
    if value is None or isinstance(value, (bool, DType)):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return format_float(value)
    if isinstance(value, str):
        return quote(value)
    if not isinstance(value, Poly):
        return f"<{value!r}>"  # not an attribute: the verifier reports it, and shows this text
    text = format_size(value)
    if text in LITERALS or text.startswith("("):
        return f"1*{text}"
    return f"-1*{text[1:]}" if text.startswith("-") and text[1:] in LITERALS else text


def format_value(value: Value) -> str:
    return "%" + bare_or_quoted(value.name, VALUE_NAME)


def _values(values: Iterable[Value]) -> str:
    return ", ".join(map(format_value, values))


def _typed(values: Iterable[Value]) -> str:
    return ", ".join(f"{format_value(v)}: {v.type}" for v in values)


def _location(span: Span | None) -> str:
    if span is None:
        return ""
    file = bare_or_quoted(span.file, FILE_NAME)
    return f" loc({file}:{span.line}:{span.column}-{span.end_line}:{span.end_column})"


def format_node(node: Node) -> str:
    """Returns the node as one line, without scope, location and regions."""
    results = f"{_values(node.outputs)} = " if node.outputs else ""
    implied = (
        {spec.name for spec in OPERATORS[node.op].attributes if spec.default is None} if node.op in OPERATORS else ()
    )
    pairs = ", ".join(
        f"{bare_or_quoted(name, WORD)} = {format_attribute(value)}"
        for name, value in node.attributes
        if value is not None or name not in implied
    )
    attributes = f" {{{pairs}}}" if pairs else ""
    types = ", ".join(str(v.type) for v in node.outputs) or "()"
    return f"{results}{bare_or_quoted(node.op, WORD)}({_values(node.inputs)}){attributes} : {types}"


def _print_region(region: Region, indent: str, lines: list[str]) -> None:
    """Appends to the last line the opening of the region, then its lines up to the closing brace."""
    lines[-1] += f" do ({_typed(region.arguments)}) {{"
    _print_nodes(region.body, indent + "  ", lines)
    lines.append(f"{indent}  yield {_values(region.results)}".rstrip())
    lines.append(indent + "}")


def _print_nodes(nodes: Iterable[Node], indent: str, lines: list[str]) -> None:
    for node in nodes:
        scope = f" @{bare_or_quoted(node.scope, SCOPE)}" if node.scope else ""
        lines.append(f"{indent}{format_node(node)}{scope}{_location(node.span)}")
        for region in node.regions:
            _print_region(region, indent, lines)


def _format_parameter(parameter: Parameter) -> str:
    text = f"param {quote(parameter.name)}"
    if parameter.counts:
        text += f" [{', '.join(map(str, parameter.counts))}]"
    text += f" : {parameter.type}"
    if parameter.source is not None:
        text += f" from {quote(parameter.source)}"
    if parameter.transpose is not None:
        text += f" transpose {format_attribute(parameter.transpose)}"
    text += _location(parameter.span)
    return text if parameter.formula is None else f"{text} = {print_formula(parameter.formula)}"


def print_formula(formula: Formula) -> str:
    lines = ["stepwise {" if formula.stepwise else "{", *(f"  {_format_parameter(p)}" for p in formula.parameters)]
    _print_nodes(formula.body, "  ", lines)
    return "\n".join([*lines, f"  yield {format_value(formula.result)}", "}"])


def _format_state(state: State) -> str:
    initial = "" if state.initial is None else f" = {quote(state.initial)}"
    return f"state {quote(state.name)} : {state.type}{initial}{_location(state.span)}"


def print_function(function: Function) -> str:
    names = function.result_names or ("",) * len(function.results)
    results = [
        f"{bare_or_quoted(name, WORD)}: {value.type}" if function.result_names else str(value.type)
        for name, value in zip(names, function.outputs, strict=False)
    ]
    head = f"func {bare_or_quoted(function.name, WORD)}({_typed(function.inputs)})"
    if function.states:
        states = zip(function.state_arguments, function.states, strict=False)
        head += f" with ({', '.join(f'{_typed([value])} = {quote(name)}' for value, name in states)})"
    head += f" -> ({', '.join(results)})"
    lines = [f"{head}{_location(function.span)} {{"]
    _print_nodes(function.body, "  ", lines)
    lines.append(f"  return {_values(function.results)}".rstrip())
    return "\n".join([*lines, "}"])


def print_module(module: Module) -> str:
    """Returns the text of a module: one declaration or node in a line, parts separated by empty lines."""
    parts = [f"module {bare_or_quoted(module.name, WORD)}"]
    if module.dims:
        parts.append("\n".join(map(str, module.dims)))
    if module.parameters:
        parts.append("\n".join(map(_format_parameter, module.parameters)))
    if module.states:
        parts.append("\n".join(map(_format_state, module.states)))
    return "\n\n".join([*parts, *map(print_function, module.functions)]) + "\n"


def _constants_in(value: Attribute) -> Iterable[Constant]:
    if isinstance(value, Constant):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _constants_in(part)


def _all_constants(module: Module) -> Iterable[Constant]:
    bodies = [p.formula.body for p in module.parameters if p.formula is not None]
    for body in (*bodies, *(function.body for function in module.functions)):
        for node in walk(body):
            for _, value in node.attributes:
                yield from _constants_in(value)


def collect_constants(module: Module) -> dict[str, Array]:
    """Returns the data of every constant by its digest: `parse_module` needs them to read elided constants."""
    return {c.digest: c.array for c in _all_constants(module) if c.array is not None}


def collect_elided(module: Module) -> dict[str, Array]:
    """Returns the data of elided constants in the module's text, by digest."""
    return {digest: data for digest, data in collect_constants(module).items() if data.size > ELEMENTS_INLINE}


def find_missing(module: Module) -> list[Constant]:
    """Returns the constants whose data was missing when the text of the module was read."""
    return [constant for constant in _all_constants(module) if constant.array is None]
