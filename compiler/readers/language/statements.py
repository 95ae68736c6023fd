"""The statements of a body, in order: parameters, states, instances, assignments, the return. Loops are handled in
`repeats` and `control_flow`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ....dialect.diagnostics import Note, Span
from ....dialect.graph import Value
from ....dialect.lazy_dataclass import dataclass
from . import syntax
from .context import Context
from .index_notation import evaluate_indexed, new_indices
from .instances import is_present, make_instances
from .parameters import define_parameter
from .slices import assign_slice, unstack
from .state_assignments import assign_part, assign_state
from .states import define_state
from .values import ERROR, FIXED, AnyValue, Binding, Frame, Kind, contains_tensor, describe


@dataclass(frozen=True, slots=True)
class Returned:
    """The values of a `return`, each with its span."""

    values: list[tuple[AnyValue, Span]]
    span: Span


def run_body(context: Context, frame: Frame, body: Sequence[syntax.Statement]) -> Returned | None:
    """Elaborates statements up to the return."""
    for number, statement in enumerate(body):
        if isinstance(statement, syntax.Return):
            if number + 1 < len(body):
                span = body[number + 1].span
                context.reporter.warning("unreachable-code", "statements after `return` have no effect", span)
            return _return(context, frame, statement)
        _STATEMENTS[type(statement)](context, frame, statement)
    return None


def _return(context: Context, frame: Frame, statement: syntax.Return) -> Returned:
    values = [(context.evaluate(node, frame), node.span) for node in statement.values]
    if len(values) == 1 and isinstance(values[0][0], tuple) and contains_tensor(values[0][0]):
        values = [(value, values[0][1]) for value in values[0][0]]
    return Returned(values, statement.span)


def _define(context: Context, frame: Frame, name: syntax.Name, value: AnyValue, kind: Kind) -> None:
    """Binds a name that must be new. A name that is defined twice has no value, so that its uses are no further
    errors."""
    first = frame.names.get(name.name)
    if first is not None:
        note = Note(f"the first one is {first.kind}", first.span)
        is_key = kind is Kind.PARAMETER and first.kind is Kind.HYPER
        help_text = f'the key can differ from the name: `param ... from "{{path}}.{name.name}"`' if is_key else ""
        message = f"`{name.name}` is defined twice"
        context.reporter.error("duplicate-name", message, name.span, notes=[note], help=help_text)
        frame.names[name.name] = replace(first, value=ERROR)
        return
    frame.names[name.name] = Binding(value, kind, name.span)


def _param(context: Context, frame: Frame, statement: syntax.Param) -> None:
    value = define_parameter(context, frame, statement) if is_present(context, frame, statement.condition) else None
    _define(context, frame, statement.name, value, Kind.PARAMETER)


def _state(context: Context, frame: Frame, statement: syntax.State) -> None:
    _define(context, frame, statement.name, define_state(context, frame, statement), Kind.STATE)


def _use(context: Context, frame: Frame, statement: syntax.Use) -> None:
    for name, value in make_instances(context, frame, statement):
        _define(context, frame, name, value, Kind.INSTANCE)


def _weights(context: Context, frame: Frame, statement: syntax.Weights) -> None:
    if not isinstance(frame.block, syntax.Model):
        message = "`weights` is only allowed in a model"
        context.reporter.error("misplaced-statement", message, statement.span)


def _minimize(context: Context, frame: Frame, statement: syntax.Minimize) -> None:
    """Reports a `minimize` that is not in the body of a `train`, whose own statements never come here."""
    message = "`minimize` is only allowed in the body of a `train`"
    context.reporter.error("misplaced-statement", message, statement.span)


def _grad(context: Context, frame: Frame, statement: syntax.Grad) -> None:
    """Reports a `grad` that is not in the body of a block, whose own one never comes here."""
    message = "`grad` is only allowed in the body of a block"
    context.reporter.error("misplaced-statement", message, statement.span)


def _assign(context: Context, frame: Frame, statement: syntax.Assign) -> None:
    value = context.evaluate(statement.value, frame)
    count = len(statement.targets)
    if count == 1:
        _bind(context, frame, statement.targets[0], value)
        return
    values: tuple[AnyValue, ...] = (ERROR,) * count
    if isinstance(value, Value) and value.type.rank and value.type.shape[0] == count:
        value = unstack(context, frame, value, 0, statement.value.span)
    if isinstance(value, tuple) and len(value) == count:
        values = value
    elif value is not ERROR:
        got = f"{len(value)} values" if isinstance(value, tuple) else describe(value)
        message = f"{count} names on the left, and {got} on the right"
        help_text = ""
        if isinstance(value, Value) and count in value.type.shape:
            text = context.reporter.text(statement.value.span)
            help_text = f"`unstack({text}, axis={value.type.shape.index(count)})` takes the slices of another axis"
        context.reporter.error("wrong-targets", message, statement.span, help=help_text)
    for target, part in zip(statement.targets, values, strict=True):
        _bind(context, frame, target, part)


def _bind(context: Context, frame: Frame, name: syntax.Name, value: AnyValue) -> None:
    first = frame.lookup(name.name)
    fixed = first is not None and first.kind in FIXED
    if first is not None and fixed and (name.name in frame.names or first.kind in (Kind.DIM, Kind.CONFIG)):
        note = Note(f"the definition of `{name.name}`", first.span)
        message = f"`{name.name}` is {first.kind} and cannot be assigned"
        context.reporter.error("fixed-name", message, name.span, notes=[note])
        return
    if isinstance(value, Value):
        value = context.writer.rename(value, name.name)
    if first is not None and first.kind is Kind.STATE and name.name in frame.names:
        value = assign_state(context, frame, name, value, name.span)
        frame.names[name.name] = first if value is ERROR else Binding(value, Kind.STATE, first.span)
        return
    frame.names[name.name] = Binding(value, Kind.LOCAL, name.span)


def _assign_part(context: Context, frame: Frame, statement: syntax.AssignPart) -> None:
    name = statement.name.name
    indices = new_indices(statement.items, lambda each: frame.lookup(each) is not None)
    if indices:
        _bind(context, frame, statement.name, evaluate_indexed(context, frame, indices, statement.value))
        return
    first = frame.lookup(name)
    if first is None:
        return  # `names` reports it
    if first.kind is not Kind.STATE:
        part = assign_slice(context, frame, statement, first)
        frame.names[name] = first if part is ERROR else Binding(part, Kind.LOCAL, statement.name.span)
        return
    value = assign_part(context, frame, statement)
    frame.names[name] = first if value is ERROR else Binding(value, Kind.STATE, first.span)


# --- loops ---


def assigned_names(body: Sequence[syntax.Statement]) -> Iterator[syntax.Name]:
    """Yields every name that the body assigns, inner loops and the values that they carry included."""
    for statement in body:
        loop: object = statement
        if isinstance(statement, syntax.Assign):
            yield from statement.targets
            loop = statement.value
        elif isinstance(statement, syntax.AssignPart):
            yield statement.name
        if isinstance(loop, syntax.Repeat):
            yield from assigned_names(loop.body)
        elif isinstance(loop, (syntax.Scan, syntax.While)):
            yield from (carry.name for carry in loop.carried)


def check_loop_body(context: Context, body: Sequence[syntax.Statement], loop: str) -> None:
    """Reports statements that may stand in the body of a block alone."""
    for statement in body:
        if isinstance(statement, (syntax.Param, syntax.State, syntax.Use, syntax.Weights, syntax.Return)):
            word = type(statement).__name__.lower()
            message = f"`{word}` is not allowed in {'an' if loop == 'if' else 'a'} `{loop}`"
            help_text = _OUTSIDE[type(statement)] if loop == "repeat" else _ELSEWHERE[type(statement)]
            context.reporter.error("misplaced-statement", message, statement.span, help=help_text)


_OUTSIDE: dict[type[syntax.Statement], str] = {
    syntax.Param: "an array of instances gives each iteration its own parameters: `use layer[n] = ...`",
    syntax.State: "an array of instances gives each iteration its own states: `use layer[n] = ...`",
    syntax.Use: "make an array of instances before the loop: `use layer[n] = ...`",
    syntax.Weights: "",
    syntax.Return: "assign the value to a name defined before the loop, and return it after the loop",
}


_ELSEWHERE: dict[type[syntax.Statement], str] = {
    syntax.Param: "all iterations share the parameters of the block around them",
    syntax.State: "declare it in the block around them, and carry its value: `with rows = rows`",
    syntax.Use: "all iterations share the instances of the block around them",
    syntax.Weights: "",
    syntax.Return: "",
}


def _loop(context: Context, frame: Frame, statement: syntax.Repeat | syntax.Scan | syntax.While) -> None:
    if isinstance(statement, (syntax.Repeat, syntax.Scan)) and statement.collected:
        span = statement.collected[0].span
        message = "the collected values have no name"
        word = type(statement).__name__.lower()
        context.reporter.error("value-without-name", message, span, help=f"assign them: `y = {word} ... collect ...`")
    context.evaluate(statement, frame)


_STATEMENTS: dict[type[syntax.Statement], Callable[..., None]] = {
    syntax.Param: _param,
    syntax.State: _state,
    syntax.Use: _use,
    syntax.Weights: _weights,
    syntax.Assign: _assign,
    syntax.AssignPart: _assign_part,
    syntax.Repeat: _loop,
    syntax.Scan: _loop,
    syntax.While: _loop,
    syntax.Minimize: _minimize,
    syntax.Grad: _grad,
}
