"""Elaborates a `model` into a function of the graph.

Two properties need the whole function and are settled at the end: its arguments determine every dim it uses, and a
parameter that is read both by a fixed and by a running index has one name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ....dialect.diagnostics import Note, Span
from ....dialect.dims import Poly, Size, Symbol, symbols
from ....dialect.graph import Attribute, Constant, Function, Node, Region, Value, result_of_state, walk
from ....dialect.types import I64, TensorType
from . import syntax
from .calls import match_results
from .context import Context, Program
from .instances import bind_hypers, hyper_bindings
from .settings import settings_of
from .shapes import resolve_type
from .statements import Returned, run_body
from .trained import read_frozen
from .training import bare_results, minimize
from .values import ERROR, Binding, BlockValue, FileScope, Frame, InstancePath, Kind, Poison
from .writer import Writer


def elaborate_model(context: Context, scope: FileScope, model: syntax.Model) -> Function | None:
    """Returns the function; None after reporting errors in it."""
    errors = _errors(context)
    context.writer = Writer(count=context.writer.count)
    context.program.elaborated.add(id(model))
    value = BlockValue(model, scope)
    hypers = bind_hypers(context, Frame(scope), value, None, model.name.span, settings_of(context, model))
    if hypers is ERROR:
        return None
    frame = Frame(scope, hyper_bindings(value, hypers), model, InstancePath(), hypers)
    _check_weights_statements(context, model)
    prefixes = (s.prefix for s in model.body if isinstance(s, syntax.Weights))
    context.program.prefix = next((prefix.value for prefix in prefixes if prefix is not None), "")
    arguments: list[Value] = []
    for parameter in model.parameters:
        type = resolve_type(context, frame, parameter.type)
        _check_passed(context, parameter.type, type)
        argument = ERROR if type is ERROR else Value(context.writer.name(parameter.name.name), type)
        if argument is not ERROR:
            arguments.append(argument)
        frame.names[parameter.name.name] = Binding(argument, Kind.ARGUMENT, parameter.name.span)
    context.program.frozen = read_frozen(model) if isinstance(model, syntax.Train) else None
    if isinstance(model, syntax.Train):
        values: Returned | None = _run_step(context, frame, model)
    else:
        values = run_body(context, frame, model.body)
    context.program.frozen = None
    results = match_results(context, frame, model, values)
    for result, returned in zip(model.results, results, strict=True):
        _check_passed(context, result.type, ERROR if returned is ERROR else returned.type)
    _check_states(context)
    wrong = len(arguments) < len(model.parameters) or any(r is ERROR for r in results)
    if wrong or _errors(context) > errors:
        return None
    states = context.writer.states
    function = Function(
        model.name.name,
        (*arguments, *(kept.argument for kept in states.values())),
        context.writer.bodies[0].all_nodes,
        (*(r for r in results if r is not ERROR), *(kept.current for kept in states.values())),
        (*_result_names(model), *map(result_of_state, states)),
        model.name.span,
        tuple(states),
    )
    check_dims(context, function, [p.type.span for p in model.parameters])
    return function if _errors(context) == errors else None


def _run_step(context: Context, frame: Frame, step: syntax.Train) -> Returned:
    """Elaborates the statements of a training step."""
    indices = [number for number, statement in enumerate(step.body) if isinstance(statement, syntax.Minimize)]
    end = indices[0] if indices else len(step.body)
    returned = run_body(context, frame, step.body[:end])
    for number in indices:
        statement = step.body[number]
        assert isinstance(statement, syntax.Minimize), statement
        if number == end and returned is None:
            minimize(context, frame, statement)
        elif returned is None:
            note = Note("the first one", step.body[end].span)
            message = f"`{step.name.name}` minimizes two losses"
            help_text = "add the losses, or write a second `train`"
            context.reporter.error("duplicate-name", message, statement.span, notes=[note], help=help_text)
    if not indices:
        message = f"`{step.name.name}` minimizes nothing"
        help_text = "`minimize loss with adamw(lr=1e-3)` trains the parameters"
        context.reporter.error("no-loss", message, step.name.span, help=help_text)
    rest = [s for s in step.body[end:] if not isinstance(s, syntax.Minimize)]
    returned = returned or run_body(context, frame, rest)
    if returned is None:
        given = bare_results(context, frame, step)
        returned = Returned([(value, result.span) for result, value in given], step.name.span)
    return returned


def _check_states(context: Context) -> None:
    """Checks that no region is left that uses states."""
    if context.writer.stateful is not None:
        message = "a state cannot be declared or assigned inside of a loop or branch"
        help_text = "carry it through the loop, `with rows = rows`, or give the new value as the result of the branch"
        context.reporter.error("misplaced-state", message, context.writer.stateful, help=help_text)


def _check_passed(context: Context, node: syntax.Type, type: TensorType | Poison) -> None:
    """Checks that callers pass and receive tensors of elements, not of blocks."""
    if type is not ERROR and type.dtype.is_blocked:
        help_text = f"pass f32 and quantize inside: `quantize_blocks(x, {type.dtype})`"
        context.reporter.error(
            "bad-block", "arguments and results of a model cannot be block-quantized", node.span, help=help_text
        )


def _errors(context: Context) -> int:
    return sum(d.severity == "error" for d in context.reporter.diagnostics)


def _check_weights_statements(context: Context, model: syntax.Model) -> None:
    statements = [s for s in model.body if isinstance(s, syntax.Weights)]
    for statement in statements[1:]:
        note = Note("the first one", statements[0].span)
        message = f"`{model.name.name}` has two checkpoints"
        context.reporter.error("duplicate-name", message, statement.span, notes=[note])


def _result_names(model: syntax.Model) -> tuple[str, ...]:
    """Returns the declared names, or the defaults."""
    defaults = default_names(len(model.results))
    return tuple(d if r.name is None else r.name.name for d, r in zip(defaults, model.results, strict=True))


def default_names(count: int) -> tuple[str, ...]:
    """Returns the names of unnamed results."""
    return ("result",) if count == 1 else tuple(f"result{number}" for number in range(count))


# --- dims ---


def determined_dims(types: Iterable[TensorType]) -> set[Symbol]:
    """Returns the dims that the shapes of these types determine: each occurs, once, in a size that is linear in it."""
    sizes = [s for type in types for s in type.shape if isinstance(s, Poly)]
    known: set[Symbol] = set()
    while True:
        found = {s for size in sizes for s in _solved(size, known)}
        if found <= known:
            return known
        known |= found


def _solved(size: Poly, known: set[Symbol]) -> set[Symbol]:
    unknown = symbols(size) - known
    if len(unknown) != 1:
        return set()
    for monomial, _ in size.terms:
        for atom, power in monomial:
            inside = atom in unknown if isinstance(atom, Symbol) else bool(_inner(atom) & unknown)
            if inside and (power != 1 or not isinstance(atom, Symbol)):
                return set()
    return unknown


def _inner(atom: object) -> set[Symbol]:
    assert not isinstance(atom, Symbol)
    return symbols(Poly((((((atom, 1),)), 1),)))  # type: ignore[arg-type]  # the atom is that of a size


def _sizes(attribute: Attribute) -> Iterator[Size]:
    if isinstance(attribute, tuple):
        for part in attribute:
            yield from _sizes(part)
    elif isinstance(attribute, Poly):
        yield attribute


def check_dims(context: Context, function: Function, spans: Sequence[Span]) -> None:
    # A session binds the dims of states.
    known = determined_dims(a.type for a in function.inputs)
    known |= {symbol for value in function.state_arguments for symbol in value.type.symbols()}
    missing: dict[Symbol, Span | None] = {}
    for argument, span in zip(function.inputs, spans, strict=True):
        for symbol in set(argument.type.symbols()) - known:
            missing.setdefault(symbol, span)
    for node in walk(function.body):
        sizes = [s for value in node.outputs for s in value.type.shape if isinstance(s, Poly)]
        sizes += [s for _, attribute in node.attributes for s in _sizes(attribute) if isinstance(s, Poly)]
        for size in sizes:
            for symbol in symbols(size) - known:
                missing.setdefault(symbol, node.span)
    for symbol, where in sorted(missing.items(), key=lambda item: item[0].name):
        message = f"no argument of `{function.name}` determines the dim `{symbol.name}`"
        notes = [Note(f"the declaration of `{symbol.name}`", context.program.dims[symbol.name][1])]
        help_text = f"make the size of an argument `{symbol.name}`"
        context.reporter.error("unbound-dim", message, where, notes=notes, help=help_text)


# --- parameters of arrays ---


def unite_parameters(program: Program, functions: Sequence[Function]) -> list[Function]:
    """Replaces the fixed index of a parameter by the pattern of its array, if a loop runs over that array as well.

    `layer.0.weight` and `layer.{}.weight` would otherwise be two tensors with the same content.
    """
    patterns = {
        name: path for name, path in program.paths.items() if path.counts and path.pattern in program.parameters
    }
    for name in patterns:
        program.parameters.pop(name, None)
    if not patterns:
        return list(functions)
    return [_unite(function, program) for function in functions]


def _unite(function: Function, program: Program) -> Function:
    taken = {v.name for node in walk(function.body) for v in node.outputs} | {v.name for v in function.arguments}
    count = 0

    def rewrite(nodes: Sequence[Node]) -> tuple[Node, ...]:
        nonlocal count
        result: list[Node] = []
        for node in nodes:
            if node.regions:
                regions = tuple(Region(r.arguments, rewrite(r.body), r.results) for r in node.regions)
                node = replace(node, regions=regions)
            name = node.attribute("name") if node.op == "parameter" else None
            if isinstance(name, str) and name not in program.parameters:
                path = program.paths[name]
                indices: list[Value] = []
                for index in path.indices:
                    assert isinstance(index, int), path
                    while f"index_{count}" in taken:
                        count += 1
                    value = Value(f"index_{count}", TensorType(I64))
                    count += 1
                    constant = Constant(I64.numpy.type(index))  # type: ignore[arg-type]  # a numpy scalar is an array of rank 0
                    result.append(Node("constant", (), (value,), (("value", constant),), (), node.scope, node.span))
                    indices.append(value)
                node = replace(node, inputs=tuple(indices), attributes=(("name", path.pattern),))
            result.append(node)
        return tuple(result)

    return replace(function, body=rewrite(function.body))
