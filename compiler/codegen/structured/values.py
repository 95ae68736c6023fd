"""Facts about single values in MLIR: constants, views of memory, and sizes that are partly known."""

from __future__ import annotations

from typing import Any

from ...base.mlir import ir

RESHAPES = frozenset({"memref.expand_shape", "memref.collapse_shape"})
VIEWS = RESHAPES | {"memref.reinterpret_cast", "memref.subview", "memref.cast"}
"""The operations whose result is the memory of their first operand, or a part of it."""


def made_by(value: Any, *names: str) -> Any | None:
    """Returns the operation that computes a value, if it has one of these names, or any if there are none; None for an
    argument of a block."""
    made = value.owner
    return None if isinstance(made, ir.Block) or (names and made.name not in names) else made


def constant_of(value: Any) -> Any | None:
    """Returns the attribute of a constant, or None."""
    made = made_by(value, "arith.constant")
    return None if made is None else made.attributes["value"]


def integer_of(value: Any) -> int | None:
    """Returns the number that an integer or an index is in every call."""
    attribute = constant_of(value)
    return attribute.value if isinstance(attribute, ir.IntegerAttr) else None


def float_of(value: Any) -> float | None:
    """Returns the number that a float is in every call."""
    attribute = constant_of(value)
    return float(attribute.value) if isinstance(attribute, ir.FloatAttr) else None


def root_of(value: Any) -> Any:
    """Returns the memory that a value is a view of."""
    while (view := made_by(value, *VIEWS)) is not None:
        value = view.operands[0]
    return value


def axes_of_reshape(op: Any) -> list[list[int]]:
    """Returns the axes on the longer side of a reshape, in a group for each axis on the shorter side."""
    groups = ir.ArrayAttr(op.attributes["reassociation"])
    return [[ir.IntegerAttr(axis).value for axis in ir.ArrayAttr(group)] for group in groups]


def read_region(op: Any) -> list[list[Any]]:
    """Returns the offsets, sizes and strides of a view or a slice, as `read_partly_known` does."""
    return read_partly_known(op, "offsets", "sizes", "strides")


def read_partly_known(op: Any, *names: str) -> list[list[Any]]:
    """Returns properties of an operation that have a number for each axis, such as `sizes`: the number if it is the
    same in every call, else the value. The values are the last operands, in the order of the names."""
    known = [list(ir.DenseI64ArrayAttr(op.attributes[f"static_{name}"])) for name in names]
    unknown = ir.ShapedType.get_dynamic_size()
    count = sum(numbers.count(unknown) for numbers in known)
    operands = list(op.operands)
    values = iter(operands[len(operands) - count :])
    return [[next(values) if number == unknown else number for number in numbers] for numbers in known]
