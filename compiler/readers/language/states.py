"""States: a `state` becomes a tensor with a path that a session keeps, and assignments give its value after a call.

Reading a state is reading an SSA value: at first the argument that holds its value before the call, after an assignment
the assigned value. The writer holds the states of its function; blocks that are called twice under one path continue
with the value of the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ....dialect.diagnostics import Note
from ....dialect.dims import Poly, format_size
from ....dialect.graph import Formula, Parameter, State, Value, fill_braces
from ....dialect.states import initial_fits
from ....dialect.types import TensorType
from . import syntax
from .context import Context
from .formulas import formula_writer, read_formula
from .parameters import define_parameter, resolve_stored, stored_key
from .trained import with_seed
from .values import ERROR, Binding, Frame, InstancePath, Kind, Poison
from .writer import KeptState


def define_state(
    context: Context, frame: Frame, node: syntax.State, path: InstancePath | None = None
) -> Value | Poison:
    """Returns the current value of a `state`, and adds it to the states of the module and of the function."""
    report = context.reporter.error
    resolved = resolve_stored(context, frame, node, path, "states")
    if isinstance(resolved, Poison):
        return ERROR
    base, type = resolved
    if type.dtype.is_blocked:
        help_text = "keep quantized values and their scales as states of their own"
        return report("bad-block", "a state cannot be block-quantized", node.type.span, help=help_text)
    path = base.child(node.name.name)
    fixed = [index for index in path.indices if isinstance(index, int)]
    if context.writer.in_region or len(fixed) < len(path.indices):
        # The loop around it is elaborated again, iteration by iteration: see `unroll`.
        context.writer.stateful = node.span
        value = context.writer.fresh(type)
        context.writer.declare(value, frame, node.type)
        return value
    name = fill_braces(path.pattern, fixed)
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
            of_state = f"the state `{node.name.name}` has the size {format_size(size)}"
            message = f"{of_state}, but tensors of a checkpoint have constant sizes"
            help_text = "begin with a parameter of the last axes: `= weight`"
            return context.reporter.error("symbolic-parameter", message, node.type.span, help=help_text)
        fixed = [index for index in base.indices if isinstance(index, int)]
        parameter = Parameter(f"{name}.initial", type, (), fill_braces(source, fixed), None, node.span)
    elif node.initial is not None:
        formula = _formula(context, frame, node.initial, name, type)
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


def _formula(context: Context, frame: Frame, node: syntax.Expression, name: str, type: TensorType) -> Formula | Poison:
    """Returns the computation of an initial value from constants and parameters."""
    saved, context.writer = context.writer, formula_writer(context)
    # Parameters that only initial values read are part of their formulas.
    known = dict(context.program.parameters)
    try:
        inner = with_seed(_with_parameters(context, frame), name, node.span)
        formula = read_formula(context, inner, node, type)
    finally:
        saved.count = context.writer.count
        context.writer = saved
        context.program.parameters = known
    if formula is ERROR:
        return ERROR
    if not initial_fits(type, formula.result.type):
        message = f"the state is {type} and cannot begin with {formula.result.type}"
        help_text = "an initial value has the dtype of the state and the sizes of its last axes"
        if formula.result.type.dtype != type.dtype:
            help_text = context.reporter.conversion(node.span, type.dtype)
        return context.reporter.error("state-type", message, node.span, help=help_text)
    # Without spans, so that two declarations of one state agree.
    parameters = tuple(replace(parameter, span=None) for parameter in formula.parameters)
    return Formula(parameters, tuple(replace(n, span=None, scope="") for n in formula.body), formula.result)


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
    again with `run`, for each index: each iteration has separate states, which a region cannot carry."""
    program, writer = context.program, context.writer
    if program.frozen is not None:
        # Every loop of a training step is unrolled, as its gradients need it.
        for index in indices:
            run(index)
        return
    nested, writer.stateful = writer.stateful, None
    kept, names = writer.copy(), dict(frame.names)
    tables = dict(program.parameters), dict(program.states), dict(program.paths)
    errors = _count_errors(context)
    write()
    stateful = writer.stateful
    writer.stateful = nested or stateful
    if _count_errors(context) > errors and not writer.in_region:
        # The loop would be elaborated again if it had no errors: the use of a state is none.
        writer.stateful = nested
        return
    if stateful is None or writer.in_region:
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
