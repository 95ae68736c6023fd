"""Classification of nodes for fusion, by properties of operators and by types, never by names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...dialect.dims import Shape
from ...dialect.graph import Node, Value
from ...dialect.operator import Builder
from ...dialect.ops import OPERATORS
from ...dialect.types import (
    ANY,
    BOOL,
    DType,
    TensorType,
)
from .fuse_flow import Flow, has
from .fuse_maps import frames, permutation

IN_32_BITS = frozenset(dtype for dtype in ANY if dtype is not BOOL and dtype.bits <= 32)
"""The dtypes whose elements are computed in 32 bits: a vector holds equally many elements of each."""

USED_TWICE = "its result is used elsewhere too"
OTHER_SHAPE = "different shape"
OTHER_AXIS = "reduces another axis"
OTHER_TYPE = "another element type"
TAKEN = "is part of another group"
COSTLY = "would be recomputed for every element it is broadcast to"
BEHIND_CONTRACTION = "would place a reduction after a contraction"
BEFORE_CONTRACTION = "precedes a contraction"
NO_KIND = "no kind of group supports this operator"
SEQUENTIAL = "sequential"
WINDOWS = "reduces windows"
MOVES = "moves elements in an unsupported way"
TURNED = "several operands would be permuted in place of one result"
WEIGHT = "moves a weight"
CIRCLE = "a node outside of the group is between them"
TOO_LARGE = "the group has the maximum number of operators"

MOST_MEMBERS = 64
"""The most nodes of one group. A kernel of that size is already compute-bound, and compile time grows faster than its
length."""


def row_axes(node: Node) -> tuple[int, ...] | None:
    """Returns the axes of the first operand that each element of the result reads as a whole, if the operator has
    any."""
    find = OPERATORS[node.op].row_axes
    return None if find is None else find(node.inputs[0].type, dict(node.attributes))


def are_last(axes: Sequence[int], rank: int) -> bool:
    return tuple(axes) == tuple(range(rank - len(axes), rank))


def is_elementwise(node: Node) -> bool:
    """Returns whether each element of the only result depends on the first operand's element at the same index."""
    return len(node.outputs) == 1 and has(node, "elementwise", "pointwise")


def follows(node: Node, values: Sequence[Value]) -> bool:
    """Returns whether the node is elementwise in each of these operands."""
    names = {v.name for v in values}
    return has(node, "elementwise") or (
        has(node, "pointwise") and all(v.name not in names for v in node.inputs[1:]) and bool(node.inputs)
    )


def puts_in_frame(node: Node) -> bool:
    """Returns whether the node surrounds its operand with constants."""
    return has(node, "movement") and not has(node, "strided", "view") and frames(node)


def moves_linearly(node: Node) -> bool:
    return has(node, "strided", "view")


def permutes(node: Node) -> bool:
    """Returns whether the node is a movement that only permutes axes."""
    return has(node, "strided") and permutation(node) is not None


def keeps_last_axis(node: Node) -> bool:
    """Returns whether the node is a permutation that keeps the last axis last."""
    order = permutation(node) if has(node, "strided") else None
    return order is not None and order[-1:] == (len(order) - 1,)


def is_cheap(node: Node) -> bool:
    """Returns whether an element costs at most a few additions, so that it may be computed more than once."""
    operator = OPERATORS[node.op]
    if not has(node, "elementwise") or operator.has("costly"):
        return False
    if operator.decompose is None:
        return True
    builder = Builder(OPERATORS, "c")
    operator.decompose(builder, [Value(f"i{i}", v.type) for i, v in enumerate(node.inputs)], dict(node.attributes))
    return all(has(each, "structure", "generator") or is_cheap(each) for each in builder.nodes)


def float_type(node: Node) -> DType | None:
    """Returns the dtype of the node's float results, if it has one."""
    return next((v.type.dtype for v in node.outputs if v.type.dtype.is_float), None)


def goes_with(dtype: DType, other: DType) -> bool:
    """Returns whether tensors of both dtypes may be in one group: elements of both are computed in the same number of
    bits. Booleans fit any group."""
    return dtype is other or BOOL in (dtype, other) or {dtype, other} <= IN_32_BITS


def fits_type(flow: Flow, node: Node, dtype: DType) -> bool:
    """Returns whether all tensors of the node fit a group of that dtype. Scalars, indices, generated values and the
    weights of a contraction are exempt; weights may be stored in another dtype."""
    indices = _addressing(node)
    values = [v for number, v in enumerate(node.inputs) if number not in indices]
    read = [v for v in values if flow.source(v) not in flow.generated]
    if has(node, "contraction"):
        read = [v for v in read if not is_weight(flow, v)]
    return all(_is_scalar(v.type) or goes_with(v.type.dtype, dtype) for v in (*read, *node.outputs))


def _addressing(node: Node) -> set[int]:
    """Returns the operands that hold indices."""
    operator = OPERATORS[node.op]
    if operator.addresses is None or not has(node, "gathering", "paged", "pointwise"):
        return set()
    uses = operator.addresses([v.type for v in node.inputs], operator.complete(dict(node.attributes)))
    return {use.operand for use in uses}


def _is_scalar(type: TensorType) -> bool:
    return type.rank == 0


def is_weight(flow: Flow, value: Value) -> bool:
    """Returns whether the value is known at compile time: a parameter, a constant, or a movement of one of these."""
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
    """Returns the reason why two nodes are not in one group: the first and the last of a path, with views between.

    The reason is the recorded one if the edge was examined, otherwise it is derived from the operators.
    """
    source, reader = path[0], path[-1]
    first, second = flow.nodes[source], flow.nodes[reader]
    if _leads_into_contraction(flow, reader):
        return BEFORE_CONTRACTION
    for edge in reversed(list(pairwise(path))):
        if edge in flow.reasons:
            return flow.reasons[edge]
    # A loop may have no operands, and read values from around it.
    made, read = first.outputs[0].type, (second.inputs or first.outputs)[0].type
    for holds, reason in (
        (has(first, "sequential") or has(second, "sequential"), SEQUENTIAL),
        (bool(first.regions or second.regions), "one of them is already a group or a loop"),
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
    return "no kind of group supports both operators"


def _leads_into_contraction(flow: Flow, number: int) -> bool:
    """Returns whether the node is a contraction, or a member of its group through which it reads an operand."""
    unit = flow.unit(number)
    inner = any(source in unit for source in flow.sources(number))
    return has(flow.nodes[number], "contraction") or (
        not inner and any(has(flow.nodes[m], "contraction") for m in unit)
    )


_GROUPED = ("elementwise", "pointwise", "contraction", "reduction", "rowwise", "movement", "generator")
