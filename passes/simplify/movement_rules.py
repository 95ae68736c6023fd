"""Algebra of operators that only move elements: cancellation, merging, and removal of no-ops."""

from __future__ import annotations

from collections.abc import Mapping

from ...dialect.graph import Attribute, Value
from ...dialect.ops import OPERATORS
from .rules import Match, Rule, Values


def _order(axes: Attribute, rank: int) -> tuple[int, ...]:
    """Returns a transpose's axes, counted from the front; None reverses them."""
    if not isinstance(axes, tuple):
        return tuple(reversed(range(rank)))
    order = tuple(a % rank for a in axes if isinstance(a, int))
    assert len(order) == rank, axes
    return order


def transpose_says_all(m: Match) -> Values:
    # transpose(x) == transpose(x, (1, 0)), and axes from the front
    order = _order(m.attribute("axes"), m.type.rank)
    return m.b.transpose(m.inputs[0], axes=order) if order != m.attribute("axes") else None


def transpose_nothing(m: Match) -> Values:
    # transpose(x, (0, 1, 2)) == x
    return m.inputs[0] if m.attribute("axes") == tuple(range(m.type.rank)) else None


def transpose_of_transpose(m: Match) -> Values:
    # transpose(transpose(x, p), q) == transpose(x, p[q])
    inner = m.definition(m.inputs[0], "transpose")
    if inner is None:
        return None
    first, second = (_order(node.attribute("axes"), m.type.rank) for node in (inner, m.node))
    return m.b.transpose(inner.inputs[0], axes=tuple(first[a] for a in second))


def transpose_around_new_axes(m: Match) -> Values:
    # transpose(unsqueeze(transpose(x, p), a), q) == unsqueeze(transpose(x, p[q without a]), a), if q keeps the axes a
    outer = m.definition(m.inputs[0], "unsqueeze")
    inner = m.definition(outer.inputs[0], "transpose") if outer is not None else None
    if outer is None or inner is None:
        return None
    added, order = outer.attribute("axes"), _order(m.attribute("axes"), m.type.rank)
    new = {a % m.type.rank for a in (added if isinstance(added, tuple) else (added,)) if isinstance(a, int)}
    if any(order[axis] != axis for axis in new):
        return None
    kept = [axis for axis in range(m.type.rank) if axis not in new]
    first = _order(inner.attribute("axes"), len(kept))
    axes = tuple(first[kept.index(order[axis])] for axis in kept)
    return m.b.unsqueeze(m.b.transpose(inner.inputs[0], axes=axes), axes=tuple(sorted(new)))


def transpose_matrix(m: Match) -> Values:
    # matrix_transpose(x) == transpose(x, (..., -1, -2)): one form, so that it merges with others
    rank = m.type.rank
    return m.b.transpose(m.inputs[0], axes=(*range(rank - 2), rank - 1, rank - 2))


def reshape_says_all(m: Match) -> Values:
    # An inferred size is written explicitly.
    if m.attribute("shape") == m.type.shape:
        return None
    return m.b.reshape(m.inputs[0], shape=m.type.shape)


def view_of_view(m: Match) -> Values:
    # A view keeps the order of elements: view(view(x)) == reshape(x), or x itself
    if m.inputs[0].type == m.type:
        return m.inputs[0]
    inner = m.definition(m.inputs[0])
    if inner is None or not OPERATORS[inner.op].has("view"):
        return None
    source = inner.inputs[0]
    return source if source.type == m.type else m.b.reshape(source, shape=m.type.shape)


_VIEWS = tuple(operator.name for operator in OPERATORS.values() if operator.has("view"))


def nothing_added(m: Match) -> Values:
    # An operator that can only add elements, and adds none, is the identity.
    return m.same(m.inputs[0])


def broadcast_of_broadcast(m: Match) -> Values:
    # broadcast(broadcast(x, s), t) == broadcast(x, t)
    inner = m.definition(m.inputs[0], "broadcast_to")
    return m.b.broadcast_to(inner.inputs[0], shape=m.type.shape) if inner else None


def concat_one(m: Match) -> Values:
    return m.inputs[0] if len(m.inputs) == 1 else None


def concat_of_concat(m: Match) -> Values:
    # concat(concat(x, y), z) == concat(x, y, z) along one axis
    parts: list[Value] = []
    for value in m.inputs:
        inner = m.definition(value, "concat")
        merged = inner is not None and _axis(inner.attribute("axis"), m) == _axis(m.attribute("axis"), m)
        parts += inner.inputs if inner is not None and merged else (value,)
    return m.b.concat(*parts, axis=m.attribute("axis")) if len(parts) > len(m.inputs) else None


def _axis(value: Attribute, m: Match) -> int:
    assert isinstance(value, int)
    return value % m.type.rank


def concat_of_split(m: Match) -> Values:
    # concat(split(x)) == x, where all parts come back in order
    inner = m.definition(m.inputs[0], "split")
    if inner is None or inner.outputs != m.inputs:
        return None
    same_axis = _axis(inner.attribute("axis"), m) == _axis(m.attribute("axis"), m)
    return m.same(inner.inputs[0]) if same_axis else None


def split_into_one(m: Match) -> Values:
    return m.inputs[0] if len(m.node.outputs) == 1 else None


def stack_one(m: Match) -> Values:
    # stack(x) == reshape(x) with one axis more
    return m.b.reshape(m.inputs[0], shape=m.type.shape) if len(m.inputs) == 1 else None


def roll_nothing(m: Match) -> Values:
    return m.inputs[0] if m.attribute("shift") == 0 else None


def slice_nothing(m: Match) -> Values:
    # A forward slice with as many elements as the operand is the identity.
    steps = m.attribute("steps")
    forward = steps in (None, 1) or (isinstance(steps, tuple) and all(s == 1 for s in steps))
    return m.same(m.inputs[0]) if forward else None


def flip_nothing(m: Match) -> Values:
    return m.inputs[0] if m.attribute("axes") == () else None


def pages_of_transpose(m: Match) -> Values:
    # gather_pages(transpose(x)) == transpose(gather_pages(x)): whole pools are larger than rows of them
    inner = m.definition(m.inputs[0], "transpose")
    axis, rank = m.attribute("axis"), m.inputs[0].type.rank
    if inner is None or not isinstance(axis, int):
        return None
    order = _order(inner.attribute("axes"), rank)
    if order[0] != 0:
        return None
    outer = m.inputs[1].type.rank - 1
    joined = m.b.gather_pages(inner.inputs[0], m.inputs[1], axis=order[axis % rank], mode=m.attribute("mode"))
    return m.b.transpose(joined, axes=(*range(outer), *(outer + a - 1 for a in order[1:])))


GENERAL: tuple[Rule, ...] = ()

BY_NAME: Mapping[str, tuple[Rule, ...]] = {
    "transpose": (transpose_says_all, transpose_nothing, transpose_of_transpose, transpose_around_new_axes),
    "matrix_transpose": (transpose_matrix,),
    "reshape": (reshape_says_all, view_of_view),
    **{name: (view_of_view,) for name in _VIEWS if name != "reshape"},
    "broadcast_to": (nothing_added, broadcast_of_broadcast),
    "pad": (nothing_added,),
    "tile": (nothing_added,),
    "repeat_interleave": (nothing_added,),
    "concat": (concat_one, concat_of_split, concat_of_concat),
    "split": (split_into_one,),
    "stack": (stack_one,),
    "roll": (roll_nothing,),
    "slice": (slice_nothing,),
    "flip": (flip_nothing,),
    "gather_pages": (pages_of_transpose,),
}
