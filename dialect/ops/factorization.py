"""Linear algebra on square matrices: `cholesky`, `triangular_solve`, `inverse`, `determinant`.

The last two axes are a matrix, the others a batch. Each matrix is factored by one thread, row by row, in about
n * n * n / 3 multiplications (`inverse`: n * n * n). Rows are exchanged so that the greatest element of a column is the
pivot. A singular matrix, or one that is not positive definite, gives NaN or infinities: no call fails.

    1 2    exchange    4 2    second row    4  2
    4 2    ------->    1 2    less 1/4 of   0 1.5    determinant: -(4 * 1.5), negated by the exchange
                              the first
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..emitter import Emitter, Scalar, SequenceEmitter, Tensor, identity
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import F32, F64, I64, TensorType
from .support.accumulate import Numbers
from .support.algebra import Term
from .support.common import broadcast_shapes, sum_to
from .support.elimination import eliminate, exchange, find_pivot, for_each, pivot_row, swap_rows

_DTYPES = (F32, F64)


def check_square(name: str, x: TensorType, operand: int = 0) -> None:
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise InferenceError("shape-mismatch", f"`{name}` takes square matrices, not {x}", operand=operand)


def _infer_square(name: str) -> Callable[..., tuple[TensorType, ...]]:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        check_square(name, types[0])
        return (types[0] if name != "determinant" else types[0].with_shape(types[0].shape[:-2]),)

    return infer


def _copied(e: Emitter, x: Tensor) -> Tensor:
    return e.map(x.type, [(x, identity(x.type.rank))], lambda s, element: element)


def _outer(x: Tensor) -> list[Any]:
    """Returns the sizes of the batch; one step for a single matrix."""
    return list(x.type.shape[:-2]) or [1]


TOGETHER = 4
"""The rows whose products are subtracted in one pass over the columns."""

Load = Callable[..., Scalar]


def _subtract_rows(
    s: SequenceEmitter,
    at: Sequence[Scalar],
    number: Scalar,
    columns: Scalar,
    total: Tensor,
    factor: Load,
    element: Load,
) -> Tensor:
    """Returns `total[*at, c]` less the products `factor(k) * element(k, c)` of the steps k = 0, 1, ... before `number`,
    for each column."""
    together = s.constant(TOGETHER, I64)

    def less(first: Scalar, count: int, sums: Tensor) -> Tensor:
        """Subtracts the products of `count` steps, from step `first` on."""
        steps = [s.binary("add", first, s.constant(n, I64)) for n in range(count)]
        factors = [factor(k) for k in steps]

        def column(c: Scalar, given: Tensor) -> Tensor:
            value = s.load(given, (*at, c))
            for k, f in zip(steps, factors, strict=True):
                value = s.binary("sub", value, s.binary("mul", f, element(k, c)))
            stored: Tensor = s.store(given, (*at, c), value)
            return stored

        made: Tensor = for_each(s, columns, sums, column)
        return made

    several = s.binary("div", number, together)
    total = for_each(s, several, total, lambda n, t: less(s.binary("mul", n, together), TOGETHER, t))
    done = s.binary("mul", several, together)
    rest: Tensor = for_each(s, s.binary("sub", number, done), total, lambda n, t: less(s.binary("add", done, n), 1, t))
    return rest


def _lower_cholesky(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    """Column j of L is computed as a row of L.mT in a tensor of its own, whose elements are consecutive. Each matrix of
    the batch has its own temporaries, so that devices factor several at once."""
    (x,) = operands
    size, batch = x.type.shape[-1], x.type.rank - 2

    def factor(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        at = tuple(indices)[:batch]

        def column(j: Scalar, lower: Tensor, upper: Tensor, sums: Tensor) -> Sequence[Tensor]:
            below = s.binary("sub", s.size(size), j)

            def index(c: Scalar) -> Scalar:
                return s.binary("add", j, c)

            sums = for_each(s, below, sums, lambda c, t: s.store(t, (*at, c), s.load(x, (*at, index(c), j))))
            sums = _subtract_rows(
                s,
                at,
                j,
                below,
                sums,
                lambda k: s.load(upper, (*at, k, j)),
                lambda k, c: s.load(upper, (*at, k, index(c))),
            )
            root = s.unary("sqrt", s.load(sums, (*at, s.constant(0, I64))))

            def divide(c: Scalar, given: Tensor) -> Tensor:
                quotient = s.binary("div", s.load(sums, (*at, c)), root)
                stored: Tensor = s.store(given, (*at, j, index(c)), quotient)
                return stored

            upper = s.store(for_each(s, below, upper, divide), (*at, j, j), root)
            turned = upper

            def turn(c: Scalar, given: Tensor) -> Tensor:
                stored: Tensor = s.store(given, (*at, index(c), j), s.load(turned, (*at, j, index(c))))
                return stored

            return [for_each(s, below, lower, turn), upper, sums]

        made: Sequence[Tensor] = for_each(s, s.size(size), list(tensors), column)
        return made

    row = x.type.with_shape(x.type.shape[:-1])
    return e.scan(_outer(x), [e.full(types[0], 0), e.memory(x.type), e.memory(row)], factor)[:1]


def _reference_cholesky(x: Numbers) -> Numbers:
    result = np.zeros_like(x)
    for j in range(x.shape[-1]):
        rest = x[..., j:, j] - np.einsum("...ik,...k->...i", result[..., j:, :j], result[..., j, :j])
        root = np.sqrt(rest[..., :1])
        result[..., j, j], result[..., j + 1 :, j] = root[..., 0], rest[..., 1:] / root
    return result


def _differentiate_cholesky(b: Builder, use: Use) -> Sequence[Value]:
    """Only the lower triangle of x is read: an element of it represents both elements of a symmetric matrix.

    S = L^-T tril_half(L^T g) L^-1, where the diagonal of tril_half is halved.
    """
    lower, g = Term(b, use.outputs[0]), Term(b, use.gradient)
    product = lower.matrix_transpose().matmul(g.tril())
    half = product.tril() - _diagonal(product) * 0.5
    left = Term(b, b.triangular_solve(lower.value, half.value, transpose=True))
    turned = Term(b, b.triangular_solve(lower.value, left.matrix_transpose().value, transpose=True))
    both = turned + turned.matrix_transpose()
    return [(both.tril() - _diagonal(both) * 0.5).value]


def _diagonal(x: Term) -> Term:
    b = x.builder
    return x * Term(b, b.eye(n=x.shape[-1], dtype=x.dtype))


def _positive(*shape: int) -> Numbers:
    x = np.random.default_rng(7).standard_normal(shape)
    return np.asarray(x @ x.swapaxes(-1, -2) + 2 * np.eye(shape[-1]))


def _regular(*shape: int) -> Numbers:
    return np.asarray(np.random.default_rng(8).uniform(-1, 1, shape) + 1.5 * np.eye(shape[-1])[::-1])


_SHAPES = ((2, 3, 3), (1, 1), (5, 5), (0, 0), (0, 3, 3))


def _square_cases(make: Callable[..., Numbers]) -> tuple[Case, ...]:
    return tuple(
        Case((shape,), arrays={0: make(*shape)}, dtypes=_DTYPES, tolerance=64.0, terms=max(1, shape[-1]))
        for shape in _SHAPES
    )


cholesky = Operator(
    name="cholesky",
    summary="the lower triangular matrix L with x = L @ L.mT, of symmetric positive definite matrices; only the lower "
    "triangle of x is read; NaN where x is not positive definite",
    operands=(Operand("x", _DTYPES),),
    infer=_infer_square("cholesky"),
    reference=_reference_cholesky,
    gradient=_differentiate_cholesky,
    lower=_lower_cholesky,
    cases=LateCases(lambda: _square_cases(_positive)),
    properties=frozenset({"sequential", "factoring"}),
)


def _infer_solve(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    a, y = types
    check_square("triangular_solve", a)
    if y.rank < 2 or y.shape[-2] != a.shape[-1]:
        message = f"`triangular_solve` of {a} takes right sides with {a.shape[-1]} rows, not {y}"
        raise InferenceError("shape-mismatch", message, operand=1)
    batch = broadcast_shapes([a.shape[:-2], y.shape[:-2]], "triangular_solve")
    return (y.with_shape((*batch, *y.shape[-2:])),)


def _lower_solve(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    a, y = operands
    (result,) = types
    size, transpose = a.type.shape[-1], attributes["transpose"]
    from_end = attributes["upper"] != transpose

    columns = result.shape[-1]

    def solve(s: SequenceEmitter, outer: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        zero, one = s.constant(0, I64), s.constant(1, I64)

        def at(x: Tensor) -> list[Scalar]:
            shape = x.type.shape[:-2]
            skipped = len(outer) - len(shape)
            return [zero if n == 1 else outer[skipped + i] for i, n in enumerate(shape)]

        def factor(i: Scalar, k: Scalar) -> Scalar:
            return s.load(a, (*at(a), k, i) if transpose else (*at(a), i, k))

        last = s.binary("sub", s.size(size), one)

        def position(step: Scalar) -> Scalar:
            return s.binary("sub", last, step) if from_end else step

        def row(number: Scalar, x: Tensor, sums: Tensor) -> Sequence[Tensor]:
            i = position(number)
            sums = for_each(s, s.size(columns), sums, lambda c, t: s.store(t, (*outer, c), s.load(y, (*at(y), i, c))))
            sums = _subtract_rows(
                s,
                outer,
                number,
                s.size(columns),
                sums,
                lambda k: factor(i, position(k)),
                lambda k, c: s.load(x, (*outer, position(k), c)),
            )

            def finish(c: Scalar, given: Tensor) -> Tensor:
                value = s.load(sums, (*outer, c))
                value = value if attributes["unit_diagonal"] else s.binary("div", value, factor(i, i))
                return s.store(given, (*outer, i, c), value)

            return [for_each(s, s.size(columns), x, finish), sums]

        made: Sequence[Tensor] = for_each(s, s.size(size), tensors, row)
        return made

    carried = [e.memory(result), e.memory(result.with_shape((*result.shape[:-2], columns)))]
    return e.scan(result.shape[:-2], carried, solve)[:1]


def _reference_solve(a: Numbers, y: Numbers, upper: bool, transpose: bool, unit_diagonal: bool) -> Numbers:
    a = a.swapaxes(-1, -2) if transpose else a
    batch = np.broadcast_shapes(a.shape[:-2], y.shape[:-2])
    x = np.broadcast_to(y, (*batch, *y.shape[-2:])).copy()
    size = a.shape[-1]
    for i in range(size)[:: -1 if upper != transpose else 1]:
        others = slice(i + 1, size) if upper != transpose else slice(0, i)
        x[..., i, :] -= np.einsum("...k,...kc->...c", a[..., i, others], x[..., others, :])
        x[..., i, :] /= 1 if unit_diagonal else a[..., i, i, None]
    return x


def _differentiate_solve(b: Builder, use: Use) -> Sequence[Value]:
    """X = A^-1 Y:  dY = A^-T g,  dA = -dY X^T, within the triangle that is read."""
    a, y = use.inputs
    attributes = dict(use.attributes)
    turned = {**attributes, "transpose": not attributes["transpose"]}
    dy, x = Term(b, b.triangular_solve(a, use.gradient, **turned)), Term(b, use.outputs[0])
    da = -dy.matmul(x.matrix_transpose())
    da = da.matrix_transpose() if attributes["transpose"] else da
    diagonal = 1 if attributes["unit_diagonal"] else 0
    da = da.triu(diagonal=diagonal) if attributes["upper"] else da.tril(diagonal=-diagonal)
    return [sum_to(b, da.value, a.type.shape), sum_to(b, dy.value, y.type.shape)]


triangular_solve = Operator(
    name="triangular_solve",
    summary="the solution of a @ x = y for triangular matrices a, lower ones or, with `upper`, upper ones; `transpose` "
    "solves a.mT @ x = y, and `unit_diagonal` takes the diagonal as 1; the other triangle is not read",
    operands=(Operand("a", _DTYPES), Operand("y", _DTYPES)),
    attributes=tuple(AttributeSpec(name, "bool", False) for name in ("upper", "transpose", "unit_diagonal")),
    infer=_infer_solve,
    reference=_reference_solve,
    gradient=_differentiate_solve,
    lower=_lower_solve,
    cases=LateCases(lambda: (
        *(
            Case((), {"upper": upper, "transpose": transpose}, arrays={0: _positive(2, 3, 3), 1: _regular(2, 3, 3)},
                 dtypes=_DTYPES, tolerance=64.0, terms=3)
            for upper in (False, True) for transpose in (False, True)
        ),
        Case(((), (2, 5, 1)), {"unit_diagonal": True}, arrays={0: _positive(5, 5) / 8}, tolerance=64.0, terms=5),
        Case(((), (1, 3)), arrays={0: _positive(1, 1)}),
        Case(((0, 0), (0, 2))),
    )),
    properties=frozenset({"sequential", "factoring"}),
)  # fmt: skip


def _lower_inverse(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    """Eliminates in place. After step k, column k is a column of the inverse rather than a unit vector. Each exchange
    of rows becomes an exchange of columns of the inverse, in reverse order."""
    (x,) = operands
    size, batch, dtype = x.type.shape[-1], x.type.rank - 2, x.type.dtype

    def invert(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        at, one = tuple(indices)[:batch], s.constant(1, I64)
        last = s.binary("sub", s.size(size), one)

        def step(k: Scalar, work: Tensor, row: Tensor, pivots: Tensor) -> Sequence[Tensor]:
            pivot = find_pivot(s, work, at, k, size)
            pivots = s.store(pivots, (*at, k), pivot)
            value = s.load(work, (*at, pivot, k))
            work = s.store(work, (*at, pivot, k), s.constant(1, dtype))

            def divide(c: Scalar, given: Tensor, quotients: Tensor) -> Sequence[Tensor]:
                quotient = s.binary("div", s.load(given, (*at, pivot, c)), value)
                given = s.store(given, (*at, pivot, c), s.load(given, (*at, k, c)))
                return [s.store(given, (*at, k, c), quotient), s.store(quotients, (*at, c), quotient)]

            work, row = for_each(s, s.size(size), [work, row], divide)

            def subtract(i: Scalar, given: Tensor) -> Tensor:
                factor = s.load(given, (*at, i, k))
                given = s.store(given, (*at, i, k), s.constant(0, dtype))

                def element(c: Scalar, inner: Tensor) -> Tensor:
                    product = s.binary("mul", factor, s.load(row, (*at, c)))
                    stored: Tensor = s.store(inner, (*at, i, c), s.binary("sub", s.load(inner, (*at, i, c)), product))
                    return stored

                changed: Tensor = for_each(s, s.size(size), given, element)
                return changed

            work = for_each(s, k, work, subtract)
            next_row = s.binary("add", k, one)
            below = s.binary("sub", last, k)
            work = for_each(s, below, work, lambda n, given: subtract(s.binary("add", next_row, n), given))
            return [work, row, pivots]

        work, row, pivots = for_each(s, s.size(size), list(tensors), step)

        def exchange_columns(number: Scalar, given: Tensor) -> Tensor:
            k = s.binary("sub", last, number)
            pivot = s.load(pivots, (*at, k))
            return exchange(s, given, lambda i: (*at, i, k), lambda i: (*at, i, pivot), size)

        return [for_each(s, s.size(size), work, exchange_columns), row, pivots]

    rows = x.type.shape[:-1]
    carried = [_copied(e, x), e.memory(x.type.with_shape(rows)), e.memory(TensorType(I64, rows))]
    return e.scan(_outer(x), carried, invert)[:1]


def _reference_inverse(x: Numbers) -> Numbers:
    result = x.copy()
    size = x.shape[-1]
    for position in np.ndindex(x.shape[:-2]):
        work, pivots = result[position], [0] * size
        for k in range(size):
            pivots[k] = pivot_row(work, k)
            value, work[k, k] = work[k, k], 1
            work[k] /= value
            others = np.arange(size) != k
            factors, work[others, k] = work[others, k], 0
            work[others] -= factors[:, None] * work[k]
        for k in reversed(range(size)):
            work[:, [k, pivots[k]]] = work[:, [pivots[k], k]]
    return result


def _differentiate_inverse(b: Builder, use: Use) -> Sequence[Value]:
    turned = Term(b, use.outputs[0]).matrix_transpose()
    return [(-turned.matmul(Term(b, use.gradient)).matmul(turned)).value]


inverse = Operator(
    name="inverse",
    summary="the inverse of square matrices, by elimination with pivots (Gauss and Jordan); NaN or infinities for a "
    "singular matrix",
    operands=(Operand("x", _DTYPES),),
    infer=_infer_square("inverse"),
    reference=_reference_inverse,
    gradient=_differentiate_inverse,
    lower=_lower_inverse,
    cases=LateCases(lambda: _square_cases(_regular)),
    properties=frozenset({"sequential", "factoring"}),
)


def _lower_determinant(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands
    size, batch = x.type.shape[-1], x.type.rank - 2

    def factor(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        at = tuple(indices)[:batch]

        def column(k: Scalar, work: Tensor, total: Tensor) -> Sequence[Tensor]:
            pivot = find_pivot(s, work, at, k, size)
            work = swap_rows(s, work, at, k, pivot, size)
            value = s.load(work, (*at, k, k))
            signed = s.select(s.compare("eq", pivot, k), value, s.unary("neg", value))
            total = s.store(total, at, s.binary("mul", s.load(total, at), signed))
            work = eliminate(s, work, at, k, size)
            return [work, total]

        made: Sequence[Tensor] = for_each(s, s.size(size), tensors, column)
        return made

    return [e.scan(_outer(x), [_copied(e, x), e.full(types[0], 1)], factor)[1]]


def _reference_determinant(x: Numbers) -> Numbers:
    result = np.ones(x.shape[:-2], x.dtype)
    for position in np.ndindex(x.shape[:-2]):
        work = x[position].copy()
        for k in range(len(work)):
            sign = 1 if pivot_row(work, k) == k else -1
            result[position] *= sign * work[k, k]
            factors = work[k + 1 :, k] / (work[k, k] if work[k, k] != 0 else 1)
            work[k + 1 :] -= factors[:, None] * work[k]
    return result


def _differentiate_determinant(b: Builder, use: Use) -> Sequence[Value]:
    x, g, result = Term(b, use.inputs[0]), Term(b, use.gradient), Term(b, use.outputs[0])
    return [((g * result).unsqueeze(axes=(-1, -2)) * x.inverse().matrix_transpose()).value]


determinant = Operator(
    name="determinant",
    summary="the determinant of square matrices, by elimination with pivots; its gradient is NaN for a singular matrix",
    operands=(Operand("x", _DTYPES),),
    infer=_infer_square("determinant"),
    reference=_reference_determinant,
    gradient=_differentiate_determinant,
    lower=_lower_determinant,
    cases=LateCases(lambda: _square_cases(_regular)),
    properties=frozenset({"sequential", "factoring"}),
)

OPERATORS = (cholesky, triangular_solve, inverse, determinant)
