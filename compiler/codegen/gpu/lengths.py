"""Finds lengths of keys: numbers, known in the call, from which on an op masks its elements.

    select(key < length, score, -inf)      the keys from `length` on have no weight, and their tiles are not read
    select(key < length, value, 0)         the schedule reads zeros there, in place of a masked copy of the values

A length is a function of the loops of the batch, such as a number of tokens of each text; the function consists of the
operations of the body that compute it.
"""

from __future__ import annotations

from typing import Any

from ....dialect.emitter import identity
from ....dialect.lazy_dataclass import dataclass
from ...base.mlir import ir
from ..structured.operations import iterators, maps_of, operands_of, operations_in
from ..structured.values import root_of
from .bodies import describe_nest
from .body_slices import begin_slice, operations_for
from .causal import constant_of, position_of
from .nest import Nest
from .plain import load
from .text import Text
from .widened_reads import unwiden

_LESS = 2
"""The predicate `slt` of `arith.cmpi`."""


@dataclass(frozen=True, slots=True)
class Length:
    """The length that an op, `nest`, masks its elements with: `function` returns a number of the dtype `type` from the
    elements of the inputs that it `reads`, the loops and the captured values. The names of arguments begin with
    `prefix`."""

    nest: Nest
    prefix: str
    function: str
    type: str
    reads: tuple[int, ...]

    def arguments(self) -> list[tuple[str, str]]:
        """Returns the arguments of a schedule for the length: operands and captured values."""
        named = [(f"{self.prefix}m{number}", self.nest.inputs[number].type) for number in self.reads]
        return named + [(f"{self.prefix}c{number}", type) for number, type in enumerate(self.nest.captures)]

    def _types(self) -> list[str]:
        elements = [self.nest.inputs[number].element for number in self.reads]
        return [*elements, *["index"] * len(self.nest.parallel), *self.nest.captures]

    def declare(self) -> str:
        return f"func.func private @{self.function}({', '.join(self._types())}) -> {self.type}\n"

    def evaluate(self, text: Text, loops: list[str], most: str) -> str:
        """Returns the length at positions of the loops, within 0 and `most`."""
        elements = [load(text, self.nest, number, loops, f"{self.prefix}m") for number in self.reads]
        captured = [f"{self.prefix}c{number}" for number in range(len(self.nest.captures))]
        names, types = ", ".join([*elements, *loops, *captured]), ", ".join(self._types())
        value = text.let(f"func.call @{self.function}({names}) : ({types}) -> {self.type}")
        if self.type != "index":
            value = text.let(f"arith.index_cast {value} : {self.type} to index")
        return text.index("minsi", text.index("maxsi", value, text.constant(0)), most)


@dataclass(frozen=True, slots=True)
class Bound:
    """A length in the body of an op: the `axis` whose elements it masks, the numbers of the inputs and the loops that
    it depends on, and the masked `value`."""

    length: Any
    axis: int
    reads: tuple[int, ...]
    loops: frozenset[int]
    value: Any


def find_bound(op: Any, fill: float, *, nested: bool = False) -> Bound | None:
    """Returns the length that an op masks its result with: it selects the constant `fill` from there on. A `nested`
    one may be inside other masks with this constant."""
    value = list(op.regions[0].blocks[0].operations)[-1].operation.operands[0]
    while not isinstance(value.owner, ir.Block) and value.owner.name in ("arith.select", "arith.extf"):
        if value.owner.name == "arith.extf":
            value = value.owner.operands[0]
            continue
        condition, kept, other = value.owner.operands
        if constant_of(other) != fill:
            return None
        found = read_condition(op, condition, kept)
        if found is not None or not nested:
            return found
        value = kept
    return None


def read_condition(op: Any, condition: Any, kept: Any) -> Bound | None:
    """Returns the length whose elements a condition in the body of an op selects from `kept`."""
    made = condition.owner
    if isinstance(made, ir.Block) or made.name != "arith.cmpi":
        return None
    if ir.IntegerAttr(made.attributes["predicate"]).value != _LESS:
        return None
    left, length = made.operands
    axis = position_of(left)
    if axis is None:
        return None
    block = op.regions[0].blocks[0]
    needed = operations_for(operations_in(block), [length])
    if any(len(list(each.regions)) for each in needed):
        return None
    values = [length, *(operand for each in needed for operand in each.operands)]
    arguments = list(block.arguments)
    reads = tuple(number for number, argument in enumerate(arguments) if argument in values)
    inputs, _ = operands_of(op)
    if any(number >= len(inputs) for number in reads):
        return None
    nest = describe_nest(op, "", [None] * (len(arguments) - len(inputs)))
    own = [ir.IntegerAttr(each.attributes["dim"]).value for each in needed if each.name == "linalg.index"]
    loops = frozenset(own).union(*(nest.inputs[number].loops() for number in reads))
    return None if axis in loops else Bound(length, axis, reads, loops, kept)


def have_one_length(first: tuple[Any, Bound], second: tuple[Any, Bound]) -> bool:
    """Returns whether two ops compute their lengths by the same operations from the same values, for the same axis."""
    return first[1].axis == second[1].axis and _steps_of(*first) == _steps_of(*second)


def _steps_of(op: Any, bound: Bound) -> list[Any]:
    block, (inputs, _) = op.regions[0].blocks[0], operands_of(op)
    arguments, steps = list(block.arguments), operations_for(operations_in(block), [bound.length])

    def name(value: Any) -> Any:
        if value in arguments[: len(inputs)]:
            return ("read", root_of(inputs[arguments.index(value)]))
        if isinstance(value.owner, ir.Block):
            return value
        if value.owner in steps:
            return steps.index(value.owner)
        return str(value.owner.attributes["value"]) if value.owner.name == "arith.constant" else value

    return [
        name(bound.length),
        *((each.name, str(each.attributes), [name(value) for value in each.operands]) for each in steps),
    ]


def take_length(module: Any, op: Any, bound: Bound, name: str, prefix: str) -> Length | None:
    """Adds the function of a length to a module."""
    arguments = list(op.regions[0].blocks[0].arguments)
    given = [arguments[number] for number in bound.reads]
    begun = begin_slice(module, op, name, given, [bound.length], [bound.length.type])
    if begun is None:
        return None
    target, known = begun
    with ir.InsertionPoint(target), op.location:
        ir.Operation.create("func.return", operands=[known[bound.length]])
    nest = describe_nest(op, name, [None])
    return Length(nest, prefix, name, str(bound.length.type), bound.reads)


def masked_operand(op: Any) -> tuple[int, Bound] | None:
    """Returns the number of the input that an op copies or widens, with zeros from a length on, and the length; None if
    the op does anything else."""
    inputs, results = operands_of(op)
    if not all(iterators(op)) or len(results) != 1:
        return None
    bound = find_bound(op, 0.0)
    arguments = list(op.regions[0].blocks[0].arguments)
    if bound is None:
        return None
    value = unwiden(bound.value)
    if value not in arguments[: len(inputs)]:
        return None
    number, maps = arguments.index(value), maps_of(op)
    own = identity(len(iterators(op)))
    return (number, bound) if maps[number] == maps[-1] == own and number not in bound.reads else None
