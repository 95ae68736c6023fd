"""Edits of a function. Each edit returns a new module that the verifier has accepted.

New nodes are written with a builder: `lambda b, x: b.gelu(x, approximate="tanh")`. The replacement of a node keeps the
names of its results, so that their consumers need no change. Nodes that become dead stay; the pass `dce` removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.graph import (
    Function,
    Module,
    Node,
    Region,
    Value,
    read_values,
    substitute_values,
    walk,
)
from ....dialect.operator import Builder, InferenceError
from ....dialect.ops import OPERATORS
from ....dialect.verifier import verify
from ....passes.rewrite import (
    Names,
    NodeBuilder,
    Replacement,
    Rewriter,
    count_uses,
    rename_results,
)
from ..help.terminal import explain_operator
from .flow import key

Build = Callable[..., Value | Sequence[Value]]
"""`build(b, *operands) -> value, or values`: writes nodes with the builder `b`."""


class _Explained(NodeBuilder):
    """A builder whose methods have the text of `nacre help` as their documentation."""

    def __getattr__(self, name: str) -> Callable[..., Value]:
        method = super().__getattr__(name)
        method.__doc__ = explain_operator(name)
        return method


def graph_error(code: str, message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message, help=help)])


def finish(module: Module, function: Function) -> Module:
    """Returns the module with the function in place of the one of its name, verified. Raises DiagnosticError."""
    changed = module.map_functions(lambda f: function if f.name == function.name else f)
    verify(changed)
    return changed


def _build(build: Build, b: Builder, operands: Sequence[Value]) -> tuple[Value, ...]:
    try:
        made = build(b, *operands)
    except InferenceError as error:
        label = f" ({error.label})" if error.label else ""
        raise graph_error(error.code, error.message + label, error.help) from error
    return (made,) if isinstance(made, Value) else tuple(made)


def _check_types(old: Sequence[Value], new: Sequence[Value]) -> None:
    if len(old) != len(new):
        raise graph_error("wrong-results", f"{len(new)} values cannot replace {len(old)} results")
    for before, after in zip(old, new, strict=True):
        if before.type != after.type:
            message = f"`{before.name}` is {before.type}, its replacement is {after.type}"
            raise graph_error("type-mismatch", message)


# --- one node ---


class _Replace(Rewriter):
    def __init__(self, function: Function, targets: Collection[str], build: Build) -> None:
        super().__init__(function)
        self.targets, self.build = set(targets), build

    def visit(self, node: Node) -> Replacement | None:
        if key(node) not in self.targets:
            return None
        # The replacement has the name of the target.
        self.targets.remove(key(node))
        b = _Explained(self.names, node)
        values = _build(self.build, b, node.inputs)
        _check_types(node.outputs, values)
        return Replacement(tuple(b.nodes), values)


def replace_nodes(module: Module, function: Function, targets: Collection[str], build: Build) -> Module:
    """Replaces each target, by the name of its first result, by the nodes of `build(b, *inputs of the node)`."""
    return finish(module, _Replace(function, targets, build).run())


def set_attributes(module: Module, function: Function, target: Node, given: Mapping[str, Any]) -> Module:
    """Returns the module with other attributes of the node. Its results must keep their types."""
    attributes = dict(target.attributes) | dict(given)

    def build(b: Builder, *inputs: Value) -> Sequence[Value]:
        return b.apply(target.op, inputs, attributes)

    if target.regions or OPERATORS[target.op].has("structure"):
        raise graph_error("bad-attribute", f"the attributes of `{target.op}` cannot be changed", "replace the node")
    return replace_nodes(module, function, [key(target)], build)


def remove_node(module: Module, function: Function, target: Node, by: Value | None) -> Module:
    """Removes the node; `by`, or else the first operand of its type, replaces its result."""
    uses = count_uses(function.body, function.results)
    if not any(uses[v.name] for v in target.outputs):
        return finish(module, _map_bodies(function, lambda body, _: [n for n in body if n != target]))
    if by is None:
        by = next((v for v in target.inputs if len(target.outputs) == 1 and v.type == target.output.type), None)
    if by is None:
        message = f"the result of `{key(target)}` is used, and no operand of it is {target.outputs[0].type}"
        raise graph_error("in-use", message, "give the replacement: `by=...`")
    return replace_nodes(module, function, [key(target)], lambda b, *inputs: by)


# --- values ---


def insert_behind(module: Module, function: Function, value: Value, build: Build) -> Module:
    """Inserts the nodes that `build(b, value)` writes after the value, and replaces all other uses of the value."""
    names = Names(function)
    maker = next((n for n in walk(function.body) if value in n.outputs), None)
    b = _Explained(names, maker or Node("argument", (), (value,)))
    (made,) = _build(build, b, [value])
    _check_types([value], [made])

    def insert(body: Sequence[Node], arguments: Sequence[Value]) -> Sequence[Node]:
        if value in arguments:
            return [*b.nodes, *body]
        at = next((i + 1 for i, node in enumerate(body) if value in node.outputs), None)
        return body if at is None else [*body[:at], *b.nodes, *body[at:]]

    return finish(module, _map_bodies(_swap(function, {value.name: made}), insert))


def _swap(function: Function, values: Mapping[str, Value]) -> Function:
    body = tuple(substitute_values(node, values) for node in function.body)
    return replace(function, body=body, results=tuple(values.get(v.name, v) for v in function.results))


def rename_values(module: Module, function: Function, new_names: Mapping[str, str]) -> Module:
    """Renames values everywhere. Callers refer to arguments by their names."""

    def of(value: Value) -> Value:
        return Value(new_names.get(value.name, value.name), value.type)

    def rename(node: Node) -> Node:
        regions = tuple(
            Region(tuple(map(of, r.arguments)), tuple(map(rename, r.body)), tuple(map(of, r.results)))
            for r in node.regions
        )
        return replace(node, inputs=tuple(map(of, node.inputs)), outputs=tuple(map(of, node.outputs)), regions=regions)

    body, arguments, results = map(rename, function.body), map(of, function.arguments), map(of, function.results)
    changed = replace(function, body=tuple(body), arguments=tuple(arguments), results=tuple(results))
    return finish(module, changed)


# --- several nodes ---


@dataclass(frozen=True)
class Part:
    """Some nodes of one body: `inputs` are the outside values that they read, in order of first use, `outputs` are
    their values that other nodes read."""

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


def find_part(function: Function, body: Sequence[Node], names: Collection[str]) -> Part:
    """Returns the part with the nodes of these names. Raises DiagnosticError if one is not in the body."""
    nodes = tuple(node for node in body if key(node) in names)
    if len(nodes) != len(set(names)):
        message = "the nodes are not in the same region: some are inside a loop or a group"
        raise graph_error("not-one-part", message)
    made = {v.name for node in nodes for v in node.outputs}
    inside, everywhere = count_uses(nodes, ()), count_uses(function.body, function.results)
    inputs = dict.fromkeys(v for node in nodes for v in read_values(node) if v.name not in made)
    outputs = (v for node in nodes for v in node.outputs if everywhere[v.name] > inside[v.name])
    return Part(nodes, tuple(inputs), tuple(outputs))


def replace_part(module: Module, function: Function, part: Part, build: Build) -> Module:
    """Replaces the nodes of the part by those that `build(b, *inputs of the part)` writes for its outputs."""
    b = _Explained(Names(function), part.nodes[-1])
    values = _build(build, b, part.inputs)
    _check_types(part.outputs, values)
    made = {v.name for node in b.nodes for v in node.outputs}
    renamed: dict[str, Value] = {}
    for old, new in zip(part.outputs, values, strict=True):
        if new.name in made:
            renamed.setdefault(new.name, old)
    nodes = rename_results(b.nodes, renamed)
    finals = {old.name: renamed.get(new.name, new) for old, new in zip(part.outputs, values, strict=True)}
    gone = {key(node) for node in part.nodes}

    def change(body: Sequence[Node], arguments: Sequence[Value]) -> Sequence[Node]:
        if not any(key(node) in gone for node in body):
            return body
        at = max(i for i, node in enumerate(body) if key(node) in gone)
        rest = [(i, node) for i, node in enumerate(body) if key(node) not in gone]
        return _in_order([*(n for i, n in rest if i < at), *nodes, *(n for i, n in rest if i > at)])

    aliases = {name: value for name, value in finals.items() if value.name != name}
    return finish(module, _swap(_map_bodies(function, change), aliases))


def _in_order(nodes: Sequence[Node]) -> list[Node]:
    """Sorts the nodes topologically, otherwise in their order. Raises DiagnosticError for a cycle."""
    made = {v.name for node in nodes for v in node.outputs}
    done: set[str] = set()
    waiting, order = list(nodes), []
    while waiting:
        ready = next((n for n in waiting if all(v.name in done or v.name not in made for v in read_values(n))), None)
        if ready is None:
            message = "the part depends on nodes that use its results"
            raise graph_error("not-one-part", message, "add the nodes in between to the part")
        waiting.remove(ready)
        order.append(ready)
        done |= {v.name for v in ready.outputs}
    return order


Change = Callable[[Sequence[Node], Sequence[Value]], Sequence[Node]]
"""Maps the nodes of a body, and the arguments of its region or function, to other nodes."""


def _map_bodies(function: Function, change: Change) -> Function:
    """Changes the body of the function and of every region, the inner ones first."""

    def region(old: Region) -> Region:
        return replace(old, body=body(old.body, old.arguments))

    def body(nodes: Sequence[Node], arguments: Sequence[Value]) -> tuple[Node, ...]:
        inner = [replace(n, regions=tuple(map(region, n.regions))) if n.regions else n for n in nodes]
        return tuple(change(inner, arguments))

    return replace(function, body=body(function.body, function.arguments))
