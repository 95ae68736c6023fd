"""States: a `state` becomes a tensor with a path that a session keeps, and assignments give its value after a call.

Reading a state is reading an SSA value: at first the argument that holds its value before the call, after an assignment
the assigned value. An assignment to a part, `keys[:, :, at : at + T] = k`, is an `update_slice`. The writer knows the
states of its function; blocks that are called twice under one path continue with the value of the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ....dialect.diagnostics import Note, Span
from ....dialect.dims import Poly, Size, add, at_least, bounds, format_size
from ....dialect.graph import Attribute, Formula, Node, Parameter, State, Value, fill_braces, walk
from ....dialect.states import initial_fits
from ....dialect.types import I64, TensorType
from . import syntax
from .context import Context
from .indexing import Pick, expand, pick_range, pick_single
from .operators import apply, literal, single
from .parameters import define_parameter, stored_key
from .shapes import resolve_type
from .statics import demand_size
from .values import ERROR, AnyValue, Binding, Frame, InstancePath, Kind, Poison, contains_error, describe
from .writer import KeptState, Writer


def define_state(
    context: Context, frame: Frame, node: syntax.State, path: InstancePath | None = None
) -> Value | Poison:
    """Returns the current value of a `state`, and adds it to the states of the module and of the function."""
    report = context.reporter.error
    base = path or frame.path
    type = resolve_type(context, frame, node.type)
    if type is ERROR:
        return ERROR
    if base is None:
        name = frame.block.name.name if frame.block is not None else "the block"
        message = f"`{name}` has states and must be instantiated"
        notes = [Note("one of the states", node.span)]
        help_text = f"`use name = {name}...`, and then `name(...)`"
        return report("needs-instance", message, frame.call or node.span, notes=notes, help=help_text)
    if type.dtype.is_blocked:
        help_text = "keep quantized values and their scales as states of their own"
        return report("bad-block", "a state cannot be block-quantized", node.type.span, help=help_text)
    place = base.child(node.name.name)
    fixed = [index for index in place.indices if isinstance(index, int)]
    if context.writer.in_region or len(fixed) < len(place.indices):
        # The loop around it is elaborated again, iteration by iteration: see `unroll`.
        context.writer.stateful = node.span
        value = context.writer.fresh(type)
        context.writer.declare(value, frame, node.type)
        return value
    name = fill_braces(place.pattern, fixed)
    initial = _define_initial(context, frame, node, name, type, base)
    if initial is ERROR:
        return ERROR
    state = State(name, type, initial, node.span)
    first = context.program.states.setdefault(name, state)
    if (first.type, first.initial) != (type, initial):
        notes = [Note(f"elsewhere it is {first.type}", first.span)]
        return report("state-conflict", f"`{name}` means two different states", node.span, notes=notes)
    if name not in context.writer.states:
        value = Value(context.writer.name(name), type)
        context.writer.states[name] = KeptState(value, value)
        context.writer.declare(value, frame, node.type)
    return context.writer.states[name].current


# --- initial values ---


def _define_initial(
    context: Context, frame: Frame, node: syntax.State, name: str, type: TensorType, base: InstancePath
) -> str | Poison | None:
    """Returns the name of the parameter that holds the initial value, which is added to the module; None for zeros."""
    if node.key is not None:
        source = stored_key(context, frame, node.key, base)
        if source is ERROR:
            return ERROR
        if not type.is_static:
            size = next(s for s in type.shape if isinstance(s, Poly))
            message = f"the state `{node.name.name}` has the size {format_size(size)}, a tensor of a checkpoint has not"
            help_text = "begin with a parameter of the last axes: `= weight`"
            return context.reporter.error("symbolic-parameter", message, node.type.span, help=help_text)
        fixed = [index for index in base.indices if isinstance(index, int)]
        parameter = Parameter(f"{name}.initial", type, (), fill_braces(source, fixed), None, node.span)
    elif node.initial is not None:
        formula = _formula(context, frame, node.initial, type)
        if formula is ERROR:
            return ERROR
        parameter = Parameter(f"{name}.initial", formula.result.type, span=node.span, formula=formula)
    else:
        return None
    first = context.program.parameters.setdefault(parameter.name, parameter)
    if (first.type, first.source, first.formula) != (parameter.type, parameter.source, parameter.formula):
        notes = [Note("elsewhere it begins with another value", first.span)]
        return context.reporter.error("state-conflict", f"`{name}` means two different states", node.span, notes=notes)
    return parameter.name


def _formula(context: Context, frame: Frame, node: syntax.Expression, type: TensorType) -> Formula | Poison:
    """Returns the computation of an initial value from constants and parameters."""
    report = context.reporter.error
    saved, context.writer = context.writer, Writer(count=context.writer.count)
    known = dict(context.program.parameters)
    try:
        inner = _with_parameters(context, frame)
        value = context.evaluate(node, inner)
        if not isinstance(value, Value) and not contains_error(value):
            value = literal(context, inner, value, type.dtype, node.span)
        body = context.writer.bodies[0].all_nodes
    finally:
        saved.count = context.writer.count
        context.writer = saved
    if contains_error(value):
        context.program.parameters = known
        return ERROR
    assert isinstance(value, Value), value
    made = {v.name for inside in body for v in inside.outputs}
    used = [str(n.attribute("name")) for n in walk(body) if n.op == "parameter"]
    if value.name not in made or any(map(_has_dims, walk(body))) or any(n.inputs and n.op == "parameter" for n in body):
        context.program.parameters = known
        message = "an initial value depends on constants and parameters alone"
        return report("not-constant", message, node.span)
    parameters = tuple(context.program.parameters[name] for name in dict.fromkeys(used))
    # Parameters that only initial values read are part of their formulas.
    context.program.parameters = known
    if not initial_fits(type, value.type):
        message = f"the state is {type} and cannot begin with {value.type}"
        help_text = "an initial value has the dtype of the state and the sizes of its last axes"
        return report("state-type", message, node.span, help=help_text)
    # Without spans, so that two declarations of one state agree.
    parameters = tuple(replace(parameter, span=None) for parameter in parameters)
    return Formula(parameters, tuple(replace(inside, span=None, scope="") for inside in body), value)


def _has_dims(node: Node) -> bool:
    """Returns whether a node has a symbolic size in its types or attributes."""
    pending: list[Attribute] = [value for _, value in node.attributes]
    pending += [size for value in node.outputs for size in value.type.shape]
    while pending:
        part = pending.pop()
        if isinstance(part, Poly):
            return True
        if isinstance(part, tuple):
            pending += part
    return False


def _with_parameters(context: Context, frame: Frame) -> Frame:
    """Returns the frame with the parameters that the block declares, as tensors of the current writer."""
    inner = Frame(frame.file, dict(frame.names), frame.block, frame.path, frame.hypers, frame.caller, frame.call)
    declared = {s.name.name: s for s in (frame.block.body if frame.block else ()) if isinstance(s, syntax.Param)}
    for name, binding in frame.names.items():
        if binding.kind is Kind.PARAMETER and name in declared:
            value = define_parameter(context, frame, declared[name])
            inner.names[name] = Binding(value, binding.kind, binding.span)
    return inner


# --- loops ---


def unroll_states(
    context: Context, frame: Frame, write: Callable[[], None], run: Callable[[int], None], indices: range
) -> None:
    """Writes a loop with `write`. If its body uses states, and has no errors, the loop is discarded and elaborated
    again with `run`, for each index: each iteration has states of its own, which a region cannot carry."""
    program, writer = context.program, context.writer
    nested, writer.stateful = writer.stateful, None
    kept, names = writer.copy(), dict(frame.names)
    tables = dict(program.parameters), dict(program.states), dict(program.paths)
    errors = _count_errors(context)
    write()
    stateful = writer.stateful
    writer.stateful = nested or stateful
    if stateful is None or writer.in_region or _count_errors(context) > errors:
        return
    kept.count, kept.stateful = writer.count, nested
    context.writer = kept
    program.parameters, program.states, program.paths = tables
    frame.names.clear()
    frame.names.update(names)
    for index in indices:
        run(index)


def _count_errors(context: Context) -> int:
    return sum(diagnostic.severity == "error" for diagnostic in context.reporter.diagnostics)


# --- assignments ---


def assign_state(context: Context, frame: Frame, name: syntax.Name, value: AnyValue, span: Span) -> Value | Poison:
    """Returns the value of a state after `name = value`."""
    current = frame.names[name.name].value
    if not isinstance(current, Value):
        return ERROR
    if isinstance(value, (bool, int, float, Poly, tuple)) and not contains_error(value):
        value = literal(context, frame, value, current.type.dtype, span)
    if contains_error(value):
        return ERROR
    if not isinstance(value, Value):
        message = f"`{name.name}` is {current.type} and cannot become {describe(value)}"
        return context.reporter.error("not-a-tensor", message, span)
    if value.type != current.type:
        return _refuse_type(context, f"the state `{name.name}`", current.type, value, span)
    _record(context, frame, name.name, value, span)
    return value


def _refuse_type(context: Context, what: str, type: TensorType, value: Value, span: Span) -> Poison:
    help_text = ""
    if value.type.dtype != type.dtype:
        help_text = f"`cast({context.reporter.text(span) or '...'}, {type.dtype})` converts it"
    elif value.type.rank == 0:
        help_text = f"`broadcast_to(x, ({', '.join(map(format_size, type.shape))}))` repeats a scalar"
    return context.reporter.error("state-type", f"{what} is {type}, not {value.type}", span, help=help_text)


def _record(context: Context, frame: Frame, name: str, value: Value, span: Span) -> None:
    """Makes the value that of the state of this name in the frame."""
    if context.writer.in_region or frame.path is None:
        context.writer.stateful = span
        return
    place = frame.path.child(name)
    fixed = [index for index in place.indices if isinstance(index, int)]
    kept = context.writer.states.get(fill_braces(place.pattern, fixed))
    if kept is not None and len(fixed) == len(place.indices):
        kept.current = value


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of one axis: its static start or the tensor that holds it, and its size; `drop` removes the axis."""

    start: Size | Value
    size: Size
    drop: bool = False


def assign_part(context: Context, frame: Frame, statement: syntax.AssignPart) -> Value | Poison:
    """Returns the value of a state after `name[items] = value`."""
    report, span = context.reporter.error, statement.span
    name = statement.name
    current = frame.names[name.name].value
    value = context.evaluate(statement.value, frame)
    if not isinstance(current, Value) or contains_error(value):
        return ERROR
    new_axes = [item.span for item in statement.items if isinstance(item, syntax.Nothing)]
    if new_axes:
        return report("bad-index", "an assigned part has no new axes", new_axes[0])
    items = expand(context, current, syntax.Index(name, statement.items, span=statement.target))
    if items is ERROR:
        return ERROR
    found = [_part(context, frame, current, axis, item) for axis, item in enumerate(items)]
    parts = [part for part in found if part is not ERROR]
    if len(parts) < len(found):
        return ERROR
    type = current.type.with_shape(tuple(part.size for part in parts if not part.drop))
    if isinstance(value, (bool, int, float)):
        value = literal(context, frame, value, type.dtype, statement.value.span)
        if isinstance(value, Value) and type.rank:
            value = _apply(context, frame, "broadcast_to", [value], {"shape": type.shape}, span)
    if value is ERROR:
        return ERROR
    if not isinstance(value, Value):
        return report("not-a-tensor", f"expected {type}, not {describe(value)}", statement.value.span)
    if value.type != type:
        return _refuse_type(context, f"this part of `{name.name}`", type, value, statement.value.span)
    dropped = tuple(axis for axis, part in enumerate(parts) if part.drop)
    if dropped:
        value = _apply(context, frame, "unsqueeze", [value], {"axes": dropped}, span)
        if value is ERROR:
            return ERROR
    written = _write(context, frame, current, value, parts, span)
    if written is not ERROR:
        written = context.writer.rename(written, name.name)
        _record(context, frame, name.name, written, span)
    return written


def _write(
    context: Context, frame: Frame, current: Value, update: Value, parts: Sequence[_Part], span: Span
) -> Value | Poison:
    axes = tuple(axis for axis, part in enumerate(parts) if isinstance(part.start, Value))
    given: list[Value] = []
    for part in parts:
        if isinstance(part.start, Value):
            start: Value | Poison = part.start
            if part.start.type.dtype != I64:
                start = _apply(context, frame, "cast", [part.start], {"dtype": I64}, span)
            if start is ERROR:
                return ERROR
            given.append(start)
    starts = tuple(0 if isinstance(part.start, Value) else part.start for part in parts)
    return _apply(context, frame, "update_slice", [current, update, *given], {"axes": axes, "starts": starts}, span)


def _apply(
    context: Context, frame: Frame, operator: str, inputs: Sequence[Value], attributes: dict[str, object], span: Span
) -> Value | Poison:
    return single(apply(context, frame, operator, inputs, attributes, span, [span] * len(inputs), symbol="[] ="))


def _part(
    context: Context, frame: Frame, current: Value, axis: int, item: syntax.Expression | syntax.Slice | None
) -> _Part | Poison:
    """Returns the part of an axis that an item of the index selects."""
    size = current.type.shape[axis]
    if item is None:
        return _Part(0, size)
    if isinstance(item, syntax.Slice):
        return _range_part(context, frame, item, size, axis)
    value = context.evaluate(item, frame)
    if isinstance(value, Value):
        start = _start(context, value, item.span)
        return ERROR if start is ERROR else _Part(start, 1, drop=True)
    pick = pick_single(context, frame, value, current, axis, item.span)
    if pick is ERROR:
        return ERROR
    return _static_part(context, pick, size, axis, item.span)


def _start(context: Context, value: Value, span: Span) -> Value | Poison:
    if value.type.rank or not value.type.dtype.is_integer:
        message = f"the start of an assigned part is an integer scalar, not {value.type}"
        return context.reporter.error("bad-index", message, span)
    return value


def _beyond(stop: syntax.Expression, start: syntax.Expression) -> syntax.Expression | None:
    """Returns the length in `start + length`, also in `start + a - b`; None for other expressions."""
    if not isinstance(stop, syntax.Binary) or stop.operator not in ("+", "-"):
        return None
    if stop.operator == "+" and start in (stop.left, stop.right):
        return stop.right if stop.left == start else stop.left
    before = _beyond(stop.left, start)
    return None if before is None else replace(stop, left=before)


def _range_part(context: Context, frame: Frame, item: syntax.Slice, size: Size, axis: int) -> _Part | Poison:
    report = context.reporter.error
    first = None if item.start is None else context.evaluate(item.start, frame)
    if not isinstance(first, Value):
        pick = pick_range(context, frame, item, size, axis)
        return ERROR if pick is ERROR else _static_part(context, pick, size, axis, item.span)
    start, stop = _start(context, first, item.span), item.stop
    if start is ERROR:
        return ERROR
    length = None if stop is None or item.start is None else _beyond(stop, item.start)
    if length is None or item.step is not None:
        shown = context.reporter.text(item.start.span) if item.start is not None else "at"
        message = "a part that starts at a tensor needs a length that is known from the dims"
        return report("not-constant", message, item.span, help=f"`{shown}:{shown}+length`")
    part = demand_size(context, context.evaluate(length, frame), length.span, "the length of a part")
    return ERROR if part is ERROR else _Part(start, part)


def _static_part(context: Context, pick: Pick, size: Size, axis: int, span: Span) -> _Part | Poison:
    report = context.reporter.error
    if pick.step != 1:
        return report("bad-index", "an assigned part has the step 1", span)
    if pick.moves is not None:
        # The loop around it is elaborated again with integers.
        context.writer.stateful = span
        return _Part(0, 1 if pick.stop is None else pick.stop, pick.drop)
    first, last = (
        default if bound is None else add(bound, size) if bounds(bound)[1] < 0 else bound
        for bound, default in ((pick.start, 0), (pick.stop, size))
    )
    length = add(last, -1 * first)
    if not (at_least(first, 0) and at_least(length, 0) and at_least(size, last)):
        label = f"the size of axis {axis} is {format_size(size)}"
        message = f"the range {format_size(first)}:{format_size(last)} may be outside of axis {axis}"
        return report("index-out-of-range", message, span, label)
    return _Part(first, length, pick.drop)
