"""Functions whose arguments an operator's record cannot describe: each is an entry of `FORMS`.

Examples are `rearrange`, `zeros` and `ones`, `tensor`, `max` and `min` of two values, `cast` of numbers and sizes,
`einsum` with the equation first, `matmul` of vectors, `iota` of one size, and permutations without parentheses. Every
other operator is called as its record defines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ....dialect.diagnostics import Span
from ....dialect.dims import Poly, Size
from ....dialect.graph import Value
from ....dialect.ops.support.accumulate import INTO, ROUNDED, SPARSE
from ....dialect.types import BOOL, F32, I64, DType
from .builtins import call_operator, convert_attribute
from .context import Context, check_size, suggest
from .distinct import unique
from .draws import multinomial
from .operators import BUILTINS, apply, literal, multiply_matrices
from .random_numbers import random_bits, random_normal, random_uniform
from .rearrange import Rearrangement
from .selection import masked_select, nonzero
from .slices import unstack
from .statics import demand_integer, demand_size
from .values import ERROR, AnyValue, Frame, Given, Poison, contains_error, contains_tensor, describe, is_size

Form = Callable[[Context, Frame, Sequence[Given], Span], AnyValue]


def _sort(
    context: Context, name: str, names: Sequence[str], required: int, arguments: Sequence[Given], span: Span
) -> dict[str, Given] | Poison:
    """Returns the arguments by name. Reports missing, unknown and excess ones."""
    report = context.reporter.error
    bound: dict[str, Given] = {}
    for number, argument in enumerate(arguments):
        if argument.name is None and number >= len(names):
            message = f"`{name}` takes {', '.join(names)}; this argument is one too many"
            return report("wrong-arguments", message, argument.span)
        key = names[number] if argument.name is None else argument.name.name
        if key not in names:
            assert argument.name is not None
            help_text = suggest(key, names)
            return report("wrong-arguments", f"`{name}` has no argument `{key}`", argument.name.span, help=help_text)
        if key in bound:
            return report("wrong-arguments", f"`{key}` of `{name}` is given twice", argument.span)
        bound[key] = argument
    missing = [n for n in names[:required] if n not in bound]
    if missing:
        return report("wrong-arguments", f"`{name}` is missing an argument: `{missing[0]}`", span)
    return bound


def _rearrange(context: Context, frame: Frame, arguments: Sequence[Given], span: Span) -> AnyValue:
    report = context.reporter.error
    positional = [a for a in arguments if a.name is None]
    if len(positional) != 2:
        message = "`rearrange` takes a tensor, a pattern, and sizes by name"
        return report("wrong-arguments", message, span, help='`rearrange(x, "b t (h d) -> b h t d", h=8)`')
    x, pattern = positional
    sizes: dict[str, tuple[Size, Span]] = {}
    failed = False
    for argument in arguments:
        if argument.name is None:
            continue
        size = demand_size(context, argument.value, argument.span)
        size = size if size is ERROR else check_size(context, size, argument.span)
        if size is ERROR:
            failed = True
        else:
            sizes[argument.name.name] = size, argument.span
    if failed or contains_error(x.value) or contains_error(pattern.value):
        return ERROR
    if not isinstance(x.value, Value):
        return report("not-a-tensor", f"`rearrange` needs a tensor, not {describe(x.value)}", x.span)
    if not isinstance(pattern.value, str):
        message = f"the pattern of `rearrange` must be a text, not {describe(pattern.value)}"
        return report("bad-pattern", message, pattern.span)
    return Rearrangement(context, frame, span, pattern.value, pattern.span).apply(x.value, x.span, sizes)


def _filled(name: str, value: float) -> Form:
    def form(context: Context, frame: Frame, arguments: Sequence[Given], span: Span) -> AnyValue:
        sizes = [each for each in arguments if each.name is None and is_size(each.value)]
        if len(sizes) > 1:
            shown = ", ".join(context.reporter.text(each.span) for each in sizes)
            message = f"`{name}` takes one shape, not {len(sizes)} sizes"
            return context.reporter.error("wrong-arguments", message, span, help=f"`{name}(({shown}))`")
        bound = _sort(context, name, ("shape", "dtype"), 1, arguments, span)
        if bound is ERROR:
            return ERROR
        dtype = bound["dtype"] if "dtype" in bound else Given(F32, span)
        given = [bound["shape"], Given(_unit(value, dtype.value), span), dtype]
        return call_operator(context, frame, BUILTINS["full"], given, span, symbol=name)

    return form


def _unit(value: float, dtype: AnyValue) -> AnyValue:
    """Returns 0 or 1 as a literal of the dtype."""
    if isinstance(dtype, DType) and dtype.name == "bool":
        return bool(value)
    return value if isinstance(dtype, DType) and dtype.is_float else int(value)


def _tensor(context: Context, frame: Frame, arguments: Sequence[Given], span: Span) -> AnyValue:
    bound = _sort(context, "tensor", ("values", "dtype"), 2, arguments, span)
    if bound is ERROR or contains_error(bound["values"].value) or bound["dtype"].value is ERROR:
        return ERROR
    dtype, values = bound["dtype"], bound["values"]
    if not isinstance(dtype.value, DType):
        message = f"`dtype` of `tensor` must be a dtype, not {describe(dtype.value)}"
        return context.reporter.error("bad-attribute", message, dtype.span)
    if contains_tensor(values.value):
        help_text = "`stack([a, b])` joins tensors"
        message = f"`tensor` takes numbers, not {describe(values.value)}"
        return context.reporter.error("bad-attribute", message, values.span, help=help_text)
    return literal(context, frame, values.value, dtype.value, values.span)


def _cast(context: Context, frame: Frame, arguments: Sequence[Given], span: Span) -> AnyValue:
    """Casts a value. A number becomes a constant at once, and a tensor that has the dtype stays as it is."""
    plain = [a.value for a in arguments if a.name is None]
    if len(plain) == len(arguments) == 2:
        value, dtype = plain
        if isinstance(dtype, DType) and isinstance(value, Value) and value.type.dtype == dtype:
            return value
        if isinstance(dtype, DType) and not dtype.is_blocked and isinstance(value, (bool, int, float, Poly)):
            return literal(context, frame, _converted(value, dtype), dtype, arguments[0].span)
    return call_operator(context, frame, BUILTINS["cast"], arguments, span)


def _dequantize(context: Context, frame: Frame, arguments: Sequence[Given], span: Span) -> AnyValue:
    """Dequantizes a block-quantized value, which holds its scales."""
    if any(contains_error(a.value) for a in arguments):
        return ERROR
    name = "dequantize_blocks" if _is_in_blocks(arguments) else "dequantize"
    return call_operator(context, frame, BUILTINS[name], arguments, span, "dequantize")


def _is_in_blocks(arguments: Sequence[Given]) -> bool:
    first = arguments[0].value if arguments else None
    return isinstance(first, Value) and first.type.dtype.is_blocked


def _converted(value: float | Poly, dtype: DType) -> float | Poly:
    """Converts the number to one that the dtype may hold: a fraction is truncated, anything but 0 is true."""
    if isinstance(value, Poly) or (isinstance(value, float) and not math.isfinite(value)):
        return value
    if dtype == BOOL:
        return bool(value)
    return float(value) if dtype.is_float else int(value)


def _extreme(name: str, of_two: str) -> Form:
    """Returns a form: for one tensor the reduction, for two values the elementwise greater or lesser one."""

    def form(context: Context, frame: Frame, arguments: Sequence[Given], span: Span) -> AnyValue:
        both = len(arguments) == 2 and all(a.name is None for a in arguments)
        if both and (isinstance(arguments[1].value, (Value, float)) or not isinstance(arguments[0].value, Value)):
            values, spans = [a.value for a in arguments], [a.span for a in arguments]
            return apply(context, frame, of_two, values, {}, span, spans, symbol=name)
        if both and isinstance(arguments[0].value, Value) and isinstance(arguments[1].value, int):
            rank, axis = arguments[0].value.type.rank, arguments[1].value
            if not -rank <= axis < rank:
                help_text = f"`{of_two}(x, {axis})` compares each element with a number"
                label = f"the tensor has rank {rank}"
                return context.reporter.error("bad-axis", f"`{name}` has no axis {axis}", span, label, help=help_text)
        return call_operator(context, frame, BUILTINS[name], arguments, span)

    return form


def _einsum(context: Context, frame: Frame, arguments: Sequence[Given], span: Span) -> AnyValue:
    """Applies `einsum`, whose equation may come first, as in other libraries."""
    texts = [a for a in arguments if a.name is None and isinstance(a.value, str)]
    others = [a for a in arguments if not (a.name is None and isinstance(a.value, str))]
    return call_operator(context, frame, BUILTINS["einsum"], [*_positional_first(others, texts)], span)


_OF_PRODUCTS = (INTO, SPARSE, ROUNDED)
"""The attributes of a matrix product that a model may give."""


def _matmul(context: Context, frame: Frame, arguments: Sequence[Given], span: Span) -> AnyValue:
    bound = _sort(context, "matmul", ("x", "y", *(spec.name for spec in _OF_PRODUCTS)), 2, arguments, span)
    if bound is ERROR:
        return ERROR
    x, y = bound["x"], bound["y"]
    given = [spec for spec in _OF_PRODUCTS if spec.name in bound]
    attributes = {spec.name: convert_attribute(context, "matmul", spec, bound[spec.name]) for spec in given}
    if any(value is ERROR for value in attributes.values()):
        return ERROR
    return multiply_matrices(context, frame, [x.value, y.value], span, [x.span, y.span], "matmul", attributes)


def _positional_first(operands: Sequence[Given], texts: Sequence[Given]) -> list[Given]:
    return [
        *(a for a in operands if a.name is None),
        *texts,
        *(a for a in operands if a.name is not None),
    ]


def _axes_in_a_row(name: str) -> Form:
    """Returns a form that accepts `transpose(x, 1, 0)` for `transpose(x, (1, 0))`."""

    def form(context: Context, frame: Frame, arguments: Sequence[Given], span: Span) -> AnyValue:
        positional = [a for a in arguments if a.name is None]
        if len(positional) > 2 and len(positional) == len(arguments):
            axes = tuple(a.value for a in positional[1:])
            if all(a is ERROR or isinstance(a, (int, Poly)) for a in axes):
                arguments = [positional[0], Given(axes, positional[1].span.to(positional[-1].span))]
        return call_operator(context, frame, BUILTINS[name], arguments, span)

    return form


def _iota(context: Context, frame: Frame, arguments: Sequence[Given], span: Span) -> AnyValue:
    """Applies `iota`, whose dtype may directly follow the size: `iota(n, i32)`."""
    if len(arguments) == 2 and arguments[1].name is None and isinstance(arguments[1].value, DType):
        arguments = [arguments[0], Given(0, span), arguments[1]]
    return call_operator(context, frame, BUILTINS["iota"], arguments, span)


def _unstack(context: Context, frame: Frame, arguments: Sequence[Given], span: Span) -> AnyValue:
    bound = _sort(context, "unstack", ("x", "axis"), 1, arguments, span)
    if bound is ERROR or contains_error(bound["x"].value):
        return ERROR
    x, given = bound["x"], bound.get("axis")
    axis = 0 if given is None else demand_integer(context, given.value, given.span, "the axis")
    if axis is ERROR:
        return ERROR
    if not isinstance(x.value, Value):
        return context.reporter.error("not-a-tensor", f"`unstack` needs a tensor, not {describe(x.value)}", x.span)
    if not -x.value.type.rank <= axis < x.value.type.rank:
        message = f"there is no axis {axis}: `x` of `unstack` is {x.value.type}"
        return context.reporter.error("bad-axis", message, span if given is None else given.span)
    return unstack(context, frame, x.value, axis % x.value.type.rank, span)


def _where(context: Context, frame: Frame, arguments: Sequence[Given], span: Span) -> AnyValue:
    """Applies `where`, whose values may both be numbers: integers are i64, others f32."""
    numbers = [a for a in arguments[1:] if isinstance(a.value, (bool, int, float, Poly))]
    if len(arguments) == 3 and len(numbers) == 2 and isinstance(arguments[0].value, Value):
        values = [a.value for a in numbers]
        is_bool = [isinstance(value, bool) for value in values]
        dtype = BOOL if all(is_bool) else F32 if any(isinstance(v, float) for v in values) else I64
        first = literal(context, frame, values[0], dtype, numbers[0].span)
        if first is ERROR:
            return ERROR
        arguments = [arguments[0], replace(numbers[0], value=first), numbers[1]]
    return call_operator(context, frame, BUILTINS["where"], arguments, span)


Sorted = Callable[[Context, Frame, dict[str, Given], Span], AnyValue]


def _sorted(name: str, names: Sequence[str], required: int, apply_to: Sorted) -> Form:
    """Returns a form whose arguments have these names, the first of them required."""

    def form(context: Context, frame: Frame, arguments: Sequence[Given], span: Span) -> AnyValue:
        bound = _sort(context, name, names, required, arguments, span)
        return ERROR if bound is ERROR else apply_to(context, frame, bound, span)

    return form


FORMS: Mapping[str, Form] = {
    "rearrange": _rearrange,
    "zeros": _filled("zeros", 0.0),
    "ones": _filled("ones", 1.0),
    "tensor": _tensor,
    "cast": _cast,
    "dequantize": _dequantize,
    "max": _extreme("max", "maximum"),
    "min": _extreme("min", "minimum"),
    "einsum": _einsum,
    "matmul": _matmul,
    "transpose": _axes_in_a_row("transpose"),
    "reshape": _axes_in_a_row("reshape"),
    "iota": _iota,
    "unstack": _unstack,
    "where": _where,
    "nonzero": _sorted("nonzero", ("x", "size", "mode"), 2, nonzero),
    "masked_select": _sorted("masked_select", ("x", "mask", "size", "mode"), 3, masked_select),
    "unique": _sorted("unique", ("x", "size", "mode"), 2, unique),
    "multinomial": _sorted("multinomial", ("probabilities", "samples", "seed", "replacement"), 3, multinomial),
    "random_bits": _sorted("random_bits", ("shape", "seed"), 2, random_bits),
    "random_uniform": _sorted("random_uniform", ("shape", "seed", "dtype"), 2, random_uniform),
    "random_normal": _sorted("random_normal", ("shape", "seed", "dtype"), 2, random_normal),
}
