"""Whether neighbouring iterations of a loop read or write neighbouring elements that begin at a multiple of a vector.

Most of it is known when code is made: the expressions of indices, and steps between rows that are the same in every
call. The rest is known in a call only, and kernels test it there, once for all elements:

    x: memref<?x?xf32> at (d0, d1), vectors of 4     the size of the last axis is a multiple of 4
    x: memref<?x36xf32> at (d0, d1), vectors of 4    known before
    both                                             x begins at a multiple of 16 bytes
"""

from __future__ import annotations

from collections.abc import Iterable

from ..structured.positions import loops_of
from .nest import Nest, Operand
from .text import Text

BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i16": 2, "i8": 1}
"""The bytes of the elements that are loaded several at once."""
VECTOR_BYTES = 16
"""The bytes of one load; more elements are several loads."""


def bytes_of(operand: Operand, width: int) -> int:
    """Returns the bytes of a load of `width` elements."""
    return min(width * BYTES[operand.element], VECTOR_BYTES)


def can_be_contiguous(operand: Operand, loop: int, width: int) -> bool:
    """Returns whether `width` iterations of a loop use neighbouring elements, which begin at a multiple of `width`, in
    some calls. The steps between rows may be those of a call."""
    *others, _ = operand.index
    if operand.plain_axes()[-1] != loop or any(loop in loops_of(position) for position in others):
        return False
    if "strided" not in operand.type:
        # The steps of all other axes are multiples of the last size.
        size = operand.shape[-1]
        return not others or size is None or size % width == 0
    steps = operand.strides
    return "offset" not in operand.type and steps[-1] == 1 and not any(s is not None and s % width for s in steps[:-1])


def is_contiguous(operand: Operand, loop: int, width: int) -> bool:
    """Returns whether `width` iterations of a loop use neighbouring elements, which begin at a multiple of `width`, in
    every call."""
    return can_be_contiguous(operand, loop, width) and (len(operand.index) == 1 or not _open_steps(operand))


def _open_steps(operand: Operand) -> tuple[int, ...]:
    """Returns the axes whose steps are those of a call and tell those of all others."""
    if "strided" not in operand.type:
        return (len(operand.shape) - 1,) if len(operand.shape) > 1 and operand.shape[-1] is None else ()
    return tuple(axis for axis, step in enumerate(operand.strides[:-1]) if step is None)


def write_aligned(text: Text, named: Iterable[tuple[str, Operand]], width: int) -> str:
    """Returns whether all tensors begin at a multiple of the bytes of their vectors."""
    bits = text.constant(0)
    for name, operand in named:
        address = text.let(f"memref.extract_aligned_pointer_as_index {name} : {operand.type} -> index")
        mask = text.constant(bytes_of(operand, width) - 1)
        bits = text.index("ori", bits, text.index("andi", address, mask))
    return text.let(f"arith.cmpi eq, {bits}, {text.constant(0)} : index")


def write_whole(text: Text, nest: Nest, loop: int, named: Iterable[tuple[str, Operand]], size: str, width: int) -> str:
    """Returns whether a loop of `size` iterations, and the steps between the rows of all tensors, are multiples of a
    vector; an empty text if every call has such ones."""
    parts = [] if nest.static_extent(loop) is not None else [size]
    for name, operand in named:
        axes = _open_steps(operand)
        if axes and "strided" not in operand.type:
            parts.append(text.let(f"memref.dim {name}, {text.constant(axes[0])} : {operand.type}"))
        elif axes:
            rank = len(operand.shape)
            result, sizes, steps = text.fresh(), text.fresh(), text.fresh()
            base = f"memref<{operand.element}>"
            text.line(
                f"{result}, {result}_o, {sizes}:{rank}, {steps}:{rank} = memref.extract_strided_metadata {name}"
                f" : {operand.type} -> {base}, index, {', '.join(['index'] * (2 * rank))}"
            )
            parts += [f"{steps}#{axis}" for axis in axes]
    if not parts:
        return ""
    bits = parts[0]
    for part in parts[1:]:
        bits = text.index("ori", bits, part)
    bits = text.index("andi", bits, text.constant(width - 1))
    return text.let(f"arith.cmpi eq, {bits}, {text.constant(0)} : index")
