"""The layers of a model that can be quantized, and the candidate precisions: the search space of `nacre quantize`.

A layer consists of all multiplications by one weight, or of all rows read from one table. A choice is its precision;
policy rules select it by the path of the weight. A table has no activations: its choices are those of weights alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ....dialect.dims import Size, add
from ....dialect.graph import Function, Module, Node, Parameter
from ....passes.analysis.factors import Origins, factors_of, table_of
from ....passes.selection import Selector
from ...lower.cost import count_operations
from ...model.policy import F32, Calibration, Policy, Rule, Scheme


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate precision of a layer: the scheme of its weight, and that of the values that multiply the weight.

    Attributes:
        speed: Operations per second on the reference machine, relative to f32.
        bits: Bits per element of the weight, with scales.
    """

    weights: Scheme
    activations: Scheme
    speed: float
    bits: float

    def rules(self, pattern: str) -> tuple[Rule, ...]:
        """Returns the policy rules for weights under a path pattern; none for f32."""
        selector = Selector(pattern)
        both = (Rule("weights", selector, self.weights), Rule("activations", selector, self.activations))
        return tuple(rule for rule in both if rule.scheme != F32)


CHOICES: Mapping[str, Choice] = {
    "f32": Choice(F32, F32, 1, 32),
    "bf16": Choice(Scheme("bf16"), Scheme("bf16"), 2, 16),
    "f16": Choice(Scheme("f16"), Scheme("f16"), 1, 16),
    "int8": Choice(Scheme("i8"), Scheme("i8", "dynamic"), 4, 8),
    "int8-static": Choice(Scheme("i8"), Scheme("i8", "static"), 4, 8),
    "w8": Choice(Scheme("i8"), F32, 1, 8),
    "f8": Choice(Scheme("f8e4m3"), F32, 1, 8),
    "q8": Choice(Scheme("q8[block 32]"), F32, 1, 8.5),
    "int4": Choice(Scheme("q4[block 32, zero]"), F32, 1, 4.75),
    "int4a8": Choice(Scheme("q4[block 32, zero]"), Scheme("i8", "dynamic"), 3, 4.75),
    "int4-fitted": Choice(Scheme("q4[block 32]", "fitted"), F32, 1, 4.5),
}
"""The candidates by the names that `--choices` takes; names of short forms mean the same for a layer."""

Assignment = Mapping[str, str]
"""The name of the choice of each layer, by its path; a missing layer stays in f32."""


@dataclass(frozen=True, slots=True)
class Layer:
    """All multiplications by the weight `path`, which has `elements` elements. It is used `uses` times at `locations`,
    each a scope of block instances and the line and column in the model's text, with `operations` operations in total.
    A call reads `read` elements of the weight: of a table, those of the rows that it looks up.
    """

    path: str
    elements: int
    uses: int
    operations: Size
    locations: frozenset[tuple[str, str]]
    read: Size
    is_table: bool = False

    def choices(self, names: Sequence[str]) -> tuple[str, ...]:
        """Returns those of the candidates that are for this layer; for a table, those with the same weights and without
        activations."""
        if not self.is_table:
            return tuple(names)
        weights = [CHOICES[name].weights for name in names]
        alone = {choice.weights: name for name, choice in CHOICES.items() if choice.activations == F32}
        return tuple(dict.fromkeys(alone[scheme] for scheme in weights if scheme in alone))


def find_layers(module: Module, function: Function) -> tuple[Layer, ...]:
    """Returns the layers of a function without loops, in the order of their first use."""
    definitions: dict[str, Node] = {}
    origins = Origins(definitions, module.parameter_index)
    found: dict[str, list[Node]] = {}
    tables: dict[str, list[Node]] = {}
    for node in function.body:
        factors = factors_of(node, origins)
        weights = [factor.parameter for factor in factors if factor.parameter]
        if len(weights) == 1 and len(factors) > 1:
            found.setdefault(weights[0], []).append(node)
        table = table_of(node, origins)
        if table is not None and table.parameter and table.value.type.dtype.is_float:
            tables.setdefault(table.parameter, []).append(node)
        definitions.update((value.name, node) for value in node.outputs)
    layers = [_layer(module.parameter_index[path], nodes) for path, nodes in found.items()]
    rows = {path: nodes for path, nodes in tables.items() if path not in found}
    return (*layers, *(_layer(module.parameter_index[path], nodes, is_table=True) for path, nodes in rows.items()))


def _layer(weight: Parameter, nodes: Sequence[Node], *, is_table: bool = False) -> Layer:
    elements = weight.type.elements
    assert isinstance(elements, int), weight
    read: Size = 0
    for node in nodes:
        read = add(read, node.output.type.elements if is_table else elements)
    locations = frozenset((n.scope, "" if n.span is None else f"{n.span.line}:{n.span.column}") for n in nodes)
    return Layer(weight.name, elements, len(nodes), count_operations(nodes), locations, read, is_table)


@dataclass(frozen=True, slots=True)
class Group:
    """The layers that one pattern matches; it matches no layer with another choice."""

    pattern: str
    choice: str
    paths: tuple[str, ...]


def group_layers(paths: Sequence[str], chosen: Assignment) -> Iterator[Group]:
    """Yields groups that contain every layer once: layers whose paths differ only in numbers share a group if their
    pattern matches no layer of another choice. Groups are in the order of the first layer of each."""
    groups: dict[tuple[str, str], list[str]] = {}
    for path in paths:
        numbered = ".".join("*" if part.isdecimal() else part for part in path.split("."))
        groups.setdefault((numbered, chosen.get(path, "f32")), []).append(path)
    for (pattern, choice), members in groups.items():
        matched = [path for path in paths if Selector(pattern).matches("", (path,))]
        if len(members) > 1 and all(chosen.get(path, "f32") == choice for path in matched):
            yield Group(pattern, choice, tuple(members))
        else:
            for path in members:
                yield Group(path, choice, (path,))


def policy_of(model: str, paths: Sequence[str], chosen: Assignment, calibration: Calibration) -> Policy:
    """Returns the policy for an assignment, with the calibration if a choice needs samples."""
    groups = group_layers(paths, chosen)
    policy = Policy(tuple(rule for g in groups for rule in CHOICES[g.choice].rules(g.pattern)), model=model)
    return replace(policy, calibration=calibration) if policy.needs_samples else policy
