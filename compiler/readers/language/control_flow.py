"""Run-time control flow: `scan`, `while` and `if`, whose iteration counts and conditions are known only in a call.

Each becomes one node with regions. The clause `with` names the carried values, whose types are those of their initial
values. All other names that a body assigns are local to the body: an assignment to an outer name would have no effect
outside, and is reported. After a loop, the carried names have their final values, and carried states are assigned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ....dialect.control_flow import collected_type
from ....dialect.diagnostics import Note, Span
from ....dialect.dims import Poly, Size, add, bounds, format_size
from ....dialect.graph import Node, Region, Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import BOOL, I64, TensorType
from . import syntax
from .context import Context
from .operators import as_tensor, literal
from .state_assignments import assign_state
from .statements import assigned_names, check_loop_body, run_body
from .statics import demand_integer, demand_size
from .values import (
    ERROR,
    FIXED,
    AnyValue,
    Binding,
    Frame,
    Kind,
    Poison,
    contains_error,
    contains_tensor,
    describe,
)
from .writer import Body

BOOL_SCALAR = TensorType(BOOL)


@dataclass(frozen=True, slots=True)
class _Carried:
    """A carried name, its initial value, and the source location of both; `node` is the name in the syntax tree."""

    name: str
    initial: Value
    span: Span
    node: syntax.Name


# --- scan ---


def scan(context: Context, node: syntax.Scan, frame: Frame) -> AnyValue:
    """Returns the collected values: one, a tuple of several, or an empty tuple."""
    check_loop_body(context, node.body, "scan")
    start, count = _range(context, frame, node)
    carried = _initial_values(context, frame, node.carried)
    _check_names(context, frame, node.body, {c.name.name for c in node.carried}, "scan")
    variable = node.variable
    if variable.name in frame.names or variable.name in {c.name for c in carried}:
        message = f"the loop variable `{variable.name}` is already defined"
        context.reporter.error("duplicate-name", message, variable.span)
    writer = context.writer
    index = Value(writer.name(variable.name), TensorType(I64))
    arguments = _arguments(context, carried)
    collected: list[Value | Poison] = []
    with _names_of_body(frame, node.body):
        writer.open()
        symbol = writer.scanned(variable.name, index, start, count, context.program.dims, frame.scope, variable.span)
        frame.names[variable.name] = Binding(symbol, Kind.LOOP, variable.span)
        _bind(frame, carried, arguments)
        run_body(context, frame, node.body)
        results = _next_values(context, frame, carried, arguments)
        for expression in node.collected:
            collected.append(as_tensor(context, frame, context.evaluate(expression, frame), expression.span))
        failed = any(value is ERROR for value in collected)
        slices = tuple(value for value in collected if value is not ERROR)
        region = writer.close((index, *arguments), (*results, *slices))
    finals = tuple(Value(writer.name(c.name), c.initial.type) for c in carried)
    stacked = tuple(writer.fresh(collected_type(value.type, count)) for value in slices)
    attributes = (("carried", len(carried)), ("count", count))
    initial = tuple(c.initial for c in carried)
    writer.add(Node("scan", initial, (*finals, *stacked), attributes, (region,), frame.scope, node.span))
    _bind_finals(context, frame, carried, finals)
    if failed:
        return ERROR
    return stacked[0] if len(stacked) == 1 else stacked


def _range(context: Context, frame: Frame, node: syntax.Scan) -> tuple[int, Size]:
    """Returns the first index and the number of iterations."""
    start = demand_integer(context, context.evaluate(node.start, frame), node.start.span, "the first index")
    stop = demand_size(context, context.evaluate(node.stop, frame), node.stop.span, "the end of the range")
    if start is ERROR or stop is ERROR:
        return 0, 1
    count = add(stop, -start)
    if bounds(count)[0] < 0 or context.writer.depends_on_loop(count):
        span = node.start.span.to(node.stop.span)
        label = "the end may be less than the first index"
        if context.writer.depends_on_loop(count):
            label = "the number of iterations cannot depend on a loop variable"
        context.reporter.error("bad-range", f"invalid loop range {start}..{format_size(stop)}", span, label)
        return 0, 1
    return start, count


# --- while ---


def while_loop(context: Context, node: syntax.While, frame: Frame) -> AnyValue:
    check_loop_body(context, node.body, "while")
    carried = _initial_values(context, frame, node.carried)
    _check_names(context, frame, node.body, {c.name.name for c in node.carried}, "while")
    if not node.carried:
        context.reporter.error(
            "nothing-carried",
            "the condition of a `while` without carried values never changes",
            node.span,
            help="`while condition with x = x0 { x = ... }` carries `x` from one iteration to the next",
        )
    writer = context.writer
    before, arguments = _arguments(context, carried), _arguments(context, carried)
    with _names_of_body(frame, node.body):
        writer.open()
        _bind(frame, carried, before)
        test = _condition(context, context.evaluate(node.condition, frame), node.condition.span, "while")
        test = test if isinstance(test, Value) else writer.scalar(False, BOOL, frame.scope, node.condition.span)
        condition = writer.close(before, (test,))
        writer.open()
        _bind(frame, carried, arguments)
        run_body(context, frame, node.body)
        body = writer.close(arguments, _next_values(context, frame, carried, arguments))
    finals = tuple(Value(writer.name(c.name), c.initial.type) for c in carried)
    initial = tuple(c.initial for c in carried)
    writer.add(Node("while", initial, finals, (), (condition, body), frame.scope, node.span))
    _bind_finals(context, frame, carried, finals)
    return ()


# --- if ---


def if_else(context: Context, node: syntax.If, frame: Frame) -> AnyValue:
    """Returns the value of the chosen side. A condition that is known at compile time chooses now."""
    value = context.evaluate(node.condition, frame)
    if isinstance(value, bool):
        with _names_of_body(frame, (node.then if value else node.otherwise).body):
            return _side(context, frame, node.then if value else node.otherwise)
    condition = _condition(context, value, node.condition.span, "if")
    sides: list[tuple[Body, tuple[AnyValue, ...], bool]] = []
    writer = context.writer
    for choice in (node.then, node.otherwise):
        with _names_of_body(frame, choice.body):
            body = writer.open()
            result = _side(context, frame, choice)
            several = isinstance(result, tuple) and contains_tensor(result)
            sides.append((body, result if isinstance(result, tuple) and several else (result,), several))
            writer.bodies.pop()
    if condition is ERROR or any(contains_error(value) for _, values, _ in sides for value in values):
        return ERROR
    (_, then, several), (_, otherwise, _) = sides
    if len(then) != len(otherwise):
        message = f"the sides of an `if` have {_count(then)} and {_count(otherwise)}"
        return context.reporter.error("branch-type", message, _span_of(node.otherwise))
    regions: list[Region] = []
    for number, (body, values, _) in enumerate(sides):
        others = sides[1 - number][1]
        choice = (node.then, node.otherwise)[number]
        writer.bodies.append(body)
        results = [_as(context, frame, a, b, _span_of(choice)) for a, b in zip(values, others, strict=True)]
        if any(result is ERROR for result in results):
            writer.bodies.pop()
            return ERROR
        regions.append(writer.close((), tuple(result for result in results if result is not ERROR)))
    for a, b in zip(regions[0].results, regions[1].results, strict=True):
        if a.type != b.type:
            message = f"the sides of an `if` have different types: {a.type} and {b.type}"
            note = Note(f"this is {a.type}", _span_of(node.then))
            return context.reporter.error(
                "branch-type", message, _span_of(node.otherwise), f"this is {b.type}", notes=[note]
            )
    outputs = tuple(writer.fresh(value.type) for value in regions[0].results)
    assert isinstance(condition, Value), condition
    writer.add(Node("if", (condition,), outputs, (), tuple(regions), frame.scope, node.span))
    return outputs if several else outputs[0]


def _side(context: Context, frame: Frame, choice: syntax.Choice) -> AnyValue:
    check_loop_body(context, choice.body, "if")
    _check_names(context, frame, choice.body, set(), "if")
    run_body(context, frame, choice.body)
    if choice.value is None:
        help_text = "`{ relu(x) }` has the value `relu(x)`"
        return context.reporter.error("missing-value", "a side of an `if` has no value", choice.span, help=help_text)
    return context.evaluate(choice.value, frame)


def _span_of(choice: syntax.Choice) -> Span:
    return choice.span if choice.value is None else choice.value.span


def _count(values: Sequence[AnyValue]) -> str:
    return f"{len(values)} value{'s' if len(values) != 1 else ''}"


def _as(context: Context, frame: Frame, value: AnyValue, other: AnyValue, span: Span) -> Value | Poison:
    """Returns a value as a tensor; a number takes the dtype of the scalar on the other side."""
    if isinstance(value, Value):
        return value
    dtype = other.type.dtype if isinstance(other, Value) and other.type.rank == 0 else None
    return as_tensor(context, frame, value, span, dtype)


# --- shared ---


def _condition(context: Context, value: AnyValue, span: Span, word: str) -> Value | Poison:
    """Returns a condition as a bool scalar."""
    report = context.reporter.error
    if contains_error(value):
        return ERROR
    if not isinstance(value, Value):
        message = f"the condition of `{word}` must be a tensor bool, not {describe(value)}"
        return report("not-a-condition", message, span)
    if value.type == BOOL_SCALAR:
        return value
    text = context.reporter.text(span) or "..."
    help_text = f"`{text} != 0` is a truth value" if value.type.dtype != BOOL else ""
    if value.type.rank:
        help_text = (
            f"`all({text})` and `any({text})` are single truth values" if value.type.dtype == BOOL else help_text
        )
        if word == "if" and value.type.dtype == BOOL:
            help_text += f"; `where({text}, a, b)` chooses by element"
    message = f"the condition of `{word}` must be one truth value, not {value.type}"
    return report("not-a-condition", message, span, help=help_text)


def _initial_values(context: Context, frame: Frame, carries: Sequence[syntax.Carry]) -> list[_Carried]:
    found: list[_Carried] = []
    # All initial values are those before the loop: `with a = b, b = a` exchanges them.
    values = [context.evaluate(carry.value, frame) for carry in carries]
    for carry, value in zip(carries, values, strict=True):
        name = carry.name
        first = frame.lookup(name.name)
        if name.name in {c.name for c in found}:
            context.reporter.error("duplicate-name", f"`{name.name}` is carried twice", name.span)
            continue
        if first is not None and first.kind in FIXED and (name.name in frame.names or first.kind is Kind.DIM):
            note = Note(f"the definition of `{name.name}`", first.span)
            message = f"`{name.name}` is {first.kind} and cannot be carried"
            context.reporter.error("fixed-name", message, name.span, notes=[note])
            continue
        initial = as_tensor(context, frame, value, carry.value.span)
        if initial is ERROR:
            frame.names[name.name] = Binding(ERROR, Kind.LOCAL, name.span)
            continue
        found.append(_Carried(name.name, initial, carry.span, name))
    return found


def _arguments(context: Context, carried: Sequence[_Carried]) -> tuple[Value, ...]:
    return tuple(Value(context.writer.name(c.name), c.initial.type) for c in carried)


def _bind(frame: Frame, carried: Sequence[_Carried], values: Sequence[Value]) -> None:
    for each, value in zip(carried, values, strict=True):
        frame.names[each.name] = Binding(value, Kind.LOCAL, each.span)


def _bind_finals(context: Context, frame: Frame, carried: Sequence[_Carried], values: Sequence[Value]) -> None:
    """Gives the carried names their last values; a state that is carried is assigned."""
    for each, value in zip(carried, values, strict=True):
        first = frame.names.get(each.name)
        if first is None or first.kind is not Kind.STATE:
            _bind(frame, [each], [value])
            continue
        kept = assign_state(context, frame, each.node, value, each.span)
        frame.names[each.name] = first if kept is ERROR else Binding(kept, Kind.STATE, first.span)


def _next_values(
    context: Context, frame: Frame, carried: Sequence[_Carried], arguments: Sequence[Value]
) -> tuple[Value, ...]:
    """Returns the values that the next iteration receives, which must have the types of the initial ones."""
    results: list[Value] = []
    for each, argument in zip(carried, arguments, strict=True):
        binding = frame.names[each.name]
        value: AnyValue = binding.value
        if isinstance(value, tuple) or (isinstance(value, (int, float, Poly)) and argument.type.rank == 0):
            value = literal(context, frame, value, argument.type.dtype, binding.span)
        if isinstance(value, Value) and value.type == argument.type:
            results.append(value)
            continue
        results.append(argument)
        if contains_error(value):
            continue
        now = str(value.type) if isinstance(value, Value) else describe(value)
        message = f"`{each.name}` changes its type in the loop, from {argument.type} to {now}"
        note = Note(f"it begins as {argument.type}", each.span)
        label = "the type must be the same after each iteration"
        help_text = ""
        if isinstance(value, Value) and value.type.shape == argument.type.shape:
            help_text = f"`cast(..., {argument.type.dtype})` keeps its dtype"
        context.reporter.error("carried-type", message, binding.span, label, notes=[note], help=help_text)
    return tuple(results)


def _check_names(
    context: Context, frame: Frame, body: Sequence[syntax.Statement], carried: set[str], word: str
) -> None:
    """Reports assignments to outer names that are not carried."""
    for name in assigned_names(body):
        first = frame.names.get(name.name)
        if first is None or name.name in carried:
            continue
        note = Note(f"`{name.name}` is defined here", first.span)
        message = f"`{name.name}` is assigned inside `{word}`, which does not change it outside"
        help_text = "give the value inside another name"
        if word != "if" and first.kind not in FIXED:
            help_text = f"`with {name.name} = {name.name}` carries it from one iteration to the next"
        context.reporter.error("shadowed-name", message, name.span, notes=[note], help=help_text)


@contextmanager
def _names_of_body(frame: Frame, body: Sequence[syntax.Statement]) -> Iterator[None]:
    """Ends the names that a body introduces."""
    before = dict(frame.names)
    yield
    for name in assigned_names(body):
        if name.name not in before:
            frame.gone[name.name] = name.span
    frame.names.clear()
    frame.names.update(before)
