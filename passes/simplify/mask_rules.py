"""Algebra of masks of positions: every way to write a triangle of a matrix becomes `triangular_mask`.

    iota(R)[:, None] + 3 >= iota(C)            == triangular_mask(R, C, diagonal=3)
    iota(C) > iota(R)[:, None]                 == not triangular_mask(R, C)
    tril(full((R, C), 1)) == 0                 == where(triangular_mask(R, C), 1, 0) == 0
                                               == where(triangular_mask(R, C), false, true)
                                               == not triangular_mask(R, C)
    where(mask and other, x, constant)         == where(mask, where(other, x, constant), constant)

A `triangular_mask` reads no tensor, so `fuse` copies it into the kernel that applies it, and attention skips the keys
that it masks. Comparisons of floats stay as they are: a position beyond the digits of the dtype is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...dialect.dims import Poly, Size, add, at_least, bounds, multiply
from ...dialect.graph import Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.types import DType, TensorType
from .rules import Match, Rule, Values

# --- comparisons of positions ---

MOST = 1 << 62
"""The largest magnitude of a diagonal, so that a row index can be added to it in 64 bits."""


@dataclass(frozen=True, slots=True)
class _Positions:
    """The integers `sum(factor * position along the axis) + constant`."""

    terms: tuple[tuple[int, int, Size], ...]
    """The terms, each an axis, counted from the end, its factor, and its size."""
    constant: Size

    def plus(self, other: _Positions, factor: int) -> _Positions:
        total = {axis: (k, size) for axis, k, size in self.terms}
        for axis, k, size in other.terms:
            total[axis] = (total.get(axis, (0, size))[0] + factor * k, size)
        constant = add(self.constant, multiply(other.constant, factor))
        return _Positions(tuple((axis, k, size) for axis, (k, size) in sorted(total.items()) if k), constant)

    def fits(self, dtype: DType) -> bool:
        """Returns whether the dtype holds all of the integers, so that none wraps."""
        low, high = bounds(self.constant)
        for _, k, size in self.terms:
            last = k * max(bounds(size)[1] - 1, 0)
            low, high = low + min(last, 0), high + max(last, 0)
        digits = dtype.bits - dtype.is_signed
        return (-(1 << digits) if dtype.is_signed else 0) <= low and high < 1 << digits


def _positions(m: Match, value: Value) -> _Positions | None:
    """Returns the value as a sum of positions; None if it has another form, or if an intermediate integer may wrap."""
    dtype = value.type.dtype
    if not dtype.is_integer:
        return None
    found = _computed_positions(m, value)
    return found if found is not None and found.fits(dtype) else None


def _computed_positions(m: Match, value: Value) -> _Positions | None:
    node, type = m.definition(value), value.type
    if node is None:
        return None
    if node.op == "iota":
        axis = node.attribute("axis")
        assert isinstance(axis, int), node
        axis = axis % type.rank - type.rank
        return _Positions(() if type.shape[axis] == 1 else ((axis, 1, type.shape[axis]),), 0)
    if node.op == "constant":
        array = m.array(value)
        return _Positions((), int(array)) if array is not None and array.ndim == 0 else None
    if node.op == "size_value":
        size = node.attribute("size")
        assert isinstance(size, (int, Poly)), node
        return _Positions((), size)
    operands = [_positions(m, v) for v in node.inputs]
    first = operands[0] if operands else None
    if first is None:
        return None
    if node.op == "cast":
        return first
    if node.op in ("add", "subtract"):
        second = operands[1]
        return None if second is None else first.plus(second, 1 if node.op == "add" else -1)
    if OPERATORS[node.op].has("view"):
        return _with_axes_of_one(first, node.inputs[0].type, type)
    return None


def _with_axes_of_one(positions: _Positions, before: TensorType, after: TensorType) -> _Positions | None:
    """Returns positions along a vector after a reshape adds axes of size 1."""
    longer = [i for i, size in enumerate(after.shape) if size != 1]
    if before.rank != 1 or [after.shape[i] for i in longer] != [size for size in before.shape if size != 1]:
        return None
    return _Positions(
        tuple((longer[0] - after.rank, k, size) for _, k, size in positions.terms),
        positions.constant,
    )


COMPARED: Mapping[str, tuple[int, bool]] = {
    # row - column + k op 0 == column <= row + k + offset, or its opposite where that is False
    "greater_equal": (0, True),
    "greater": (-1, True),
    "less_equal": (-1, False),
    "less": (0, False),
}
_MIRRORED: Mapping[str, str] = {
    "greater_equal": "less_equal",
    "greater": "less",
    "less_equal": "greater_equal",
    "less": "greater",
}


def compare_positions(m: Match) -> Values:
    # row + a >= column + b == triangular_mask(diagonal=a - b)
    if m.type.rank < 2 or not m.dtype.is_integer:
        return None
    left, right = (_positions(m, v) for v in m.inputs)
    if left is None or right is None:
        return None
    difference, operator = left.plus(right, -1), m.node.op
    factors = [(axis, k) for axis, k, _ in difference.terms]
    if factors == [(-2, -1), (-1, 1)]:
        # a op b == -a mirrored(op) -b
        difference, operator = right.plus(left, -1), _MIRRORED[operator]
    elif factors != [(-2, 1), (-1, -1)]:
        return None
    offset, below = COMPARED[operator]
    diagonal = add(difference.constant, offset)
    if not (at_least(diagonal, -MOST) and at_least(MOST, diagonal)):
        return None
    mask = _triangle(m, diagonal)
    return _as_result(m, mask if below else m.b.logical_not(mask))


def _triangle(m: Match, diagonal: Size) -> Value:
    rows, columns = m.type.shape[-2:]
    return m.b.triangular_mask(rows=rows, columns=columns, diagonal=diagonal)


def _as_result(m: Match, matrix: Value) -> Value:
    return matrix if matrix.type.shape == m.type.shape else m.b.broadcast_to(matrix, shape=m.type.shape)


# --- matrices of two numbers ---


def triangle_of_one_number(m: Match) -> Values:
    # tril(full(c)) == where(triangular_mask, c, 0), triu(full(c)) == where(triangular_mask one lower, 0, c)
    number = _number_everywhere(m, m.inputs[0])
    diagonal = m.attribute("diagonal")
    if number is None:
        return None
    assert isinstance(diagonal, (int, Poly)), m.node
    zero = m.b.scalar(0, m.type.dtype)
    if m.node.op == "tril":
        return _as_result(m, m.b.where(_triangle(m, diagonal), number, zero))
    return _as_result(m, m.b.where(_triangle(m, add(diagonal, -1)), zero, number))


def _number_everywhere(m: Match, value: Value) -> Value | None:
    """Returns the element of a value as a scalar, if all elements are one constant."""
    node = m.definition(value, "full", "broadcast_to")
    if node is None:
        return None
    if node.op == "full":
        number = node.attribute("value")
        assert isinstance(number, (bool, int, float)), node
        return m.b.scalar(number, value.type.dtype)
    return node.inputs[0] if _is_scalar(m, node.inputs[0]) else None


def operator_of_triangle(m: Match) -> Values:
    # f(where(triangle, a, b)) == where(triangle, f(a), f(b)) for constants a and b
    matrices = [i for i, v in enumerate(m.inputs) if not _is_scalar(m, v)]
    if len(matrices) != 1:
        return None
    choice = m.definition(m.inputs[matrices[0]], "where")
    if choice is None or not _is_mask(m, choice.inputs[0]) or not all(_is_scalar(m, v) for v in choice.inputs[1:]):
        return None

    def apply(scalar: Value) -> Value:
        inputs = tuple(scalar if i in matrices else v for i, v in enumerate(m.inputs))
        return m.b.apply(m.node.op, inputs, dict(m.node.attributes))[0]

    return m.same(m.b.where(choice.inputs[0], *map(apply, choice.inputs[1:])))


def _is_scalar(m: Match, value: Value) -> bool:
    return value.type.rank == 0 and m.definition(value, "constant") is not None


def _is_mask(m: Match, value: Value) -> bool:
    """Returns whether the value is a triangular mask or the negation of one."""
    inverted = m.definition(value, "logical_not")
    return m.definition(inverted.inputs[0] if inverted else value, "triangular_mask") is not None


# --- choices ---


def choose_truth(m: Match) -> Values:
    # where(c, true, false) == c, where(c, false, true) == not c
    condition, x, y = m.inputs
    for wanted in (True, False):
        if m.is_filled(x, wanted) and m.is_filled(y, not wanted) and x.type.dtype.bits == 1:
            return m.same(condition if wanted else m.b.logical_not(condition))
    return None


def choose_by_two_masks(m: Match) -> Values:
    # where(a and b, x, y) == where(a, where(b, x, y), y), where(a or b, x, y) == where(a, x, where(b, x, y))
    condition, x, y = m.inputs
    both = m.definition(condition, "logical_and", "logical_or")
    if both is None or not all(_is_mask(m, v) for v in both.inputs):
        return None
    first, second = both.inputs
    if not _is_scalar(m, y if both.op == "logical_and" else x):
        return None
    inner = m.b.where(second, x, y)
    return m.same(m.b.where(first, inner, y) if both.op == "logical_and" else m.b.where(first, x, inner))


GENERAL: tuple[Rule, ...] = ()

_OF_TRIANGLE = ("cast", "logical_not", "negate", "equal", "not_equal", *COMPARED, "add", "subtract", "multiply")
"""The operators that turn one mask into another, as in `(1 - tril(ones)) * -1e9`. Each rounds correctly, so that the
result for a constant has the same bits as the result for an element."""

BY_RULE: Mapping[Rule, tuple[str, ...]] = {
    compare_positions: tuple(COMPARED),
    triangle_of_one_number: ("tril", "triu"),
    operator_of_triangle: _OF_TRIANGLE,
    choose_truth: ("where",),
    choose_by_two_masks: ("where",),
}
BY_NAME: Mapping[str, tuple[Rule, ...]] = {
    name: tuple(rule for rule, names in BY_RULE.items() if name in names)
    for name in sorted({name for names in BY_RULE.values() for name in names})
}
