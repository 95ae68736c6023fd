"""Finds lengths of keys, and starts: numbers, known in the call, from which on, or before which, an op masks its
elements.

    select(key < length, score, -inf)      the keys from `length` on have no weight, and their tiles are not read
    select(key < length, value, 0)         the schedule reads zeros there, in place of a masked copy of the values
    select(key >= start, score, -inf)      a sliding window: the tiles before the one of `start` are not read
    select(key >= start, value, 0)         the schedule writes zeros there, into its copy of a tile

Both are functions of the loops of the batch, such as a number of tokens of each text, or of a row too. The function
consists of the operations of the body that compute the number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....dialect.emitter import identity
from ....dialect.lazy_dataclass import dataclass
from ...base.mlir import ir
from ..structured.body_nodes import Node, position_of, predicate_of
from ..structured.operations import body_of, iterators, maps_of, operands_of
from ..structured.values import made_by, root_of
from .bodies import describe_nest
from .body_slices import begin_slice
from .body_values import number_of, numbers_read, read_body
from .nest import Nest
from .plain import load
from .text import Text
from .widened_reads import unwiden

_LESS, _NOT_LESS = 2, 5
"""The predicates `slt` and `sge` of `arith.cmpi`."""


@dataclass(frozen=True, slots=True)
class Length:
    """The length, or start, that an op, `nest`, masks its elements with: `function` returns a number of the dtype
    `type` from the elements of the inputs that it `reads`, the loops and the captured values. The names of arguments
    begin with `prefix`."""

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
    """A length in the body of an op, or a start: the `axis` whose elements it masks, the numbers of the inputs and the
    loops that it depends on, and the masked `value`."""

    length: Node
    axis: int
    reads: tuple[int, ...]
    loops: frozenset[int]
    value: Node
    is_start: bool


def find_bounds(op: Any, fill: float) -> Iterator[Bound]:
    """Yields the lengths and starts that an op masks its result with, the outermost first: it selects the constant
    `fill` from each length on, and before each start. Other masks with this constant may lie between them."""
    found = (read_condition(op, condition, kept) for condition, kept in _masks(op, fill))
    return (bound for bound in found if bound is not None)


def _masks(op: Any, fill: float) -> Iterator[tuple[Node, Node]]:
    """Yields the conditions of nested selects between a value and the constant `fill`, and the values, the outermost
    first."""
    value, *_ = read_body(op).values
    while value.kind in ("arith.select", "arith.extf"):
        if value.kind == "arith.extf":
            (value,) = value.operands
            continue
        condition, kept, other = value.operands
        if number_of(other) != fill:
            return
        yield condition, kept
        value = kept


def read_condition(op: Any, condition: Node, kept: Node) -> Bound | None:
    """Returns the length, or the start, whose elements a condition in the body of an op selects from `kept`."""
    predicate = predicate_of(condition)
    if predicate not in (_LESS, _NOT_LESS):
        return None
    left, length = condition.operands
    axis, inside = position_of(left), list(length.walk())
    if axis is None or any(node.kind == "start" or _has_regions(node) for node in inside):
        return None
    _, results = operands_of(op)
    nest, reads = describe_nest(op, "", [None] * len(results)), numbers_read(length)
    own = frozenset(node.number for node in inside if node.kind == "index")
    loops = own.union(*(nest.inputs[number].loops() for number in reads))
    return None if axis in loops else Bound(length, axis, tuple(reads), loops, kept, predicate == _NOT_LESS)


def _has_regions(node: Node) -> bool:
    made = None if node.kind == "captured" else made_by(node.value)
    return made is not None and len(list(made.regions)) > 0


def have_one_length(first: tuple[Any, Bound], second: tuple[Any, Bound]) -> bool:
    """Returns whether two ops compute their lengths by the same operations from the same values, for the same axis."""
    keys = [(bound.axis, bound.is_start, _key_of(op, bound.length)) for op, bound in (first, second)]
    return keys[0] == keys[1]


def _key_of(op: Any, node: Node) -> Any:
    """Returns a key that is equal for values that the same operations compute from the same memory."""
    if node.kind == "read":
        return root_of(operands_of(op)[0][node.number])
    if node.kind == "captured":
        return node.value
    return node.kind, node.type, node.number, node.text, [_key_of(op, operand) for operand in node.operands]


def take_length(module: Any, op: Any, bound: Bound, name: str, prefix: str) -> Length | None:
    """Adds the function of a length to a module."""
    arguments = list(body_of(op).arguments)
    given, value = [arguments[number] for number in bound.reads], bound.length.value
    begun = begin_slice(module, op, name, given, [value], [value.type])
    if begun is None:
        return None
    target, known = begun
    with ir.InsertionPoint(target), op.location:
        ir.Operation.create("func.return", operands=[known[value]])
    nest = describe_nest(op, name, [None])
    return Length(nest, prefix, name, bound.length.type, bound.reads)


@dataclass(frozen=True, slots=True)
class MaskedOperand:
    """The input of an op that it copies or widens, `value` in the body, with zeros from a `length` on, before a
    `start`, or both."""

    number: int
    value: Node
    length: Bound | None
    start: Bound | None

    @property
    def bounds(self) -> list[Bound]:
        return [bound for bound in (self.length, self.start) if bound is not None]


def masked_operand(op: Any) -> MaskedOperand | None:
    """Returns the input that an op masks with zeros; None if the op does anything else."""
    _, results = operands_of(op)
    if not all(iterators(op)) or len(results) != 1:
        return None
    masks = list(_masks(op, 0.0))
    bounds = [bound for condition, kept in masks if (bound := read_condition(op, condition, kept)) is not None]
    starts, lengths = ([bound for bound in bounds if bound.is_start == is_start] for is_start in (True, False))
    if not bounds or len(bounds) < len(masks) or len(starts) > 1 or len(lengths) > 1:
        return None
    masked = bounds[-1].value
    value, maps, own = unwiden(masked), maps_of(op), identity(len(iterators(op)))
    if value.kind != "read" or maps[value.number] != own or maps[-1] != own:
        return None
    if any(value.number in bound.reads for bound in bounds):
        return None
    return MaskedOperand(value.number, masked, next(iter(lengths), None), next(iter(starts), None))
