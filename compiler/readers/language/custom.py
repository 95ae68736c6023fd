"""Calls of blocks with a separate gradient: the results and the gradients become the regions of a `custom` node.

    block Swish(x: f32[...]) -> y: f32[...] {
      y = x * sigmoid(x)
      grad {
        s = sigmoid(x)
        dx = dy * (s + y * (1 - s))
      }
      return y
    }

`grad` reads the arguments, the results, and their gradients `dNAME`. It gives each float argument its gradient. Such a
block has neither parameters nor states: all that a gradient may flow to is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ....dialect.diagnostics import Note
from ....dialect.graph import Node, Value
from . import syntax
from .context import Context, suggest
from .statements import Returned, run_body
from .values import ERROR, Binding, Frame, Kind, Poison, contains_error, describe, is_number

Match = Callable[[Frame, "Returned | None"], "tuple[Value | Poison, ...]"]
"""Matches the results of a block against its declared types."""
Results = tuple["Value | Poison", ...]


def own_gradient(context: Context, block: syntax.Block) -> syntax.Grad | None:
    """Returns the gradient that a block states. Reports a second one."""
    found = [statement for statement in block.body if isinstance(statement, syntax.Grad)]
    for second in found[1:]:
        note = Note("the first one", found[0].span)
        context.reporter.error("duplicate-name", f"`{block.name.name}` has two gradients", second.span, notes=[note])
    return found[0] if found else None


def call_custom(context: Context, frame: Frame, block: syntax.Block, grad: syntax.Grad, match: Match) -> Results:
    """Elaborates the body and the gradient of a block, whose arguments are bound in the frame; returns its results."""
    body = [statement for statement in block.body if not isinstance(statement, syntax.Grad)]
    names, writer = dict(frame.names), context.writer
    given = [names[p.name.name].value for p in block.parameters]
    inputs = [value for value in given if isinstance(value, Value)]
    if not _check_block(context, block) or len(inputs) < len(given):
        return match(frame, run_body(context, frame, body))
    writer.open()
    arguments = _bind_arguments(context, frame, block)
    results = match(frame, run_body(context, frame, body))
    kept = [value for value in results if isinstance(value, Value)]
    if len(kept) < len(results):
        writer.bodies.pop()
        return results
    forward = writer.close(tuple(arguments), tuple(kept))
    inner = replace(frame, names=names, gone={})
    writer.open()
    arguments = _bind_arguments(context, inner, block)
    after, seeds = _bind_results(context, inner, block, kept)
    run_body(context, inner, grad.body)
    gradients = _gradients(context, inner, block, grad, arguments)
    region = writer.close((*arguments, *after, *seeds), tuple(g for g in gradients if isinstance(g, Value)))
    if any(gradient is ERROR for gradient in gradients):
        return (ERROR,) * len(results)
    outputs = tuple(writer.fresh(value.type) for value in kept)
    attributes = (("name", block.name.name),)
    writer.add(Node("custom", tuple(inputs), outputs, attributes, (forward, region), frame.scope, grad.span))
    for output, result in zip(outputs, block.results, strict=True):
        writer.declare(output, frame, result.type)
    return outputs


def _check_block(context: Context, block: syntax.Block) -> bool:
    """Reports statements and results that a block with a gradient cannot have."""
    wrong = [s for s in block.body if isinstance(s, (syntax.Param, syntax.State, syntax.Use))]
    for statement in wrong:
        word = type(statement).__name__.lower()
        message = f"`{word}` is not allowed in a block with a `grad`"
        help_text = "make it an argument of the block, so that `grad` gives it a gradient"
        context.reporter.error("misplaced-statement", message, statement.span, help=help_text)
    unnamed = [result for result in block.results if result.name is None]
    for result in unnamed:
        message = f"a result of `{block.name.name}` has no name, and `grad` reads its gradient by name"
        context.reporter.error("bad-gradient", message, result.span, help="`-> y: f32[...]` has the gradient `dy`")
    return not wrong and not unnamed


def _bind_arguments(context: Context, frame: Frame, block: syntax.Block) -> list[Value]:
    """Binds the names of the arguments to those of a region."""
    arguments: list[Value] = []
    for parameter in block.parameters:
        name = parameter.name.name
        given = frame.names[name].value
        assert isinstance(given, Value), given
        value = Value(context.writer.name(name), given.type)
        context.writer.declare(value, frame, parameter.type)
        frame.names[name] = Binding(value, Kind.ARGUMENT, parameter.name.span)
        arguments.append(value)
    return arguments


def _bind_results(
    context: Context, frame: Frame, block: syntax.Block, results: Sequence[Value]
) -> tuple[list[Value], list[Value]]:
    """Binds the names of the results and of their gradients."""
    after: list[Value] = []
    seeds: list[Value] = []
    for result, value in zip(block.results, results, strict=True):
        assert result.name is not None, result
        name = result.name.name
        after.append(Value(context.writer.name(name), value.type))
        frame.names[name] = Binding(after[-1], Kind.LOCAL, result.name.span)
        if value.type.dtype.is_differentiable:
            seeds.append(Value(context.writer.name(f"d{name}"), value.type))
            frame.names[f"d{name}"] = Binding(seeds[-1], Kind.LOCAL, result.name.span)
    return after, seeds


def _gradients(
    context: Context, frame: Frame, block: syntax.Block, grad: syntax.Grad, arguments: Sequence[Value]
) -> list[Value | Poison]:
    """Returns the gradient of each float argument."""
    found: list[Value | Poison] = []
    for parameter, argument in zip(block.parameters, arguments, strict=True):
        if not argument.type.dtype.is_differentiable:
            continue
        name = f"d{parameter.name.name}"
        binding = frame.names.get(name)
        if binding is None:
            message = f"`grad` gives `{parameter.name.name}` no gradient: nothing assigns `{name}`"
            note = Note(f"the argument `{parameter.name.name}`", parameter.name.span)
            help_text = suggest(name, frame.names) or f"`{name} = 0` stops gradients"
            found.append(context.reporter.error("bad-gradient", message, grad.span, notes=[note], help=help_text))
            continue
        value = binding.value
        if is_number(value):
            attributes = {"shape": argument.type.shape, "value": float(str(value)), "dtype": argument.type.dtype}
            value = context.writer.emit("full", (), attributes, scope=frame.scope, span=grad.span)[0]
        if contains_error(value):
            found.append(ERROR)
        elif isinstance(value, Value) and value.type == argument.type:
            found.append(value)
        else:
            shown = str(value.type) if isinstance(value, Value) else describe(value)
            message = f"`{name}` must be {argument.type}, as `{parameter.name.name}` is, not {shown}"
            found.append(context.reporter.error("bad-gradient", message, binding.span))
    return found
