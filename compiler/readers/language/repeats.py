"""`repeat`: a loop with a number of iterations that is known at compile time.

It becomes one node, which carries the names that exist before the loop and that its body assigns; all other names of
the body end with it. The body is elaborated once, for any count. It is elaborated for each iteration instead, and no
node is written, in four cases: the body uses states, the loop runs over a list, the number of iterations of an inner
loop depends on this one, or the body uses an array of instances with different hyper-parameters.

    repeat i in 0..n { x = layer[i](x) }              one node
    repeat layer in layers { x = layer(x) }           the same node
    repeat width in [64, 32] { x = x[:, :width] }     two copies of the body: types may change
    repeat i in 0..n { repeat j in 0..i { ... } }     n copies of the outer body

`collect` stacks values: the node carries one more tensor for each, into which an iteration writes its slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import partial

from ....dialect.diagnostics import Span
from ....dialect.dims import Poly, Size, Symbol, add, format_size
from ....dialect.graph import Node, Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import BOOL, I64, TensorType
from . import syntax
from .context import Context
from .instances import element
from .iteration import Elements, depends, read_elements
from .operators import apply, as_tensor, literal, single
from .statements import assigned_names, check_loop_body, run_body
from .states import unroll_states
from .values import (
    ERROR,
    AnyValue,
    Binding,
    Frame,
    InstanceArray,
    Kind,
    contains_error,
    contains_tensor,
    describe,
    show,
)


def repeat(context: Context, statement: syntax.Repeat, frame: Frame) -> AnyValue:
    """Returns the collected values: one, a tuple of several, or an empty tuple."""
    check_loop_body(context, statement.body, "repeat")
    elements = read_elements(context, frame, statement.start, statement.stop)
    before = dict(frame.names)
    assigned = {name.name: name.span for name in assigned_names(statement.body)}
    variable = statement.variable
    if variable.name in before or variable.name in assigned:
        message = f"the loop variable `{variable.name}` is already defined"
        context.reporter.error("duplicate-name", message, variable.span)
        variable = syntax.Name("", span=variable.span)
    loop = _Loop(context, frame, statement, variable, elements)
    if not elements.indices:
        loop.collect_nothing()
    elif elements.is_list or elements.is_varying or depends(statement.body, variable.name) or _varies(frame, statement):
        for index in elements.indices:
            loop.run(index)
    else:
        unroll_states(context, frame, partial(loop.write, list(assigned)), loop.run, elements.indices)
    # Names that the body introduced go out of scope here.
    for name, span in assigned.items():
        if name not in before:
            frame.names.pop(name, None)
            frame.gone[name] = span
    if variable.name not in before:
        frame.names.pop(variable.name, None)
    return loop.result()


def _varies(frame: Frame, statement: syntax.Repeat) -> bool:
    """Returns whether the body names an array of instances whose hyper-parameters differ."""
    names = {part.name for part in syntax.walk(statement) if isinstance(part, syntax.Name)}
    found = (binding.value for name in names if (binding := frame.lookup(name)) is not None)
    return any(isinstance(value, InstanceArray) and value.varying for value in found)


@dataclass(slots=True)
class _Loop:
    """One loop. `stacked` are the collected values of the whole loop, `slices` those of single iterations."""

    context: Context
    frame: Frame
    statement: syntax.Repeat
    variable: syntax.Name
    elements: Elements
    stacked: list[AnyValue] = field(default_factory=list)
    slices: list[list[AnyValue]] = field(default_factory=list)

    # --- the loop as one node ---

    def write(self, assigned: Sequence[str]) -> None:
        frame, writer = self.frame, self.context.writer
        names = frame.names
        carried = [name for name in assigned if name in names and isinstance(names[name].value, Value)]
        fixed = {n: names[n] for n in assigned if n in names and n not in carried}
        initial = [self._value(name) for name in carried]
        index = Value(writer.name(self._hint), TensorType(I64))
        arguments = [Value(writer.name(name), value.type) for name, value in zip(carried, initial, strict=True)]
        writer.open()
        symbol = self._symbol(index)
        names[self.variable.name] = self._binding(symbol)
        for name, argument in zip(carried, arguments, strict=True):
            names[name] = Binding(argument, names[name].kind, names[name].span)
        slices = self._body()
        results = [self._carry(name, argument) for name, argument in zip(carried, arguments, strict=True)]
        for name, binding in fixed.items():
            self._check_fixed(name, binding)
        whole = [self._stack_type(value) if isinstance(value, Value) else None for value in slices]
        stacks = [Value(writer.name("collected"), type) for type in whole if type is not None]
        written = [self._write_slice(s, v, index) for s, v in zip(stacks, _tensors(slices), strict=True)]
        region = writer.close((index, *arguments, *stacks), (*results, *written))
        initial += [self._zeros(stack.type) for stack in stacks]
        outputs = tuple(Value(writer.name(name), value.type) for name, value in zip(carried, arguments, strict=True))
        made = tuple(writer.fresh(stack.type) for stack in stacks)
        if outputs or made:
            attributes = (("count", len(self.elements.indices)),)
            span = self.statement.span
            writer.add(Node("repeat", tuple(initial), outputs + made, attributes, (region,), frame.scope, span))
        for name, output in zip(carried, outputs, strict=True):
            kind = Kind.STATE if names[name].kind is Kind.STATE else Kind.LOCAL
            names[name] = Binding(output, kind, names[name].span)
        remaining = iter(made)
        self.stacked = [ERROR if type is None else next(remaining) for type in whole]

    def _stack_type(self, value: Value) -> TensorType:
        return value.type.with_shape((len(self.elements.indices), *value.type.shape))

    def _write_slice(self, stack: Value, value: Value, index: Value) -> Value:
        """Returns the stack with the slice of one iteration, whose index counts from 0."""
        writer, scope, span = self.context.writer, self.frame.scope, self.statement.span
        row = writer.emit("unsqueeze", (value,), {"axes": 0}, scope=scope, span=span)[0]
        starts = (0,) * stack.type.rank
        attributes = {"axes": (0,), "starts": starts, "mode": "clamp"}
        return writer.emit("update_slice", (stack, row, index), attributes, scope=scope, span=span)[0]

    def _zeros(self, type: TensorType) -> Value:
        zero = False if type.dtype == BOOL else 0.0 if type.dtype.is_float else 0
        attributes = {"shape": type.shape, "value": zero, "dtype": type.dtype}
        return self.context.writer.emit("full", (), attributes, scope=self.frame.scope, span=self.statement.span)[0]

    def _body(self) -> list[AnyValue]:
        """Elaborates the body once; returns the values that it collects."""
        context, frame = self.context, self.frame
        run_body(context, frame, [s for s in self.statement.body if not isinstance(s, syntax.Return)])
        return [
            as_tensor(context, frame, context.evaluate(expression, frame), expression.span)
            for expression in self.statement.collected
        ]

    # --- the loop as copies of its body ---

    def run(self, index: int) -> None:
        """Elaborates one iteration on its own. Its new names end with it."""
        names = self.frame.names
        before = set(names)
        names[self.variable.name] = self._binding(index)
        self.slices.append(self._body())
        for name in names.keys() - before:
            del names[name]

    def collect_nothing(self) -> None:
        """Finds the types of the values that a loop without iterations collects."""
        context, frame = self.context, self.frame
        if not self.statement.collected:
            return
        if self.elements.is_list or isinstance(self.elements.items, InstanceArray):
            message = "the type of the collected values is unknown: there are no elements"
            self.stacked = [context.reporter.error("bad-range", message, self.statement.start.span)]
            return
        saved, names = context.writer, dict(frame.names)
        admitted, context.reporter.admitted = context.reporter.admitted, frozenset()
        try:
            context.writer = saved.copy()
            frame.names[self.variable.name] = self._binding(self.elements.indices.start)
            slices = self._body()
        finally:
            context.writer, context.reporter.admitted = saved, admitted
            frame.names.clear()
            frame.names.update(names)
        self.stacked = [self._zeros(self._stack_type(v)) if isinstance(v, Value) else ERROR for v in slices]
        if ERROR in self.stacked:
            message = "the type of the collected values is unknown: the loop has no iterations"
            context.reporter.error("bad-range", message, self.statement.start.span)

    def result(self) -> AnyValue:
        values = self.stacked
        if self.slices:
            collected = zip(*self.slices, strict=True)
            spans = (expression.span for expression in self.statement.collected)
            values = [self._stacked(slices, span) for slices, span in zip(collected, spans, strict=True)]
        return values[0] if len(values) == 1 else tuple(values)

    def _stacked(self, values: Sequence[AnyValue], span: Span) -> AnyValue:
        tensors = list(_tensors(values))
        if len(tensors) < len(values):
            return ERROR
        first = tensors[0]
        other = next((v for v in tensors if v.type != first.type), None)
        if other is not None:
            message = f"the collected values have different types: {first.type} and {other.type}"
            help_text = "`[f(i) for i in 0..n]` makes a list, whose elements may differ"
            return self.context.reporter.error("repeat-type", message, span, help=help_text)
        spans = [span] * len(tensors)
        return single(apply(self.context, self.frame, "stack", tensors, {"axis": 0}, span, spans, symbol="collect"))

    # --- names ---

    @property
    def _hint(self) -> str:
        return self.variable.name or "i"

    def _binding(self, index: Size) -> Binding:
        """Returns the loop variable at an index, which is an integer or the symbol of the loop."""
        items, span = self.elements.items, self.variable.span
        if items is None:
            return Binding(index, Kind.LOOP, span)
        if isinstance(items, InstanceArray):
            return Binding(element(self.context, items, index, span), Kind.INSTANCE, span)
        assert isinstance(index, int), index
        return Binding(items[index], Kind.LOOP, span)

    def _value(self, name: str) -> Value:
        value = self.frame.names[name].value
        assert isinstance(value, Value), value
        return value

    def _symbol(self, index: Value) -> Size:
        """Returns the loop variable as a size with its range. As a tensor, it is the index of the region."""
        writer, indices = self.context.writer, self.elements.indices
        name = self._hint
        taken = writer.loop_names() | set(self.context.program.dims)
        while name in taken:
            name += "'"
        symbol = Symbol(name, indices.start, indices.stop - 1)
        body = writer.bodies[-1]
        if indices.start:
            span = self.variable.span
            first = writer.scalar(indices.start, I64, self.frame.scope, span)
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
            help_text = _first_tensor(name, before.value, after.value)
        else:
            message = f"`{name}` is {describe(before.value)} and cannot change in a loop"
            dtype = "i64" if isinstance(before.value, int) and isinstance(after.value, (int, Poly)) else "f32"
            is_number = isinstance(before.value, (int, float)) and not isinstance(before.value, bool)
            help_text = f"start with a tensor: `{name} = cast({show(before.value)}, {dtype})`" if is_number else ""
        self.context.reporter.error("repeat-type", message, after.span, help=help_text)
        self.frame.names[name] = Binding(ERROR, Kind.LOCAL, after.span)


def _first_tensor(name: str, before: AnyValue, after: AnyValue) -> str:
    """Returns the help for a name that is no tensor before the loop, and one after it."""
    if before == ():
        return "`repeat ... { ... } collect value` stacks a value of each iteration"
    if not isinstance(before, (int, float)) or not isinstance(after, Value):
        return ""
    dtype, number = after.type.dtype, show(before)
    if after.type.rank == 0:
        return f"start with a tensor: `{name} = cast({number}, {dtype})`"
    sizes = ", ".join(map(format_size, after.type.shape)) + "," * (after.type.rank == 1)
    made = f"full(({sizes}), {number}, {dtype})" if before else f"zeros(({sizes}), {dtype})"
    return f"start with a tensor: `{name} = {made}`"


def _tensors(values: Sequence[AnyValue]) -> Iterator[Value]:
    return (value for value in values if isinstance(value, Value))


def _type(value: AnyValue) -> str:
    return str(value.type) if isinstance(value, Value) else describe(value)
