"""The value of an expression: one function for each kind of node of the syntax tree.

Compile-time parts are computed at once; the rest becomes nodes. An operand with a reported error makes the whole
expression wrong, without a second report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ....dialect.diagnostics import Span
from ....dialect.graph import Value
from ....dialect.types import DTYPES
from . import static_functions, statics, syntax
from .access import attribute, index
from .builtins import call_operator
from .calls import call_instance
from .context import Context
from .control_flow import if_else, scan, while_loop
from .index_notation import evaluate_indexed
from .instances import bind_hypers
from .iteration import comprehension
from .operators import BUILTINS, apply, multiply_matrices
from .repeats import repeat
from .shapes import resolve_dtype
from .sugar import FORMS
from .unknown import FUNCTIONS, unknown_name
from .values import (
    ERROR,
    AnyValue,
    BlockValue,
    Frame,
    Given,
    Instance,
    InstanceArray,
    contains_error,
    contains_tensor,
    describe,
)

OPERATORS: Mapping[str, str] = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "//": "floor_divide",
    "%": "remainder",
    "**": "power",
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "and": "logical_and",
    "or": "logical_or",
}


def evaluate(context: Context, node: syntax.Expression, frame: Frame) -> AnyValue:
    handler = _EXPRESSIONS.get(type(node))
    if handler is None:
        # `...`, a range or a file instead of a value.
        return context.reporter.error("misplaced-expression", "this expression is not allowed here", node.span)
    return handler(context, node, frame)


# --- names ---


def _name(context: Context, node: syntax.Name, frame: Frame) -> AnyValue:
    binding = frame.lookup(node.name)
    if binding is not None:
        return binding.value
    if node.name in DTYPES:
        return DTYPES[node.name]
    if node.name in statics.CONSTANTS:
        return statics.CONSTANTS[node.name]
    if node.name in FUNCTIONS:
        message = f"`{node.name}` is a function, and must be called"
        return context.reporter.error("not-a-value", message, node.span, help=f"`{node.name}(...)`")
    return unknown_name(context, frame, node)


def _literal(context: Context, node: syntax.Expression, frame: Frame) -> AnyValue:
    assert isinstance(node, (syntax.Integer, syntax.Float, syntax.Boolean, syntax.String)), node
    return node.value


def _sequence(context: Context, node: syntax.List | syntax.Tuple, frame: Frame) -> AnyValue:
    return tuple([context.evaluate(item, frame) for item in node.items])


# --- arithmetic ---


def _unary(context: Context, node: syntax.Unary, frame: Frame) -> AnyValue:
    value = context.evaluate(node.operand, frame)
    if contains_error(value):
        return ERROR
    if isinstance(value, Value):
        name = "negate" if node.operator == "-" else "logical_not"
        return apply(context, frame, name, [value], {}, node.span, [node.operand.span], symbol=node.operator)
    if node.operator == "-":
        return statics.negative(context, value, node.span)
    truth = statics.demand_truth(context, value, node.operand.span)
    return ERROR if truth is ERROR else not truth


def _binary(context: Context, node: syntax.Binary, frame: Frame) -> AnyValue:
    # A long sum nests to the left: a loop unrolls it, so that its length costs no recursion depth.
    chain: list[syntax.Binary] = []
    first: syntax.Expression = node
    while isinstance(first, syntax.Binary):
        chain.append(first)
        first = first.left
    left = context.evaluate(first, frame)
    for link in reversed(chain):
        left = _combine(context, link, left, frame)
    return left


def _combine(context: Context, node: syntax.Binary, left: AnyValue, frame: Frame) -> AnyValue:
    symbol = node.operator
    if symbol in ("and", "or") and isinstance(left, bool):
        # If the left side decides the result, the right side is not evaluated.
        if left == (symbol == "or"):
            return left
        right = context.evaluate(node.right, frame)
        return right if isinstance(right, Value) else statics.demand_truth(context, right, node.right.span)
    right = context.evaluate(node.right, frame)
    if contains_error(left) or contains_error(right):
        return ERROR
    if symbol in ("==", "!=") and (left is None or right is None):
        return (left is right) == (symbol == "==")
    if symbol == "+" and isinstance(left, tuple) and isinstance(right, tuple):
        return statics.binary(context, symbol, left, right, node.span)
    if contains_tensor(left) or contains_tensor(right) or symbol == "@":
        spans = [node.left.span, node.right.span]
        if symbol == "@":
            return multiply_matrices(context, frame, [left, right], node.span, spans, symbol)
        return apply(context, frame, OPERATORS[symbol], [left, right], {}, node.span, spans, symbol=symbol)
    if symbol in ("and", "or"):
        return statics.demand_truth(context, left, node.left.span)
    return statics.binary(context, symbol, left, right, node.span)


def _conditional(context: Context, node: syntax.Conditional, frame: Frame) -> AnyValue:
    condition = context.evaluate(node.condition, frame)
    truth = statics.demand_truth(context, condition, node.condition.span)
    if truth is ERROR:
        return ERROR
    return context.evaluate(node.then if truth else node.otherwise, frame)


# --- calls ---


def _call(context: Context, node: syntax.Call, frame: Frame, first: Given | None = None) -> AnyValue:
    arguments = [] if first is None else [first]
    for argument in node.arguments:
        value, node_value = context.evaluate(argument.value, frame), argument.value
        parts = tuple(i.span for i in node_value.items) if isinstance(node_value, syntax.List) else ()
        arguments.append(Given(value, node_value.span, argument.name, parts))
    # The span of a pipe includes the piped value.
    span = node.span if first is None else first.span.to(node.span)
    function = node.function
    if isinstance(function, syntax.Name) and frame.lookup(function.name) is None:
        return _call_builtin(context, function, node, frame, arguments, span)
    target = context.evaluate(function, frame)
    report = context.reporter.error
    if target is ERROR:
        return ERROR
    if isinstance(target, Instance):
        if node.hypers is not None:
            message = "an instance already has its hyper-parameters"
            return report("wrong-hypers", message, node.span)
        return call_instance(context, frame, target, arguments, span)
    if isinstance(target, BlockValue):
        if isinstance(target.block, syntax.Model):
            return report("not-callable", f"`{target.name}` is a model: only blocks can be called", function.span)
        hypers = bind_hypers(context, frame, target, node.hypers, node.span)
        if hypers is ERROR:
            return ERROR
        return call_instance(context, frame, Instance(target, hypers, None, node.span), arguments, span)
    if isinstance(target, InstanceArray):
        help_text = f"`{context.reporter.text(function.span)}[i](...)` calls one instance"
        return report("not-callable", f"{describe(target)} cannot be called", function.span, help=help_text)
    name = function.name if isinstance(function, syntax.Name) else ""
    help_text = f"the value `{name}` hides the function of that name" if name in FUNCTIONS else ""
    return report("not-callable", f"{describe(target)} cannot be called", function.span, help=help_text)


def _call_builtin(
    context: Context,
    function: syntax.Name,
    node: syntax.Call,
    frame: Frame,
    arguments: Sequence[Given],
    span: Span,
) -> AnyValue:
    name = function.name
    if name not in FUNCTIONS:
        if name in DTYPES:
            message = f"`{name}` is a dtype, and cannot be called"
            return context.reporter.error("not-callable", message, function.span, help=f"`cast(x, {name})`")
        return unknown_name(context, frame, function, "function")
    if node.hypers is not None:
        message = f"`{name}` has no hyper-parameters"
        return context.reporter.error("wrong-hypers", message, function.span)
    if name in static_functions.FUNCTIONS and _is_static(name, arguments):
        values = [a.value for a in arguments]
        return ERROR if any(map(contains_error, values)) else static_functions.call(context, name, values, span)
    if name in FORMS:
        return FORMS[name](context, frame, arguments, span)
    if name not in BUILTINS:
        message = f"`{name}` takes a number, not {describe(arguments[0].value) if arguments else 'nothing'}"
        is_tensor = name == "len" and bool(arguments) and isinstance(arguments[0].value, Value)
        help_text = f"`{context.reporter.text(arguments[0].span)}.shape[0]` is its first size" if is_tensor else ""
        return context.reporter.error("wrong-arguments", message, span, help=help_text)
    return call_operator(context, frame, BUILTINS[name], arguments, span)


def _is_static(name: str, arguments: Sequence[Given]) -> bool:
    if any(a.name is not None for a in arguments):
        return False
    return bool(arguments) and not any(contains_tensor(a.value) for a in arguments)


def _pipe(context: Context, node: syntax.Pipe, frame: Frame) -> AnyValue:
    stages: list[syntax.Pipe] = []
    first: syntax.Expression = node
    while isinstance(first, syntax.Pipe):
        stages.append(first)
        first = first.value
    value, span = context.evaluate(first, frame), first.span
    for stage in reversed(stages):
        value = _call(context, stage.call, frame, Given(value, span))
        span = stage.span
    return value


_EXPRESSIONS: Mapping[type[syntax.Node], Callable[..., AnyValue]] = {
    syntax.Name: _name,
    syntax.Integer: _literal,
    syntax.Float: _literal,
    syntax.Boolean: _literal,
    syntax.String: _literal,
    syntax.Nothing: lambda context, node, frame: None,
    syntax.List: _sequence,
    syntax.Tuple: _sequence,
    syntax.Unary: _unary,
    syntax.Binary: _binary,
    syntax.Conditional: _conditional,
    syntax.Attribute: attribute,
    syntax.Index: index,
    syntax.Call: _call,
    syntax.Pipe: _pipe,
    syntax.Comprehension: comprehension,
    syntax.Repeat: repeat,
    syntax.Scan: scan,
    syntax.While: while_loop,
    syntax.If: if_else,
    syntax.Reduction: lambda context, node, frame: evaluate_indexed(context, frame, (), node),
    syntax.BlockDtype: lambda context, node, frame: resolve_dtype(context, frame, node.dtype),
}
