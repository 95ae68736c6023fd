"""`split-reductions`: splits long reductions with few results among many blocks of threads.

    y[i, j] = sum x[i, n, j]    becomes    p[i, s, j] = sum x[i, s, n, j]    over a part of n each
                                           y[i, j] = sum p[i, s, j]

The sum of all elements of a 4096 x 4096 matrix takes 1024 blocks instead of one; the sums of the 64 columns of a
65536 x 64 matrix take 65536 threads instead of 64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt, prod
from typing import ClassVar

from ...dialect.dims import Size, bounds, product
from ...dialect.dtype import DType
from ...dialect.graph import Function, Module, Node, Value
from ...dialect.ops.support.reducing import reduced_axes
from ...dialect.types import BF16, F16, F32
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter


@dataclass(frozen=True)
class SplitReductions(Pass):
    """Rewrites `sum`, `mean`, `max`, `min`, `any` and `all` as reductions of parts and a reduction of their results.

    The reduced axes must be neighbours of static sizes. The number n of elements for each result counts:

    - Where the last axis is reduced, a block computes a result. The parts are as few as give `blocks` blocks, and each
      has at least `row` elements.
    - Elsewhere, a thread computes a result. The parts are as few as give `blocks` blocks of 256 threads, and each has
      at least `column` elements.

    A reduction with an eighth of these blocks or more stays as it is, and so does one with fewer than eight parts,
    since a computed operand is written to memory before its parts are reduced, by another launch. The number of parts
    divides n: it is the least such number that suffices, else the greatest within the limit of elements. Where no
    number divides n so, as with a prime n or a symbolic size, the reduction stays as it is. Symbolic sizes of the
    results count with their greatest value. The results of the parts are reduced by the same rule.

    Sums of f16 and bf16 are f32 until the last one. The order of the elements is fixed, so that a call always returns
    the same bits. The pass only reassociates sums.
    """

    name: ClassVar[str] = "split-reductions"
    blocks: int = 528
    row: int = 1024
    column: int = 64

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: _Rewriter(function, context, self).run())

    def parts_of(self, before: int, length: int, after: int) -> int:
        """Returns the number of parts of reductions of `length` elements each, for `before` x `after` results."""
        wanted, least = (self.blocks, self.row) if after == 1 else (self.blocks * _THREADS, self.column)
        enough = -(-wanted // max(before * after, 1))
        within = [parts for parts in _divisors(length) if _FEWEST <= parts <= length // least]
        if enough < _FEWEST or not within:
            return 1
        return min((parts for parts in within if parts >= enough), default=within[-1])


_THREADS = 256
_FEWEST = 8
"""The fewest parts: a product or another value is written to memory before it is reduced in parts, by two launches."""
_COMBINING: Mapping[str, str] = {"sum": "sum", "mean": "sum", "max": "max", "min": "min", "any": "any", "all": "all"}
"""The operator that reduces the parts of each operator."""


def _divisors(number: int) -> list[int]:
    low = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return sorted({*low, *(number // each for each in low)})


class _Rewriter(Rewriter):
    def __init__(self, function: Function, context: Context, options: SplitReductions) -> None:
        super().__init__(function)
        self.context, self.options = context, options

    def visit(self, node: Node) -> Replacement | None:
        if node.op not in _COMBINING:
            return None
        (x,), out = node.inputs, node.output.type
        axes = sorted(reduced_axes(x.type.shape, dict(node.attributes)))
        if not axes or axes[-1] - axes[0] + 1 != len(axes):
            return None
        before, after = product(x.type.shape[: axes[0]]), product(x.type.shape[axes[-1] + 1 :])
        sizes = [size for size in x.type.shape[axes[0] : axes[-1] + 1] if isinstance(size, int)]
        if len(sizes) < len(axes) or self.parts_of(before, prod(sizes), after) < 2:
            return None
        if not self.context.allow("split", node):
            return None
        b = NodeBuilder(self.names, node)
        wide = _wide(x.type.dtype) if _COMBINING[node.op] == "sum" else x.type.dtype
        parts = self.parts_of(before, prod(sizes), after)
        # Reshaped first, so that the kernel of the parts widens what it reads.
        total = b.reshape(x, shape=(before, parts, prod(sizes) // parts, *(() if after == 1 else (after,))))
        if wide is not x.type.dtype:
            total = b.cast(total, dtype=wide)
        total = self.reduce(b, _COMBINING[node.op], total, before, prod(sizes), after)
        if node.op == "mean":
            total = b.divide(total, b.scalar(prod(sizes), wide))
        if total.type.dtype is not out.dtype:
            total = b.cast(total, dtype=out.dtype)
        if total.type.shape != out.shape:
            total = b.reshape(total, shape=out.shape)
        return Replacement(tuple(b.nodes), (total,))

    def reduce(self, b: NodeBuilder, op: str, x: Value, before: Size, length: int, after: Size) -> Value:
        """Reduces `length` elements for each of `before` x `after` results, in as many steps as the rule says."""
        parts = self.parts_of(before, length, after)
        inner = () if after == 1 else (after,)
        if parts > 1:
            split = (before, parts, length // parts, *inner)
            x = x if x.type.shape == split else b.reshape(x, shape=split)
            (x,) = b.apply(op, [x], {"axis": (2,), "keepdims": False})
            return self.reduce(b, op, x, before, parts, after)
        if x.type.shape != (before, length, *inner):
            x = b.reshape(x, shape=(before, length, *inner))
        (total,) = b.apply(op, [x], {"axis": (1,), "keepdims": False})
        return total

    def parts_of(self, before: Size, length: int, after: Size) -> int:
        return self.options.parts_of(bounds(before)[1], length, bounds(after)[1])


def _wide(dtype: DType) -> DType:
    return F32 if dtype in (F16, BF16) else dtype
