"""The transforms of Winograd's minimal filtering F(4x4, 3x3), channels last: a convolution as 36 matrix products.

    convolution(x, w) == winograd_output(winograd_input(x, INPUT) @ winograd_weight(w), OUTPUT)

for 3x3 kernels with stride 1: every 4x4 block of results takes 36 products per pair of channels in place of 144. The
matrices are those of Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (arXiv:1509.09308), for the
points 0, 1, -1, 2, -2 and infinity. Results differ from those of a direct sum by some 1e-5 of the largest in f32.

Each transform multiplies by a matrix along one axis of the blocks and then along the other: two contractions. Passes
create these operators after differentiation, so they have no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ..dims import Size, at_least, floor_divide, static_size
from ..emitter import Emitter, Index, Loop, Result, Tensor, loop, loops
from ..operator import Attributes, AttributeSpec, Case, InferenceError, LateCases, Operand, Operator
from ..types import F32, F64, Array, DType, TensorType
from .support.accumulate import Numbers, multiply_add

BLOCK = 4
"""The results along an axis of a block."""
REACH = BLOCK + 2
"""The elements along an axis that the results of a block read."""

Matrix = Sequence[Sequence[float]]

INPUT: Matrix = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
WEIGHT: Matrix = tuple(
    tuple(float(Fraction(n, d)) for n in row)
    for d, row in (
        (4, (1, 0, 0)),
        (6, (-1, -1, -1)),
        (6, (-1, 1, -1)),
        (24, (1, 2, 4)),
        (24, (1, -2, 4)),
        (1, (0, 0, 1)),
    )
)
OUTPUT: Matrix = (
    (1, 1, 1, 1, 1, 0),
    (0, 1, -1, 2, -2, 0),
    (0, 1, 1, 4, 4, 0),
    (0, 1, -1, 8, -8, 1),
)

_DTYPES = (F32, F64)


def blocks(size: Size) -> Size:
    """Returns the number of output tiles along an axis of this size."""
    return floor_divide(size - (REACH - BLOCK), BLOCK)


def _expect(name: str, type: TensorType, what: str, holds: bool) -> None:
    if not holds:
        raise InferenceError("shape-mismatch", f"`{name}` takes {what}, not {type}", operand=0)


def _expect_matrix(name: str, types: Sequence[TensorType], rows: int, columns: int) -> None:
    if types[1].shape != (rows, columns):
        raise InferenceError(
            "shape-mismatch", f"`{name}` takes a matrix [{rows}, {columns}], not {types[1]}", operand=1
        )


def _contract(e: Emitter, matrix: Tensor, x: Tensor, read: Sequence[Index], sizes: Sequence[Size], row: int) -> Tensor:
    """Sums over the columns of a matrix: parallel loops of `sizes`, in which loop `row` numbers the rows, and then one
    loop over the columns, which is the last loop in `read`."""
    column = len(sizes)
    (total,) = e.structured(
        [*(Loop(size) for size in sizes), Loop(matrix.type.shape[1], parallel=False)],
        [(matrix, loops(row, column)), (x, tuple(read))],
        [Result(x.type.with_shape(sizes), loops(*range(column)), initial=0)],
        multiply_add,
    )
    return total


def matrix_array(matrix: Matrix, dtype: DType) -> Array:
    return np.asarray(matrix, np.float64).astype(dtype.numpy)


# x [N, H, W, C] to [36, N, H / 4, W / 4, C]


def _infer_input(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x = types[0]
    _expect_matrix("winograd_input", types, REACH, REACH)
    good = x.rank == 4 and all(at_least(size, REACH - BLOCK) for size in x.shape[1:3])
    _expect("winograd_input", x, "a tensor [N, H, W, C] with H and W of at least 2", good)
    batch, height, width, channels = x.shape
    return (x.with_shape((REACH * REACH, batch, blocks(height), blocks(width), channels)),)


def _lower_input(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, matrix = operands
    batch, _, width, channels = x.type.shape
    _, _, rows, columns, _ = types[0].shape
    # [i, n, row of blocks, w, c] and then [i, j, n, row, column, c]
    first = _contract(
        e, matrix, x, (loop(1), loop(2) * BLOCK + loop(5), loop(3), loop(4)), (REACH, batch, rows, width, channels), 0
    )
    second = _contract(
        e,
        matrix,
        first,
        (*loops(0, 2, 3), loop(4) * BLOCK + loop(6), loop(5)),
        (REACH, REACH, batch, rows, columns, channels),
        1,
    )
    return [e.reshape(second, types[0].shape)]


def _reference_input(x: Numbers, matrix: Numbers) -> Numbers:
    batch, height, width, channels = x.shape
    rows, columns = (static_size(blocks(size)) for size in (height, width))
    total = np.zeros((REACH, REACH, batch, rows, columns, channels), x.dtype)
    for a, b in np.ndindex(REACH, REACH):
        part = x[:, a : a + BLOCK * rows : BLOCK, b : b + BLOCK * columns : BLOCK]
        weights = matrix[:, a, None] * matrix[None, :, b]
        total += weights[:, :, None, None, None, None] * part
    return total.reshape(REACH * REACH, batch, rows, columns, channels)


winograd_input = Operator(
    name="winograd_input",
    summary="the input transform of Winograd's F(4x4, 3x3): x [N, H, W, C] to [36, N, (H - 2) / 4, (W - 2) / 4, C]",
    operands=(Operand("x", _DTYPES), Operand("matrix", _DTYPES)),
    infer=_infer_input,
    reference=_reference_input,
    gradient=None,
    lower=_lower_input,
    cases=LateCases(
        lambda: (
            Case(((2, 10, 6, 3), (6, 6)), terms=36, tolerance=16.0),
            Case(((1, 6, 15, 17), (6, 6)), terms=36, tolerance=16.0),
            Case(((0, 6, 6, 1), (6, 6))),
            Case(((1, 2, 6, 2), (6, 6))),
        )
    ),
    properties=frozenset({"contraction", "internal"}),
)


# weight [3, 3, C, out] to [36, C, out]


def _infer_weight(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (weight,) = types
    _expect("winograd_weight", weight, "a weight [3, 3, C, out]", weight.rank == 4 and weight.shape[:2] == (3, 3))
    return (weight.with_shape((REACH * REACH, *weight.shape[2:])),)


def _lower_weight(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (weight,) = operands
    inner = weight.type.shape[2:]
    flat = [value for row in WEIGHT for value in row]
    matrix = e.constant(TensorType(weight.type.dtype, (REACH, 3)), flat)
    first = _contract(e, matrix, weight, loops(4, 1, 2, 3), (REACH, 3, *inner), 0)
    second = _contract(e, matrix, first, loops(0, 4, 2, 3), (REACH, REACH, *inner), 1)
    return [e.reshape(second, types[0].shape)]


def _reference_weight(weight: Numbers, *, each_call: bool = False) -> Numbers:
    matrix = np.asarray(WEIGHT, weight.dtype)
    total = np.zeros((REACH, REACH, *weight.shape[2:]), weight.dtype)
    for a, b in np.ndindex(3, 3):
        total += (matrix[:, a, None] * matrix[None, :, b])[:, :, None, None] * weight[a, b]
    return total.reshape(REACH * REACH, *weight.shape[2:])


winograd_weight = Operator(
    name="winograd_weight",
    summary="the weight transform of Winograd's F(4x4, 3x3): [3, 3, C, out] to [36, C, out]; with `each_call` it "
    "is computed in each call and not stored",
    operands=(Operand("weight", _DTYPES),),
    attributes=(AttributeSpec("each_call", "bool", False),),
    infer=_infer_weight,
    reference=_reference_weight,
    gradient=None,
    lower=_lower_weight,
    cases=LateCases(lambda: (Case(((3, 3, 2, 5),), terms=9), Case(((3, 3, 1, 1),), terms=9), Case(((3, 3, 0, 4),)))),
    properties=frozenset({"precomputed", "internal"}),
)


# [36, N, rows, columns, C] to [N, 4 * rows, 4 * columns, C]


def _infer_output(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x = types[0]
    _expect_matrix("winograd_output", types, BLOCK, REACH)
    _expect("winograd_output", x, "a tensor [36, N, rows, columns, C]", x.rank == 5 and x.shape[0] == REACH * REACH)
    _, batch, rows, columns, channels = x.shape
    return (x.with_shape((batch, rows * BLOCK, columns * BLOCK, channels)),)


def _lower_output(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, matrix = operands
    inner = x.type.shape[1:]
    batch, rows, columns, channels = inner
    split = e.reshape(x, (REACH, REACH, *inner))
    # [i, b, n, row, column, c] and then [n, row, i, column, j, c]: the order of elements in the result
    first = _contract(e, matrix, split, loops(6, 1, 2, 3, 4, 5), (BLOCK, REACH, *inner), 0)
    second = _contract(e, matrix, first, loops(2, 6, 0, 1, 3, 5), (batch, rows, BLOCK, columns, BLOCK, channels), 4)
    return [e.reshape(second, types[0].shape)]


def _reference_output(x: Numbers, matrix: Numbers) -> Numbers:
    _, batch, rows, columns, channels = x.shape
    total = np.zeros((batch, rows, BLOCK, columns, BLOCK, channels), x.dtype)
    for a, b in np.ndindex(REACH, REACH):
        weights = matrix[:, a, None] * matrix[None, :, b]
        total += weights[None, None, :, None, :, None] * x[a * REACH + b][:, :, None, :, None, :]
    return total.reshape(batch, rows * BLOCK, columns * BLOCK, channels)


winograd_output = Operator(
    name="winograd_output",
    summary="the output transform of Winograd's F(4x4, 3x3): products [36, N, rows, columns, C] to [N, 4 * rows, 4"
    " * columns, C]",
    operands=(Operand("x", _DTYPES), Operand("matrix", _DTYPES)),
    infer=_infer_output,
    reference=_reference_output,
    gradient=None,
    lower=_lower_output,
    cases=LateCases(
        lambda: (
            Case(((36, 2, 2, 1, 3), (4, 6)), terms=36, tolerance=16.0),
            Case(((36, 1, 1, 3, 17), (4, 6)), terms=36, tolerance=16.0),
            Case(((36, 0, 1, 1, 2), (4, 6))),
        )
    ),
    properties=frozenset({"contraction", "internal"}),
)

OPERATORS = (winograd_input, winograd_weight, winograd_output)
