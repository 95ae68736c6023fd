"""Grows an attention group: two contractions with a rowwise operator between them.

    scores = contraction(q, k) -> elementwise -> rowwise along the last axis -> elementwise -> contraction(scores, v)

The nodes between the contractions have one use each and the shape of the scores. The second contraction sums over the
last axis of the scores, its first operand. The group also takes movements of q, k and v that have no other reader, as
long as the last axis stays the last one, a mask of v by positions, and permutations of the result. A single operator
for whole attention takes such movements too.
"""

from __future__ import annotations

from collections.abc import Collection

from ...dialect.dims import bounds, product
from ...dialect.graph import Node
from ...dialect.ops import OPERATORS
from ...dialect.types import BF16, F16, F32, F64, DType
from .fuse_flow import Edge, Flow, has
from .fuse_maps import axes_apart, permutation, summed_axes
from .fuse_rules import (
    MOST_MEMBERS,
    OTHER_AXIS,
    OTHER_SHAPE,
    OTHER_TYPE,
    TOO_LARGE,
    USED_TWICE,
    fits_type,
    float_type,
    follows,
    is_weight,
    keeps_last_axis,
    moves_linearly,
    permutes,
    row_axes,
)

FEW_ROWS = 8
"""The number of rows in a block of rows."""
LEAST_PAGE = 16
"""The elements of a page whose vectors do not cross pages, for every CPU."""


def starts_attention(flow: Flow, number: int) -> bool:
    return has(flow.nodes[number], "rowwise", "attention")


def grow_attention(flow: Flow, number: int) -> set[int]:
    """Returns the group around a rowwise operator, or around a whole attention; empty if there is none."""
    node = flow.nodes[number]
    dtype = float_type(node)
    if dtype is None or not fits_type(flow, node, dtype):
        return set()
    if has(node, "attention"):
        return _take_movements(flow, {number}, number, dtype)
    if row_axes(node) != (node.output.type.rank - 1,):
        return set()
    return _Attention(flow, number, dtype).grow()


class _Attention:
    def __init__(self, flow: Flow, rows: int, dtype: DType) -> None:
        self.flow, self.rows, self.dtype = flow, rows, dtype
        self.members = {rows}
        self.refused: list[tuple[Edge, str]] = []

    def grow(self) -> set[int]:
        first, last = self.find_scores(), self.find_values()
        found = [c for c in (first, last) if c is not None]
        # Operands that are known at compile time make the contractions layers of a network. Their rows are too long to
        # stay in the cache between them.
        if not found or any(is_weight(self.flow, v) for c in found for v in self.flow.nodes[c].inputs):
            return set()
        for edge, reason in self.refused:
            self.flow.refuse(*edge, reason)
        if last is None or first is None:
            return set()
        self.add_masked_values(last)
        return _take_movements(self.flow, self.members, last, self.dtype)

    def find_scores(self) -> int | None:
        """Adds the nodes from the rowwise node's operand up to the contraction, and returns the contraction."""
        flow = self.flow
        shape = flow.nodes[self.rows].output.type.shape
        found: int | None = None
        # Visit the highest number first: all readers of a node are then visited before it.
        pending = {s for v in flow.nodes[self.rows].inputs[:1] if (s := flow.source(v)) is not None}
        while pending:
            number = max(pending)
            pending.discard(number)
            node = flow.nodes[number]
            contracts = found is None and has(node, "contraction") and not has(node, "attention")
            if not flow.is_free(number) or not (contracts or has(node, "elementwise", "pointwise")):
                continue
            if any(v.type.shape != shape for v in node.outputs):
                continue
            if len(self.members) >= MOST_MEMBERS:
                self.refused += [((number, r), TOO_LARGE) for r in flow.readers[number] if r in self.members]
                continue
            twice = not flow.stays_inside(number, self.members)
            if twice or not fits_type(flow, node, self.dtype):
                reason = USED_TWICE if twice else OTHER_TYPE
                self.refused += [((number, r), reason) for r in flow.readers[number] if r in self.members]
                continue
            self.members.add(number)
            if contracts:
                found = number
            else:
                values = node.inputs if has(node, "elementwise") else node.inputs[:1]
                pending.update(s for v in values if (s := flow.source(v)) is not None)
        return found

    def find_values(self) -> int | None:
        """Adds the nodes from the rowwise node down to the contraction, and returns the contraction."""
        flow, current = self.flow, self.rows
        while True:
            if flow.leaves[current] or len(flow.readers[current]) != 1:
                self.refused += [((current, r), USED_TWICE) for r in flow.readers[current]]
                return None
            number = flow.readers[current][0]
            reader = flow.nodes[number]
            if not flow.is_free(number) or not has(reader, "contraction", "elementwise", "pointwise"):
                return None
            obstacle = self.obstacle(current, number)
            if obstacle is not None:
                self.refused.append(((current, number), obstacle))
                return None
            self.members.add(number)
            if has(reader, "contraction"):
                return number
            current = number

    def add_masked_values(self, last: int) -> None:
        """Adds masks of the values: the contraction selects them while it reads them."""
        flow = self.flow
        number = flow.source(flow.nodes[last].inputs[1])
        while number is not None and flow.is_free(number) and _masks_positions(flow.nodes[number]):
            node = flow.nodes[number]
            if not fits_type(flow, node, self.dtype) or not flow.stays_inside(number, self.members):
                return
            self.members.add(number)
            number = flow.source(node.inputs[0])

    def obstacle(self, source: int, number: int) -> str | None:
        node, reader = self.flow.nodes[source], self.flow.nodes[number]
        if len(self.members) >= MOST_MEMBERS:
            return TOO_LARGE
        if not fits_type(self.flow, reader, self.dtype):
            return OTHER_TYPE
        if has(reader, "contraction"):
            is_left = reader.inputs[0] == node.output and node.output not in reader.inputs[1:]
            if not is_left or has(reader, "attention"):
                return "is not the left operand of a contraction"
            return None if summed_axes(reader, 0) == (node.output.type.rank - 1,) else OTHER_AXIS
        same = reader.output.type.shape == node.output.type.shape and follows(reader, node.outputs)
        return None if same else OTHER_SHAPE


def _take_movements(flow: Flow, members: set[int], last: int, dtype: DType) -> set[int]:
    """Adds movements of operands that only members read, and permutations of the last member's result."""
    add_movements_before(flow, members, dtype, in_blocks=True)
    current = last
    while not flow.leaves[current] and len(flow.readers[current]) == 1:
        number = flow.readers[current][0]
        node = flow.nodes[number]
        if not flow.is_free(number) or not (permutes(node) or has(node, "view")):
            break
        members.add(number)
        current = number
    return members


def add_movements_before(flow: Flow, members: set[int], dtype: DType, *, in_blocks: bool = False) -> None:
    """Adds linear movements of operands of contractions, if the group contains all their readers. With `in_blocks`, the
    group computes its rows in blocks, otherwise all at once. With them come gathers of pages: the kernel reads the
    pages where they are; and conversions of fewer bits, beside a mask or where kernels read matrices in place.

    Movements of values that are known at compile time stay outside, because they can be folded.
    """
    contractions = {m for m in members if has(flow.nodes[m], "contraction")}
    masks = {m for m in members if _masks_values(flow, m)}
    pending = _sources(flow, contractions | masks) - members
    if masks:
        # The factors of scores and weights may lie in pages too.
        pending |= {s for s in _sources(flow, members) - members if has(flow.nodes[s], "paged")}
    while pending:
        number = max(pending)
        pending.discard(number)
        node = flow.nodes[number]
        if not flow.is_free(number) or not fits_type(flow, node, dtype):
            continue
        is_wider = (masks or flow.in_place) and _widens(node)
        if in_blocks and (_joins_pages(node) or is_wider) and flow.stays_inside(number, members):
            members.add(number)
            pending.update(flow.sources(number))
            continue
        if not moves_linearly(node):
            continue
        if permutes(node) and not keeps_last_axis(node) and not _is_read_in_place(flow, number, in_blocks):
            # A tile needs its columns adjacent in memory: transposing them is a separate kernel.
            continue
        if all(is_weight(flow, v) for v in node.inputs) or not flow.stays_inside(number, members):
            continue
        members.add(number)
        pending.update(flow.sources(number))


def _masks_positions(node: Node) -> bool:
    """Returns whether a node masks elements by their positions."""
    return has(node, "pointwise") and OPERATORS[node.op].addresses is not None


def _masks_values(flow: Flow, number: int) -> bool:
    """Returns whether a member is a mask by positions of an operand of a contraction, perhaps one of several."""
    readers = flow.readers[number]
    if not _masks_positions(flow.nodes[number]) or not readers:
        return False
    return all(has(flow.nodes[r], "contraction") or _masks_values(flow, r) for r in readers)


def _joins_pages(node: Node) -> bool:
    """Returns whether a node joins pages that a kernel can read where they are: vectors along a page do not cross it,
    and the positions in it are bits of an index."""
    if not has(node, "paged"):
        return False
    x, axis = node.inputs[0].type, dict(node.attributes).get("axis", -1)
    assert isinstance(axis, int), node
    width = x.shape[axis]
    return isinstance(width, int) and width >= LEAST_PAGE and width & (width - 1) == 0


def _widens(node: Node) -> bool:
    """Returns whether a node only converts numbers of fewer bits, as a cache holds them: the kernel converts those that
    it reads."""
    return has(node, "conversion") and node.inputs[0].type.dtype.bits < node.output.type.dtype.bits


def _is_read_in_place(flow: Flow, number: int, in_blocks: bool) -> bool:
    """Returns whether a permutation is read only by contractions that sum over the axis that was last before it.
    Their tiles transpose such columns one panel at a time. Each block of rows would repeat that, so there must be
    one block, unless kernels read matrices in place."""
    node = flow.nodes[number]
    order = permutation(node)
    if order is None or (node.output.type.dtype not in (F64, F32, F16, BF16) and not flow.in_place):
        return False
    for reader in (flow.nodes[r] for r in flow.readers[number]):
        if not has(reader, "contraction") or has(reader, "attention") or reader.inputs[1:] != (node.output,):
            return False
        if summed_axes(reader, 1) != (order[-1],) or (in_blocks and not flow.in_place and not _has_few_rows(reader)):
            return False
    return True


def _has_few_rows(contraction: Node) -> bool:
    """Returns whether each matrix of the second operand has at most FEW_ROWS rows of the first."""
    shape = contraction.inputs[0].type.shape
    matrices = {*axes_apart(contraction, 0)} & {*axes_apart(contraction, 1)}
    rows = [size for axis, size in enumerate(shape) if axis not in {*summed_axes(contraction, 0), *matrices}]
    return bounds(product(rows))[1] <= FEW_ROWS


def _sources(flow: Flow, numbers: Collection[int]) -> set[int]:
    return {s for number in numbers for s in flow.sources(number)}
