"""Products of floats with a matrix that is stored as codes and scales: the numbers of a weight are made while it is
multiplied by, and never lie in memory. Only passes bring it in; the planes are those of `block_quantization`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dims import multiply
from ..emitter import ZERO, Emitter, IndexMap, Loop, Result, Scalar, ScalarEmitter, Tensor, loop, loops
from ..operator import Attributes, AttributeSpec, Case, InferenceError, Operand, Operator
from ..types import F16, F32, I8, I32, U8, TensorType
from .accumulate import Numbers

_PARTS = {8: 1, 4: 2}
"""How many codes a byte holds, by their bits."""
_NIBBLE = 4


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, codes, scales, *zeros = types
    parts = _PARTS.get(attributes["bits"])
    if parts is None or x.rank == 0 or codes.rank != 3:
        raise InferenceError("bad-attribute", f"`block_matmul` of {x} and {codes} has codes of 4 or 8 bits")
    columns, blocks, width = codes.shape
    inner = multiply(multiply(blocks, width), parts)
    if x.shape[-1] != inner or any(plane.shape != (columns, blocks) for plane in (scales, *zeros)):
        shown = ", ".join(map(str, types))
        raise InferenceError("shape-mismatch", f"`block_matmul` cannot multiply {shown}", operand=0)
    return (x.with_shape((*x.shape[:-1], columns)),)


def _reference(x: Numbers, codes: Numbers, scales: Numbers, zeros: Numbers | None = None, *, bits: int) -> Numbers:
    whole = codes.astype(np.int16)
    if bits == _NIBBLE:
        whole = np.concatenate([whole & 15, whole >> 4], -1)
    if zeros is not None:
        whole = whole - zeros[..., None].astype(np.int16)
    elif bits == _NIBBLE:
        whole = whole - 8
    weight = whole.astype(x.dtype) * scales[..., None].astype(x.dtype)
    return np.asarray(np.matmul(x, weight.reshape(len(weight), x.shape[-1]).T))


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, codes, scales, *zeros = operands
    (result,) = types
    parts = _PARTS[attributes["bits"]]
    columns, blocks, width = codes.type.shape
    outer = result.shape[:-1]
    n = len(outer)
    rows, block, place, column = loops(*range(n)), loop(n), loop(n + 1), loop(n + 2)
    split = e.reshape(x, (*outer, blocks, parts, width))
    halves: list[tuple[Tensor, IndexMap]] = [(split, (*rows, block, ZERO + part, place)) for part in range(parts)]

    def body(s: ScalarEmitter, *elements: Scalar) -> Sequence[Scalar]:
        *numbers, total = elements
        code, scale, *zero = numbers[parts:]
        products = [
            s.binary("mul", number, s.cast(part, F32))
            for number, part in zip(numbers[:parts], _codes(s, code, parts, zero), strict=True)
        ]
        summed = products[0] if parts == 1 else s.binary("add", *products)
        return [s.binary("add", total, s.binary("mul", summed, s.cast(scale, F32)))]

    return e.structured(
        [*map(Loop, outer), Loop(blocks, parallel=False), Loop(width, parallel=False), Loop(columns)],
        [*halves, (codes, (column, block, place)), *((plane, (column, block)) for plane in (scales, *zeros))],
        [Result(result, (*rows, column), initial=0)],
        body,
    )


def _codes(s: ScalarEmitter, code: Scalar, parts: int, zero: Sequence[Scalar]) -> list[Scalar]:
    """The whole numbers that are in a byte, as i32."""
    whole = s.cast(code, I32)
    if parts == 1:
        return [s.binary("sub", whole, s.cast(zero[0], I32)) if zero else whole]
    middle = s.cast(zero[0], I32) if zero else s.constant(8, I32)
    low, high = s.binary("and", whole, s.constant(15, I32)), s.binary("shr", whole, s.constant(_NIBBLE, I32))
    return [s.binary("sub", half, middle) for half in (low, high)]


def _shapes(
    rows: tuple[int, ...], columns: int, blocks: int, width: int, *, bits: int, zero: bool
) -> tuple[tuple[int, ...], ...]:
    inner = blocks * width * _PARTS[bits]
    planes = ((columns, blocks),) * (2 if zero else 1)
    return ((*rows, inner), (columns, blocks, width), *planes)


block_matmul = Operator(
    name="block_matmul",
    summary="x @ w.T of a matrix w in blocks, by its codes, scales and zero points",
    operands=(
        Operand("x", (F32,)),
        Operand("codes", (U8, I8), group="codes"),
        Operand("scales", (F16, F32), group="scales"),
        Operand("zeros", (U8,), group="zeros", optional=True),
    ),
    attributes=(AttributeSpec("bits", "int"),),
    infer=_infer,
    reference=_reference,
    gradient=None,
    lower=_lower,
    cases=tuple(
        Case(
            _shapes(rows, columns, blocks, width, bits=bits, zero=zero),
            {"bits": bits},
            terms=max(1, blocks * width * _PARTS[bits]),
        )
        for rows, columns, blocks, width, bits, zero in (
            ((3,), 5, 2, 16, 4, False),
            ((1,), 17, 3, 16, 4, True),
            ((9,), 49, 1, 32, 8, False),
            ((2, 3), 33, 2, 32, 8, True),
            ((), 16, 4, 32, 8, False),
            ((0,), 5, 2, 16, 4, False),
            ((1,), 1, 0, 16, 4, False),
            ((5,), 0, 1, 32, 8, True),
        )
    ),
    properties=frozenset({"contraction", "internal"}),
)

OPERATORS = (block_matmul,)
