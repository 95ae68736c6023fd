"""Calls of blocks: matches arguments against the declared types, and expands the body inline.

An error in an argument is reported at the argument. The body is then elaborated with the declared type, so that errors
in the body are reported too, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....dialect.diagnostics import Note, Span
from ....dialect.dims import Poly, format_size
from ....dialect.graph import Value
from ....dialect.types import TensorType
from . import syntax
from .argument_sizes import bind_sizes, forget_sizes
from .context import CALL_DEPTH, Context, suggest
from .custom import call_custom, own_gradient
from .instances import hyper_bindings
from .operators import literal
from .provenance import TracedSize, size_notes, trace_axis, trace_type
from .shapes import Pattern, leading_sizes, mismatch, resolve_pattern
from .statements import Returned, run_body
from .values import ERROR, AnyValue, Binding, Frame, Given, Instance, Kind, Poison, contains_error, describe


def call_instance(
    context: Context, frame: Frame, instance: Instance, arguments: Sequence[Given], span: Span
) -> AnyValue:
    """Returns the result of a block for the arguments, or a tuple of its results."""
    block = instance.block.block
    _check_recursion(context, frame, instance, span)
    inner = Frame(
        instance.block.file,
        hyper_bindings(instance.block, instance.hypers),
        block,
        instance.path,
        instance.hypers,
        caller=frame,
        call=span,
    )
    given = _bind_arguments(context, block, arguments, span)
    for parameter in block.parameters:
        sizes = bind_sizes(context, inner, parameter, given.get(parameter.name.name))
        pattern = resolve_pattern(context, inner, parameter.type)
        value = _match(context, frame, inner, parameter, pattern, given.get(parameter.name.name), sizes)
        inner.names[parameter.name.name] = Binding(value, Kind.ARGUMENT, parameter.name.span)
    context.program.elaborated.add(id(block))
    results = run_block(context, inner, block)
    return results[0] if len(results) == 1 else results


def run_block(context: Context, inner: Frame, block: syntax.Block) -> tuple[Value | Poison, ...]:
    """Elaborates the body of a block, whose arguments are bound in the frame; returns its results as declared."""
    grad = own_gradient(context, block)
    if grad is None:
        return match_results(context, inner, block, run_body(context, inner, block.body))
    return call_custom(
        context, inner, block, grad, lambda frame, returned: match_results(context, frame, block, returned)
    )


def _callers(frame: Frame | None) -> Iterator[Frame]:
    while frame is not None:
        yield frame
        frame = frame.caller


def _check_recursion(context: Context, frame: Frame, instance: Instance, span: Span) -> None:
    names: list[str] = []
    for caller in _callers(frame):
        if caller.block is None:
            continue
        names.append(f"`{caller.block.name.name}`")
        if caller.block is instance.block.block:
            cycle = " calls ".join([*reversed(names), names[-1]])
            raise context.reporter.stop("recursive-block", f"a block cannot call itself: {cycle}", span)
    if len(names) >= CALL_DEPTH:
        raise context.reporter.stop("too-deep", f"blocks call each other more than {CALL_DEPTH} deep", span)


def _bind_arguments(context: Context, block: syntax.Block, arguments: Sequence[Given], span: Span) -> dict[str, Given]:
    report = context.reporter.error
    names = [p.name.name for p in block.parameters]
    shown = block.name.name
    bound: dict[str, Given] = {}
    failed = False
    for number, argument in enumerate(arguments):
        if argument.name is None and number >= len(names):
            takes = f"{len(names)} argument{'s' if len(names) != 1 else ''}"
            report("wrong-arguments", f"`{shown}` takes {takes}, not {len(arguments)}", argument.span)
            failed = True
            break
        name = names[number] if argument.name is None else argument.name.name
        if name not in names:
            assert argument.name is not None
            message = f"`{shown}` has no argument `{name}`"
            report("wrong-arguments", message, argument.name.span, help=suggest(name, names))
            failed = True
        elif name in bound:
            report("wrong-arguments", f"`{name}` of `{shown}` is given twice", argument.span)
        else:
            bound[name] = argument
    missing = [n for n in names if n not in bound]
    if missing and not failed:
        note = Note(f"the definition of `{shown}`", block.name.span)
        lacks = ", ".join(f"`{n}`" for n in missing)
        report("wrong-arguments", f"`{shown}` is missing an argument: {lacks}", span, notes=[note])
    return bound


def _match(
    context: Context,
    frame: Frame,
    inner: Frame,
    parameter: syntax.Parameter,
    pattern: Pattern | Poison,
    given: Given | None,
    sizes: list[str],
) -> Value | Poison:
    """Returns the argument, or a value of the declared type that replaces a wrong one. `sizes` are the names that this
    argument determines."""
    if pattern is ERROR:
        return ERROR
    value: AnyValue = ERROR if given is None else given.value
    what = f"`{parameter.name.name}` of `{_block_name(inner)}`"
    span = parameter.name.span if given is None else given.span
    result = _fit(context, frame, inner, pattern, value, what, span, parameter.type)
    if result is ERROR:
        forget_sizes(inner, sizes)
        type = None if sizes else pattern.fill(inner.dots)
        return ERROR if type is None else _stand_in(context, inner, type, parameter.type)
    if pattern.dots and inner.dots is None:
        inner.dots = leading_sizes(pattern, result.type)
    return result


def _stand_in(context: Context, frame: Frame, type: TensorType, declared: syntax.Type) -> Value:
    """Returns a value of the declared type, to replace a wrong one."""
    value = context.writer.fresh(type)
    context.writer.declare(value, frame, declared)
    return value


def _block_name(frame: Frame) -> str:
    assert frame.block is not None
    return frame.block.name.name


def _fit(
    context: Context,
    frame: Frame,
    inner: Frame,
    pattern: Pattern,
    value: AnyValue,
    what: str,
    span: Span,
    declared: syntax.Type,
) -> Value | Poison:
    """Converts the value to a tensor of the pattern, or reports why it does not fit.

    Literals are written in `frame`, the sizes of the pattern are those of `inner`.
    """
    if contains_error(value):
        return ERROR
    if not isinstance(value, Value):
        if isinstance(value, (bool, int, float, Poly, tuple)):
            value = literal(context, frame, value, pattern.dtype, span)
            if value is ERROR:
                return ERROR
        else:
            message = f"{what} must be {pattern}, not {describe(value)}"
            return context.reporter.error("not-a-tensor", message, span)
    assert isinstance(value, Value)
    error = mismatch(pattern, value.type, inner.dots)
    if error is None:
        context.writer.declare(value, inner, declared)
        return value
    code, label, axes = error
    notes = size_notes(context, [trace_axis(context, frame, value, axis) for axis in axes], label)
    expected = [(axis, pattern.sizes[axis]) for axis in axes if axis < 0]
    traced = [TracedSize(size, trace_type(inner, declared, axis, size)) for axis, size in expected]
    notes += [note for note in size_notes(context, traced, label) if note not in notes]
    help_text = ""
    if code == "dtype-mismatch":
        help_text = context.reporter.conversion(span, pattern.dtype)
    elif code == "shape-mismatch" and frame is not inner:
        help_text = _other_hypers(context, frame, inner, pattern, value, declared)
        help_text = help_text or _undefined_name(inner, declared, axes)
    message = f"{what} must be {pattern}, not {value.type}"
    return context.reporter.error(code, message, span, label, notes=notes, help=help_text)


def _undefined_name(inner: Frame, declared: syntax.Type, axes: Sequence[int]) -> str:
    """Returns a help about a dim as the size of an argument, which is the same in all calls of a block."""
    for axis in axes:
        dim = declared.dims[axis] if -len(declared.dims) <= axis < 0 else None
        binding = inner.lookup(dim.name) if isinstance(dim, syntax.Name) else None
        if isinstance(dim, syntax.Name) and binding is not None and binding.kind is Kind.DIM:
            return f"an undefined name instead of the dim `{dim.name}` takes the size of the argument in each call"
    return ""


def _other_hypers(
    context: Context, frame: Frame, inner: Frame, pattern: Pattern, value: Value, declared: syntax.Type
) -> str:
    """Returns a help that proposes another value, if a single hyper-parameter determines the wrong size."""
    for axis in range(-1, -len(pattern.sizes) - 1, -1):
        actual, dim = value.type.shape[axis], declared.dims[axis]
        if pattern.sizes[axis] == actual:
            continue
        hyper = inner.hypers.get(dim.name) if isinstance(dim, syntax.Name) else None
        if hyper is None or hyper.by_default or not hyper.text or not isinstance(dim, syntax.Name):
            return ""
        if inner.names[dim.name].kind is not Kind.HYPER:
            return ""
        origin = trace_axis(context, frame, value, axis).origin
        known = origin is not None and frame.hypers.get(origin.name) is origin.hyper
        better = origin.name if origin is not None and known else format_size(actual)
        given = [
            f"{name}={better if name == dim.name else h.text}"
            for name, h in inner.hypers.items()
            if not h.by_default and inner.names[name].kind is Kind.HYPER
        ]
        assert inner.block is not None
        names = [h.name.name for h in inner.block.hypers]
        if names[: len(given)] == [g.split("=")[0] for g in given]:
            given = [g.split("=", 1)[1] for g in given]
        return f"did you mean `{inner.block.name.name}<{', '.join(given)}>`?"
    return ""


def _holds_return(loop: syntax.Repeat) -> bool:
    return any(isinstance(s, syntax.Return) or (isinstance(s, syntax.Repeat) and _holds_return(s)) for s in loop.body)


def match_results(
    context: Context, frame: Frame, block: syntax.Block, returned: Returned | None
) -> tuple[Value | Poison, ...]:
    """Returns the results as declared. A value of the declared type replaces a wrong or missing one."""
    report = context.reporter.error
    values: list[tuple[AnyValue, Span]] = []
    if returned is not None:
        values = returned.values
        if len(values) != len(block.results) and not any(contains_error(v) for v, _ in values):
            count = f"{len(block.results)} result{'s' if len(block.results) != 1 else ''}"
            note = Note(f"the definition of `{block.name.name}`", block.name.span)
            report("wrong-results", f"`{block.name.name}` has {count}, not {len(values)}", returned.span, notes=[note])
            values = []
    elif any(isinstance(s, syntax.Repeat) and _holds_return(s) for s in block.body):
        pass  # has been reported
    elif not block.body:
        report("missing-return", f"`{block.name.name}` has no body", block.span)
    else:
        help_text = "`return value` ends a body"
        report("missing-return", f"`{block.name.name}` returns nothing", block.name.span, help=help_text)
    results: list[Value | Poison] = []
    for number, result in enumerate(block.results):
        pattern = resolve_pattern(context, frame, result.type)
        if pattern is ERROR:
            results.append(ERROR)
            continue
        value, span = values[number] if number < len(values) else (ERROR, result.span)
        what = f"`{result.name.name}`" if result.name is not None else "the result"
        fitted = _fit(context, frame, frame, pattern, value, f"{what} of `{block.name.name}`", span, result.type)
        if fitted is ERROR:
            type = pattern.fill(frame.dots)
            fitted = ERROR if type is None else _stand_in(context, frame, type, result.type)
        results.append(fitted)
    return tuple(results)
