"""The statements of a body, in order: parameters, states, instances, assignments, loops, the return. Loops whose course
is decided by a call stand in `control_flow`.

A `repeat` becomes one node that carries the names which exist before it and which its body assigns; all other names of
the body end with it. The body is elaborated once, for any count; one that uses states once more for each iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ....dialect.diagnostics import Note, Span
from ....dialect.dims import Poly, Symbol, add
from ....dialect.graph import Node, Value
from ....dialect.types import I64, TensorType
from . import syntax
from .context import Context
from .instances import make_instances
from .operators import literal
from .parameters import define_parameter
from .state_assignments import assign_part, assign_state
from .states import define_state, unroll_states
from .statics import demand_integer
from .values import ERROR, FIXED, AnyValue, Binding, Frame, Kind, contains_error, contains_tensor, describe, show

REPEATS = 1 << 31


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
    """Binds a name that must be new."""
    first = frame.names.get(name.name)
    if first is not None:
        note = Note(f"the first one is {first.kind}", first.span)
        context.reporter.error("duplicate-name", f"`{name.name}` is defined twice", name.span, notes=[note])
        return
    frame.names[name.name] = Binding(value, kind, name.span)


def _param(context: Context, frame: Frame, statement: syntax.Param) -> None:
    _define(context, frame, statement.name, define_parameter(context, frame, statement), Kind.PARAMETER)


def _state(context: Context, frame: Frame, statement: syntax.State) -> None:
    _define(context, frame, statement.name, define_state(context, frame, statement), Kind.STATE)


def _use(context: Context, frame: Frame, statement: syntax.Use) -> None:
    for name, value in make_instances(context, frame, statement):
        _define(context, frame, name, value, Kind.INSTANCE)


def _weights(context: Context, frame: Frame, statement: syntax.Weights) -> None:
    if not isinstance(frame.block, syntax.Model):
        message = "`weights` is only allowed in a model"
        context.reporter.error("misplaced-statement", message, statement.span)


def _assign(context: Context, frame: Frame, statement: syntax.Assign) -> None:
    value = context.evaluate(statement.value, frame)
    count = len(statement.targets)
    if count == 1:
        _bind(context, frame, statement.targets[0], value)
        return
    values: tuple[AnyValue, ...] = (ERROR,) * count
    if isinstance(value, tuple) and len(value) == count:
        values = value
    elif value is not ERROR:
        got = f"{len(value)} values" if isinstance(value, tuple) else describe(value)
        message = f"{count} names on the left, and {got} on the right"
        context.reporter.error("wrong-targets", message, statement.span)
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
    first = frame.lookup(name)
    if first is None:
        return  # `names` reports it
    if first.kind is not Kind.STATE:
        notes = [Note(f"the definition of `{name}`", first.span)]
        message = f"only a part of a state can be assigned, and `{name}` is {first.kind}"
        context.reporter.error("not-a-state", message, statement.target, notes=notes)
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
        if isinstance(statement, syntax.Repeat):
            yield from assigned_names(statement.body)
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
    syntax.Use: "all iterations share the instances of the block around them",
    syntax.Weights: "",
    syntax.Return: "",
}


def _repeat(context: Context, frame: Frame, statement: syntax.Repeat) -> None:
    report = context.reporter.error
    check_loop_body(context, statement.body, "repeat")
    bounds = []
    for node, what in ((statement.start, "the first index"), (statement.stop, "the end of the range")):
        bounds.append(demand_integer(context, context.evaluate(node, frame), node.span, what))
    start, stop = bounds
    before = dict(frame.names)
    assigned = {name.name: name.span for name in assigned_names(statement.body)}
    variable = statement.variable
    if variable.name in before or variable.name in assigned:
        message = f"the loop variable `{variable.name}` is already defined"
        report("duplicate-name", message, variable.span)
        variable = syntax.Name("", span=variable.span)
    if start is ERROR or stop is ERROR:
        start, stop = 0, 1
    if not -REPEATS <= start <= stop <= REPEATS:
        span = statement.start.span.to(statement.stop.span)
        message = f"invalid loop range {start}..{stop}"
        report("bad-range", message, span, "expected first <= end, fewer than 2**31 iterations")
        start, stop = 0, 1
    if start < stop:
        loop = _Loop(context, frame, statement, variable, start, stop)
        unroll_states(context, frame, partial(loop.write, list(assigned)), loop.run, range(start, stop))
    # Names that the body introduced go out of scope here.
    for name, span in assigned.items():
        if name not in before and name in frame.names:
            del frame.names[name]
            frame.gone[name] = span
    if variable.name not in before:
        frame.names.pop(variable.name, None)


@dataclass(slots=True)
class _Loop:
    context: Context
    frame: Frame
    statement: syntax.Repeat
    variable: syntax.Name
    start: int
    stop: int

    def write(self, assigned: Sequence[str]) -> None:
        context, frame, writer = self.context, self.frame, self.context.writer
        names = frame.names
        carried = [name for name in assigned if name in names and isinstance(names[name].value, Value)]
        fixed = {n: names[n] for n in assigned if n in names and n not in carried}
        initial = [self._value(name) for name in carried]
        index = Value(writer.name(self.variable.name), TensorType(I64))
        arguments = [Value(writer.name(name), value.type) for name, value in zip(carried, initial, strict=True)]
        writer.open()
        names[self.variable.name] = Binding(self._symbol(index), Kind.LOOP, self.variable.span)
        for name, argument in zip(carried, arguments, strict=True):
            names[name] = Binding(argument, names[name].kind, names[name].span)
        run_body(context, frame, [s for s in self.statement.body if not isinstance(s, syntax.Return)])
        results = [self._carry(name, argument) for name, argument in zip(carried, arguments, strict=True)]
        for name, binding in fixed.items():
            self._check_fixed(name, binding)
        region = writer.close((index, *arguments), tuple(results))
        outputs = tuple(Value(writer.name(name), value.type) for name, value in zip(carried, initial, strict=True))
        if outputs:
            attributes = (("count", self.stop - self.start),)
            node = Node("repeat", tuple(initial), outputs, attributes, (region,), frame.scope, self.statement.span)
            writer.add(node)
        for name, output in zip(carried, outputs, strict=True):
            kind = Kind.STATE if names[name].kind is Kind.STATE else Kind.LOCAL
            names[name] = Binding(output, kind, names[name].span)

    def run(self, index: int) -> None:
        """Elaborates one iteration on its own. Its new names end with it."""
        names = self.frame.names
        before = set(names)
        names[self.variable.name] = Binding(index, Kind.LOOP, self.variable.span)
        run_body(self.context, self.frame, [s for s in self.statement.body if not isinstance(s, syntax.Return)])
        for name in names.keys() - before:
            del names[name]

    def _value(self, name: str) -> Value:
        value = self.frame.names[name].value
        assert isinstance(value, Value), value
        return value

    def _symbol(self, index: Value) -> AnyValue:
        """Returns the loop variable as a size that knows its range. As a tensor, it is the index of the region."""
        writer = self.context.writer
        name = self.variable.name
        taken = writer.loop_names() | set(self.context.program.dims)
        while name in taken:
            name += "'"
        symbol = Symbol(name, self.start, self.stop - 1)
        body = writer.bodies[-1]
        if self.start:
            span = self.variable.span
            first = writer.scalar(self.start, I64, self.frame.scope, span)
            index = writer.emit("add", (index, first), scope=self.frame.scope, span=span)[0]
        body.prologue, body.nodes = body.nodes, []
        body.loops[name] = index
        return add(symbol.size, 0)

    def _carry(self, name: str, argument: Value) -> Value:
        """Returns the value carried to the next iteration, which must keep its type."""
        binding = self.frame.names[name]
        value = binding.value
        if contains_error(value):
            return argument
        if isinstance(value, (int, float)) and argument.type.rank == 0:
            value = literal(self.context, self.frame, value, argument.type.dtype, binding.span)
        if isinstance(value, Value) and value.type == argument.type:
            return value
        if value is not ERROR:
            message = f"`{name}` changes its type in the loop, from {argument.type} to {_type(value)}"
            self.context.reporter.error(
                "repeat-type", message, binding.span, "the type must be the same after each iteration"
            )
        return argument

    def _check_fixed(self, name: str, before: Binding) -> None:
        """Reports compile-time values that change between iterations."""
        after = self.frame.names.get(name, before)
        if after.value is before.value or contains_error(before.value) or contains_error(after.value):
            return
        if contains_tensor(after.value):
            message = f"`{name}` is {describe(before.value)} before the loop and {_type(after.value)} after it"
            help_text = f"start with a tensor: `{name} = cast({show(before.value)}, f32)`"
        else:
            message = f"`{name}` is {describe(before.value)} and cannot change in a loop"
            dtype = "i64" if isinstance(before.value, int) and isinstance(after.value, (int, Poly)) else "f32"
            is_number = isinstance(before.value, (int, float)) and not isinstance(before.value, bool)
            help_text = f"start with a tensor: `{name} = cast({show(before.value)}, {dtype})`" if is_number else ""
        self.context.reporter.error("repeat-type", message, after.span, help=help_text)
        self.frame.names[name] = Binding(ERROR, Kind.LOCAL, after.span)


def _type(value: AnyValue) -> str:
    return str(value.type) if isinstance(value, Value) else describe(value)


def _loop(context: Context, frame: Frame, statement: syntax.Scan | syntax.While) -> None:
    if isinstance(statement, syntax.Scan) and statement.collected:
        span = statement.collected[0].span
        message = "the collected values have no name"
        context.reporter.error("value-without-name", message, span, help="assign them: `y = scan ... collect ...`")
    context.evaluate(statement, frame)


_STATEMENTS: dict[type[syntax.Statement], Callable[..., None]] = {
    syntax.Param: _param,
    syntax.State: _state,
    syntax.Use: _use,
    syntax.Weights: _weights,
    syntax.Assign: _assign,
    syntax.AssignPart: _assign_part,
    syntax.Repeat: _repeat,
    syntax.Scan: _loop,
    syntax.While: _loop,
}
