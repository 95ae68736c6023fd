"""The value of an expression: one function for each kind of node of the syntax tree.

What can be computed at compile time is; the rest becomes nodes. An operand that has been reported as wrong makes the
whole expression wrong, in silence.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

from ...dialect.diagnostics import Note, Span
from ...dialect.graph import Value
from ...dialect.types import DTYPES
from . import statics, syntax
from .builtins import call_operator
from .calls import call_instance
from .configuration import look_up
from .context import Context, check_number, suggest
from .indexing import index_tensor
from .instances import bind_hypers, element, member
from .operators import BUILTINS, apply
from .sugar import FORMS
from .values import (
    ERROR,
    AnyValue,
    BlockValue,
    Frame,
    Given,
    Instance,
    InstanceArray,
    Kind,
    ModuleValue,
    Poison,
    Record,
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
    "@": "matmul",
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "and": "logical_and",
    "or": "logical_or",
}
FUNCTIONS = frozenset({*BUILTINS, *FORMS, *statics.FUNCTIONS})
"""Every name that can be called without being defined."""

FOREIGN = {
    "concatenate": "concat",
    "cat": "concat",
    "permute": "transpose",
    "pow": "power",
    "mul": "multiply",
    "sub": "subtract",
    "div": "divide",
    "neg": "negate",
    "var": "variance",
    "std": "standard_deviation",
    "arange": "iota",
    "range": "iota",
    "clamp": "clip",
    "topk": "top_k",
    "amax": "max",
    "amin": "min",
    "take": "gather",
    "astype": "cast",
    "swish": "silu",
    "dot": "matmul",
    "bmm": "matmul",
    "view": "reshape",
    "masked_fill": "where",
    "erf_inv": "erf",
    "sgn": "sign",
    "float32": "f32",
    "layernorm": "layer_norm",
    "rmsnorm": "rms_norm",
}
"""What other libraries call things."""


def evaluate(context: Context, node: syntax.Expression, frame: Frame) -> AnyValue:
    handler = _EXPRESSIONS.get(type(node))
    if handler is None:
        # `...`, a range or a file where a value should be.
        return context.reporter.error("misplaced-expression", "this cannot stand here", node.span)
    return handler(context, node, frame)


# --- names ---


def unknown_name(context: Context, frame: Frame, name: syntax.Name, what: str = "") -> Poison:
    """Reports a name that nothing defines, with the nearest one that is."""
    notes: list[Note] = []
    if name.name in frame.gone:
        notes = [Note("it is assigned only inside a `repeat`, and ends with it", frame.gone[name.name])]
    elif frame.block is not None:
        later = [s for s in _definitions(frame.block.body) if s.name == name.name]
        notes = [Note("it is defined only later", later[0].span)] if later else []
    foreign = FOREIGN.get(name.name, "")
    if foreign in FUNCTIONS or foreign in DTYPES:
        help_text = f"did you mean `{foreign}`?"
    elif notes:
        help_text = ""
    else:
        own = {**frame.file.names, **frame.names}
        help_text = suggest(name.name, own)
        # What the file defines comes first; the many built-in names have to be closer.
        far = [*FUNCTIONS, *DTYPES, *statics.CONSTANTS]
        close = difflib.get_close_matches(name.name, far, 1, 0.75) if not help_text else []
        help_text = help_text or (f"did you mean `{close[0]}`?" if close else "")
    message = f"there is no {what or 'name'} `{name.name}`"
    return context.reporter.error("unknown-name", message, name.span, notes=notes, help=help_text)


def _definitions(body: Sequence[syntax.Statement]) -> list[syntax.Name]:
    found: list[syntax.Name] = []
    for statement in body:
        if isinstance(statement, syntax.Param):
            found.append(statement.name)
        elif isinstance(statement, syntax.Use):
            found += [i.name for i in statement.instances]
        elif isinstance(statement, syntax.Assign):
            found += statement.targets
        elif isinstance(statement, syntax.Repeat):
            found += _definitions(statement.body)
    return found


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
    # A long sum nests to the left: it is unrolled, so that its length costs no depth.
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
        # What the left side decides needs no right side.
        if left == (symbol == "or"):
            return left
        right = context.evaluate(node.right, frame)
        return right if isinstance(right, Value) else statics.demand_truth(context, right, node.right.span)
    right = context.evaluate(node.right, frame)
    if contains_error(left) or contains_error(right):
        return ERROR
    if contains_tensor(left) or contains_tensor(right) or symbol == "@":
        spans = [node.left.span, node.right.span]
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


# --- parts of values ---

ATTRIBUTES = ("T", "mT", "shape", "dtype", "rank")


def _attribute(context: Context, node: syntax.Attribute, frame: Frame) -> AnyValue:
    value = context.evaluate(node.value, frame)
    name, report = node.name.name, context.reporter.error
    if value is ERROR:
        return ERROR
    if isinstance(value, Record):
        return look_up(context, value, name, node.name.span)
    if isinstance(value, ModuleValue):
        binding = value.file.names.get(name)
        if binding is None or binding.kind is Kind.IMPORT:
            help_text = suggest(name, value.file.names)
            return report("unknown-name", f"`{value.file.name}` defines no `{name}`", node.name.span, help=help_text)
        return binding.value
    if isinstance(value, Instance):
        return member(context, value, node.name)
    if not isinstance(value, Value):
        message = f"{describe(value)} has nothing called `{name}`"
        return report("unknown-attribute", message, node.name.span)
    if name in ("T", "mT"):
        return _transposed(context, node, value, frame)
    if name == "shape":
        return value.type.shape
    if name == "dtype":
        return value.type.dtype
    if name in ("rank", "ndim"):
        return value.type.rank
    if name in FUNCTIONS or name in FOREIGN:
        function = name if name in FUNCTIONS else FOREIGN[name]
        help_text = f"functions take tensors as arguments: `{function}(x, ...)` or `x |> {function}(...)`"
    else:
        help_text = suggest(name, ATTRIBUTES)
    return report("unknown-attribute", f"a tensor has no `.{name}`", node.name.span, help=help_text)


def _transposed(context: Context, node: syntax.Attribute, value: Value, frame: Frame) -> AnyValue:
    spans = [node.value.span]
    if node.name.name == "mT":
        if value.type.rank < 2:
            message = f"`.mT` swaps the last two axes, and {value.type} has {value.type.rank}"
            return context.reporter.error("rank-mismatch", message, node.span)
        return apply(context, frame, "matrix_transpose", [value], {}, node.span, spans, symbol=".mT")
    if value.type.rank != 2:
        help_text = "`.mT` swaps the last two axes" if value.type.rank > 2 else ""
        message = f"`.T` is for matrices, not {value.type}"
        return context.reporter.error("rank-mismatch", message, node.span, help=help_text)
    return apply(context, frame, "transpose", [value], {"axes": (1, 0)}, node.span, spans, symbol=".T")


def _index(context: Context, node: syntax.Index, frame: Frame) -> AnyValue:
    value = context.evaluate(node.value, frame)
    report = context.reporter.error
    if value is ERROR:
        return ERROR
    if isinstance(value, Value):
        return index_tensor(context, frame, value, node)
    if len(node.items) != 1 or isinstance(node.items[0], syntax.Dots):
        return report("bad-index", f"{describe(value)} takes one index", node.span)
    item = node.items[0]
    if isinstance(item, syntax.Slice):
        return _part(context, node, value, item, frame)
    index = context.evaluate(item, frame)
    if index is ERROR:
        return ERROR
    if isinstance(value, InstanceArray):
        return element(context, value, index, item.span)
    if isinstance(value, Record):
        if isinstance(index, str):
            return look_up(context, value, index, item.span)
        return report("bad-index", f"a key of `{value.label}` is a text, not {describe(index)}", item.span)
    if isinstance(value, tuple):
        number = statics.demand_integer(context, index, item.span, "an index")
        if number is ERROR:
            return ERROR
        if not -len(value) <= number < len(value):
            message = f"there is no element {number}"
            label = f"there are {len(value)}"
            return report("index-out-of-range", message, item.span, label)
        found = value[number]
        return check_number(context, found, node.span) if isinstance(found, int) else found
    return report("bad-index", f"{describe(value)} has no elements", node.span)


def _part(context: Context, node: syntax.Index, value: AnyValue, item: syntax.Slice, frame: Frame) -> AnyValue:
    if not isinstance(value, tuple):
        return context.reporter.error("bad-index", f"{describe(value)} has no ranges", node.span)
    limits: list[int | None] = []
    for part in (item.start, item.stop, item.step):
        number = None
        if part is not None:
            found = statics.demand_integer(context, context.evaluate(part, frame), part.span, "the bound of a range")
            if found is ERROR:
                return ERROR
            number = found
        limits.append(number)
    if limits[2] == 0:
        return context.reporter.error("bad-index", "the step of a range cannot be 0", node.span)
    return value[slice(*limits)]


# --- calls ---


def _call(context: Context, node: syntax.Call, frame: Frame, first: Given | None = None) -> AnyValue:
    arguments = [] if first is None else [first]
    for argument in node.arguments:
        value, node_value = context.evaluate(argument.value, frame), argument.value
        parts = tuple(i.span for i in node_value.items) if isinstance(node_value, syntax.List) else ()
        arguments.append(Given(value, node_value.span, argument.name, parts))
    # A pipe spans what is piped as well.
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
            message = "an instance has its hyper-parameters already"
            return report("wrong-hypers", message, node.span)
        return call_instance(context, frame, target, arguments, span)
    if isinstance(target, BlockValue):
        if isinstance(target.block, syntax.Model):
            return report("not-callable", f"`{target.name}` is a model: only blocks are called", function.span)
        hypers = bind_hypers(context, frame, target, node.hypers, node.span)
        if hypers is ERROR:
            return ERROR
        return call_instance(context, frame, Instance(target, hypers, None, node.span), arguments, span)
    if isinstance(target, InstanceArray):
        help_text = f"`{context.reporter.text(function.span)}[i](...)` calls one of them"
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
    if name in statics.FUNCTIONS and _is_static(name, arguments):
        values = [a.value for a in arguments]
        return ERROR if any(map(contains_error, values)) else statics.call(context, name, values, span)
    if name in FORMS:
        return FORMS[name](context, frame, arguments, span)
    if name not in BUILTINS:
        message = f"`{name}` takes a number, not {describe(arguments[0].value) if arguments else 'nothing'}"
        return context.reporter.error("wrong-arguments", message, span)
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
    syntax.Attribute: _attribute,
    syntax.Index: _index,
    syntax.Call: _call,
    syntax.Pipe: _pipe,
}
