"""What the tiler sees of a structured op on memrefs: loops, operands with index maps, and whether it sums products.

Reads `linalg.generic` through the bindings and nothing of the operator that it came from. What it does not understand
it says None to, and the op goes the way of the upstream passes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Operand:
    """A memref and where each of its axes is read: `index[axis]` maps loop numbers to coefficients; `offsets` adds."""

    type: str
    index: tuple[tuple[tuple[int, int], ...], ...]
    offsets: tuple[int, ...]

    def depends_on(self, loop: int) -> bool:
        return any(number == loop for axis in self.index for number, _ in axis)

    def unit_stride(self, loop: int) -> bool:
        """Does one step of the loop move by one element of contiguous memory, and nothing else?"""
        if not self.index or not _contiguous_rows(self.type):
            return False
        return dict(self.index[-1]).get(loop) == 1 and not any(n == loop for axis in self.index[:-1] for n, _ in axis)


@dataclass(frozen=True, slots=True)
class Contraction:
    """`result[...] += left[...] * right[...]` over `loops` loops; `parallel[i]` says which of them are not summed over.

    `sizes[i]` is (operand, axis) where the number of iterations of loop i can be read; operand 2 is the result.
    """

    element: str
    parallel: tuple[bool, ...]
    operands: tuple[Operand, Operand, Operand]
    sizes: tuple[tuple[int, int], ...]

    @property
    def result(self) -> Operand:
        return self.operands[2]


_STRIDED = re.compile(r"strided<\[([^]]*)\]")


def _contiguous_rows(type: str) -> bool:
    strided = _STRIDED.search(type)
    return strided is None or strided.group(1).split(",")[-1].strip() == "1"


_TERM = re.compile(r"(?:d(\d+)(?: \* (-?\d+))?|(-?\d+))")


def _linear(expression: str) -> tuple[tuple[tuple[int, int], ...], int] | None:
    """Reads `d0 * 2 + d3 + 1` as coefficients by loop and a constant; None for anything else."""
    coefficients: dict[int, int] = {}
    constant = 0
    for part in expression.split(" + "):
        term = _TERM.fullmatch(part.strip("() "))
        if term is None:
            return None
        loop, factor, number = term.groups()
        if loop is None:
            constant += int(number)
        else:
            coefficients[int(loop)] = coefficients.get(int(loop), 0) + int(factor or 1)
    return tuple(sorted(coefficients.items())), constant


def _operand(value: Any, map: Any) -> Operand | None:
    axes = [_linear(str(expression)) for expression in map.results]
    if any(a is None for a in axes):
        return None
    known = [a for a in axes if a is not None]
    return Operand(str(value.type), tuple(a[0] for a in known), tuple(a[1] for a in known))


def _sums_products(block: Any) -> bool:
    """Is the body `yield accumulator + a * b` of floats, in any order?"""
    operations = list(block.operations)
    if [o.operation.name for o in operations] != ["arith.mulf", "arith.addf", "linalg.yield"]:
        return False
    left, right, accumulator = block.arguments
    product, total, result = (o.operation for o in operations)
    return (
        {*product.operands} == {left, right}
        and {*total.operands} == {accumulator, product.results[0]}
        and result.operands[0] == total.results[0]
    )


def _find_size(loop: int, operands: tuple[Operand, ...]) -> tuple[int, int] | None:
    for number, operand in reversed(list(enumerate(operands))):
        for axis, (terms, offset) in enumerate(zip(operand.index, operand.offsets, strict=True)):
            if terms == ((loop, 1),) and offset == 0:
                return number, axis
    return None


def read_contraction(op: Any, affine_map: Any) -> Contraction | None:
    """The contraction that a `linalg.generic` on memrefs is, or None. `affine_map` reads a map from an attribute."""
    operation = op.operation
    if operation.name != "linalg.generic" or len(operation.operands) != 3 or len(operation.results):
        return None
    if not _sums_products(operation.regions[0].blocks[0]):
        return None
    values = list(operation.operands)
    types = [re.search(r"x?(\w+)(?:, .*)?>$", str(v.type)) for v in values]
    elements = {t.group(1).rsplit("x", 1)[-1] for t in types if t is not None}
    if elements not in ({"f32"}, {"f64"}):
        return None
    maps = [affine_map(a) for a in operation.attributes["indexing_maps"]]
    operands = [_operand(v, m) for v, m in zip(values, maps, strict=True)]
    if any(o is None for o in operands):
        return None
    left, right, result = (o for o in operands if o is not None)
    parallel = tuple("parallel" in str(a) for a in operation.attributes["iterator_types"])
    sizes = [_find_size(loop, (left, right, result)) for loop in range(len(parallel))]
    if any(s is None for s in sizes):
        return None
    return Contraction(elements.pop(), parallel, (left, right, result), tuple(s for s in sizes if s is not None))
