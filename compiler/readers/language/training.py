"""`minimize`: appends the gradients of a loss to a training step, and the updates of its parameters.

The forward nodes are differentiated when the statement is reached, so every later stage takes an ordinary graph: an
update is a call of a block, which reads a parameter and its gradient, keeps separate states, and returns the new
value of the parameter.

    minimize loss with adamw(lr=lr)      adamw.hidden.weight.mean, adamw.hidden.weight.square: states
                                         hidden.weight: a state, which begins with the checkpoint's value

A block of the file is found first, then one that comes with the compiler, in `library/optimizers.nacre`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

from ....dialect.diagnostics import Note
from ....dialect.differentiate import GradientError
from ....dialect.graph import Node, Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import BF16, F16, F32, F64
from ....passes.selection import Selector
from . import syntax
from .accumulation import Accumulation
from .calls import call_instance
from .context import NODES, Context, suggest
from .divided_steps import Division
from .instances import bind_hypers, resolve_block
from .nodes import Maker
from .values import (
    ERROR,
    BlockValue,
    Frame,
    Given,
    Hyper,
    Instance,
    InstancePath,
    Poison,
    contains_error,
    describe,
    is_number,
)
from .writer import KeptState

_GIVEN = ("parameter", "gradient")
"""The first arguments of an update."""


@dataclass(frozen=True, slots=True)
class _Update:
    """A resolved update: the block, its hyper-parameters, and its arguments after the parameter and the gradient."""

    node: syntax.Update
    block: BlockValue
    hypers: dict[str, Hyper]
    arguments: tuple[Given, ...]


def minimize(context: Context, frame: Frame, statement: syntax.Minimize) -> None:
    """Gives every trained parameter its new value."""
    report = context.reporter.error
    loss = context.evaluate(statement.loss, frame)
    updates = _read_updates(context, frame, statement)
    clip = _read_clip(context, frame, statement)
    count = _read_count(context, frame, statement)
    if loss is ERROR or updates is ERROR or clip is ERROR or count is ERROR:
        return
    if not isinstance(loss, Value) or loss.type.rank or loss.type.dtype not in (F32, F64):
        message = f"`{statement.loss.name}` is {describe(loss)}; a loss is a scalar"
        report("bad-loss", message, statement.loss.span, help="`mean` or `sum` of a tensor is a scalar")
        return
    kept = {name: state for name, state in context.writer.states.items() if name in context.program.trained}
    _check_patterns(context, statement, kept)
    gradients = _differentiate(context, statement, loss, list(kept.values()))
    if gradients is ERROR:
        return
    gradients = _exchanged(context, frame, statement, dict(zip(kept, gradients, strict=True)))
    accumulation = Accumulation(context, frame, statement.span, count)
    gradients = accumulation.add(dict(zip(kept, gradients, strict=True)))
    gradients = _clipped(context, frame, statement, gradients, clip)
    for (name, state), gradient in zip(kept.items(), gradients, strict=True):
        if gradient is None:
            message = f"`{statement.loss.name}` does not depend on the parameter `{name}`, which stays as it is"
            context.reporter.warning("untrained", message, context.program.parameters[name].span or statement.span)
            continue
        _apply(context, frame, _select(updates, name), name, state, gradient)
    accumulation.finish()


def _exchanged(
    context: Context, frame: Frame, statement: syntax.Minimize, gradients: Mapping[str, Value | None]
) -> list[Value | None]:
    """Returns the gradients; with `exchange`, the step is divided at them."""
    lines = [line for line in statement.lines if isinstance(line, syntax.Exchange)]
    for second in lines[1:]:
        context.reporter.error("duplicate-name", "the gradients are exchanged twice", second.span)
    if not lines or frame.block is None:
        return list(gradients.values())
    make = Maker(context, frame, lines[0].span)
    # A gradient may be an argument of the step, or that of several parameters: each becomes a value of its own.
    found = {n: g and make("multiply", g, make.number(1.0, g.type.dtype)) for n, g in gradients.items()}
    forward = {name: kept.current for name, kept in context.writer.states.items()}
    known = {name: gradient for name, gradient in found.items() if gradient is not None}
    given = {name: Value(context.writer.name("given"), gradient.type) for name, gradient in known.items()}
    context.program.divisions[frame.block.name.name] = Division(lines[0].span, known, given, forward)
    return list(found.values())


def _differentiate(
    context: Context, statement: syntax.Minimize, loss: Value, kept: Sequence[KeptState]
) -> list[Value | None] | Poison:
    writer = context.writer
    body = writer.bodies[0]
    try:
        # Most files have no training step, and the pass needs much of `passes`.
        differentiate = import_module("....passes.autodiff.differentiate", __package__)
        nodes: Sequence[Node]
        gradients: list[Value | None]
        nodes, gradients = differentiate.append_gradients(body.all_nodes, loss, [k.argument for k in kept], writer.name)
    except GradientError as error:
        message = f"`{error.node.op}` has no gradient, and the loss depends on a parameter through it"
        note = Note("the loss is minimized here", statement.span)
        span = error.node.span or statement.span
        return context.reporter.error("no-gradient", message, span, notes=[note])
    writer.count += len(nodes) - len(body.all_nodes)
    body.prologue, body.nodes = [], list(nodes)
    if writer.count > NODES:
        raise context.reporter.stop("too-large", f"the program has more than {NODES} nodes", statement.span)
    if not any(gradients):
        message = f"`{statement.loss.name}` has a gradient for no trained parameter"
        help_text = "gradients do not pass through integers, comparisons, `round` and the like"
        if not kept:
            help_text = "parameters of floats are trained, except for those that `freeze` selects"
        return context.reporter.error("bad-loss", message, statement.loss.span, help=help_text)
    return gradients


# --- lines ---


def _read_updates(
    context: Context, frame: Frame, statement: syntax.Minimize
) -> list[tuple[list[Selector], _Update]] | Poison:
    """Returns the updates with the parameters that each applies to, the first one to all."""
    found: list[tuple[list[Selector], _Update | Poison]] = [
        ([Selector("*")], _resolve(context, frame, statement.update))
    ]
    for line in statement.lines:
        if isinstance(line, syntax.Group):
            selectors = [Selector(p.value) for p in line.patterns]
            found.append((selectors, _resolve(context, frame, line.update)))
    known = [(selectors, update) for selectors, update in found if not isinstance(update, Poison)]
    return known if len(known) == len(found) else ERROR


def _select(updates: Sequence[tuple[list[Selector], _Update]], name: str) -> _Update:
    """Returns the update of a parameter: the last one that selects it."""
    return next(u for selectors, u in reversed(updates) if any(s.matches("", [name]) for s in selectors))


def _check_patterns(context: Context, statement: syntax.Minimize, kept: dict[str, KeptState]) -> None:
    """Reports patterns that select nothing."""
    names = [*kept, *context.program.parameters]
    for line in statement.lines:
        if isinstance(line, (syntax.Clip, syntax.Accumulate, syntax.Exchange)):
            continue
        for pattern in line.patterns:
            if not any(Selector(pattern.value).matches("", [name]) for name in names):
                message = f'"{pattern.value}" selects no parameter'
                context.reporter.error("no-match", message, pattern.span, help=suggest(pattern.value, names))


def _read_clip(context: Context, frame: Frame, statement: syntax.Minimize) -> Given | Poison | None:
    lines = [line for line in statement.lines if isinstance(line, syntax.Clip)]
    if not lines:
        return None
    for second in lines[1:]:
        context.reporter.error("duplicate-name", "the gradients are clipped twice", second.span)
    value, span = context.evaluate(lines[0].norm, frame), lines[0].norm.span
    if value is ERROR:
        return ERROR
    is_scalar = isinstance(value, Value) and not value.type.rank and value.type.dtype in (F32, F64)
    if not is_scalar and not (is_number(value) and value > 0):  # type: ignore[operator]  # a number
        message = f"the norm of the gradients is a positive number or a float scalar, not {describe(value)}"
        return context.reporter.error("bad-operand", message, span)
    return Given(value, span)


def _read_count(context: Context, frame: Frame, statement: syntax.Minimize) -> int | Poison:
    """Returns the number of calls whose gradients an update adds up."""
    lines = [line for line in statement.lines if isinstance(line, syntax.Accumulate)]
    for second in lines[1:]:
        context.reporter.error("duplicate-name", "the gradients are accumulated twice", second.span)
    if not lines:
        return 1
    value, span = context.evaluate(lines[0].count, frame), lines[0].count.span
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    message = f"the number of accumulated steps is a positive integer, not {describe(value)}"
    return ERROR if value is ERROR else context.reporter.error("bad-operand", message, span)


def _clipped(
    context: Context,
    frame: Frame,
    statement: syntax.Minimize,
    gradients: Sequence[Value | None],
    clip: Given | None,
) -> list[Value | None]:
    """Returns the gradients, all scaled by the same factor such that their norm is not above the given one."""
    if clip is None:
        return list(gradients)
    make = Maker(context, frame, clip.span)
    dtype = F64 if any(gradient is not None and gradient.type.dtype is F64 for gradient in gradients) else F32
    known = [make.cast(gradient, dtype) for gradient in gradients if gradient is not None]
    total = make("sum", make("multiply", known[0], known[0]))
    for gradient in known[1:]:
        total = make("add", total, make("sum", make("multiply", gradient, gradient)))
    norm = make("add", make("sqrt", total), make.number(1e-6, dtype))
    given = clip.value
    limit = make.cast(given, dtype) if isinstance(given, Value) else make.number(float(str(given)), dtype)
    factor = make("minimum", make.number(1.0, dtype), make("divide", limit, norm))
    return [g if g is None else make("multiply", g, make.cast(factor, g.type.dtype)) for g in gradients]


# --- updates ---


def _resolve(context: Context, frame: Frame, node: syntax.Update) -> _Update | Poison:
    block = _find_block(context, frame, node)
    if isinstance(block, Poison):
        return ERROR
    names = [parameter.name.name for parameter in block.block.parameters]
    if tuple(names[:2]) != _GIVEN:
        message = f"`{block.name}` is not an update: its first arguments must be `parameter` and `gradient`"
        note = Note(f"the definition of `{block.name}`", block.block.name.span)
        return context.reporter.error("bad-update", message, node.span, notes=[note])
    hypers = bind_hypers(context, frame, block, node.block.hypers, node.span)
    arguments = [Given(context.evaluate(a.value, frame), a.value.span, a.name) for a in node.arguments]
    if hypers is ERROR or any(contains_error(a.value) for a in arguments):
        return ERROR
    return _Update(node, block, hypers, tuple(arguments))


def _find_block(context: Context, frame: Frame, node: syntax.Update) -> BlockValue | Poison:
    path, library = node.block.path, context.program.optimizers
    if len(path) == 1 and frame.lookup(path[0].name) is None and library is not None:
        binding = library.names.get(path[0].name)
        if binding is not None and isinstance(binding.value, BlockValue):
            return binding.value
        own = [n for n, b in frame.file.names.items() if isinstance(b.value, BlockValue)]
        message = f"there is no block `{path[0].name}`"
        known = [n for n, b in library.names.items() if n[:1].islower()]
        help_text = suggest(path[0].name, [*known, *own]) or f"the compiler comes with {', '.join(known)}"
        return context.reporter.error("unknown-name", message, path[0].span, help=help_text)
    return resolve_block(context, frame, path)


def _apply(context: Context, frame: Frame, update: _Update, name: str, state: KeptState, gradient: Value) -> None:
    """Calls an update, and makes its result the value of the parameter after the call. An update in f32 has parameters
    of 16 bits converted to f32, and its result is rounded."""
    type, span, block = state.argument.type, update.node.span, update.block.block
    given = block.parameters[0].type.dtype.name
    is_widened = given == str(F32) and type.dtype in (BF16, F16)
    if given != str(type.dtype) and not is_widened:
        message = f"`{update.block.name}` updates parameters in {given}, and `{name}` is {type}"
        help_text = f'`group "{name}" with` a copy of the block in {type.dtype}, or `freeze "{name}"`'
        context.reporter.error("bad-update", message, span, help=help_text)
        return
    make = Maker(context, frame, span)
    first = [Given(make.cast(value, F32) if is_widened else value, span) for value in (state.argument, gradient)]
    instance = Instance(update.block, update.hypers, InstancePath().child(update.block.name).child(name), span)
    result = call_instance(context, frame, instance, [*first, *update.arguments], span)
    if contains_error(result):
        return
    wanted = first[0].value
    assert isinstance(wanted, Value), wanted
    if not isinstance(result, Value) or result.type != wanted.type:
        message = f"`{update.block.name}` returns {describe(result)}, not the new value of a {wanted.type}"
        context.reporter.error("bad-update", message, span)
        return
    state.current = make.cast(result, type.dtype)


def bare_results(context: Context, frame: Frame, step: syntax.Train) -> list[tuple[syntax.Result, Value | Poison]]:
    """Returns the results of a step without `return`: the values of their names."""
    found: list[tuple[syntax.Result, Value | Poison]] = []
    for result in step.results:
        binding = None if result.name is None else frame.names.get(result.name.name)
        value = None if binding is None else binding.value
        if isinstance(value, (Value, Poison)):
            found.append((result, value))
            continue
        what = "a result" if result.name is None else f"the result `{result.name.name}`"
        message = f"`{step.name.name}` gives {what} no value"
        help_text = "assign a value to its name, or end the step with `return`"
        context.reporter.error("missing-return", message, result.span, help=help_text)
        found.append((result, ERROR))
    return found
