"""Parts of values: `value.name` and `value[index]`, for every kind of value."""

from __future__ import annotations

from ....dialect.graph import Value
from . import statics, syntax
from .configuration import look_up
from .context import Context, check_number, suggest
from .indexing import index_tensor
from .instances import element
from .operators import apply
from .parameters import member
from .states import define_state
from .unknown import FUNCTIONS, counterpart
from .values import (
    ERROR,
    AnyValue,
    Frame,
    Instance,
    InstanceArray,
    Kind,
    ModuleValue,
    Record,
    describe,
)

ATTRIBUTES = ("T", "mT", "shape", "dtype", "rank")
_FOREIGN = {"size": "shape", "dim": "rank", "t": "T", "H": "T", "mH": "mT", "type": "dtype"}
_CASTS = {
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "bfloat16": "bf16",
    "long": "i64",
    "int": "i32",
    "bool": "bool",
    "byte": "u8",
}
"""The methods of other libraries that convert a tensor, and the dtypes of their results."""


def attribute(context: Context, node: syntax.Attribute, frame: Frame) -> AnyValue:
    value = context.evaluate(node.value, frame)
    name, report = node.name.name, context.reporter.error
    if value is ERROR:
        return ERROR
    if isinstance(value, Record):
        return look_up(context, value, name, node.name.span)
    if isinstance(value, ModuleValue):
        binding = value.file.names.get(name)
        if binding is None or binding.kind is Kind.IMPORT:
            help_text = suggest(name, value.file.names)
            return report("unknown-name", f"`{value.file.name}` defines no `{name}`", node.name.span, help=help_text)
        return binding.value
    if isinstance(value, Instance):
        return member(context, value, node.name, define_state)
    if not isinstance(value, Value):
        message = f"{describe(value)} has no member `{name}`"
        return report("unknown-attribute", message, node.name.span)
    if name in ("T", "mT"):
        return _transposed(context, node, value, frame)
    if name == "shape":
        return value.type.shape
    if name == "dtype":
        return value.type.dtype
    if name in ("rank", "ndim"):
        return value.type.rank
    function = name if name in FUNCTIONS else counterpart(name)
    if name in _CASTS:
        help_text = f"`cast({context.reporter.text(node.value.span) or 'x'}, {_CASTS[name]})` converts a tensor"
    elif function and name not in _FOREIGN:
        help_text = f"functions take tensors as arguments: `{function}(x, ...)` or `x |> {function}(...)`"
    else:
        help_text = f"did you mean `.{_FOREIGN[name]}`?" if name in _FOREIGN else suggest(name, ATTRIBUTES)
    return report("unknown-attribute", f"a tensor has no `.{name}`", node.name.span, help=help_text)


def _transposed(context: Context, node: syntax.Attribute, value: Value, frame: Frame) -> AnyValue:
    spans = [node.value.span]
    if node.name.name == "mT":
        if value.type.rank < 2:
            message = f"`.mT` swaps the last two axes, and {value.type} has {value.type.rank}"
            return context.reporter.error("rank-mismatch", message, node.span)
        return apply(context, frame, "matrix_transpose", [value], {}, node.span, spans, symbol=".mT")
    if value.type.rank != 2:
        help_text = "`.mT` swaps the last two axes" if value.type.rank > 2 else ""
        message = f"`.T` is for matrices, not {value.type}"
        return context.reporter.error("rank-mismatch", message, node.span, help=help_text)
    return apply(context, frame, "transpose", [value], {"axes": (1, 0)}, node.span, spans, symbol=".T")


def index(context: Context, node: syntax.Index, frame: Frame) -> AnyValue:
    value = context.evaluate(node.value, frame)
    report = context.reporter.error
    if value is ERROR:
        return ERROR
    if isinstance(value, Value):
        return index_tensor(context, frame, value, node)
    if len(node.items) != 1 or isinstance(node.items[0], syntax.Dots):
        return report("bad-index", f"{describe(value)} takes one index", node.span)
    item = node.items[0]
    if isinstance(item, syntax.Slice):
        return _part(context, node, value, item, frame)
    index = context.evaluate(item, frame)
    if index is ERROR:
        return ERROR
    if isinstance(value, InstanceArray):
        return element(context, value, index, item.span)
    if isinstance(value, Record):
        if isinstance(index, str):
            return look_up(context, value, index, item.span)
        return report("bad-index", f"a key of `{value.label}` is a text, not {describe(index)}", item.span)
    if isinstance(value, tuple):
        number = statics.demand_integer(context, index, item.span, "an index")
        if number is ERROR:
            return ERROR
        if not -len(value) <= number < len(value):
            message = f"there is no element {number}"
            label = f"there are {len(value)}"
            return report("index-out-of-range", message, item.span, label)
        found = value[number]
        return check_number(context, found, node.span) if isinstance(found, int) else found
    return report("bad-index", f"{describe(value)} has no elements", node.span)


def _part(context: Context, node: syntax.Index, value: AnyValue, item: syntax.Slice, frame: Frame) -> AnyValue:
    if not isinstance(value, tuple):
        return context.reporter.error("bad-index", f"{describe(value)} has no ranges", node.span)
    limits: list[int | None] = []
    for part in (item.start, item.stop, item.step):
        number = None
        if part is not None:
            found = statics.demand_integer(context, context.evaluate(part, frame), part.span, "the bound of a range")
            if found is ERROR:
                return ERROR
            number = found
        limits.append(number)
    if limits[2] == 0:
        return context.reporter.error("bad-index", "the step of a range cannot be 0", node.span)
    return value[slice(*limits)]
