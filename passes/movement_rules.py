"""Algebra of operators that move elements and compute nothing: what cancels, what merges, what does nothing."""

from __future__ import annotations

from collections.abc import Mapping

from ..dialect.graph import Attribute, Value
from .rules import Match, Rule, Values


def _axes(value: Attribute) -> tuple[int, ...]:
    assert isinstance(value, tuple)
    axes = tuple(a for a in value if isinstance(a, int))
    assert len(axes) == len(value), value
    return axes


def _permutation(m: Match, attribute: Attribute) -> tuple[int, ...]:
    return tuple(a % m.type.rank for a in _axes(attribute))


def transpose_nothing(m: Match) -> Values:
    # transpose(x, (0, 1, 2)) == x
    return m.inputs[0] if _permutation(m, m.attribute("axes")) == tuple(range(m.type.rank)) else None


def transpose_of_transpose(m: Match) -> Values:
    # transpose(transpose(x, p), q) == transpose(x, p[q])
    inner = m.definition(m.inputs[0], "transpose")
    if inner is None:
        return None
    first, second = _permutation(m, inner.attribute("axes")), _permutation(m, m.attribute("axes"))
    return m.b.transpose(inner.inputs[0], axes=tuple(first[a] for a in second))


def transpose_matrix(m: Match) -> Values:
    # matrix_transpose(x) == transpose(x, (..., -1, -2)): one form of them, so that it merges with others
    rank = m.type.rank
    return m.b.transpose(m.inputs[0], axes=(*range(rank - 2), rank - 1, rank - 2))


def reshape_says_all(m: Match) -> Values:
    # A size that follows from the others is written out.
    if m.attribute("shape") == m.type.shape:
        return None
    return m.b.reshape(m.inputs[0], shape=m.type.shape)


def view_of_view(m: Match) -> Values:
    # The elements stay in their order whatever the shapes between: view(view(x)) == reshape(x), or x itself
    if m.inputs[0].type == m.type:
        return m.inputs[0]
    inner = m.definition(m.inputs[0])
    if inner is None or inner.op not in _VIEWS:
        return None
    source = inner.inputs[0]
    return source if source.type == m.type else m.b.reshape(source, shape=m.type.shape)


_VIEWS = ("reshape", "flatten", "squeeze", "unsqueeze")


def broadcast_nothing(m: Match) -> Values:
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


def move_by_nothing(m: Match) -> Values:
    # Every number that says how far or how often is the one that leaves all in place.
    name, neutral = _NEUTRAL[m.node.op]
    value = m.attribute(name)
    parts = value if isinstance(value, tuple) else (value,)
    return m.same(m.inputs[0]) if all(type(p) is int and p == neutral for p in parts) else None


_NEUTRAL: Mapping[str, tuple[str, int]] = {"pad": ("widths", 0), "roll": ("shift", 0), "tile": ("repeats", 1)}


def slice_nothing(m: Match) -> Values:
    # As many elements as before, forward: all of them.
    steps = m.attribute("steps")
    forward = steps is None or (isinstance(steps, tuple) and all(s == 1 for s in steps))
    return m.same(m.inputs[0]) if forward else None


def flip_nothing(m: Match) -> Values:
    return m.inputs[0] if m.attribute("axes") == () else None


GENERAL: tuple[Rule, ...] = ()

BY_NAME: Mapping[str, tuple[Rule, ...]] = {
    "transpose": (transpose_nothing, transpose_of_transpose),
    "matrix_transpose": (transpose_matrix,),
    "reshape": (reshape_says_all, view_of_view),
    **{name: (view_of_view,) for name in _VIEWS if name != "reshape"},
    "broadcast_to": (broadcast_nothing, broadcast_of_broadcast),
    "concat": (concat_one, concat_of_split, concat_of_concat),
    "split": (split_into_one,),
    "stack": (stack_one,),
    **{name: (move_by_nothing,) for name in _NEUTRAL},
    "slice": (slice_nothing,),
    "flip": (flip_nothing,),
}
