"""The values of the body of a structured op on memory, as expressions of its elements, loops and captured values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....dialect.lazy_dataclass import dataclass
from ..structured.body_nodes import BodyReader, Node, combination_of
from ..structured.operations import body_of, captured_by, operands_of
from ..structured.values import constant_of, float_of, integer_of

_WIDENINGS = ("arith.extf", "arith.extsi", "arith.extui")
_PRODUCTS = ("arith.mulf", "arith.muli")
CONVERSION = "arith.sitofp"


@dataclass(frozen=True, slots=True)
class Body:
    """The values that a body yields, and its operations without results."""

    values: tuple[Node, ...]
    effects: tuple[Node, ...]

    def combination(self, result: int) -> tuple[str, Node] | None:
        """Returns the operation that combines a result with an addend, and the addend, if the body reads the result
        nowhere else."""
        return combination_of((*self.values, *self.effects), result)

    def first_combination(self) -> tuple[str, Node] | None:
        """Returns the same of the first result, which the values of other results may read too."""
        return combination_of((self.values[0], *self.effects), 0)


def read_body(op: Any) -> Body:
    """Returns the body of an op. Its nodes have their values in MLIR, which slices of the body are made of."""
    reader = _Reader(op)
    values = reader.read(body_of(op))
    return Body(values, tuple(reader.effects))


class _Reader(BodyReader):
    def __init__(self, op: Any) -> None:
        count, block = len(operands_of(op)[0]), body_of(op)
        arguments = [("read", n) if n < count else ("start", n - count) for n in range(len(block.arguments))]
        super().__init__(
            {
                argument: Node(kind, str(argument.type), number=number, value=argument)
                for argument, (kind, number) in zip(block.arguments, arguments, strict=True)
            }
        )
        self.captured = captured_by(block)

    def outside(self, value: Any) -> Node:
        attribute, type = constant_of(value), str(value.type)
        if attribute is not None:
            return Node("constant", type, text=str(attribute), value=value)
        # A value that a region inside the body defines is part of no expression.
        number = self.captured.index(value) if value in self.captured else -1
        return Node("captured", type, number=number, value=value)

    def other(self, operation: Any) -> Node | None:
        return None


def number_of(node: Node) -> float | None:
    """Returns the number that a value is in every call."""
    if node.kind != "constant":
        return None
    if node.type[0] in "fb":
        return float_of(node.value)
    return integer_of(node.value) if node.type in ("i64", "i32", "index") else None


def signs_of_product(addend: Node, *conversions: str) -> tuple[bool, bool] | None:
    """Returns whether the first two inputs are signed integers, if an addend is their product. Floats may be multiplied
    as they are, integers are widened first, or become floats by `conversions`."""
    exact = (*_WIDENINGS, *conversions)
    while addend.kind in exact:
        (addend,) = addend.operands
    if addend.kind not in _PRODUCTS:
        return None
    signed: dict[int, bool] = {}
    for factor in addend.operands:
        read = factor.operands[0] if factor.kind in exact else factor
        if read.kind != "read":
            return None
        signed[read.number] = factor.kind == "arith.extsi"
    return (signed[0], signed[1]) if set(signed) == {0, 1} else None


def numbers_read(node: Node) -> Sequence[int]:
    """Returns the inputs that a value depends on, in ascending order."""
    return sorted({each.number for each in node.walk() if each.kind == "read"})
