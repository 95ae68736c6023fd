"""Reads narrow numbers where a kernel would first store them as wider floats: floats, or integers of 8 bits.

    wide[i] = extf(x[i])                  a launch that writes memory only to change a dtype
    total = sum of wide[i]           =>   total = sum of extf(x[i])
    y[i] = wide[i] - total                y[i] = extf(x[i]) - total

A tensor is widened in registers by each operation that reads it, which reads half of the bytes, perhaps in another
shape. The widened tensor must be memory of the kernel alone, and nothing else may read it or write `x`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ....dialect.emitter import identity
from ...base.mlir import ir
from ..structured.body_nodes import Node
from ..structured.operations import GENERIC, body_of, iterators, maps_of, operands_of, operations_in
from ..structured.values import RESHAPES, made_by, root_of
from .body_values import read_body
from .groups import touches

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
        reshaped = _have_one_layout(source, result)
        if memory not in scratch or not all(reads_only(each, result, memory, reshaped=reshaped) for each in readers):
            continue
        if any(_writes(other, root_of(source)) for other in others):
            continue
        for reader in readers:
            read_narrow(reader, source, result, read_body(op).values[0].kind)
        op.erase()
        left = others
    return left


def _widens(op: Any) -> bool:
    """Returns whether an op copies a tensor, element by element, to another one of a wider float dtype without
    rounding."""
    if op.name != GENERIC or not all(iterators(op)):
        return False
    inputs, results = operands_of(op)
    (value, *_), own = read_body(op).values, identity(len(iterators(op)))
    if len(inputs) != 1 or len(results) != 1 or any(map != own for map in maps_of(op)):
        return False
    return _is_exact(value) and value.operands[0].kind == "read"


def reads_only(op: Any, value: Any, memory: Any, *, reshaped: bool = False) -> bool:
    """Returns whether an op reads memory as inputs that are this value, or perhaps `reshaped` ones, and in no other
    way."""
    if op.name != GENERIC or any(each.regions for each in operations_in(body_of(op)) if touches(each, memory)):
        return False
    inputs, results = operands_of(op)
    is_read = all(root_of(i) != memory or i == value or (reshaped and _is_shape_of(i, value)) for i in inputs)
    return is_read and all(root_of(r) != memory for r in results)


def _is_shape_of(view: Any, value: Any) -> bool:
    """Returns whether a view is a value, or has its elements in another shape."""
    while view != value:
        reshape = made_by(view, *RESHAPES)
        if reshape is None:
            return False
        view = reshape.operands[0]
    return True


def _have_one_layout(source: Any, wide: Any) -> bool:
    """Returns whether a reshape of one tensor is one of the other too."""
    own, other = ir.MemRefType(source.type), ir.MemRefType(wide.type)
    return list(own.shape) == list(other.shape) and own.layout == other.layout


def _writes(op: Any, memory: Any) -> bool:
    """Returns whether an op may write memory: operations other than structured ones may write all of their operands."""
    if op.name != GENERIC:
        return touches(op, memory)
    return any(root_of(result) == memory for result in operands_of(op)[1])


def _is_exact(value: Node) -> bool:
    """Returns whether a value is the conversion of a number to a wider float."""
    return value.kind == _FLOAT or (value.kind == _INTEGER and value.operands[0].type == "i8")


def unwiden(value: Node) -> Node:
    """Returns the narrow number that a value is the widening of, or the value itself."""
    return value.operands[0] if _is_exact(value) else value


def read_narrow(op: Any, source: Any, wide: Any, widening: str) -> None:
    """Makes an op read a source, and widen each element by an operation, in place of the widened tensor."""
    block = body_of(op)
    inputs, _ = operands_of(op)
    element = ir.MemRefType(source.type).element_type
    for number, value in enumerate(inputs):
        if root_of(value) != root_of(wide) or not _is_shape_of(value, wide):
            continue
        argument = block.arguments[number]
        before = argument.type
        argument.set_type(element)
        with ir.InsertionPoint.at_block_begin(block), op.location:
            made = ir.Operation.create(widening, results=[before], operands=[argument])
        argument.replace_all_uses_except(made.results[0], made)
        op.operands[number] = _reshape_as(op, source, value, wide)


def _reshape_as(op: Any, source: Any, view: Any, wide: Any) -> Any:
    """Returns a source, before an op, in the shape in which a view has the elements of the widened tensor."""
    if view == wide:
        return source
    made, inner = view.owner, _reshape_as(op, source, view.owner.operands[0], wide)
    type, element = ir.MemRefType(view.type), ir.MemRefType(source.type).element_type
    with ir.InsertionPoint(op), op.location:
        return ir.Operation.create(
            made.name,
            results=[ir.MemRefType.get(type.shape, element, type.layout, type.memory_space)],
            operands=[inner, *list(made.operands)[1:]],
            attributes={name: made.attributes[name] for name in made.attributes},
        ).results[0]
