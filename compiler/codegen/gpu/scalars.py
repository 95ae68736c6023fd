"""Computes numbers of a call, such as the size of a row as a float, where they are read.

    size = f32(T)                         a launch that writes one number to memory
    mean[n] = total[n] / size        =>   mean[n] = total[n] / f32(T)

Each thread computes the number in a register. Its operations read no memory, and nothing but structured operations
reads the memory of the number, which must be memory of the kernel alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..structured.operations import GENERIC, body_of, iterators, operands_of
from ..structured.values import root_of
from .groups import touches
from .widened_reads import reads_only


def fold_scalars(computing: Sequence[Any], scratch: Collection[Any]) -> list[Any]:
    """Removes operations that only store a number of a call. Returns the operations that are left. `scratch` are the
    arguments that are not read after the kernel."""
    left = list(computing)
    for op in computing:
        if not _is_scalar(op):
            continue
        ((result,), others) = operands_of(op)[1], [other for other in left if other != op]
        memory = root_of(result)
        readers = [other for other in others if touches(other, memory)]
        if memory not in scratch or not all(reads_only(reader, result, memory) for reader in readers):
            continue
        *computed, back = (each.operation for each in list(body_of(op).operations))
        value = back.operands[0]
        for each in computed:
            each.move_before(op)
        for reader in readers:
            for number, read in enumerate(operands_of(reader)[0]):
                if read == result:
                    reader.operands[number] = value
        op.erase()
        left = others
    return left


def _is_scalar(op: Any) -> bool:
    """Returns whether an op computes one number from numbers outside of memory."""
    if op.name != GENERIC or iterators(op):
        return False
    (inputs, results), block = operands_of(op), body_of(op)
    *computed, _ = (each.operation for each in block.operations)
    is_alone = not inputs and len(results) == 1 and not list(block.arguments[0].uses)
    return is_alone and bool(computed) and all(each.name.startswith("arith.") for each in computed)
