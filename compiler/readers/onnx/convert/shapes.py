"""Operators on shapes: `Shape` and `Size`, and operators that reshape, expand or tile a tensor.

If a shape is computed in the call, the result has the declared type, and the call checks that it agrees with the
computed shape.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Poly, Size, at_least, divide_exactly, product
from .....dialect.operator import InferenceError
from .....dialect.types import I64, TensorType
from ...writing.tensors import Tensor, known, of_size, of_sizes
from ..writing.use import Converters, Use


def _shape(use: Use) -> Sequence[Tensor]:
    x = use.input()
    start, end = use.integer("start", 0), use.integer("end", x.rank)
    return [of_sizes(x.shape[slice(start, end)])]


def _size(use: Use) -> Sequence[Tensor]:
    return [of_size(use.input().type.elements)]


def require_equal(use: Use, given: Tensor, expected: Sequence[Size]) -> None:
    """Adds a check that a vector holds the expected sizes."""
    g = use.g
    if given.shape != (len(expected),):
        use.fail("has operands that contradict the declared type of its result", code="type-mismatch")
    if expected:
        use.require(g.all(g.equal(g.cast(given, dtype=I64), of_sizes(expected))))


def _reshape(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    if use.version < 5 and use.has("shape"):
        wanted: tuple[Size, ...] = use.ints_of("shape")
    else:
        given = use.input(1)
        if given.sizes is None:
            return [_reshape_declared(use, x, given)]
        wanted = given.sizes
    keep_zero = bool(use.integer("allowzero", 0))
    shape: list[Size] = []
    for axis, size in enumerate(wanted):
        if size == 0 and not keep_zero:
            if axis >= x.rank:
                use.fail(f"copies the size of axis {axis}, which the operand lacks", code="bad-axis")
            shape.append(x.shape[axis])
        else:
            shape.append(size)
    return [g.reshape(x, shape=_inferred(x, shape))]


def _inferred(x: Tensor, shape: list[Size]) -> tuple[Size, ...]:
    """Replaces -1 by the size that keeps the number of elements, if this size is a polynomial of dims."""
    if shape.count(-1) != 1:
        return tuple(shape)
    others = product(size for size in shape if size != -1)
    rest = divide_exactly(x.type.elements, others) if others != 0 else None
    if rest is None:
        return tuple(shape)
    return tuple(rest if size == -1 else size for size in shape)


def _reshape_declared(use: Use, x: Tensor, given: Tensor) -> Tensor:
    g, declared = use.g, use.declared_shape("a shape")
    result = g.reshape(x, shape=declared)
    if given.shape != (len(declared),):
        use.fail("has operands that contradict the declared type of its result", code="type-mismatch")
    if declared:
        sizes, zero = g.cast(given, dtype=I64), known(np.int64(0))
        expected = of_sizes(declared)
        matches = g.equal(sizes, expected)
        if not use.integer("allowzero", 0):
            # A size of 0 is that of the operand's axis.
            kept = [axis < x.rank and x.shape[axis] == size for axis, size in enumerate(declared)]
            matches = g.where(g.equal(sizes, zero), known(np.array(kept)), matches)
        matches = g.logical_or(matches, g.equal(sizes, known(np.int64(-1))))
        use.require(g.all(matches))
    return result


def _flatten(use: Use) -> Sequence[Tensor]:
    x = use.input()
    axis = use.integer("axis", 1)
    if not -x.rank <= axis <= x.rank:
        use.fail(f"has no axis {axis}: the operand has rank {x.rank}", code="bad-axis")
    axis += x.rank if axis < 0 else 0
    return [use.g.reshape(x, shape=(product(x.shape[:axis]), product(x.shape[axis:])))]


def _given_axes(use: Use) -> tuple[int, ...] | None:
    """Returns the axes of an attribute or an operand; None if there are none."""
    if use.has("axes"):
        return tuple(use.ints_of("axes"))
    if len(use.operands) > 1 and use.operands[1] is not None:
        return use.ints(1, "axes")
    return None


def _is_unknown(use: Use) -> bool:
    return len(use.operands) > 1 and use.operands[1] is not None and use.input(1).sizes is None


def _squeeze(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    if _is_unknown(use):
        declared = use.declared_shape("axes")
        _require_axes(use, use.input(1), x.shape, declared)
        return [g.reshape(x, shape=declared)]
    axes = _given_axes(use)
    if axes is None:
        return [g.squeeze(x, axes=None)]
    if any(not -x.rank <= axis < x.rank for axis in axes):
        use.fail(f"has no axes {list(axes)}: the operand has rank {x.rank}", code="bad-axis")
    dropped = sorted({axis % x.rank for axis in axes}, reverse=True)
    # The call checks that a symbolic size among these axes is 1.
    symbolic = [axis for axis in dropped if isinstance(x.shape[axis], Poly)]
    for axis in symbolic:
        use.require(g.equal(g.size(x.shape[axis]), known(np.int64(1))))
    fixed = [axis for axis in dropped if axis not in symbolic]
    for axis in dropped:
        x = g.gather(x, known(np.int64(0)), axis=axis) if axis in symbolic else x
        x = g.squeeze(x, axes=(axis,)) if axis in fixed else x
    return [x]


def _unsqueeze(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    if _is_unknown(use):
        declared = use.declared_shape("axes")
        _require_axes(use, use.input(1), declared, x.shape)
        return [g.reshape(x, shape=declared)]
    axes = _given_axes(use) or ()
    rank = x.rank + len(axes)
    if any(not -rank <= axis < rank for axis in axes):
        use.fail(f"has no axes {list(axes)}: the result has rank {rank}", code="bad-axis")
    return [g.unsqueeze(x, axes=tuple(sorted(axis % rank for axis in axes)))]


def _require_axes(use: Use, axes: Tensor, longer: Sequence[Size], shorter: Sequence[Size]) -> None:
    """Adds a check of the axes that the call passes: inserting axes of size 1 there must turn the shorter shape into
    the longer one. Several choices of axes may do so."""
    g, rank = use.g, len(longer)
    if rank < len(shorter):
        use.fail("has operands that contradict the declared type of its result", code="type-mismatch")
    choices = [
        subset
        for subset in itertools.combinations(range(rank), rank - len(shorter))
        if all(longer[axis] == 1 for axis in subset)
        and tuple(size for axis, size in enumerate(longer) if axis not in subset) == tuple(shorter)
    ]
    if not choices:
        use.fail("has operands that contradict the declared type of its result", code="type-mismatch")
    normal = g.remainder(g.cast(g.reshape(axes, shape=(axes.type.elements,)), dtype=I64), known(np.int64(max(rank, 1))))
    hits = g.any(g.equal(g.unsqueeze(normal, axes=(1,)), known(np.arange(rank))), axis=0)
    masks = np.array([np.isin(np.arange(rank), choice) for choice in choices])
    use.require(g.any(g.all(g.equal(hits, known(masks)), axis=1)))


def _transpose(use: Use) -> Sequence[Tensor]:
    x = use.input()
    axes = use.ints_of("perm") or tuple(reversed(range(x.rank)))
    return [use.g.transpose(x, axes=axes)]


def expanded_shape(use: Use, shape: Sequence[Size], wanted: Sequence[Size]) -> tuple[Size, ...]:
    """Returns the shape that both broadcast to. A symbolic size that may be 1 is assumed to be the larger one."""
    rank = max(len(shape), len(wanted))
    left = (*(1,) * (rank - len(shape)), *shape)
    right = (*(1,) * (rank - len(wanted)), *wanted)
    result: list[Size] = []
    for a, b in zip(left, right, strict=True):
        if a == b or b == 1:
            result.append(a)
        elif a == 1:
            result.append(b)
        else:
            # The reader finds out whether dims with bounds, or equal ones, agree with these shapes.
            use.g.checked = (TensorType(I64, left), TensorType(I64, right))
            raise InferenceError("shape-mismatch", f"size {a} cannot be broadcast to {b}")
    return tuple(result)


def _expand(use: Use) -> Sequence[Tensor]:
    x, given, g = use.input(0), use.input(1), use.g
    if given.sizes is None:
        declared = use.declared_shape("a shape")
        count = given.shape[0] if given.rank == 1 else None
        if not isinstance(count, int) or count > len(declared):
            use.fail_unknown("a shape")
        front, tail = declared[: len(declared) - count], declared[len(declared) - count :]
        if front != x.shape[: len(front)]:
            use.fail("has operands that contradict the declared type of its result", code="type-mismatch")
        same = g.equal(g.cast(given, dtype=I64), of_sizes(tail))
        padded = (*(1,) * (count - x.rank), *x.shape)[-count:] if count else ()
        kept = np.array([a == b for a, b in zip(padded, tail, strict=True)], bool)
        if count:
            one = g.logical_and(g.equal(g.cast(given, dtype=I64), known(np.int64(1))), known(kept))
            use.require(g.all(g.logical_or(same, one)))
        return [g.broadcast_to(x, shape=declared)]
    shape = expanded_shape(use, x.shape, given.sizes)
    return [x if shape == x.shape else g.broadcast_to(x, shape=shape)]


def _tile(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    if use.version < 6:
        count, axis = use.ints(1, "tiles")[0], use.ints(2, "an axis")[0]
        return [g.tile(x, repeats=tuple(count if i == axis % x.rank else 1 for i in range(x.rank)))]
    repeats = use.input(1)
    if repeats.sizes is None:
        declared = use.declared_shape("repeats", rank=x.rank)
        parts = [_quotient(use, new, old) for new, old in zip(declared, x.shape, strict=True)]
        require_equal(use, repeats, parts)
        return [g.tile(x, repeats=tuple(parts))]
    return [_tiled(use, x, repeats.sizes)]


def _tiled(use: Use, x: Tensor, repeats: Sequence[Size]) -> Tensor:
    if len(repeats) != x.rank:
        use.fail(f"has {len(repeats)} repeats for {x.rank} axes", code="shape-mismatch")
    if not x.rank:
        return x
    if all(isinstance(count, int) for count in repeats):
        return use.g.tile(x, repeats=tuple(repeats))
    pairs = [(count, size) for count, size in zip(repeats, x.shape, strict=True)]
    if not all(at_least(count, 0) for count in repeats):
        use.fail("has repeats that may be negative", code="bad-size")
    split = use.g.reshape(x, shape=tuple(size for _, old in pairs for size in (1, old)))
    wide = use.g.broadcast_to(split, shape=tuple(size for pair in pairs for size in pair))
    return use.g.reshape(wide, shape=tuple(count * size for count, size in pairs))


def _quotient(use: Use, new: Size, old: Size) -> Size:
    found = 1 if new == old == 0 else divide_exactly(new, old)
    if found is None:
        use.fail("has operands that contradict the declared type of its result", code="type-mismatch")
    return found


def _depth_to_space(use: Use) -> Sequence[Tensor]:
    mode = {"DCR": "blocks_first", "CRD": "channels_first"}.get(use.string("mode", "DCR"))
    return [use.g.depth_to_space(use.input(), block=use.integer("blocksize"), mode=mode)]


def _space_to_depth(use: Use) -> Sequence[Tensor]:
    mode = {"DCR": "blocks_first", "CRD": "channels_first"}.get(use.string("mode", "DCR"))
    return [use.g.space_to_depth(use.input(), block=use.integer("blocksize"), mode=mode)]


CONVERTERS: Converters = {
    "Shape": _shape,
    "Size": _size,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
