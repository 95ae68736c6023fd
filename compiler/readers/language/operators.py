"""Applies operators to values: literals take the dtype of the other operand, errors become diagnostics.

A tensor operand may be written as a tensor, a number, a symbolic size, or nested lists of numbers. A mix of dtypes is
an error whose help proposes a cast.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....dialect.diagnostics import Span
from ....dialect.dims import DimError, Poly, bounds
from ....dialect.graph import Constant, Value
from ....dialect.operator import InferenceError, Operand, Operator
from ....dialect.ops import OPERATORS
from ....dialect.types import BOOL, F32, F64, I64, DType, TensorType
from .context import ELEMENTS, NODES, RANK, SIZE_PARTS, Context, parts
from .provenance import size_notes, trace_axes
from .values import ERROR, AnyValue, Frame, Poison, contains_error, describe, is_number, show

BUILTINS: Mapping[str, Operator] = {
    name: operator
    for name, operator in OPERATORS.items()
    if not (operator.has("structure") or operator.has("internal"))
}
"""The operators that the language can call by name."""

LITERAL_ELEMENTS = 1 << 16


def literal(
    context: Context, frame: Frame, value: AnyValue, dtype: DType, span: Span, beside: str = ""
) -> Value | Poison:
    """Returns a number, a size or nested lists of numbers as a tensor of the dtype. Refuses values that the dtype
    cannot hold; `beside` is the text of the tensor that has this dtype."""
    report = context.reporter.error
    if contains_error(value):
        return ERROR
    if isinstance(value, Poly):
        result = context.writer.size_value(value, frame.scope, span)
        if dtype == result.type.dtype:
            return result
        return single(apply(context, frame, "cast", [result], {"dtype": dtype}, span, [span]))
    if dtype.is_blocked:
        message = f"{show(value)} cannot be combined with the block-quantized dtype {dtype}"
        help_text = f"`dequantize({beside or '...'})` gives its float values"
        return report("dtype-mismatch", message, span, help=help_text)
    if not isinstance(value, tuple) and not is_number(value) and not isinstance(value, bool):
        return report("not-a-tensor", f"expected a tensor, not {describe(value)}", span)
    leaves: list[float | int | bool] = []
    shape = _flatten(value, leaves)
    if shape is None:
        return report("not-a-tensor", f"{show(value)} is not a tensor: its rows have different lengths", span)
    if len(leaves) > LITERAL_ELEMENTS:
        return report("too-large", "tensors of this size must be stored in a file", span)
    context.count_steps(len(leaves), span)
    for leaf in leaves:
        mistake = _unfit(leaf, dtype)
        if mistake:
            help_text = _wider(leaf, dtype, beside)
            return report("literal-range", f"{show(leaf)} {mistake} {dtype}", span, help=help_text)
    with np.errstate(all="ignore"):
        array = np.asarray(leaves, dtype=object).astype(dtype.numpy).reshape(shape)
    return emit(context, frame, "constant", (), {"value": Constant(array)}, span)[0]


def as_tensor(
    context: Context, frame: Frame, value: AnyValue, span: Span, dtype: DType | None = None
) -> Value | Poison:
    """Returns a value as a tensor: integers and sizes are i64, other numbers f32, unless a dtype is given."""
    if isinstance(value, Value):
        return value
    if dtype is None:
        dtype = BOOL if isinstance(value, bool) else I64 if isinstance(value, (int, Poly)) else F32
    return literal(context, frame, value, dtype, span)


def single(value: AnyValue) -> Value | Poison:
    """Returns the result of an operator with one result."""
    assert isinstance(value, Value) or value is ERROR, value
    return value


def _flatten(value: AnyValue, leaves: list[float | int | bool]) -> tuple[int, ...] | None:
    """Returns the shape of nested tuples of numbers, and appends the elements to `leaves`; None if there is no such
    shape."""
    if isinstance(value, (int, float)):
        leaves.append(value)
        return ()
    if not isinstance(value, tuple):
        return None
    shapes = {_flatten(item, leaves) for item in value}
    if len(shapes) > 1 or None in shapes:
        return None
    inner = shapes.pop() if shapes else ()
    return None if inner is None else (len(value), *inner)


def _unfit(value: float | int | bool, dtype: DType) -> str:
    """Returns the reason why the dtype cannot represent the number, to be used inside a sentence; empty if it can."""
    if isinstance(value, bool) != (dtype == BOOL):
        return "is no"
    if dtype == BOOL:
        return ""
    if dtype.is_integer:
        if isinstance(value, float) and not value.is_integer():
            return "is no"
        info = np.iinfo(dtype.numpy.name)
        return "" if info.min <= value <= info.max else "does not fit"
    if abs(value) >= sys.float_info.max:
        return "" if math.isinf(value) and not dtype.float_format.finite else "does not fit"
    with np.errstate(all="ignore"):
        rounded = np.asarray(float(value)).astype(dtype.numpy)
    return "" if np.isfinite(rounded.astype(np.float64)) or math.isnan(value) else "does not fit"


def _wider(value: float | int | bool, dtype: DType, beside: str) -> str:
    """Returns a help for a number that does not fit the dtype of the other operand."""
    if dtype == BOOL:
        return f"`cast({beside}, f32)` is 1 where it is true, and 0 elsewhere" if beside else ""
    if dtype.is_integer and beside and isinstance(value, float) and math.isfinite(value) and not value.is_integer():
        return f"`cast({beside}, f32)` holds fractions"
    for wider in (I64,) if dtype.is_integer else (F32, F64):
        if beside and not _unfit(value, wider):
            return f"`cast({beside}, {wider})` can hold it"
    return f"`cast({show(value)}, ...)` gives a number another dtype"


def emit(
    context: Context, frame: Frame, operator: str, inputs: Sequence[Value], attributes: Mapping[str, Any], span: Span
) -> tuple[Value, ...]:
    """Adds a node, within the limits. Raises InferenceError and DimError."""
    if context.writer.count >= NODES:
        raise context.reporter.stop("too-large", f"the model has more than {NODES} operations", span)
    outputs = context.writer.emit(operator, inputs, attributes, scope=frame.scope, span=span)
    for output in outputs:
        _check_type(output.type)
    return outputs


def _check_type(type: TensorType) -> None:
    if type.rank > RANK:
        raise InferenceError("too-large", f"a tensor has at most {RANK} axes, not {type.rank}")
    elements = 1
    for size in type.shape:
        if isinstance(size, int):
            elements *= size
        elif parts(size) >= SIZE_PARTS:
            raise InferenceError("size-too-complex", "the formula of a size of the result is too long")
        elif bounds(size)[0] < 0:
            label = f"{size} is {bounds(size)[0]} at least"
            raise InferenceError("negative-size", f"a size of the result {type} may be negative", label=label)
    if elements > ELEMENTS:
        raise InferenceError("too-large", f"the result {type} has too many elements")


def apply(
    context: Context,
    frame: Frame,
    name: str,
    operands: Sequence[AnyValue],
    attributes: Mapping[str, Any],
    span: Span,
    spans: Sequence[Span],
    *,
    symbol: str | None = None,
) -> AnyValue:
    """Returns the result of an operator, or a tuple of its results. `spans` are those of the operands, `symbol` is the
    spelling of the operator in the source if it is not its name."""
    if any(map(contains_error, operands)):
        return ERROR
    record = OPERATORS[name]
    shown = symbol or name
    tensors = _tensors(context, frame, record, operands, spans, shown)
    if tensors is ERROR:
        return ERROR
    try:
        outputs = emit(context, frame, name, tensors, attributes, span)
    except InferenceError as error:
        at = spans[error.operand] if error.operand is not None and error.operand < len(spans) else span
        message = error.message.replace(f"`{name}`", f"`{shown}`")
        sizes = trace_axes(context, frame, tensors)
        notes = size_notes(context, sizes, error.label or message)
        help_text = error.help or _remedy(context, record, shown, error, tensors, spans)
        return context.reporter.error(error.code, message, at, error.label, notes=notes, help=help_text)
    except DimError as error:
        return context.reporter.error("bad-size", f"`{shown}`: {error}", span)
    return outputs[0] if len(outputs) == 1 else outputs


def multiply_matrices(
    context: Context,
    frame: Frame,
    operands: Sequence[AnyValue],
    span: Span,
    spans: Sequence[Span],
    symbol: str,
    attributes: Mapping[str, Any] | None = None,
) -> AnyValue:
    """Applies `@` with the rules of the array API: a vector on the left is a row, one on the right a column, and the
    added axis is removed from the result. `attributes` are those of `matmul`."""
    matrices = list(operands)
    axes: list[int] = []
    for number, axis in enumerate((-2, -1)):
        x = matrices[number]
        if isinstance(x, Value) and x.type.rank == 1:
            added = {"axes": 0 if axis == -2 else 1}
            matrices[number] = apply(context, frame, "unsqueeze", [x], added, span, [spans[number]])
            axes.append(axis)
    product = apply(context, frame, "matmul", matrices, attributes or {}, span, spans, symbol=symbol)
    if not axes or product is ERROR:
        return product
    return apply(context, frame, "squeeze", [product], {"axes": tuple(axes)}, span, [span])


def _remedy(
    context: Context,
    record: Operator,
    shown: str,
    error: InferenceError,
    tensors: Sequence[Value],
    spans: Sequence[Span],
) -> str:
    """Returns a general help for errors without a specific one."""
    if record.name == "matmul" and error.code == "shape-mismatch":
        left, right = (t.type for t in tensors)
        fits = right.rank > 1 and left.shape[-1] == right.shape[-1] and left.shape[-1] != right.shape[-2]
        text = context.reporter.text(spans[1])
        return f"it fits if transposed: `{text}.{'T' if right.rank == 2 else 'mT'}`" if fits and text else ""
    if error.code != "dtype-mismatch" or error.operand is None or error.operand >= len(spans):
        return ""
    operand, dtype = _operand(record, error.operand), tensors[error.operand].type.dtype
    text = context.reporter.text(spans[error.operand]) or "..."
    if operand.dtypes == (BOOL,):
        return _truth(context, spans[error.operand])
    if dtype.is_blocked:
        return f"`dequantize({text})` gives its float values"
    if dtype.is_storage and F32 in operand.dtypes and dtype not in operand.dtypes:
        return f"`cast({text}, f32)` gives a dtype that supports arithmetic"
    if operand.mixed and dtype in operand.dtypes and error.operand > 0:
        return _conversion(context, (tensors[0], spans[0]), (tensors[error.operand], spans[error.operand]))
    if not dtype.is_float and F32 in operand.dtypes and dtype not in operand.dtypes:
        if record.name == "divide":
            return f"`//` rounds down; `cast({text}, f32)` gives fractions"
        return f"`cast({text}, {'i64' if dtype == BOOL and I64 in operand.dtypes else 'f32'})` converts it"
    if (
        dtype.is_float
        and not any(d.is_float for d in operand.dtypes)
        and len(record.operands) > 1
        and shown.isidentifier()
    ):
        return f"`{shown}` takes {', '.join([o.name for o in record.operands] + [a.name for a in record.attributes])}"
    return ""


def _operand(record: Operator, number: int) -> Operand:
    return record.operands[min(number, len(record.operands) - 1)]


def _tensors(
    context: Context,
    frame: Frame,
    record: Operator,
    operands: Sequence[AnyValue],
    spans: Sequence[Span],
    shown: str,
) -> list[Value] | Poison:
    """Returns the operands as tensors. Within a group of dtypes, numbers take the dtype of the tensors."""
    groups: dict[str, tuple[Value, int]] = {}
    failed = False
    for number, value in enumerate(operands):
        if not isinstance(value, Value):
            continue
        group = _operand(record, number).group
        first = groups.setdefault(group, (value, number))
        if first[0].type.dtype != value.type.dtype and not _operand(record, number).mixed:
            if _operand(record, number).dtypes == (BOOL,):
                at = number if value.type.dtype != BOOL else first[1]
                _report_number(context, shown, operands[at], spans[at])
            else:
                _report_mix(context, shown, (first[0], spans[first[1]]), (value, spans[number]))
            failed = True
    result: list[Value] = []
    without_dtype: set[str] = set()
    for number, (value, span) in enumerate(zip(operands, spans, strict=True)):
        tensor: Value | Poison
        if isinstance(value, Value):
            tensor = value
        else:
            operand = _operand(record, number) if record.operands else None
            dtype = _literal_dtype(operand, groups) if operand is not None else None
            if dtype is None:
                # Of several numbers, only one needs a dtype.
                group = operand.group if operand is not None else ""
                tensor = ERROR if group in without_dtype else _report_no_dtype(context, shown, operand, value, span)
                without_dtype.add(group)
            else:
                beside = groups.get(operand.group) if operand is not None else None
                text = context.reporter.text(spans[beside[1]]) if beside is not None else ""
                tensor = literal(context, frame, value, dtype, span, text)
        if tensor is ERROR:
            failed = True
        else:
            result.append(tensor)
    return ERROR if failed else result


def _literal_dtype(operand: Operand, groups: Mapping[str, tuple[Value, int]]) -> DType | None:
    if operand.group in groups:
        return groups[operand.group][0].type.dtype
    return operand.dtypes[0] if len(operand.dtypes) == 1 else None


def _report_no_dtype(context: Context, shown: str, operand: Operand | None, value: AnyValue, span: Span) -> Poison:
    what = f"`{operand.name}` of `{shown}`" if operand is not None else f"`{shown}`"
    numeric = is_number(value) or isinstance(value, Poly)
    help_text = f"give the number a dtype: `cast({show(value)}, f32)`" if numeric else ""
    return context.reporter.error(
        "not-a-tensor", f"{what} must be a tensor, not {describe(value)}", span, help=help_text
    )


def _report_number(context: Context, shown: str, value: AnyValue, span: Span) -> None:
    """Reports an operand that is not a truth value."""
    message = f"`{shown}` takes truth values, not {describe(value)}"
    context.reporter.error("dtype-mismatch", message, span, help=_truth(context, span))


def _truth(context: Context, span: Span) -> str:
    return f"`{context.reporter.text(span) or '...'} != 0` is a truth value"


def _report_mix(context: Context, shown: str, first: tuple[Value, Span], second: tuple[Value, Span]) -> None:
    """Reports a mix of dtypes, and proposes to convert the operand with the smaller dtype."""
    (a, _), (b, span) = first, second
    if a.type.dtype.is_blocked or b.type.dtype.is_blocked:
        value, where = first if a.type.dtype.is_blocked else second
        help_text = f"`dequantize({context.reporter.text(where) or '...'})` gives its float values"
        message = f"`{shown}` mixes {a.type.dtype} and {b.type.dtype}"
        context.reporter.error("dtype-mismatch", message, where, f"this is {value.type}", help=help_text)
        return
    help_text = _conversion(context, first, second)
    message = f"`{shown}` mixes {a.type.dtype} and {b.type.dtype}"
    context.reporter.error("dtype-mismatch", message, span, f"this is {b.type}, the other is {a.type}", help=help_text)


def _conversion(context: Context, first: tuple[Value, Span], second: tuple[Value, Span]) -> str:
    """Returns a help that converts the operand with the smaller dtype."""
    (a, _), (b, _) = first, second
    target, changed = (a, second) if _rank(a.type.dtype) >= _rank(b.type.dtype) else (b, first)
    return context.reporter.conversion(changed[1], target.type.dtype)


def _rank(dtype: DType) -> tuple[bool, bool, int]:
    return dtype.is_float, dtype.is_integer, dtype.bits
