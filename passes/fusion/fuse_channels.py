"""Grows a group of layers that compute each channel from the same channel alone, for tensors [N, C, *spatial].

    pad -> contraction -> elementwise -> pad -> contraction -> elementwise

Each node needs only one channel of its operand, so the kernel computes the whole group one channel at a time. The
intermediate values are used inside the group only, and padding is constant.
"""

from __future__ import annotations

from collections.abc import Collection

from ...dialect.graph import Node
from ...dialect.types import DType
from .fuse_contraction import grow_behind
from .fuse_flow import Flow, has
from .fuse_maps import axes_apart, summed_axes
from .fuse_rules import (
    MOVES,
    NO_KIND,
    OTHER_SHAPE,
    OTHER_TYPE,
    TAKEN,
    fits_type,
    follows,
    is_elementwise,
    puts_in_frame,
)

CHANNELS = (0, 1)
"""The axes of images and of their channels."""


def starts_channels(flow: Flow, number: int) -> bool:
    node = flow.nodes[number]
    return _is_layer(node) and fits_type(flow, node, node.output.type.dtype)


def grow_channels(flow: Flow, number: int) -> set[int]:
    """Returns the group that begins with a layer and the padding before it; empty if nothing joins the layer."""
    dtype = flow.nodes[number].output.type.dtype
    members = grow_behind(flow, number, lambda reached, reader: _obstacle(flow, reached, reader, dtype))
    members |= _before(flow, number)
    return members if len(members) > 1 else set()


def _before(flow: Flow, number: int) -> set[int]:
    """Returns the padding of a layer, if it has no other reader."""
    source = flow.source(flow.nodes[number].inputs[0])
    if source is None or not flow.is_free(source) or not _pads_positions(flow.nodes[source]):
        return set()
    return {source} if flow.stays_inside(source, {number}) else set()


def _obstacle(flow: Flow, reached: Collection[int], number: int, dtype: DType) -> str | None:
    """Returns the reason why a node that reads members cannot join; None if it can."""
    node = flow.nodes[number]
    given = [v for v in node.inputs if flow.source(v) in reached]
    if not flow.is_free(number):
        return TAKEN
    if not fits_type(flow, node, dtype):
        return OTHER_TYPE
    if _is_layer(node):
        return None if given == [node.inputs[0]] else MOVES
    if _pads_positions(node):
        return None
    if not is_elementwise(node) or not follows(node, given):
        return MOVES if has(node, "movement") else NO_KIND
    return None if all(v.type.shape == node.output.type.shape for v in given) else OTHER_SHAPE


def _is_layer(node: Node) -> bool:
    """Returns whether the node is a contraction that computes each channel of each image from that channel alone,
    within windows around each position."""
    if not has(node, "contraction") or has(node, "attention") or len(node.outputs) != 1:
        return False
    rank = node.output.type.rank
    if node.inputs[0].type.rank != rank or rank <= len(CHANNELS) or summed_axes(node, 0):
        return False
    return axes_apart(node, 0)[: len(CHANNELS)] == CHANNELS


def _pads_positions(node: Node) -> bool:
    if not puts_in_frame(node):
        return False
    before, after = node.inputs[0].type.shape, node.output.type.shape
    return all(before[axis] == after[axis] for axis in CHANNELS)
