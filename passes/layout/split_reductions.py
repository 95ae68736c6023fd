"""`split-reductions`: splits long reductions with few results among many blocks of threads.

    y[i, j] = sum x[i, n, j]    becomes    p[i, s, j] = sum x[i, s, n, j]    over a part of n each
                                           y[i, j] = sum p[i, s, j]

The sum of all elements of a 4096 x 4096 matrix takes 1024 blocks instead of one; the sums of the 64 columns of a
65536 x 64 matrix take 65536 threads instead of 64.

The position of the greatest element becomes two such reductions:

    y[i] = argmax x[i, n]       becomes    m[i] = max x[i, n]
                                           y[i] = min (n where x[i, n] == m[i], the length elsewhere)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt, prod
from typing import Any, ClassVar

from ...dialect.dims import Size, bounds, product
from ...dialect.dtype import DType
from ...dialect.graph import Function, Module, Node, Value, walk
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.ops.support.reducing import reduced_axes
from ...dialect.types import BF16, F16, F32, I32, I64
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter


@dataclass(frozen=True)
class SplitReductions(Pass):
    """Rewrites `sum`, `mean`, `prod`, `max`, `min`, `any`, `all`, `argmax` and `argmin` as reductions of parts and a
    reduction of their results.

    The reduced axes must be neighbours of static sizes. The number n of elements for each result counts:

    - Where the last axis is reduced, a block computes a result. The parts are as few as give `blocks` blocks, and each
      has at least `row` elements.
    - Elsewhere, a thread computes a result. The parts are as few as give `blocks` blocks of 256 threads, and each has
      at least `column` elements.

    A reduction with an eighth of these blocks or more stays as it is, and so does one with fewer than eight parts,
    since a computed operand is written to memory before its parts are reduced, by another launch. The number of parts
    divides n: it is the least such number that suffices, else the greatest within the limit of elements. Where that is
    less than half of the number that suffices or of the limit, as with a prime n, the parts do not divide n: the
    remainder is one more part. A reduction over a symbolic size stays as it is: its kernel splits it in each call.
    Symbolic sizes of the results count with their greatest value. The results of the parts are reduced by the same
    rule.

    An operator that is defined by reductions, such as `variance`, `softmax` or `layer_norm`, is replaced by its
    definition if these are split, and if the last axis is not reduced or each row has at least `long` elements: the
    definition writes what it computes between its reductions to memory. The softmax of an attention stays.

    Sums and products of f16 and bf16 are f32 until the last one. The order of the elements is fixed, so that a call
    always returns the same bits. The pass only reassociates sums and products.
    """

    name: ClassVar[str] = "split-reductions"
    blocks: int = 528
    row: int = 1024
    column: int = 64
    long: int = 32768

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Rewriter(function, context, self).run())

    def parts_of(self, before: int, length: int, after: int) -> int:
        """Returns the number of parts of reductions of `length` elements each, for `before` x `after` results. It does
        not count the remainder."""
        wanted, least = (self.blocks, self.row) if after == 1 else (self.blocks * _THREADS, self.column)
        enough = -(-wanted // max(before * after, 1))
        most = min(enough, length // least)
        if most < _FEWEST:
            return 1
        within = [parts for parts in _divisors(length) if parts <= length // least]
        parts = min((each for each in within if each >= enough), default=within[-1])
        return parts if 2 * parts >= most else most


_THREADS = 256
_FEWEST = 8
"""The fewest parts: a product or another value is written to memory before it is reduced in parts, by two launches."""
_COMBINING: Mapping[str, str] = {
    "sum": "sum",
    "mean": "sum",
    "prod": "prod",
    **{name: name for name in ("max", "min", "any", "all")},
}
"""The operator that reduces the parts of each operator."""
_POSITIONS: Mapping[str, str] = {"argmax": "max", "argmin": "min"}
"""The operator whose result is the element at the position."""
_MOST_I32 = (1 << 31) - 1


def _divisors(number: int) -> list[int]:
    low = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return sorted({*low, *(number // each for each in low)})


@dataclass(frozen=True)
class _Rows:
    """The reductions of a node: `before` x `after` results of `length` elements each."""

    before: Size
    length: int
    after: Size


class _Rewriter(Rewriter):
    def __init__(self, function: Function, context: Context, options: SplitReductions) -> None:
        super().__init__(function)
        self.context, self.options = context, options
        self.weights = _weights_of_products(function)

    def visit(self, node: Node) -> Replacement | None:
        if node.op in _COMBINING or node.op in _POSITIONS:
            rows = self.rows_of(node)
            if rows is None or not self.context.allow("split", node):
                return None
            return self.split(node, rows) if node.op in _COMBINING else self.find_position(node, rows)
        return self.define(node)

    def rows_of(self, node: Node) -> _Rows | None:
        """Returns the reductions of a node if they are split."""
        shape = node.inputs[0].type.shape
        axes = sorted(reduced_axes(shape, dict(node.attributes)))
        if not axes or axes[-1] - axes[0] + 1 != len(axes):
            return None
        sizes = [size for size in shape[axes[0] : axes[-1] + 1] if isinstance(size, int)]
        rows = _Rows(product(shape[: axes[0]]), prod(sizes), product(shape[axes[-1] + 1 :]))
        return rows if len(sizes) == len(axes) and self.parts_of(rows) > 1 else None

    def parts_of(self, rows: _Rows) -> int:
        return self.options.parts_of(bounds(rows.before)[1], rows.length, bounds(rows.after)[1])

    def split(self, node: Node, rows: _Rows) -> Replacement:
        (x,), out = node.inputs, node.output.type
        b = NodeBuilder(self.names, node)
        op = _COMBINING[node.op]
        wide = _wide(x.type.dtype) if op in ("sum", "prod") else x.type.dtype

        def widen(part: Value) -> Value:
            return part if wide is x.type.dtype else b.cast(part, dtype=wide)

        total = self.reduce(b, op, x, rows, widen)
        if node.op == "mean":
            total = b.divide(total, b.scalar(rows.length, wide))
        if total.type.dtype is not out.dtype:
            total = b.cast(total, dtype=out.dtype)
        if total.type.shape != out.shape:
            total = b.reshape(total, shape=out.shape)
        return Replacement(tuple(b.nodes), (total,))

    def reduce(
        self, b: NodeBuilder, op: str, x: Value, rows: _Rows, prepare: Callable[[Value], Value] = lambda part: part
    ) -> Value:
        """Reduces rows in as many steps as the rule says. The function prepares parts: the kernel of the parts computes
        what it reads so."""
        parts = self.parts_of(rows)
        inner = () if rows.after == 1 else (rows.after,)
        if parts == 1:
            (total,) = b.apply(op, [prepare(_reshape(b, x, (rows.before, rows.length, *inner)))], _along(1))
            return total
        each = rows.length // parts
        left = rows.length - parts * each
        whole = x
        if left:
            x = _reshape(b, x, (rows.before, rows.length, *inner))
            whole = b.slice(x, starts=(0, 0), stops=(None, parts * each))
        whole = _reshape(b, whole, (rows.before, parts, each, *inner))
        (totals,) = b.apply(op, [prepare(whole)], _along(2))
        if left:
            rest = b.slice(x, starts=(0, parts * each), stops=(None, rows.length))
            (last,) = b.apply(op, [prepare(rest)], _along(1, keepdims=True))
            totals = b.concat(totals, last, axis=1)
        return self.reduce(b, op, totals, _Rows(rows.before, parts + (left > 0), rows.after))

    def find_position(self, node: Node, rows: _Rows) -> Replacement:
        (x,) = node.inputs
        given: dict[str, Any] = dict(node.attributes)
        axis = given["axis"] % x.type.rank
        b = NodeBuilder(self.names, node)
        (best,) = b.apply(_POSITIONS[node.op], [x], {"axis": (axis,), "keepdims": True})
        found = b.equal(x, best)
        if x.type.dtype.is_float:
            # The best is NaN only if an element is NaN.
            found = b.logical_or(found, b.isnan(x))
        counter = I32 if rows.length <= _MOST_I32 else I64
        line = (1,) * axis + (rows.length,) + (1,) * (x.type.rank - axis - 1)
        here = b.where(found, b.iota(shape=line, axis=axis, dtype=counter), b.scalar(rows.length, counter))
        (first,) = b.apply("min", [here], {"axis": (axis,), "keepdims": given["keepdims"]})
        result = first if counter is I64 else b.cast(first, dtype=I64)
        return Replacement(tuple(b.nodes), (result,))

    def define(self, node: Node) -> Replacement | None:
        """Returns the definition of an operator, if it has reductions and they are split."""
        operator = OPERATORS[node.op]
        if operator.decompose is None or operator.row_axes is None or node.outputs[0].name in self.weights:
            return None
        b = NodeBuilder(self.names, node)
        results = operator.decompose(b, node.inputs, dict(node.attributes))
        for part in b.nodes:
            rows = self.rows_of(part) if part.op in _COMBINING else None
            if rows is not None and (rows.after != 1 or rows.length >= self.options.long):
                allowed = self.context.allow("define", node)
                return Replacement(tuple(b.nodes), tuple(results)) if allowed else None
        return None


def _weights_of_products(function: Function) -> set[str]:
    """Returns the names of the values that only elementwise operators lie between and the first factor of a product,
    such as the weights of an attention."""
    found: set[str] = set()
    for node in reversed(list(walk(function.body))):
        operator = OPERATORS[node.op]
        if operator.has("contraction"):
            found.add(node.inputs[0].name)
        elif (operator.has("elementwise") or operator.has("pointwise")) and found & {v.name for v in node.outputs}:
            found |= {value.name for value in node.inputs}
    return found


def _along(axis: int, *, keepdims: bool = False) -> dict[str, Any]:
    return {"axis": (axis,), "keepdims": keepdims}


def _reshape(b: NodeBuilder, x: Value, shape: tuple[Size, ...]) -> Value:
    return x if x.type.shape == shape else b.reshape(x, shape=shape)


def _wide(dtype: DType) -> DType:
    return F32 if dtype in (F16, BF16) else dtype
