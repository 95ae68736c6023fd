"""`svd`: singular values and vectors, by reflections and rotations (Golub and Reinsch, 1970).

`support/reflections` makes a matrix bidiagonal, and `support/rotations` makes that diagonal. A wide matrix is
transposed first.

    x = 3 0    reflections    -5 -4    rotations    -6.71  0       The singular values are sqrt(45) and sqrt(5).
        4 5    ---------->     0  3    -------->     0     2.24

For [m, n] with m >= n, the reflections take about 4 * m * n * n multiplications, the products of reflections as many,
and the rotations as many again, all of vectors. Besides, there are about 2 * n * n square roots, one after another.
Each matrix is computed by one thread. The reference rotates pairs of columns until all are orthogonal (Hestenes, 1958).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ..dims import Shape, at_least, minimum
from ..emitter import Emitter, Scalar, SequenceEmitter, Tensor
from ..graph import Value
from ..operator import Attributes, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import F32, F64, TensorType
from .support.accumulate import Numbers
from .support.algebra import Term
from .support.matrix_loops import MatrixLoops, padded
from .support.reflections import bidiagonalized, joined
from .support.rotations import Rotations, rotated_rows
from .support.singular_vectors import Scale, filled, ordered

_DTYPES = (F32, F64)
_SWEEPS = 40
"""The most times that the reference rotates all pairs of columns; six to ten suffice for most matrices."""


def _is_tall(x: TensorType) -> bool:
    m, n = x.shape[-2:]
    return at_least(m, n)


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    if x.rank < 2:
        raise InferenceError("rank-mismatch", f"`svd` takes matrices, not {x}", operand=0)
    *batch, m, n = x.shape
    if not at_least(m, n) and not at_least(n, m):
        message = f"`svd` needs to know which axis of {x} is the longer one"
        help_text = "ranges of the dims, or an equal size, decide it"
        raise InferenceError("shape-mismatch", message, operand=0, help=help_text)
    k = minimum(m, n)
    return x.with_shape((*batch, m, k)), x.with_shape((*batch, k)), x.with_shape((*batch, k, n))


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands
    dtype, tall = x.type.dtype, _is_tall(x.type)
    *batch, m, n = x.type.shape
    rows, columns = (m, n) if tall else (n, m)
    height, width, turns = padded(rows), padded(columns), rotated_rows(columns)
    shapes: list[Shape] = [(height, width), (width, height), (turns, height), (turns, width), (columns,), (columns,)]
    shapes += [(2, columns), (width,), (height,), (n,), (2, turns), (2, turns)]
    # Each matrix has its own scratch memory, so that threads of a device compute several at once.
    scratch = (TensorType(dtype, (*batch, *shape)) for shape in shapes)
    tensors = [e.full(type, 0) for type in (*scratch, *types)]

    def matrix(s: SequenceEmitter, indices: Sequence[Scalar], given: Sequence[Tensor]) -> Sequence[Tensor]:
        loops = MatrixLoops(s, tuple(indices)[: len(batch)], dtype)
        source, a, turned, left, right, d, e, factors, along, down, peaks, of_columns, of_rows, *results = given
        scale = Scale(loops, source, peaks)
        a, turned = filled(loops, source, rows, columns, scale, [a, turned], tall=tall)
        changed = bidiagonalized(loops, rows, columns, [a, turned, left, right, d, e, factors, along, down])
        a, turned, left, right, d, e, factors, along, down = changed
        left, a, along = joined(loops, factors, 0, (rows, columns), [left, a, along])
        right, turned, along = joined(loops, factors, 1, (columns, columns), [right, turned, along])
        changed = Rotations(loops, rows, columns).diagonalized([left, right, d, e, of_columns, of_rows])
        left, right, d, e, of_columns, of_rows = changed
        results = ordered(loops, rows, columns, scale, [left, right, d], results, tall=tall)
        scratch = [a, turned, left, right, d, e, factors, along, down, scale.peaks, of_columns, of_rows]
        return [source, *scratch, *results]

    return e.scan(batch or [1], [x, *tensors], matrix)[-3:]


def _reference(x: Numbers) -> tuple[Any, ...]:
    tall = x.shape[-2] >= x.shape[-1]
    given = x if tall else x.swapaxes(-1, -2)
    *batch, _, columns = given.shape
    u, s, v = (
        np.zeros(given.shape, x.dtype),
        np.zeros((*batch, columns), x.dtype),
        np.zeros((*batch, columns, columns), x.dtype),
    )
    for position in np.ndindex(*batch):
        u[position], s[position], v[position] = _decomposed(given[position].copy())
    return (u, s, v.swapaxes(-1, -2)) if tall else (v, s, u.swapaxes(-1, -2))


def _decomposed(work: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    columns, dtype = work.shape[1], work.dtype
    v = np.eye(columns, dtype=dtype)
    largest = np.abs(work).max(initial=0)
    if not np.isfinite(largest):
        return np.full_like(work, np.nan), np.full(columns, np.nan, dtype), np.full_like(v, np.nan)
    # A power of two, so that no square overflows.
    scale = max(np.ldexp(dtype.type(1), np.frexp(largest)[1] - 1), np.finfo(dtype).tiny)
    work /= scale
    for _ in range(_SWEEPS):
        rotations = 0
        for p, q in combinations(range(columns), 2):
            a, b = work[:, p], work[:, q]
            alpha, beta, gamma = (a * a).sum(), (b * b).sum(), (a * b).sum()
            if np.abs(gamma) > np.sqrt(alpha) * np.sqrt(beta) * np.finfo(dtype).eps:
                rotations += 1
                z = (beta - alpha) / (gamma + gamma)
                t = 1 / (np.abs(z) + np.sqrt(1 + z * z))
                t = -t if z < 0 else t
                cosine = 1 / np.sqrt(1 + t * t)
                turn = np.asarray([[cosine, cosine * t], [-cosine * t, cosine]], dtype)
                for each in (work, v):
                    each[:, [p, q]] = each[:, [p, q]] @ turn
        if not rotations:
            break
    squares = (work * work).sum(0)
    u, s, turned = np.zeros_like(work), np.zeros(columns, dtype), np.zeros_like(v)
    for j in range(columns):
        position = sum(bool(squares[i] > squares[j] or (squares[i] == squares[j] and i < j)) for i in range(columns))
        peak = dtype.type(0)
        for value in work[:, j]:
            peak = value if np.abs(value) > np.abs(peak) else peak
        sign, norm = dtype.type(-1 if peak < 0 else 1), np.sqrt(squares[j])
        s[position] = norm * scale
        u[:, position], turned[:, position] = work[:, j] * (sign / (norm if norm > 0 else 1)), v[:, j] * sign
    return u, s, turned


def _differentiate(b: Builder, use: Use) -> Sequence[Value]:
    """x = u s v^T, with F[i, j] = 1 / (s[j]^2 - s[i]^2) off the diagonal (Townsend, 2016):

    dx = (u (F * (u^T du - du^T u)) s + (1 - u u^T) du / s) v^T + u ds v^T
         + u (s (F * (v^T dv - dv^T v)) v^T + dv^T (1 - v v^T) / s)
    """
    u, s, vh = (Term(b, v) for v in use.outputs)
    du, ds, dvh = (None if g is None else Term(b, g) for g in use.gradients)
    row, column = s.unsqueeze(axes=-2), s.unsqueeze(axes=-1)
    unit = Term(b, b.eye(n=s.shape[-1], dtype=s.dtype))
    difference = row * row - column * column
    factor = unit.greater(0).select(0.0, 1 / unit.greater(0).select(1.0, difference))
    ut, v = u.matrix_transpose(), vh.matrix_transpose()
    total: Term | None = None

    def added(part: Term) -> None:
        nonlocal total
        total = part if total is None else total + part

    if ds is not None:
        added((u * ds.unsqueeze(axes=-2)).matmul(vh))
    if du is not None:
        product = ut.matmul(du)
        inner = factor * (product - product.matrix_transpose()) * row
        added((u.matmul(inner) + (du - u.matmul(product)) / row).matmul(vh))
    if dvh is not None:
        dv = dvh.matrix_transpose()
        product = vh.matmul(dv)
        inner = factor * (product - product.matrix_transpose()) * column
        added(u.matmul(inner.matmul(vh) + ((dv - v.matmul(product)) / row).matrix_transpose()))
    assert total is not None, use
    return [total.value]


def _apart(*shape: int) -> Numbers:
    """Returns matrices whose singular values are well apart."""
    rng = np.random.default_rng(11)
    u, _, vh = np.linalg.svd(rng.standard_normal(shape), full_matrices=False)
    return np.asarray((u * (1.0 + np.arange(min(shape[-2:])))) @ vh)


svd = Operator(
    name="svd",
    summary="the singular value decomposition x = u @ diag(s) @ vh of matrices [m, n]: u [m, k], the k = min(m, n) "
    "singular values in descending order, vh [k, n]; the greatest element of each singular vector of the longer side "
    "is positive; vectors of singular values that are 0 are 0",
    operands=(Operand("x", _DTYPES),),
    infer=_infer,
    reference=_reference,
    gradient=_differentiate,
    lower=_lower,
    cases=LateCases(
        lambda: tuple(
            Case((shape,), arrays={0: _apart(*shape)}, dtypes=_DTYPES, tolerance=64.0, terms=max(shape))
            for shape in ((4, 3), (2, 3, 3), (2, 5), (1, 1), (0, 3, 2), (3, 0), (18, 5), (6, 33))
        )
    ),
    properties=frozenset({"sequential", "factoring"}),
    results=("u", "s", "vh"),
)

OPERATORS = (svd,)
