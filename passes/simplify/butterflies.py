"""`butterflies`: Fourier transforms by butterflies, where products with matrices would take many times as long.

%re, %im = fourier_axis(%x) {size = 1024, ...}    becomes    %re, %im = fourier_rows(factors, %x) {size = 1024, ...}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ...dialect.dims import product
from ...dialect.graph import Constant, Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Builder
from ...dialect.ops.fourier_axis import by_method
from ...dialect.ops.fourier_rows import tables, takes
from ...dialect.ops.support.butterflies import PRIMES
from ...dialect.ops.support.mixed_radix import Method, Pair
from ..manager import Context, Pass
from ..rewrite import NodeBuilder, Replacement, Rewriter


@dataclass(frozen=True)
class Butterflies(Pass):
    """Replaces `fourier_axis` by `fourier_rows`.

    A length with prime factors above 13 is split: butterflies transform its columns, and products with matrices its
    rows. A prime above `prime` is a convolution with a chirp, by transforms of twice its length or
    little more.

    One thread computes a row, which fits the cache, so the pass is for CPUs. Errors grow with the logarithm of the
    length instead of its root.
    """

    name: ClassVar[str] = "butterflies"
    prime: int = 64

    def rewrite(self, module: Module, context: Context) -> Module:
        method = Method(max(PRIMES), self.prime, _columns)
        return module.map_functions(lambda function: _Rewriter(function, context, method).run())


class _Rewriter(Rewriter):
    def __init__(self, function: Function, context: Context, method: Method) -> None:
        super().__init__(function)
        self.context, self.method = context, method

    def visit(self, node: Node) -> Replacement | None:
        if node.op != "fourier_axis" or not self.context.allow(node.op, node):
            return None
        b, attributes = NodeBuilder(self.names, node), dict(node.attributes)
        if takes(node.inputs[0].type, attributes):
            results = _rows(b, node.inputs, attributes)
        else:
            results = by_method(b, node.inputs, attributes, self.method)
        return Replacement(tuple(b.nodes), tuple(results))


def _rows(b: Builder, parts: Sequence[Value], attributes: dict[str, Any]) -> Sequence[Value]:
    factors = tables(attributes["size"], attributes["form"], attributes["sign"])
    constant = Constant(factors.astype(parts[0].type.dtype.numpy))
    return b.apply("fourier_rows", [*b.apply("constant", (), {"value": constant}), *parts], attributes)


def _columns(b: Builder, x: Pair, size: int, sign: int) -> Pair:
    *outer, _, inner = x.real.type.shape
    parts = [b.reshape(p, shape=(product(outer), size, inner)) for p in (x.real, x.imaginary) if p]
    made = _rows(b, parts, {"size": size, "form": "complex", "sign": sign, "scale": 1.0})
    real, imaginary = (b.reshape(part, shape=x.real.type.shape) for part in made)
    return Pair(real, imaginary)
