"""The parts of a structured op in MLIR: its operands, loops and index maps, and the block that is its body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...base.mlir import ir
from .positions import Position, read_map

GENERIC = "linalg.generic"


def operands_of(op: Any) -> tuple[list[Any], list[Any]]:
    """Returns the inputs of a structured op, and the tensors or the memory that it writes its results to."""
    count, _ = ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])
    operands = list(op.operands)
    return operands[:count], operands[count:]


def iterators(op: Any) -> tuple[bool, ...]:
    """Returns whether each loop is parallel."""
    return tuple("parallel" in str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"]))


def maps_of(op: Any) -> list[tuple[Position, ...]]:
    """Returns the index of each operand: inputs, then results."""
    return [read_map(ir.AffineMapAttr(map).value) for map in op.attributes["indexing_maps"]]


def body_of(op: Any) -> Any:
    """Returns the block of an op's body. Its arguments are the elements of the operands."""
    return op.regions[0].blocks[0]


def operations_in(block: Any) -> list[Any]:
    return [each.operation for each in block.operations]


def walk(block: Any) -> Iterator[Any]:
    """Yields the operations of a block and of the regions inside it."""
    for op in operations_in(block):
        yield op
        for region in op.regions:
            for inner in region.blocks:
                yield from walk(inner)


def captured_by(block: Any) -> list[Any]:
    """Returns the values from outside that a block uses, in the order of their first uses."""
    inside = set(block.arguments)
    for op in walk(block):
        inside |= set(op.results)
        for region in op.regions:
            for inner in region.blocks:
                inside |= set(inner.arguments)
    return list(dict.fromkeys(value for op in walk(block) for value in op.operands if value not in inside))
