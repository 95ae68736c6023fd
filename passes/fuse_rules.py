"""What nodes are to the fusion: told from their operators' properties and their types, never from names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..dialect.dims import Shape
from ..dialect.graph import Node, Value
from ..dialect.operator import Builder
from ..dialect.ops import OPERATORS
from ..dialect.types import BF16, BOOL, F16, F32, I8, I16, I32, STORAGE, U8, U16, U32, DType, TensorType
from .fuse_flow import Flow, has
from .fuse_maps import frames, permutation

IN_32_BITS = frozenset({F32, F16, BF16, I32, U32, I16, U16, I8, U8, *STORAGE})
"""The dtypes whose elements are computed in 32 bits: as many of each are computed at a time."""

USED_TWICE = "its result is used elsewhere too"
OTHER_SHAPE = "different shape"
OTHER_AXIS = "reduces another axis"
OTHER_TYPE = "another element type"
TAKEN = "is part of another group"
COSTLY = "would be computed again for every element that it is broadcast to"
BEHIND_CONTRACTION = "would put a reduction behind a contraction"
BEFORE_CONTRACTION = "stands in front of a contraction"
NO_KIND = "no kind of group takes such an operator"
SEQUENTIAL = "sequential"
WINDOWS = "reduces windows"
MOVES = "moves elements in a way that no group follows"
WEIGHT = "moves a weight"
CIRCLE = "something outside stands between"
TOO_LARGE = "the group has as many operators as a kernel may have"

MOST_MEMBERS = 64
"""The most nodes of one group. A kernel of that size already computes for much longer than it reads and writes, and the
time to compile one grows faster than its length."""


def row_axes(node: Node) -> tuple[int, ...] | None:
    """The axes of the first operand that each element of the result takes in whole, where the operator has such."""
    find = OPERATORS[node.op].row_axes
    return None if find is None else find(node.inputs[0].type, dict(node.attributes))


def are_last(axes: Sequence[int], rank: int) -> bool:
    return tuple(axes) == tuple(range(rank - len(axes), rank))


def is_elementwise(node: Node) -> bool:
    """Does each element of the only result depend on elements at its place, as far as its first operand goes?"""
    return len(node.outputs) == 1 and has(node, "elementwise", "pointwise")


def follows(node: Node, values: Sequence[Value]) -> bool:
    """Is it elementwise in each of these operands?"""
    names = {v.name for v in values}
    return has(node, "elementwise") or (
        has(node, "pointwise") and all(v.name not in names for v in node.inputs[1:]) and bool(node.inputs)
    )


def puts_in_frame(node: Node) -> bool:
    """Does it surround its operand by constants?"""
    return has(node, "movement") and not has(node, "strided", "view") and frames(node)


def moves_linearly(node: Node) -> bool:
    return has(node, "strided", "view")


def permutes(node: Node) -> bool:
    """Is it a movement that puts the axes into another order and does nothing else?"""
    return has(node, "strided") and permutation(node) is not None


def keeps_last_axis(node: Node) -> bool:
    """Is it a permutation that leaves the last axis where it is?"""
    order = permutation(node) if has(node, "strided") else None
    return order is not None and order[-1:] == (len(order) - 1,)


def is_cheap(node: Node) -> bool:
    """Does an element cost no more than a few additions, so that it may be computed more than once?"""
    operator = OPERATORS[node.op]
    if not has(node, "elementwise") or operator.has("costly"):
        return False
    if operator.decompose is None:
        return True
    builder = Builder(OPERATORS, "c")
    operator.decompose(builder, [Value(f"i{i}", v.type) for i, v in enumerate(node.inputs)], dict(node.attributes))
    return all(has(each, "structure", "generator") or is_cheap(each) for each in builder.nodes)


def float_type(node: Node) -> DType | None:
    """The dtype of the node's float results, if it has one."""
    return next((v.type.dtype for v in node.outputs if v.type.dtype.is_float), None)


def goes_with(dtype: DType, other: DType) -> bool:
    """May tensors of both dtypes be in a group: is an element of either computed in as many bits? Booleans go along
    with anything."""
    return dtype is other or BOOL in (dtype, other) or {dtype, other} <= IN_32_BITS


def fits_type(flow: Flow, node: Node, dtype: DType) -> bool:
    """Do all tensors of the node go with that dtype, but for scalars, numbers of slices, what is generated, and the
    weights of a contraction, which may be stored as something else?"""
    values = node.inputs[:1] if has(node, "gathering") else node.inputs
    read = [v for v in values if flow.source(v) not in flow.generated]
    if has(node, "contraction"):
        read = [v for v in read if not is_weight(flow, v)]
    return all(_is_scalar(v.type) or goes_with(v.type.dtype, dtype) for v in (*read, *node.outputs))


def _is_scalar(type: TensorType) -> bool:
    return type.rank == 0


def is_weight(flow: Flow, value: Value) -> bool:
    """Is the value known when the model is compiled: a parameter, a constant, or one of these moved?"""
    source = flow.source(value)
    if source is None:
        return False
    node = flow.nodes[source]
    if has(node, "structure"):
        return True
    return moves_linearly(node) and all(is_weight(flow, v) for v in node.inputs)


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    offset = len(target) - len(shape)
    return offset >= 0 and all(size in (1, target[offset + i]) for i, size in enumerate(shape))


def explain(flow: Flow, path: Sequence[int]) -> str:
    """Why two nodes are not in one group: the first and the last of a path, with views between.

    What was found when they were looked at, else what their operators are.
    """
    source, reader = path[0], path[-1]
    first, second = flow.nodes[source], flow.nodes[reader]
    if _leads_into_contraction(flow, reader):
        return BEFORE_CONTRACTION
    for edge in reversed(list(pairwise(path))):
        if edge in flow.reasons:
            return flow.reasons[edge]
    made, read = first.outputs[0].type, second.inputs[0].type
    for holds, reason in (
        (has(first, "sequential") or has(second, "sequential"), SEQUENTIAL),
        (bool(first.regions or second.regions), "one of them is a group or a loop already"),
        (has(first, "contraction") and has(second, "reduction", "rowwise"), BEHIND_CONTRACTION),
        (any(has(n, "reduction") and row_axes(n) is None for n in (first, second)), WINDOWS),
        (flow.leaves[source] or len(flow.readers[source]) > 1, USED_TWICE),
        (any(has(n, "movement") and not moves_linearly(n) for n in (first, second)), MOVES),
        (any(not has(n, *_GROUPED) for n in (first, second)), NO_KIND),
        (not goes_with(first.outputs[0].type.dtype, second.outputs[0].type.dtype), OTHER_TYPE),
        (made.shape != read.shape or read.shape != second.outputs[0].type.shape, OTHER_SHAPE),
        (source in flow.groups or reader in flow.groups, TAKEN),
    ):
        if holds:
            return reason
    return "no kind of group takes both"


def _leads_into_contraction(flow: Flow, number: int) -> bool:
    """Is the node a contraction, or one of its group through which it reads an operand?"""
    unit = flow.unit(number)
    inner = any(source in unit for source in flow.sources(number))
    return has(flow.nodes[number], "contraction") or (
        not inner and any(has(flow.nodes[m], "contraction") for m in unit)
    )


_GROUPED = ("elementwise", "pointwise", "contraction", "reduction", "rowwise", "movement", "generator")
