"""Finds tensors that are copied into a padded one, so that the operation that reads the copy reads the tensor itself.

    s = fill 0; copy x into s[:, 1 : h + 1, 1 : w + 1, :]      two launches that write memory
    generic (sum) of s at (d0, d1 + d4, d2 + d5, d6)           becomes x at (d0, d1 + d4 - 1, d2 + d5 - 1, d6),
                                                               and 0 where that is outside of x

The memory of the copy is left out, so nothing else may read it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from ....dialect.emitter import identity
from ..structured.operations import GENERIC, body_of, iterators, maps_of, operands_of
from ..structured.positions import shifted
from ..structured.values import constant_of, made_by, read_region, root_of
from .bodies import describe_operand, is_fill
from .groups import Group, touches
from .nest import Nest


def fold_padding(computing: Sequence[Any], groups: Sequence[Group], scratch: Collection[Any]) -> list[Group]:
    """Returns the launches, without those that pad: a launch that reads a padded copy reads the original tensor.
    `scratch` are the arguments that are not read after the kernel."""
    made = list(groups)
    for group in groups:
        # A kernel without results has a launch without operations.
        if len(group.members) != 1 or not _is_constant_fill(computing[group.members[0]]):
            continue
        (number,) = group.members
        padded = operands_of(computing[number])[1][0]
        users = [n for n, op in enumerate(computing) if touches(op, root_of(padded))]
        if root_of(padded) not in scratch or len(users) != 3 or users[0] != number:
            continue
        _, copy, main = users
        reader = next(group for group in made if main in group.members)
        copied = next(group for group in made if copy in group.members)
        whole = copied.members == (copy,) and main == reader.members[-1 - reader.has_epilogue]
        if whole and reader.padded is None and _reads_copy(computing, reader, number, copy, main):
            made = [replace(g, padded=(number, copy)) if g is reader else g for g in made if g not in (group, copied)]
    return made


def _is_constant_fill(op: Any) -> bool:
    return op.name == GENERIC and is_fill(op) and constant_of(operands_of(op)[0][0]) is not None


def _reads_copy(computing: Sequence[Any], reader: Group, fill: int, copy: int, main: int) -> bool:
    """Returns whether an operation reads a padded copy as one of its inputs, and may read the copied tensor instead."""
    padded, op = operands_of(computing[fill])[1][0], computing[main]
    if op.name != GENERIC or not _is_copy_into(computing[copy], padded):
        return False
    inputs, results = operands_of(op)
    source = operands_of(computing[copy])[0][0]
    # Every loop needs a size that does not come from the copy.
    others = [map for value, map in zip((*inputs, *results), maps_of(op), strict=True) if value != padded]
    known = {position for map in others for position in map}
    if [value == padded for value in inputs].count(True) != 1 or padded in results:
        return False
    if not known.issuperset(identity(len(iterators(op)))):
        return False
    written = [value for n in range(copy + 1, main) for value in _written(computing[n])]
    written += [value for n in reader.members for value in _written(computing[n])]
    return root_of(source) not in {root_of(value) for value in written}


def _written(op: Any) -> list[Any]:
    return operands_of(op)[1] if op.name == GENERIC else list(op.operands)


def _is_copy_into(op: Any, padded: Any) -> bool:
    """Returns whether an op copies a tensor, at a known offset and in the same order, into a padded one."""
    if op.name != GENERIC or not all(iterators(op)):
        return False
    (inputs, results), block = operands_of(op), body_of(op)
    if len(inputs) != 1 or len(results) != 1 or len(list(block.operations)) != 1:
        return False
    yielded = block.operations[0].operation.operands[0]
    first, second = maps_of(op)
    own = identity(len(iterators(op)))
    if yielded != block.arguments[0] or not first == second == own or not str(inputs[0].type).startswith("memref"):
        return False
    view = made_by(results[0], "memref.subview")
    if view is None or view.operands[0] != padded:
        return False
    offsets, _, steps = read_region(view)
    return all(isinstance(offset, int) for offset in offsets) and all(step == 1 for step in steps)


def read_unpadded(nest: Nest, inputs: Sequence[Any], fill: Any, copy: Any) -> tuple[Nest, list[Any]]:
    """Returns the nest of an operation that reads the tensor which `copy` pads, and the inputs of the operation."""
    (value,), (padded,) = operands_of(fill)
    (source,), (target,) = operands_of(copy)
    number = list(inputs).index(padded)
    whole = made_by(padded, "memref.reinterpret_cast")
    sizes = None if whole is None else read_region(whole)[1]
    offsets, inner, _ = read_region(target.owner)
    axes = [n for n, offset in enumerate(offsets) if offset or sizes is None or inner[n] != sizes[n]]
    before = nest.inputs[number]
    index = [shifted(each, -offsets[n]) if n in axes else each for n, each in enumerate(before.index)]
    operand = replace(
        describe_operand(source, tuple(index), before.used), padded=tuple(axes), padding=str(constant_of(value))
    )
    changed = [*nest.inputs[:number], operand, *nest.inputs[number + 1 :]]
    return replace(nest, inputs=tuple(changed)), _with_source(inputs, fill, copy)


def unpadded_operands(op: Any, fill: Any, copy: Any) -> list[Any]:
    """Returns the operands of an operation, with the tensor that `copy` pads in place of the copy."""
    inputs, results = operands_of(op)
    return [*_with_source(inputs, fill, copy), *results]


def _with_source(values: Sequence[Any], fill: Any, copy: Any) -> list[Any]:
    padded, source = operands_of(fill)[1][0], operands_of(copy)[0][0]
    return [source if value == padded else value for value in values]
