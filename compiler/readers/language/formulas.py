"""Initial values: constant expressions that are computed once, when an artifact is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ....dialect.dims import Poly
from ....dialect.graph import (
    Attribute,
    Formula,
    Function,
    Node,
    Value,
    needed_nodes,
    parameter_of,
    parameters_read,
    substitute_values,
    walk,
)
from ....dialect.types import TensorType
from ....passes.rewrite import Names, clone
from . import syntax
from .context import Context
from .operators import literal
from .values import ERROR, Frame, Poison, contains_error
from .writer import Writer


def read_formula(context: Context, frame: Frame, node: syntax.Expression, type: TensorType) -> Formula | Poison:
    """Returns the computation of an initial value from constants, and from parameters that `frame` reads with the
    writer of the formula: see `formula_writer`."""
    value = context.evaluate(node, frame)
    if not isinstance(value, Value) and not contains_error(value):
        value = literal(context, frame, value, type.dtype, node.span)
    if contains_error(value):
        return ERROR
    assert isinstance(value, Value), value
    # A frame offers every parameter of a block, and few are read.
    body = needed_nodes(context.writer.bodies[0].all_nodes, [value.name])
    made = {v.name for inside in walk(body) for v in inside.outputs}
    made |= {v.name for inside in walk(body) for region in inside.regions for v in region.arguments}
    used = {value.name} | {v.name for inside in walk(body) for v in inside.inputs}
    indexed = any(n.inputs and n.op == "parameter" for n in body)
    if not used <= made or any(map(_has_dims, walk(body))) or indexed:
        message = "an initial value depends on constants and parameters alone"
        return context.reporter.error("not-constant", message, node.span)
    body, value = _insert_formulas(context, body, value)
    parameters = tuple(context.program.parameters[name] for name in parameters_read(body))
    return Formula(parameters, body, value)


def _insert_formulas(context: Context, body: tuple[Node, ...], value: Value) -> tuple[tuple[Node, ...], Value]:
    """Replaces parameters that have initial values by the computations of these: no parameter of a formula has a
    formula."""
    names = Names(Function("formula", (), body, (value,)))
    added: list[Node] = []
    results: dict[str, Value] = {}
    for name in parameters_read(body):
        formula = context.program.parameters[name].formula
        if formula is not None:
            copied: dict[str, Value] = {}
            added += clone(formula.body, names, copied)
            results[name] = copied[formula.result.name]
    if not results:
        return body, value
    values: dict[str, Value] = {}

    def without(nodes: Iterable[Node]) -> tuple[Node, ...]:
        kept = []
        for node in nodes:
            name = parameter_of(node)
            if name in results:
                values[node.output.name] = results[name]
            else:
                regions = tuple(replace(region, body=without(region.body)) for region in node.regions)
                kept.append(substitute_values(replace(node, regions=regions), values))
        return tuple(kept)

    return (*added, *without(body)), values.get(value.name, value)


def formula_writer(context: Context) -> Writer:
    """Returns the writer of a formula."""
    return Writer(count=context.writer.count, formula=True)


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
