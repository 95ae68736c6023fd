"""Shapes as MLIR spells them: tensor and memref types, strides, and the axes that a reshape merges and splits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from ...dialect.dims import Shape, Size, multiply, product
from ...dialect.emitter import Index, IndexMap
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import TensorType
from .records import Slice
from .text import FunctionText, element_type

DYNAMIC = "?"


def extents(shape: Shape) -> tuple[str, ...]:
    return tuple(str(size) if isinstance(size, int) else DYNAMIC for size in shape)


def shaped_type(kind: str, dims: Sequence[str], element: str) -> str:
    return f"{kind}<{''.join(f'{dim}x' for dim in dims)}{element}>"


def tensor_type(type: TensorType) -> str:
    return shaped_type("tensor", extents(type.shape), element_type(type.dtype))


def memref_type(type: TensorType) -> str:
    return shaped_type("memref", extents(type.shape), element_type(type.dtype))


def values(sizes: Sequence[Size], text: FunctionText) -> str:
    """Returns sizes as operands: integers unchanged, others by the names of their values."""
    return ", ".join(str(size) if isinstance(size, int) else text.size(size) for size in sizes)


def strides(shape: Shape, text: FunctionText) -> str:
    """Returns row-major strides as operands. MLIR treats a stride as dynamic as soon as an axis after it is."""
    operands: list[str] = []
    for axis in range(len(shape)):
        after = shape[axis + 1 :]
        static = all(isinstance(size, int) for size in after)
        operands.append(str(product(after)) if static else text.size(product(after)))
    return ", ".join(operands)


def affine_map(loops: int, map: IndexMap) -> str:
    arguments = ", ".join(f"d{i}" for i in range(loops))
    return f"affine_map<({arguments}) -> ({', '.join(map_term(index) for index in map)})>"


@dataclass(frozen=True)
class PanelIndex(Index):
    """The index of the panel of an index, or the position `within` it; panels are `width` long."""

    width: int = 1
    within: bool = False


def panel_indices(index: Index, width: int) -> tuple[PanelIndex, PanelIndex]:
    """Returns the index of the panel, and the position in it."""
    number, position = (PanelIndex(index.coefficients, index.constant, width, within) for within in (False, True))
    return number, position


def map_term(index: Index) -> str:
    if isinstance(index, PanelIndex):
        inner = map_term(Index(index.coefficients, index.constant))
        return f"({inner}) {'mod' if index.within else 'floordiv'} {index.width}"
    terms = [f"d{loop}" if c == 1 else f"d{loop} * {c}" for loop, c in index.coefficients]
    if index.constant or not terms:
        terms.append(str(index.constant))
    return " + ".join(terms)


def plain_loop(index: Index) -> int | None:
    """Returns the loop that the index consists of, if it is a plain loop."""
    if isinstance(index, PanelIndex):
        return None
    if index.constant == 0 and len(index.coefficients) == 1 and index.coefficients[0][1] == 1:
        return index.coefficients[0][0]
    return None


Groups = list[list[int]]


def reshape_groups(source: Shape, target: Shape) -> tuple[Groups, Groups]:
    """Returns the finest groups of adjacent axes that a reshape merges or splits, as axes of either shape.

    Groups at the same position have equally many elements. From [4, 6] to [2, 2, 3, 2], the groups are [0], [1] and
    [0, 1], [2, 3]. There are no groups if either shape is a scalar: MLIR merges all axes of size 1 into none.
    """
    if not source or not target:
        return [], []
    cuts = [(0, 0)]
    if product(source) != 0:
        # Products of leading axes; pairs of equal ones do not cross. After size 0 they carry no information.
        before, below = _leading_products(source), _leading_products(target)
        for i in range(1, len(source)):
            j = next((j for j in range(cuts[-1][1] + 1, len(target)) if below[j] == before[i]), None)
            if j is not None:
                cuts.append((i, j))
    cuts.append((len(source), len(target)))
    pairs = list(pairwise(cuts))
    return (
        [list(range(a[0], b[0])) for a, b in pairs],
        [list(range(a[1], b[1])) for a, b in pairs],
    )


def merges_in_place(part: Slice, target: Shape) -> bool:
    """Returns whether a reshape of a slice needs no copy: axes that it merges lie in memory as those of a whole tensor
    do. Each of them but the first must be whole, and be read with a step of 1. Axes of size 1 do not count."""
    whole, source = part.operands[0], part.types[0].shape
    for group in reshape_groups(source, target)[0]:
        merged = [axis for axis in group if source[axis] != 1]
        if len(merged) < 2:
            continue
        is_whole = all(source[axis] == whole.type.shape[axis] for axis in merged[1:])
        if isinstance(whole.op, Slice) or not is_whole or any(part.steps[axis] != 1 for axis in merged):
            return False
    return True


def _leading_products(shape: Shape) -> list[Size]:
    return [1, *accumulate(shape, multiply)]


def group_extents(groups: Groups, shape: Shape) -> tuple[str, ...]:
    """Returns the shape with each group of axes merged into one."""
    merged = [(product(shape[axis] for axis in group), group) for group in groups]
    return tuple(
        str(size) if all(isinstance(shape[axis], int) for axis in group) else DYNAMIC for size, group in merged
    )
