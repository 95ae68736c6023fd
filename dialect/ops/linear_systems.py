"""`solve`: systems of linear equations a @ x = y, by elimination with partial pivoting and back substitution.

Each matrix of the batch is solved by one thread, in about n * n * n / 3 + n * n * c multiplications for c right sides.
The error is that of a system whose elements differ from the given ones by a few roundings of the greatest one, whereas
a product with the inverse is off by the condition number times as much. A singular matrix gives NaN or infinities.

    1 2   5    exchange    4 2   6    second row    4  2   6     back          x = 1/3
    4 2   6    ------->    1 2   5    less 1/4 of   0 1.5 3.5    substitution      7/3
                                      the first
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..emitter import Emitter, Scalar, SequenceEmitter, Tensor, broadcast_map
from ..graph import Value
from ..operator import Attributes, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import F32, F64, TensorType
from .factorization import check_square
from .support.accumulate import Numbers
from .support.algebra import Term
from .support.common import broadcast_shapes, sum_to
from .support.elimination import find_pivot, pivot_row, swap_rows
from .support.matrix_loops import MatrixLoops

_DTYPES = (F32, F64)


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    a, y = types
    check_square("solve", a)
    if y.rank < 2 or y.shape[-2] != a.shape[-1]:
        message = f"`solve` of {a} takes right sides with {a.shape[-1]} rows, not {y}"
        help_text = "a vector is a matrix with one column: `unsqueeze(y, axes=-1)`" if y.rank == 1 else ""
        raise InferenceError("shape-mismatch", message, operand=1, help=help_text)
    batch = broadcast_shapes([a.shape[:-2], y.shape[:-2]], "solve")
    return (y.with_shape((*batch, *y.shape[-2:])),)


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (a, y), (result,) = operands, types
    *batch, size, columns = result.shape
    whole = result.with_shape((*batch, size, size))
    copies = [
        e.map(type, [(x, broadcast_map(x.type.shape, type.shape))], lambda s, element: element)
        for x, type in ((a, whole), (y, result))
    ]

    def system(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        loops = MatrixLoops(s, tuple(indices)[: len(batch)], result.dtype)
        stop, width = s.size(size), s.size(columns)

        def less(x: Tensor, i: Scalar, factor: Scalar, k: Scalar, first: Scalar, end: Scalar) -> Tensor:
            """Subtracts a multiple of row k from row i, for the columns from `first` up to `end`."""

            def element(c: Scalar, x: Tensor) -> Tensor:
                product = loops.multiply(factor, loops.load(x, k, c))
                return loops.store(x, loops.subtract(loops.load(x, i, c), product), i, c)

            made: Tensor = loops.each(first, end, x, element)
            return made

        def eliminate(k: Scalar, work: Tensor, x: Tensor) -> Sequence[Tensor]:
            pivot = find_pivot(s, work, loops.at, k, size)
            work, x = swap_rows(s, work, loops.at, k, pivot, size), swap_rows(s, x, loops.at, k, pivot, columns)
            value, after = loops.load(work, k, k), loops.add(k, loops.step)

            def row(i: Scalar, work: Tensor, x: Tensor) -> Sequence[Tensor]:
                factor = loops.divide(loops.load(work, i, k), value)
                return [less(work, i, factor, k, after, stop), less(x, i, factor, k, loops.first, width)]

            made: Sequence[Tensor] = loops.each(after, stop, [work, x], row)
            return made

        work, x = loops.each(loops.first, stop, list(tensors), eliminate)

        def substitute(number: Scalar, x: Tensor) -> Tensor:
            i = loops.subtract(loops.subtract(stop, loops.step), number)
            value = loops.load(work, i, i)
            x = loops.each(
                loops.add(i, loops.step),
                stop,
                x,
                lambda k, x: less(x, i, loops.load(work, i, k), k, loops.first, width),
            )
            made: Tensor = loops.each(
                loops.first, width, x, lambda c, x: loops.store(x, loops.divide(loops.load(x, i, c), value), i, c)
            )
            return made

        return [work, loops.each(loops.first, stop, x, substitute)]

    return e.scan(batch or [1], copies, system)[1:]


def _reference(a: Numbers, y: Numbers) -> Numbers:
    batch = np.broadcast_shapes(a.shape[:-2], y.shape[:-2])
    matrices = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    result = np.broadcast_to(y, (*batch, *y.shape[-2:])).copy()
    for position in np.ndindex(batch):
        work, x = matrices[position].copy(), result[position]
        for k in range(len(work)):
            pivot = pivot_row(work, k)
            x[[k, pivot]] = x[[pivot, k]]
            factors = work[k + 1 :, k, None] / work[k, k]
            work[k + 1 :, k + 1 :] -= factors * work[k, k + 1 :]
            x[k + 1 :] -= factors * x[k]
        for i in reversed(range(len(work))):
            for k in range(i + 1, len(work)):
                x[i] -= work[i, k] * x[k]
            x[i] /= work[i, i]
    return result


def _differentiate(b: Builder, use: Use) -> Sequence[Value]:
    """X = A^-1 Y:  dY = A^-T g,  dA = -dY X^T."""
    a, y = use.inputs
    dy, x = Term(b, b.solve(b.matrix_transpose(a), use.gradient)), Term(b, use.outputs[0])
    da = -dy.matmul(x.matrix_transpose())
    return [sum_to(b, da.value, a.type.shape), sum_to(b, dy.value, y.type.shape)]


def _regular(*shape: int) -> Numbers:
    return np.asarray(np.random.default_rng(8).uniform(-1, 1, shape) + 1.5 * np.eye(shape[-1])[::-1])


solve = Operator(
    name="solve",
    summary="the solution x of a @ x = y for square matrices a and right sides y [n, columns], by elimination with "
    "partial pivoting; NaN or infinities for a singular matrix",
    operands=(Operand("a", _DTYPES), Operand("y", _DTYPES)),
    infer=_infer,
    reference=_reference,
    gradient=_differentiate,
    lower=_lower,
    cases=LateCases(
        lambda: tuple(
            Case(((), right), arrays={0: _regular(*left)}, dtypes=_DTYPES, tolerance=64.0, terms=max(1, left[-1]))
            for left, right in (
                *(((2, 3, 3), (2, 3, 2)), ((5, 5), (2, 5, 1)), ((3, 1, 4, 4), (2, 4, 3)), ((1, 1), (1, 3))),
                *(((0, 0), (0, 2)), ((3, 3), (3, 0)), ((0, 3, 3), (1, 3, 2)), ((17, 17), (17, 5))),
            )
        )
    ),
    properties=frozenset({"sequential", "factoring"}),
)

OPERATORS = (solve,)
