"""Constants, shapes, movement of data, and parts of tensors. Shapes may be computed from dims, as JAX writes them."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.dims import Size, divide_exactly, product, static_size
from .....dialect.types import I64, Array
from ...writing.tensors import Tensor, known, of_size
from ..writing.records import decode_array
from ..writing.use import Converters, Use

_MOST_EQUAL = 1 << 16
"""The most elements of a constant of equal numbers that is stored; a larger one is broadcast."""


def stored(use: Use, array: Array) -> Tensor:
    """Returns a constant of the file."""
    if array.size > _MOST_EQUAL and not any(array.strides):
        return use.g.broadcast_to(known(array[(0,) * array.ndim]), shape=array.shape)
    return known(array, None, "constant")


def _constant(use: Use) -> Sequence[Tensor]:
    return [stored(use, decode_array(use.record.attributes["value"]))]


def _iota(use: Use) -> Sequence[Tensor]:
    shape: Sequence[Size] = use.sizes(0, "sizes") if use.operands else use.shape
    return [use.g.iota(shape=tuple(shape), axis=use.integer("iota_dimension"), dtype=use.dtype)]


def _reshape(use: Use) -> Sequence[Tensor]:
    shape: Sequence[Size] = use.sizes(1, "sizes") if len(use.operands) > 1 else use.shape
    if list(shape).count(-1) == 1:
        rest = divide_exactly(use.x.type.elements, product(size for size in shape if size != -1))
        shape = [rest if size == -1 and rest is not None else size for size in shape]
    return [use.g.reshape(use.x, shape=tuple(shape))]


def _broadcast_in_dim(use: Use) -> Sequence[Tensor]:
    """Broadcasts: axis i of the operand becomes axis `dims[i]` of the result, and axes of size 1 are repeated."""
    x, g = use.x, use.g
    shape: tuple[Size, ...] = use.sizes(1, "sizes") if len(use.operands) > 1 else use.shape
    dims = use.integers("broadcast_dimensions")
    order = sorted(range(x.rank), key=lambda axis: dims[axis])
    x = g.transpose(x, axes=tuple(order)) if order != list(range(x.rank)) else x
    placed = dict(zip(sorted(dims), x.shape, strict=True))
    spread = tuple(placed.get(axis, 1) for axis in range(len(shape)))
    x = x if spread == x.shape else g.reshape(x, shape=spread)
    return [x if spread == shape else g.broadcast_to(x, shape=shape)]


def _broadcast(use: Use) -> Sequence[Tensor]:
    """Broadcasts along new axes, which precede those of the operand."""
    return [use.g.broadcast_to(use.x, shape=(*use.integers("broadcast_sizes"), *use.x.shape))]


def _transpose(use: Use) -> Sequence[Tensor]:
    return [use.g.transpose(use.x, axes=use.integers("permutation")) if use.x.rank else use.x]


def _concatenate(use: Use) -> Sequence[Tensor]:
    if len(use.operands) == 1:
        return [use.x]
    return [use.g.concat(*use.operands, axis=use.integer("dimension"))]


def _slice(use: Use) -> Sequence[Tensor]:
    x, g = use.x, use.g
    starts, stops, steps = (use.integers(name) for name in ("start_indices", "limit_indices", "strides"))
    return [g.slice(x, starts=starts, stops=stops, steps=steps) if x.rank else x]


def _real_dynamic_slice(use: Use) -> Sequence[Tensor]:
    starts, stops, steps = (use.sizes(number, "bounds") for number in (1, 2, 3))
    if not all(isinstance(step, int) for step in steps):
        use.fail("has steps that depend on dims", code="data-dependent")
    return [use.g.slice(use.x, starts=starts, stops=stops, steps=steps)]


def _dynamic_slice(use: Use) -> Sequence[Tensor]:
    x, *starts = use.operands
    return [use.g.dynamic_slice(x, *_starts(use, starts), sizes=use.integers("slice_sizes"), mode="clamp")]


def _dynamic_update_slice(use: Use) -> Sequence[Tensor]:
    x, update, *starts = use.operands
    return [use.g.dynamic_update_slice(x, update, *_starts(use, starts), mode="clamp")]


def _starts(use: Use, starts: Sequence[Tensor]) -> list[Tensor]:
    """Returns starts clamped to 0, as StableHLO specifies: the graph counts negative starts from the end."""
    g, found = use.g, [use.g.cast(each, dtype=I64) for each in starts]
    return [g.maximum(each, g.like(0, each)) for each in found]


def _pad(use: Use) -> Sequence[Tensor]:
    """Pads by widths that are attributes or integer operands; negative widths remove elements."""
    x, value = use.operands[:2]
    g = use.g
    if len(use.operands) > 2:
        widths = [use.sizes(number, "widths") for number in (2, 3, 4)]
        if not all(isinstance(width, int) for each in widths for width in each):
            use.fail("has widths that depend on dims", code="data-dependent")
        low, high, between = (tuple(map(static_size, each)) for each in widths)
    else:
        names = ("edge_padding_low", "edge_padding_high", "interior_padding")
        low, high, between = map(use.integers, names)
    filler = value.array
    for axis, gap in enumerate(between):
        if gap:
            x = _spread(use, x, axis, gap, value)
    grown = tuple((max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True))
    if any(map(any, grown)):
        if filler is not None:
            x = g.pad(x, widths=grown, value=filler.item())
        else:
            inside = g.pad(g.broadcast_to(known(True), shape=x.shape), widths=grown, value=False)
            x = g.where(inside, g.pad(x, widths=grown), value)
    if any(a < 0 or b < 0 for a, b in zip(low, high, strict=True)):
        stops = tuple(size + min(b, 0) for size, b in zip(x.shape, high, strict=True))
        x = g.slice(x, starts=tuple(max(-a, 0) for a in low), stops=stops)
    return [x]


def _spread(use: Use, x: Tensor, axis: int, gap: int, value: Tensor) -> Tensor:
    """Inserts `gap` copies of `value` between neighbours along an axis."""
    g, size = use.g, x.shape[axis]
    wide = g.unsqueeze(x, axes=(axis + 1,))
    filler = g.broadcast_to(value, shape=(*x.shape[: axis + 1], gap, *x.shape[axis + 1 :]))
    joined = g.concat(wide, filler, axis=axis + 1)
    flat = g.reshape(joined, shape=(*x.shape[:axis], size * (gap + 1), *x.shape[axis + 1 :]))
    whole = (None,) * axis
    return g.slice(flat, starts=(*whole, 0), stops=(*whole, size * (gap + 1) - gap))


def _reverse(use: Use) -> Sequence[Tensor]:
    axes = use.integers("dimensions")
    return [use.g.flip(use.x, axes=axes) if axes else use.x]


def _dimension_size(use: Use) -> Sequence[Tensor]:
    size = of_size(use.x.shape[use.integer("dimension")])
    return [use.g.cast(size, dtype=use.dtype)]


CONVERTERS: Converters = {
    "constant": _constant,
    "chlo.constant": _constant,
    "iota": _iota,
    "dynamic_iota": _iota,
    "reshape": _reshape,
    "dynamic_reshape": _reshape,
    "broadcast": _broadcast,
    "broadcast_in_dim": _broadcast_in_dim,
    "dynamic_broadcast_in_dim": _broadcast_in_dim,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "slice": _slice,
    "real_dynamic_slice": _real_dynamic_slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "pad": _pad,
    "dynamic_pad": _pad,
    "reverse": _reverse,
    "get_dimension_size": _dimension_size,
}
