"""`svd`: singular values and vectors, by rotations of pairs of columns (Hestenes, 1958).

A rotation makes two columns of x orthogonal. Sweeps over all pairs repeat until no pair needs one, at most 40 times;
six to ten suffice for most matrices. Then the columns are u * s, and the product of the rotations is v. A wide matrix
is transposed first.

    x = 3 0    The columns a and b have the same length, and a . b is 20: they are rotated by 45 degrees.
        4 5
               (a + b) / sqrt(2) = (3, 9) / sqrt(2)      of length sqrt(45), the first singular value
               (b - a) / sqrt(2) = (-3, 1) / sqrt(2)     of length sqrt(5), the second one

The pairs of a sweep are those of a round-robin tournament. Pairs in turn have no column in common, so that a processor
need not finish one before it begins the next. For 5 columns:

    0: 1 4, 2 3    1: 2 0, 3 4    2: 3 1, 4 0    3: 4 2, 0 1    4: 0 3, 1 2

A sixth column would meet column 0 first in turn 0, column 1 in turn 1, and so on. The squares of the norms are computed
once for a sweep, and follow the rotations. A sweep of [m, n] takes about 3 * m * n * n multiplications; each matrix is
computed by one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ..dims import Size, at_least, floor_divide, minimum, multiply
from ..emitter import BodyEmitter, Emitter, Scalar, SequenceEmitter, Tensor, identity
from ..graph import Value
from ..operator import Attributes, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import F32, F64, I64, TensorType
from .support.accumulate import Numbers
from .support.algebra import Term
from .support.elimination import for_each

_DTYPES = (F32, F64)
SWEEPS = 40


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
    rank, dtype = x.type.rank, x.type.dtype
    *batch, m, n = x.type.shape
    rows, columns = (m, n) if _is_tall(x.type) else (n, m)
    # Columns are rows of the tensors here, so that their elements are consecutive.
    work = _transposed(e, x) if _is_tall(x.type) else e.map(x.type, [(x, identity(rank))], lambda s, element: element)
    v_type = x.type.with_shape((*batch, columns, columns))

    def unit(s: BodyEmitter) -> Scalar:
        return s.cast(s.compare("eq", s.index(rank - 1), s.index(rank - 2)), dtype)

    u_out, s_out, v_out = e.full(work.type, 0), e.full(types[1], 0), e.full(v_type, 0)
    # Each matrix has its own scratch memory, so that threads of a device compute several at once.
    scratch = [e.full(TensorType(dtype, (*batch, size)), 0) for size in (columns, CHAINS)]
    tensors = [work, e.map(v_type, [], unit), *scratch, u_out, s_out, v_out]

    def matrix(s: SequenceEmitter, indices: Sequence[Scalar], given: Sequence[Tensor]) -> Sequence[Tensor]:
        body = _Rotations(s, tuple(indices)[: len(batch)], rows, columns)
        return body.ordered(body.diagonalized(given))

    u, singular, v = e.scan(batch or [1], tensors, matrix)[4:]
    if _is_tall(x.type):
        return [_transposed(e, u), singular, v]
    return [_transposed(e, v), singular, u]


def _transposed(e: Emitter, x: Tensor) -> Tensor:
    shape, maps = x.type.shape, identity(x.type.rank)
    swapped = x.type.with_shape((*shape[:-2], shape[-1], shape[-2]))
    return e.map(swapped, [(x, (*maps[:-2], maps[-1], maps[-2]))], lambda s, element: element)


CHAINS = 16
"""The number of partial sums of a product of columns, a power of two: they are a vector."""


class _Rotations:
    """Writes the loops over one matrix, whose columns are rows of its tensor."""

    def __init__(self, s: SequenceEmitter, at: tuple[Scalar, ...], rows: Size, columns: Size) -> None:
        self.s, self.at, self.rows, self.columns = s, at, rows, columns

    def dot(self, x: Tensor, p: Scalar, q: Scalar, sums: Tensor) -> tuple[Scalar, Tensor]:
        """Returns the product p.q of two columns, and the tensor of its partial sums: a step adds a vector to it."""
        s, zero, chains = self.s, self.s.constant(0, x.type.dtype), self.s.constant(CHAINS, I64)
        steps = s.binary("div", s.size(self.rows), chains)

        def product(row: Scalar) -> Scalar:
            return s.binary("mul", *(s.load(x, (*self.at, c, row)) for c in (p, q)))

        def step(number: Scalar, sums: Tensor) -> Tensor:
            first = s.binary("mul", number, chains)

            def add(n: Scalar, sums: Tensor) -> Tensor:
                total = s.binary("add", s.load(sums, (*self.at, n)), product(s.binary("add", first, n)))
                stored: Tensor = s.store(sums, (*self.at, n), total)
                return stored

            added: Tensor = for_each(s, chains, sums, add)
            return added

        sums = for_each(s, chains, sums, lambda n, sums: s.store(sums, (*self.at, n), zero))
        sums = for_each(s, steps, sums, step)
        apart = [s.load(sums, (*self.at, s.constant(n, I64))) for n in range(CHAINS)]
        while len(apart) > 1:
            half = len(apart) // 2
            apart = [s.binary("add", a, b) for a, b in zip(apart[:half], apart[half:], strict=True)]
        done = s.binary("mul", steps, chains)
        rest = s.binary("sub", s.size(self.rows), done)

        def remaining(_: Any, row: Scalar, totals: Sequence[Scalar]) -> Sequence[Scalar]:
            return [s.binary("add", totals[0], product(s.binary("add", done, row)))]

        (total,) = s.iterate(rest, apart, remaining)
        return total, sums

    def squares(self, work: Tensor, norms: Tensor, sums: Tensor) -> list[Tensor]:
        """Writes the squares of the norms of the columns."""
        s = self.s

        def square(j: Scalar, norms: Tensor, sums: Tensor) -> list[Tensor]:
            total, sums = self.dot(work, j, j, sums)
            return [s.store(norms, (*self.at, j), total), sums]

        return list(for_each(s, s.size(self.columns), [norms, sums], square))

    def diagonalized(self, given: Sequence[Tensor]) -> Sequence[Tensor]:
        s, zero, one = self.s, self.s.constant(0, I64), self.s.constant(1, I64)
        pairs = floor_divide(multiply(self.columns, self.columns - 1), 2)
        # The last column of an even number of columns has a place of its own.
        is_odd = s.binary("rem", s.size(self.columns), s.constant(2, I64))
        ring = s.binary("sub", s.size(self.columns), s.binary("sub", one, is_odd))
        last_step = s.binary("div", s.binary("sub", ring, one), s.constant(2, I64))

        def sweep(
            _: Scalar, tensors: Sequence[Tensor], left: Sequence[Scalar]
        ) -> tuple[Sequence[Tensor], Sequence[Scalar]]:
            # No rotation in one sweep: the loops of the next ones are empty.
            count = s.select(s.compare("gt", left[0], zero), s.size(pairs), zero)
            work, v, *norms = tensors

            def pair(
                _: Scalar, inner: Sequence[Tensor], state: Sequence[Scalar]
            ) -> tuple[Sequence[Tensor], Sequence[Scalar]]:
                turn, step, rotations = state
                above, below = s.binary("add", turn, step), s.binary("sub", turn, step)
                p = s.select(s.compare("ge", above, ring), s.binary("sub", above, ring), above)
                q = s.select(s.compare("lt", below, zero), s.binary("add", below, ring), below)
                q = s.select(s.compare("eq", step, zero), ring, q)
                work, v, norms, sums = inner
                *rotated, needed = self.rotated(work, v, norms, sums, p, q)
                ends = s.compare("ge", step, last_step)
                turn = s.select(ends, s.binary("add", turn, one), turn)
                step = s.select(ends, is_odd, s.binary("add", step, one))
                return rotated, [turn, step, s.binary("add", rotations, s.cast(needed, I64))]

            start = [zero, is_odd, zero]
            made, state = s.repeat(count, [work, v, *self.squares(work, *norms)], start, pair)
            return made, [state[2]]

        done, _ = s.repeat(s.constant(SWEEPS, I64), given[:4], [one], sweep)
        return [*done, *given[4:]]

    def rotated(
        self, work: Tensor, v: Tensor, norms: Tensor, sums: Tensor, p: Scalar, q: Scalar
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Scalar]:
        s, dtype = self.s, work.type.dtype
        one, zero = s.constant(1, dtype), s.constant(0, dtype)
        alpha, beta = (s.load(norms, (*self.at, c)) for c in (p, q))
        gamma, sums = self.dot(work, p, q, sums)
        bound = s.binary("mul", s.unary("sqrt", alpha), s.unary("sqrt", beta))
        bound = s.binary("mul", bound, s.constant(dtype.epsilon, dtype))
        needed = s.compare("gt", s.unary("abs", gamma), bound)
        # tan(angle) = sign(z) / (|z| + sqrt(1 + z * z)), z = (beta - alpha) / (2 * gamma)
        safe = s.select(needed, gamma, one)
        z = s.binary("div", s.binary("sub", beta, alpha), s.binary("add", safe, safe))
        root = s.unary("sqrt", s.binary("add", one, s.binary("mul", z, z)))
        t = s.binary("div", one, s.binary("add", s.unary("abs", z), root))
        t = s.select(s.compare("lt", z, zero), s.unary("neg", t), t)
        cosine = s.binary("div", one, s.unary("sqrt", s.binary("add", one, s.binary("mul", t, t))))
        cosine = s.select(needed, cosine, one)
        sine = s.select(needed, s.binary("mul", cosine, t), zero)
        # The squares of the norms after the rotation; rounding may leave less than nothing.
        moved = s.select(needed, s.binary("mul", t, gamma), zero)
        alpha = s.binary("max", s.binary("sub", alpha, moved), zero)
        beta = s.binary("max", s.binary("add", beta, moved), zero)
        norms = s.store(s.store(norms, (*self.at, p), alpha), (*self.at, q), beta)

        def turn(row: Scalar, x: Tensor) -> Tensor:
            a, b = (s.load(x, (*self.at, c, row)) for c in (p, q))
            first = s.binary("sub", s.binary("mul", cosine, a), s.binary("mul", sine, b))
            second = s.binary("add", s.binary("mul", sine, a), s.binary("mul", cosine, b))
            x = s.store(x, (*self.at, p, row), first)
            result: Tensor = s.store(x, (*self.at, q, row), second)
            return result

        # A pair that is orthogonal already stays as it is.
        def count(size: Size) -> Scalar:
            return s.select(needed, s.size(size), s.constant(0, I64))

        work, v = for_each(s, count(self.rows), work, turn), for_each(s, count(self.columns), v, turn)
        return work, v, norms, sums, needed

    def ordered(self, given: Sequence[Tensor]) -> Sequence[Tensor]:
        """Writes the columns in the order of their norms; the greatest element of each column of u is positive."""
        s = self.s
        work, v, norms, sums, *outputs = given
        norms, sums = self.squares(work, norms, sums)
        dtype = work.type.dtype
        one, zero, first = s.constant(1, dtype), s.constant(0, dtype), s.constant(0, I64)

        def column(j: Scalar, *tensors: Tensor) -> Sequence[Tensor]:
            u, singular, right = tensors
            own = s.load(norms, (*self.at, j))

            def precede(_: Any, other: Scalar, count: Sequence[Scalar]) -> Sequence[Scalar]:
                norm = s.load(norms, (*self.at, other))
                equal = s.binary("and", s.compare("eq", norm, own), s.compare("lt", other, j))
                before = s.binary("or", s.compare("gt", norm, own), equal)
                return [s.binary("add", count[0], s.cast(before, I64))]

            (position,) = s.iterate(s.size(self.columns), [first], precede)

            def peak(_: Any, row: Scalar, best: Sequence[Scalar]) -> Sequence[Scalar]:
                value = s.load(work, (*self.at, j, row))
                return [s.select(s.compare("gt", s.unary("abs", value), s.unary("abs", best[0])), value, best[0])]

            (greatest,) = s.iterate(s.size(self.rows), [zero], peak)
            sign = s.select(s.compare("lt", greatest, zero), s.constant(-1, dtype), one)
            norm = s.unary("sqrt", own)
            scale = s.binary("div", sign, s.select(s.compare("gt", norm, zero), norm, one))
            singular = s.store(singular, (*self.at, position), norm)

            def write(source: Tensor, target: Tensor, factor: Scalar, size: Size) -> Tensor:
                def element(row: Scalar, x: Tensor) -> Tensor:
                    value = s.binary("mul", factor, s.load(source, (*self.at, j, row)))
                    stored: Tensor = s.store(x, (*self.at, position, row), value)
                    return stored

                made: Tensor = for_each(s, s.size(size), target, element)
                return made

            return [write(work, u, scale, self.rows), singular, write(v, right, sign, self.columns)]

        return [work, v, norms, sums, *for_each(s, s.size(self.columns), list(outputs), column)]


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
    for _ in range(SWEEPS):
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
        s[position] = norm
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
