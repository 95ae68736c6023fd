"""Reads narrow numbers where a kernel would first store them as wider floats: floats, or integers of 8 bits.

    wide[i] = extf(x[i])                  a launch that writes memory only to change a dtype
    total = sum of wide[i]           =>   total = sum of extf(x[i])
    y[i] = wide[i] - total                y[i] = extf(x[i]) - total

A tensor is widened in registers by each operation that reads it, which reads half of the bytes. The widened tensor must
be memory of the kernel alone, and nothing else may read it or write `x`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ...base.mlir import ir
from .bodies import iterators, maps_of, operands_of
from .groups import GENERIC, root_of, touches

_FLOAT, _INTEGER = "arith.extf", "arith.sitofp"


def fold_widening(computing: Sequence[Any], scratch: Collection[Any]) -> list[Any]:
    """Removes operations that only widen numbers. Returns the operations that are left. `scratch` are the arguments
    that are not read after the kernel."""
    left = list(computing)
    for op in computing:
        if not _widens(op):
            continue
        (source,), (result,) = operands_of(op)
        memory, others = root_of(result), [other for other in left if other != op]
        readers = [other for other in others if touches(other, memory)]
        if memory not in scratch or not all(reads_only(reader, result, memory) for reader in readers):
            continue
        if any(_writes(other, root_of(source)) for other in others):
            continue
        for reader in readers:
            read_narrow(reader, source, result, next(iter(op.regions[0].blocks[0].operations)).operation.name)
        op.erase()
        left = others
    return left


def _widens(op: Any) -> bool:
    """Returns whether an op copies a tensor, element by element, to another one of a wider float dtype without
    rounding."""
    if op.name != GENERIC or not all(iterators(op)):
        return False
    inputs, results = operands_of(op)
    operations = [each.operation for each in op.regions[0].blocks[0].operations]
    if len(inputs) != 1 or len(results) != 1 or len(operations) != 2 or not _is_exact(operations[0]):
        return False
    own = ir.AffineMap.get_identity(len(iterators(op)))
    return operations[0].operands[0] == op.regions[0].blocks[0].arguments[0] and all(m == own for m in maps_of(op))


def reads_only(op: Any, value: Any, memory: Any) -> bool:
    """Returns whether an op reads memory as inputs that are this value, and in no other way."""
    if op.name != GENERIC or any(each.regions for each in _inside(op) if touches(each, memory)):
        return False
    inputs, results = operands_of(op)
    return all(root_of(i) != memory or i == value for i in inputs) and all(root_of(r) != memory for r in results)


def _inside(op: Any) -> list[Any]:
    return [each.operation for each in op.regions[0].blocks[0].operations]


def _writes(op: Any, memory: Any) -> bool:
    """Returns whether an op may write memory: operations other than structured ones may write all of their operands."""
    if op.name != GENERIC:
        return touches(op, memory)
    return any(root_of(result) == memory for result in operands_of(op)[1])


def _is_exact(op: Any) -> bool:
    """Returns whether an operation converts a number to a wider float."""
    return op.name == _FLOAT or (op.name == _INTEGER and str(op.operands[0].type) == "i8")


def unwiden(value: Any) -> Any:
    """Returns the narrow number that a value is the widening of, or the value itself."""
    is_widened = not isinstance(value.owner, ir.Block) and _is_exact(value.owner)
    return value.owner.operands[0] if is_widened else value


def read_narrow(op: Any, source: Any, wide: Any, widening: str) -> None:
    """Makes an op read a source, and widen each element by an operation, in place of the widened tensor."""
    block = op.regions[0].blocks[0]
    inputs, _ = operands_of(op)
    element = ir.MemRefType(source.type).element_type
    for number, value in enumerate(inputs):
        if value != wide:
            continue
        argument = block.arguments[number]
        before = argument.type
        argument.set_type(element)
        with ir.InsertionPoint.at_block_begin(block), op.location:
            made = ir.Operation.create(widening, results=[before], operands=[argument])
        argument.replace_all_uses_except(made.results[0], made)
        op.operands[number] = source
