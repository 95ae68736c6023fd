"""Writes the reference page of the operators from their records: `python -m nacre.compiler.tools.reference.operators`.

The page is `compiler/docs/operators.md`; a test compares it with the result of `format_page`. Facts come from the
records: the signature, the accepted dtypes, the summary, and the operators that a decomposition or a gradient adds for
the first case of a record. Formulas come from the table beside this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ....dialect.graph import Value
from ....dialect.operator import REQUIRED, AttributeSpec, Builder, Case, InferenceError, Operand, Operator, Use
from ....dialect.ops import OPERATORS
from ....dialect.types import (
    ANY,
    BLOCKED,
    COMPUTED,
    F32,
    FLOATS,
    INTEGERS,
    NUMBERS,
    SIGNED,
    STORAGE,
    UNSIGNED,
    DType,
    TensorType,
    dtype_of,
)
from .operator_formulas import FORMULAS

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"

_HEAD = """# Operators

This page is generated from the operator records by `python -m nacre.compiler.tools.reference.operators`.

A signature lists the operands, then `*` and the attributes. Operands are tensors; `operand?` marks an optional one, and
`...operands` stands for any number of them. Attributes are known at compile time; `name=value` gives a default.
Operands and attributes can be passed by position, in this order, or by name; operands after `*` are passed by name.
After `->`, a signature lists the results if there are several. Unless stated otherwise, all operands have the same
dtype. Elementwise operators broadcast by the rules of NumPy. Integer arithmetic wraps around.

The shape of an operand is written behind it: `x [N, C, *spatial]` has an axis N for the batch, an axis C for channels,
and then any number of spatial axes. Many operators share these attributes:

| attribute | meaning |
|---|---|
| `axis`, `axes` | an axis, counted from 0, or from -1 for the last one; `None` is all axes |
| `keepdims` | keeps reduced axes, with size 1 |
| `mode` | if an index is out of range: `error` fails the call, `clamp` uses the nearest, `drop` skips it or reads 0 |
| `layout` | the position of the channels: before the spatial axes, or after them |
| `into` | the dtype in which the products are summed, and the dtype of the result |

A formula is in the notation of NumPy. Its sums, means and maxima run over the axes of the operator, with
`keepdims=true`; `n` is the number of their elements, and `k` the size of a window.

`Decomposes to` lists the operators by which passes replace an operator, and `the gradient uses` those that
differentiation adds; both for the operands of the example. [Numerics](numerics.md) states how results are rounded.

Dtypes are abbreviated as follows.

| name | dtypes |
|---|---|
"""
_SETS: tuple[tuple[str, tuple[DType, ...]], ...] = (
    ("floats", FLOATS),
    ("signed", SIGNED),
    ("unsigned", UNSIGNED),
    ("integers", INTEGERS),
    ("numbers", NUMBERS),
    ("8-bit floats", STORAGE),
    ("block-quantized", BLOCKED),
)
_COMBINED: tuple[tuple[str, tuple[DType, ...]], ...] = (
    ("any except block-quantized", ANY),
    ("bool, numbers", COMPUTED),
    ("numbers, 8-bit floats", (*NUMBERS, *STORAGE)),
    ("floats, 8-bit floats", (*FLOATS, *STORAGE)),
)

# A section extends from its first operator to that of the next section, in the order of the table of operators.
_SECTIONS: tuple[tuple[str, str], ...] = (
    ("constant", "Structure"),
    ("add", "Binary arithmetic"),
    ("equal", "Comparisons and logic"),
    ("negate", "Elementwise functions"),
    ("quantize", "Quantization"),
    ("relu", "Activations"),
    ("sum", "Reductions"),
    ("cumsum", "Cumulative operators"),
    ("softmax", "Softmax and normalization"),
    ("matmul", "Contractions"),
    ("conv1d", "Convolutions"),
    ("max_pool1d", "Pooling"),
    ("reshape", "Shapes and movement of data"),
    ("gather", "Indexing and scattering"),
    ("sort", "Sorting"),
    ("iota", "Creation"),
    ("resize", "Resizing, rotary embedding and attention"),
    ("quantize_blocks", "Block quantization"),
    ("winograd_input", "Winograd transforms"),
    ("tree_ensemble", "Decision trees"),
    ("lstm", "Recurrent layers"),
    ("fft", "Fourier transforms"),
    ("cholesky", "Linear algebra"),
    ("grid_sample", "Sampling and detection"),
    ("unfold", "Windows, counts and losses"),
    ("linspace", "Ranges and grids"),
    ("oblivious_leaves", "Decision trees of special forms"),
)


def format_page() -> str:
    """Returns the text of the page."""
    titles = dict(_SECTIONS)
    assert set(titles) <= set(OPERATORS), set(titles) - set(OPERATORS)
    rows = "".join(f"| {name} | {', '.join(f'`{d}`' for d in dtypes)} |\n" for name, dtypes in _SETS)
    parts = [_HEAD + rows]
    for name, operator in OPERATORS.items():
        if name in titles:
            parts.append(f"## {titles[name]}\n")
        parts.append(_format_operator(operator))
    return "\n".join(parts)


def _format_operator(operator: Operator) -> str:
    lines = [f"### `{_signature(operator)}`", "", f"{_sentence(operator.summary)}.", ""]
    lines += [f"- {fact}" for fact in _facts(operator)]
    return "\n".join(lines).rstrip() + "\n"


def _sentence(summary: str) -> str:
    """Capitalizes the summary, unless it begins with a formula."""
    first = summary.split()[0].rstrip(":")
    return summary[:1].upper() + summary[1:] if first == "a" or (first.isalpha() and len(first) > 1) else summary


def _signature(operator: Operator) -> str:
    operands = [
        ("..." if o.variadic else "") + o.name + ("?" if o.optional else "")
        for o in operator.operands
        if o not in operator.named
    ]
    named = [f"{o.name}?" for o in operator.named] + [_format_attribute(a) for a in operator.attributes]
    results = "" if operator.results == ("result",) else f" -> {', '.join(operator.results)}"
    return f"{operator.name}({', '.join([*operands, *(['*'] if named else []), *named])}){results}"


def _format_attribute(spec: AttributeSpec) -> str:
    if spec.default is REQUIRED:
        return spec.name
    default = spec.default
    shown = (
        f'"{default}"' if isinstance(default, str) else str(default).lower() if isinstance(default, bool) else default
    )
    return f"{spec.name}={shown}"


def _facts(operator: Operator) -> Iterator[str]:
    for given, formula in FORMULAS.get(operator.name, ()):
        yield f"Formula{f' for `{given}`' if given else ''}: `{formula}`."
    if operator.has("structure"):
        yield "Part of the [graph IR](graph.md); not callable by name in a model file."
    if operator.has("internal"):
        yield "Internal: only passes create this operator."
    if operator.operands:
        yield f"Dtypes: {_format_dtypes(operator.operands)}."
    elif made := _made(operator):
        yield f"Dtypes: {_format_set(made)}."
    for spec in operator.attributes:
        if spec.choices:
            choices = ", ".join(f'`"{choice}"`' for choice in spec.choices)
            yield f"`{spec.name}` is one of {choices}."
    example = _call(operator)
    if example:
        yield f"Example: {example}."
    if operator.decompose is not None and operator.operands:
        yield f"Decomposes to {_format_names(decomposition(operator))}."
    if operator.gradient is not None and any(d.is_differentiable for o in operator.operands for d in o.dtypes):
        names = gradient(operator)
        yield f"Differentiable; the gradient uses {_format_names(names)}." if names else "Differentiable."


def _call(operator: Operator) -> str:
    """Returns a call with the types of its operands and results, from the first case that gives operands."""
    if not operator.cases or operator.has("structure") or operator.has("internal"):
        return ""
    operands, case = _example(operator)[1:] if operator.operands else ((), operator.cases[0])
    given = {name: value for name, value in case.attributes.items() if operands or name != "dtype"}
    names = [min(number, len(operator.operands) - 1) for number in range(len(operands))]
    shown = [f"{operator.operands[n].name}: {value.type}" for n, value in zip(names, operands, strict=True)]
    shown += [f"{name}={_format_value(value)}" for name, value in given.items()]
    full = operator.complete(given)
    results = operator.check([value.type for value in operands], full)
    return f"`{operator.name}({', '.join(shown)})` gives {' and '.join(f'`{type}`' for type in results)}"


def _made(operator: Operator) -> tuple[DType, ...]:
    """Returns the dtypes that the attribute `dtype` of an operator without operands accepts."""
    if not operator.cases or all(spec.name != "dtype" for spec in operator.attributes):
        return ()
    accepted = []
    for dtype in (*ANY, *BLOCKED):
        with suppress(InferenceError):
            operator.check([], operator.complete({**operator.cases[0].attributes, "dtype": dtype}))
            accepted.append(dtype)
    return tuple(accepted)


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _format_dtypes(operands: Sequence[Operand]) -> str:
    sets = [_format_set(operand.dtypes) for operand in operands]
    if len(set(sets)) == 1:
        mixed = len(operands) > 1 and all(o.mixed for o in operands)
        return sets[0] + (" (operands may differ)" if mixed else "")
    return "; ".join(f"`{o.name}`: {dtypes}" for o, dtypes in zip(operands, sets, strict=True))


def _format_set(dtypes: tuple[DType, ...]) -> str:
    for name, members in (*_COMBINED, *_SETS):
        if set(dtypes) == set(members):
            return name
    return ", ".join(f"`{dtype}`" for dtype in dtypes)


def _format_names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def decomposition(operator: Operator) -> list[str]:
    """Returns the operators in the decomposition of the first case, without constants."""
    assert operator.decompose is not None
    builder, operands, case = _example(operator)
    operator.decompose(builder, operands, operator.complete(case.attributes))
    return _added(builder)


def gradient(operator: Operator) -> list[str]:
    """Returns the operators in the gradient of the first differentiable case, without constants."""
    assert operator.gradient is not None
    builder, operands, case = _example(operator)
    attributes = operator.complete(case.attributes)
    outputs = builder.apply(operator.name, operands, attributes)
    count = len(builder.nodes)
    seeds = tuple(Value(f"g{i}", v.type) if v.type.dtype.is_float else None for i, v in enumerate(outputs))
    operator.gradient(builder, Use(operands, outputs, attributes, seeds))
    return _added(builder, count)


def _added(builder: Builder, start: int = 0) -> list[str]:
    return sorted({node.op for node in builder.nodes[start:]} - {"constant"})


def _example(operator: Operator) -> tuple[Builder, tuple[Value, ...], Case]:
    """Returns operands for the first differentiable case, or else for the first case."""
    case = next((c for c in operator.cases if c.gradient), operator.cases[0])
    main = "T" if any(o.group == "T" for o in operator.operands) else operator.operands[0].group
    accepted = case.dtypes or next(o.dtypes for o in operator.operands if o.group == main)
    dtype = F32 if F32 in accepted else accepted[0]
    types = []
    for position in range(max(len(case.shapes), max(case.arrays, default=-1) + 1)):
        operand = operator.operands[min(position, len(operator.operands) - 1)]
        own = dtype if operand.group == main else operand.dtypes[0]
        if position in case.arrays:
            array = case.arrays[position]
            types.append(TensorType(own if operand.group == main else dtype_of(array), array.shape))
        else:
            types.append(TensorType(case.mixed.get(position, own), case.shapes[position]))
    return Builder(OPERATORS, "v"), tuple(Value(f"a{i}", t) for i, t in enumerate(types)), case


def main() -> None:
    PAGE.write_text(format_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
