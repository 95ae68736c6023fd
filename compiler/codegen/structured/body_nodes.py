"""The body of a structured op as expressions, and what many schedules ask of it.

    ^bb0(%x: f32, %w: f32, %total: f32):            addf(start 0, mulf(read 0, read 1))
      %0 = arith.mulf %x, %w : f32
      %1 = arith.addf %total, %0 : f32              combination_of:  arith.addf, mulf(read 0, read 1)
      linalg.yield %1 : f32                         products_of it:  (read 0, read 1)

A target has a `BodyReader` of its own, for values from outside of a body and for operations on memory or with regions.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from struct import pack, unpack
from typing import Any

from ....dialect.dims import Size
from ....dialect.lazy_dataclass import dataclass
from ...base.mlir import ir
from .operations import captured_by, operations_in

POSITION, YIELD = "linalg.index", "linalg.yield"
_PREDICATE = re.compile(r"predicate = (\d+) ")
FLOAT_BITS = {"f32": ("I", "f", 0), "f64": ("Q", "d", 0), "f16": ("H", "e", 0), "bf16": ("I", "f", 16)}
"""The formats of floats. `struct` packs the bits in the first format, shifted left by the third entry, and unpacks the
float in the second format. A bf16 is the upper half of an f32."""


@dataclass(eq=False, slots=True)
class Node:
    """A value in a body. `kind` is read, start, constant or index, a kind of one target, or the name of an operation.

    read, start: `number` of the input or result; index: `number` of the loop; constant: `text` is the attribute;
    operation: `text` holds its attributes, and `number` is that of its result.

    Kinds of the tiler, which numbers the accesses of an op in place of its inputs:

    dot: the sum of the first operand and of the products of two groups; `text` says how to widen their elements;
    quantized_sum: the sum of the products of groups in turn; the first groups have the zero point `number`;
    bytes: a group of signed quantized values, those that `text` names of the first operand, less the second;
    nearest: the operand rounded to an integer, halves to even; a NaN becomes one with a lower half of 0;
    size: `size`; extract: the element of `tensor` at the operands, or 0 where the condition `guard` on sizes fails;
    upper: the bf16 that is the upper half of an f32 with a lower half of 0;
    watch: the first operand; where the second one holds, the kernel sets the alarm in the argument that `text` names.

    Kinds for GPUs: captured, the value from outside with this `number`.
    """

    kind: str
    type: str
    operands: tuple[Node, ...] = ()
    number: int = 0
    text: str = ""
    size: Size = 0
    tensor: Any = None
    guard: Node | None = None
    location: Any = None
    """The MLIR location of the value, to be passed on."""
    value: Any = None
    """The value in MLIR, if the body is still there."""

    def walk(self) -> Iterator[Node]:
        """Yields all nodes below this one and itself, each once."""
        seen: set[int] = set()
        pending = [self]
        while pending:
            node = pending.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                pending += node.operands


class BodyReader(ABC):
    """Reads a body, whose arguments are `known`. `effects` are its operations without results."""

    def __init__(self, known: dict[Any, Node]) -> None:
        self.known = known
        self.effects: list[Node] = []

    @abstractmethod
    def outside(self, value: Any) -> Node:
        """Returns a value from outside of the body."""

    @abstractmethod
    def other(self, operation: Any) -> Node | None:
        """Returns the value of an operation that the target reads in its own way; None for any other operation."""

    def read(self, block: Any) -> tuple[Node, ...]:
        """Returns the values that the body yields."""
        *operations, back = operations_in(block)
        for operation in operations:
            self.step(operation)
        assert back.name == YIELD, back
        return tuple(map(self.value, back.operands))

    def value(self, value: Any) -> Node:
        if value not in self.known:
            self.known[value] = self.outside(value)
        return self.known[value]

    def step(self, operation: Any) -> None:
        """Reads an operation of the body."""
        node = self.other(operation)
        results = list(operation.results)
        if node is not None:
            self._name(results[0], node, operation)
            return
        for number, result in enumerate(results):
            self._name(result, self._read(operation, str(result.type), number), operation)
        if not results:
            self.effects.append(self._read(operation, "", 0))

    def _read(self, operation: Any, type: str, number: int) -> Node:
        if operation.name == POSITION:
            return Node("index", type, number=ir.IntegerAttr(operation.attributes["dim"]).value)
        if operation.name == "arith.constant":
            return Node("constant", type, text=str(operation.attributes["value"]))
        attributes = operation.attributes
        named = (attributes[n] for n in range(len(attributes)))
        text = ", ".join(f"{each.name} = {each.attr}" for each in named)
        # Values that its regions read count as operands too.
        inside = [value for region in operation.regions for block in region.blocks for value in captured_by(block)]
        operands = dict.fromkeys(inside) if inside else ()
        values = tuple(map(self.value, (*operation.operands, *operands)))
        return self.made(Node(operation.name, type, values, number, text))

    def made(self, node: Node) -> Node:
        """Returns the value that stands for an operation."""
        return node

    def _name(self, result: Any, node: Node, operation: Any) -> None:
        node.location = node.location or operation.location
        node.value = result if node.value is None else node.value
        self.known[result] = node


def combination_of(values: Sequence[Node], result: int = 0) -> tuple[str, Node] | None:
    """Returns the operation that combines the accumulator of a result with an addend, and the addend, where the value
    of the result is this operation and no other value depends on the accumulator."""
    whole = values[result]
    if len(whole.operands) != 2:
        return None
    others = [value for number, value in enumerate(values) if number != result]
    for this, addend in (whole.operands, whole.operands[::-1]):
        if _starts(this, result):
            apart = all(n is not whole and not _starts(n, result) for value in (addend, *others) for n in value.walk())
            return (whole.kind, addend) if apart else None
    return None


def _starts(node: Node, result: int) -> bool:
    return node.kind == "start" and node.number == result


def products_of(node: Node) -> tuple[tuple[Node, Node], ...]:
    """Returns the products that a node adds up; none if it adds other values too."""
    if node.kind == "arith.mulf":
        return ((node.operands[0], node.operands[1]),)
    if node.kind != "arith.addf":
        return ()
    parts = [products_of(operand) for operand in node.operands]
    return (*parts[0], *parts[1]) if all(parts) else ()


def position_of(node: Node) -> int | None:
    """Returns the loop that a number is the position of."""
    while node.kind == "arith.index_cast":
        (node,) = node.operands
    return node.number if node.kind == "index" else None


def predicate_of(node: Node) -> int | None:
    """Returns the predicate of a comparison of integers; None for another node."""
    found = _PREDICATE.match(node.text) if node.kind == "arith.cmpi" else None
    return int(found[1]) if found else None


def integer(node: Node) -> int | None:
    """Returns the value of a constant in i32."""
    if node.kind != "constant" or node.type != "i32":
        return None
    return int(node.text.partition(" ")[0])


def number_of(node: Node) -> float | None:
    """Returns the value of a constant of floats; None for any other node."""
    text = node.text.partition(" ")[0]
    if node.kind != "constant" or node.type not in FLOAT_BITS:
        return None
    if not text.startswith("0x"):
        return float(text)
    word, number, shift = FLOAT_BITS[node.type]
    return float(unpack(number, pack(word, int(text, 16) << shift))[0])
