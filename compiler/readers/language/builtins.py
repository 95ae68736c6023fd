"""Calls of operators by name: arguments become operands and attributes, as each operator's record defines.

Operands come first, then attributes, by position or by name; some operands are given by name alone. Forms with special
arguments (`rearrange`, `zeros`, lists of operands, ...) stand in `sugar`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from ....dialect.diagnostics import Span
from ....dialect.dims import Poly, Size
from ....dialect.graph import Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.operator import AttributeSpec, Operand, Operator
from ....dialect.types import DType
from .context import Context, check_number, suggest
from .operators import apply
from .values import ERROR, AnyValue, Frame, Given, Poison, contains_error, contains_tensor, describe, show


class _UnfitError(Exception):
    """An attribute value of the wrong kind; the message names the expected kind."""


def _integer(value: AnyValue) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _UnfitError("an integer")


def _number(value: AnyValue) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise _UnfitError("a number")


def _size(value: AnyValue) -> Size:
    if isinstance(value, (int, Poly)) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    raise _UnfitError("a size")


def _exactly(type: type[Any], name: str) -> Callable[[AnyValue], Any]:
    def convert(value: AnyValue) -> Any:
        if isinstance(value, type):
            return value
        raise _UnfitError(name)

    return convert


def _tuple(convert: Callable[[AnyValue], Any], name: str) -> Callable[[AnyValue], Any]:
    def converted(value: AnyValue) -> Any:
        try:
            return tuple(map(convert, value)) if isinstance(value, tuple) else (convert(value),)
        except _UnfitError:
            raise _UnfitError(name) from None

    return converted


def _alone_or_tuple(convert: Callable[[AnyValue], Any], name: str) -> Callable[[AnyValue], Any]:
    many = _tuple(convert, name)

    def converted(value: AnyValue) -> Any:
        return many(value) if isinstance(value, tuple) else many(value)[0]

    return converted


def _optional(convert: Callable[[AnyValue], Any]) -> Callable[[AnyValue], Any]:
    return lambda value: None if value is None else convert(value)


def _anything(value: AnyValue) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_anything, value))
    if value is None or isinstance(value, (bool, int, float, str, Poly, DType)):
        return value
    raise _UnfitError("a value that is known at compile time")


_INTEGERS = _alone_or_tuple(_integer, "an integer or a tuple of them")
CONVERSIONS: Mapping[str, Callable[[AnyValue], Any]] = {
    "int": _integer,
    "int?": _optional(_integer),
    "float": _number,
    "float?": _optional(_number),
    "bool": _exactly(bool, "true or false"),
    "bool?": _optional(_exactly(bool, "true or false")),
    "str": _exactly(str, "a text"),
    "str?": _optional(_exactly(str, "a text")),
    "dtype": _exactly(DType, "a dtype"),
    "dtype?": _optional(_exactly(DType, "a dtype")),
    "ints": _INTEGERS,
    "ints?": _optional(_INTEGERS),
    "axis": _integer,
    "axes": _optional(_INTEGERS),
    "size": _size,
    "size?": _optional(_size),
    "sizes": _tuple(_size, "a tuple of sizes"),
    "sizes?": _optional(_tuple(_size, "a tuple of sizes")),
    "any": _anything,
}
"""Conversions from a value of the language to an attribute, by the kind in its record."""


FOREIGN_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "dim": ("axis", "axes"),
    "dims": ("axes", "axis"),
    "axis": ("axes",),
    "axes": ("axis",),
    "start_dim": ("start",),
    "end_dim": ("end",),
    "size": ("shape", "sizes"),
    "sizes": ("shape",),
    "scale_factor": ("scales",),
    "kernel_size": ("kernel",),
    "strides": ("stride",),
    "num_groups": ("groups",),
    "epsilon": ("eps",),
    "min": ("low",),
    "max": ("high",),
    "negative_slope": ("slope",),
    "is_causal": ("causal",),
    "attn_mask": ("mask",),
    "running_mean": ("mean",),
    "running_var": ("variance",),
    "var": ("variance",),
    "input": ("x",),
    "depth": ("depth",),
    "num_classes": ("depth",),
}
"""Argument names of other libraries."""


@dataclass(slots=True)
class _Arguments:
    """Sorts the arguments of one call into operands and attributes."""

    context: Context
    record: Operator
    shown: str
    span: Span
    operands: dict[int, Given] = field(default_factory=dict)
    variadic: list[Given] = field(default_factory=list)
    attributes: dict[str, Given] = field(default_factory=dict)

    def place(self, arguments: Sequence[Given]) -> bool:
        """Assigns every argument to an operand or attribute; returns False after reporting an impossible one."""
        placed = True
        positional = [a for a in arguments if a.name is None]
        most = len(self.record.operands) - len(self.record.named)
        for position, argument in enumerate(positional):
            if self.record.named and position >= most and self._is_unnamed(argument.value):
                self._report_unnamed(argument)
                return False
            if not self._place_positional(argument):
                self._report_excess(argument, position, len(arguments))
                return False
        for argument in arguments:
            if argument.name is not None:
                placed &= self._place_named(argument, argument.name.name)
        return placed

    def _place_positional(self, argument: Given) -> bool:
        record, value = self.record, argument.value
        for number, operand in enumerate(record.operands):
            if operand.variadic:
                if self.attributes or not self._belongs_to(operand, value):
                    break
                self.variadic += _spread(argument)
                return True
            if number in self.operands:
                continue
            # A non-tensor is an attribute if the operand is optional, except None, which omits the operand.
            if operand.optional and value is not ERROR and value is not None and not isinstance(value, Value):
                continue
            self.operands[number] = argument
            return True
        for spec in record.attributes:
            if spec.name not in self.attributes:
                self.attributes[spec.name] = argument
                return True
        return False

    def _belongs_to(self, operand: Operand, value: AnyValue) -> bool:
        """Returns whether the value belongs to the operand. A variadic operand takes tensors, lists with a tensor, and
        a list that comes first; it takes numbers if their dtype is known."""
        if value is ERROR or contains_tensor(value) or contains_error(value):
            return True
        if isinstance(value, tuple):
            return not self.variadic
        return len(operand.dtypes) == 1 and isinstance(value, (int, Poly)) and not isinstance(value, bool)

    def _place_named(self, argument: Given, name: str) -> bool:
        record = self.record
        report = self.context.reporter.error
        numbers = {operand.name: number for number, operand in enumerate(record.operands)}
        attributes = [spec.name for spec in record.attributes]
        assert argument.name is not None
        if name in numbers:
            if record.operands[numbers[name]].variadic:
                self.variadic += _spread(argument)
                return True
            if numbers[name] not in self.operands:
                self.operands[numbers[name]] = argument
                return True
        elif name not in attributes:
            message = f"`{self.shown}` has no argument `{name}`"
            foreign = [n for n in FOREIGN_ARGUMENTS.get(name, ()) if n in numbers or n in attributes]
            help_text = f"did you mean `{foreign[0]}`?" if foreign else suggest(name, [*numbers, *attributes])
            if not help_text and (numbers or attributes):
                help_text = f"its arguments are {', '.join(f'`{each}`' for each in (*numbers, *attributes))}"
            report("wrong-arguments", message, argument.name.span, help=help_text)
            return False
        elif name not in self.attributes:
            self.attributes[name] = argument
            return True
        report("wrong-arguments", f"`{name}` of `{self.shown}` is given twice", argument.name.span)
        return False

    def _report_excess(self, argument: Given, position: int, count: int) -> None:
        names = ", ".join([o.name for o in self.record.operands] + [a.name for a in self.record.attributes])
        message = f"`{self.shown}` takes {names or 'no arguments'}; this argument is one too many"
        self.context.reporter.error("wrong-arguments", message, argument.span)

    def _is_unnamed(self, value: AnyValue) -> bool:
        return value is None or value is ERROR or isinstance(value, Value)

    def _report_unnamed(self, argument: Given) -> None:
        """Reports an operand without the name that it needs."""
        named = [operand.name for operand in self.record.named]
        first = [operand.name for operand in self.record.operands if operand.name not in named]
        listed = ", ".join(f"`{name}`" for name in named[:-1])
        message = f"`{self.shown}` takes {listed + ' and ' if listed else ''}`{named[-1]}` by name"
        usage = f"`{self.shown}({', '.join([*first, *(f'{name}=...' for name in named)])})`"
        self.context.reporter.error("wrong-arguments", message, argument.span, help=usage)

    def in_order(self) -> list[Given] | None:
        """Returns the operands, without a gap; None if a missing one has been reported."""
        last = max(self.operands, default=-1)
        given: list[Given] = []
        for number, operand in enumerate(self.record.operands):
            if operand.variadic:
                given += self.variadic
            elif number in self.operands:
                given.append(self.operands[number])
            elif not operand.optional or number < last:
                message = f"`{self.shown}` is missing an argument: `{operand.name}`"
                if operand.optional:
                    message += f", which `{self.record.operands[last].name}` needs"
                self.context.reporter.error("wrong-arguments", message, self.span)
                return None
        # None represents an omitted optional operand.
        while given and given[-1].value is None and self.record.operands[len(given) - 1].optional:
            given.pop()
        return given


def _spread(argument: Given) -> list[Given]:
    if isinstance(argument.value, tuple):
        spans = argument.parts or (argument.span,) * len(argument.value)
        return [Given(value, span) for value, span in zip(argument.value, spans, strict=True)]
    return [argument]


def call_operator(
    context: Context,
    frame: Frame,
    record: Operator,
    arguments: Sequence[Given],
    span: Span,
    symbol: str | None = None,
) -> AnyValue:
    """Returns the result of a call of an operator, or a tuple of its results. `symbol` is its spelling in the source,
    if that is not its name."""
    shown = symbol or record.name
    sorted_arguments = _Arguments(context, record, shown, span)
    if not sorted_arguments.place(arguments):
        return ERROR
    operands = sorted_arguments.in_order()
    if operands is None:
        return ERROR
    attributes: dict[str, Any] = {}
    failed = False
    for spec in record.attributes:
        if spec.name in sorted_arguments.attributes:
            given = sorted_arguments.attributes[spec.name]
            value = convert_attribute(context, shown, spec, given)
            failed |= value is ERROR
            attributes[spec.name] = value
    if failed:
        return ERROR
    values = [given.value for given in operands]
    spans = [given.span for given in operands]
    return apply(context, frame, record.name, values, attributes, span, spans, symbol=shown)


def convert_attribute(context: Context, shown: str, spec: AttributeSpec, given: Given) -> Any | Poison:
    """Returns the value of an attribute in the form that its record requires."""
    report = context.reporter.error
    value, what = given.value, f"`{spec.name}` of `{shown}`"
    if contains_error(value):
        return ERROR
    if contains_tensor(value):
        message = f"{what} must be known at compile time, not {describe(value)}"
        help_text = "`x.shape` is the shape of a tensor `x`" if spec.kind == "sizes" else ""
        return report("not-constant", message, given.span, help=help_text)
    try:
        converted = CONVERSIONS[spec.kind](value)
    except _UnfitError as error:
        if isinstance(value, Poly) and spec.kind not in ("str", "bool", "dtype"):
            message = f"{what} must be known at compile time, not {show(value)}"
            return report("not-constant", message, given.span)
        several = isinstance(value, tuple) and spec.kind in ("int", "axis")
        help_text = f"call `{shown}` once for each" if several else ""
        return report("bad-attribute", f"{what} must be {error}, not {describe(value)}", given.span, help=help_text)
    for part in converted if isinstance(converted, tuple) else (converted,):
        if isinstance(part, Poly) and context.writer.depends_on_loop(part):
            message = f"{what} cannot depend on a loop variable"
            return report("not-constant", message, given.span)
        if isinstance(part, (int, Poly)) and check_number(context, part, given.span) is ERROR:
            return ERROR
    if spec.choices and converted not in spec.choices:
        choices = " or ".join(f'"{c}"' for c in spec.choices)
        help_text = suggest(converted, spec.choices).replace("`", '"') if isinstance(converted, str) else ""
        return report("bad-attribute", f"{what} is {show(value)}, expected {choices}", given.span, help=help_text)
    return converted
