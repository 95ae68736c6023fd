"""Shapes, layouts, padding and constant tensors: operators that move elements."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.dims import Size, product
from ...writing.tensors import Tensor, of_sizes
from ..writing.use import Converters, Use


def _identity_of_scale(use: Use) -> None:
    """Fails if the operand and the result have different quantizations."""
    record = use.records[0]
    if use.is_quantized and record is not None and record.quantization is not None and not use.same_quantization():
        use.fail("changes the scale of its operand", code="unsupported-attribute")


def _reshape(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    if use.optional(1) is not None:
        wanted: Sequence[Size] = use.sizes(1, "a shape")
    elif use.operator.options is not None:
        wanted = use.operator.options.integers(0)
    else:
        wanted = [size for size in use.result.shape if size is not None]
    open_axes = [axis for axis, size in enumerate(wanted) if size == -1]
    if len(open_axes) > 1 or any(isinstance(size, int) and size < -1 for size in wanted):
        use.fail(f"has the shape {list(wanted)}", code="bad-attribute")
    shape = list(wanted)
    if open_axes:
        rest = product([size for size in wanted if size != -1])
        total = product(x.shape)
        if rest == 0 or (isinstance(rest, int) and isinstance(total, int) and total % rest):
            use.fail(f"cannot give {x.type} the shape {list(wanted)}", code="shape-mismatch")
        shape[open_axes[0]] = total // rest
    return [g.reshape(x, shape=tuple(shape))]


def _transpose(use: Use) -> Sequence[Tensor]:
    x = use.input()
    axes = tuple(use.axis(axis, x.rank) for axis in use.integers(1, "axes"))
    return [use.g.transpose(x, axes=axes)]


def _squeeze(use: Use) -> Sequence[Tensor]:
    x = use.input()
    given = () if use.operator.options is None else use.operator.options.integers(0)
    axes = tuple(use.axis(axis, x.rank) for axis in given)
    return [use.g.squeeze(x, axes=axes or tuple(axis for axis, size in enumerate(x.shape) if size == 1))]


def _expand_dims(use: Use) -> Sequence[Tensor]:
    x = use.input()
    axes = use.integers(1, "axes")
    return [use.g.unsqueeze(x, axes=tuple(use.axis(axis, x.rank + 1) for axis in axes))]


def _shape(use: Use) -> Sequence[Tensor]:
    return [use.g.cast(of_sizes(use.input().shape), dtype=use.dtype)]


def _rank(use: Use) -> Sequence[Tensor]:
    g = use.g
    return [g.cast(g.reshape(of_sizes([use.input().rank]), shape=()), dtype=use.dtype)]


def _pad(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    pairs = _pairs(use, x)
    _identity_of_scale(use)
    value: float = 0
    if use.operator.name == "PADV2":
        given = use.input(2)
        if given.array is None or given.array.size != 1:
            use.fail("pads with a value that a call computes", code="data-dependent")
        value = given.array.reshape(-1)[0].item()
    elif use.is_quantized:
        value = use.quantized_result.zero
    return [g.pad(x, widths=pairs, value=value)]


def _pairs(use: Use, x: Tensor) -> tuple[tuple[Size, Size], ...]:
    flat = use.sizes(1, "a padding")
    if len(flat) != 2 * x.rank:
        use.fail(f"has {len(flat)} widths for rank {x.rank}", code="wrong-operands")
    return tuple((flat[2 * axis], flat[2 * axis + 1]) for axis in range(x.rank))


def _mirror_pad(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    pairs = _pairs(use, x)
    if use.integer("mode") == 0:
        return [g.pad(x, widths=pairs, mode="reflect")]
    # SYMMETRIC repeats the edge element: a reversed part of the tensor is joined before and after it.
    for axis, (before, after) in enumerate(pairs):
        lead: tuple[Size | None, ...] = (None,) * axis
        size = x.shape[axis]
        parts = [x]
        if before != 0:
            parts.insert(0, g.flip(g.slice(x, starts=(*lead, 0), stops=(*lead, before)), axes=axis))
        if after != 0:
            parts.append(g.flip(g.slice(x, starts=(*lead, size - after), stops=(*lead, size)), axes=axis))
        x = g.concat(*parts, axis=axis) if len(parts) > 1 else x
    return [x]


def _tile(use: Use) -> Sequence[Tensor]:
    return [use.g.tile(use.input(), repeats=use.sizes(1, "repeats"))]


def _broadcast_to(use: Use) -> Sequence[Tensor]:
    return [use.g.broadcast_to(use.input(), shape=use.sizes(1, "a shape"))]


def _fill(use: Use) -> Sequence[Tensor]:
    g, value = use.g, use.input(1)
    return [g.broadcast_to(g.reshape(value, shape=()), shape=use.sizes(0, "a shape"))]


def _zeros_like(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    return [g.broadcast_to(g.like(0, x), shape=x.shape)]


def _range(use: Use) -> Sequence[Tensor]:
    g = use.g
    start, stop, step = (use.input(index) for index in range(3))
    if start.dtype.is_float:
        arrays = [each.array for each in (start, stop, step)]
        if any(array is None for array in arrays):
            use.fail("has bounds that a call computes", code="data-dependent")
        first, last, by = (float(array.reshape(-1)[0]) for array in arrays if array is not None)
        count: Size = max(int(-(-(last - first) // by)), 0) if by else 0
    else:
        low, high, by_ = (use.sizes(index, "bounds")[0] for index in range(3))
        if not isinstance(by_, int) or by_ == 0:
            use.fail("has a step that differs between calls, or is 0", code="data-dependent")
        count = -((low - high) // by_)
        if isinstance(count, int):
            count = max(count, 0)
    positions = g.cast(g.iota(shape=(count,)), dtype=start.dtype)
    return [g.add(g.multiply(positions, g.reshape(step, shape=())), g.reshape(start, shape=()))]


def _depth_to_space(use: Use) -> Sequence[Tensor]:
    x, g, block = use.input(), use.g, use.integer("block")
    n, h, w, c = _images(use, x, block)
    if isinstance(c, int) and c % (block * block):
        use.fail(f"has {c} channels for blocks of {block}", code="shape-mismatch")
    part = c // (block * block)
    parts = g.transpose(g.reshape(x, shape=(n, h, w, block, block, part)), axes=(0, 1, 3, 2, 4, 5))
    return [g.reshape(parts, shape=(n, h * block, w * block, part))]


def _space_to_depth(use: Use) -> Sequence[Tensor]:
    x, g, block = use.input(), use.g, use.integer("block")
    n, h, w, c = _images(use, x, block)
    if any(isinstance(size, int) and size % block for size in (h, w)):
        use.fail(f"has sizes {h} x {w} for blocks of {block}", code="shape-mismatch")
    parts = g.reshape(x, shape=(n, h // block, block, w // block, block, c))
    joined = g.transpose(parts, axes=(0, 1, 3, 2, 4, 5))
    return [g.reshape(joined, shape=(n, h // block, w // block, c * block * block))]


def _images(use: Use, x: Tensor, block: int) -> tuple[Size, Size, Size, Size]:
    if x.rank != 4 or block < 1:
        use.fail(f"takes a tensor of rank {x.rank} and blocks of {block}", code="unsupported-rank")
    n, h, w, c = x.shape
    return n, h, w, c


def _batch_to_space(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    blocks, crops = use.integers(1, "blocks"), use.integers(2, "crops")
    rank = len(blocks)
    if x.rank < rank + 1 or len(crops) != 2 * rank or min(blocks, default=1) < 1:
        use.fail("has blocks or crops that do not fit its operand", code="wrong-operands")
    batch, spatial, rest = x.shape[0], x.shape[1 : rank + 1], x.shape[rank + 1 :]
    count = product(blocks)
    x = g.reshape(x, shape=(*blocks, batch // count, *spatial, *rest))
    order = [rank]
    for axis in range(rank):
        order += [rank + 1 + axis, axis]
    x = g.transpose(x, axes=(*order, *range(2 * rank + 1, x.rank)))
    sizes = [size * block for size, block in zip(spatial, blocks, strict=True)]
    x = g.reshape(x, shape=(batch // count, *sizes, *rest))
    starts, stops = crops[::2], [size - crop for size, crop in zip(sizes, crops[1::2], strict=True)]
    return [g.slice(x, starts=(None, *starts), stops=(None, *stops))]


def _space_to_batch(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    blocks, pads = use.integers(1, "blocks"), use.integers(2, "a padding")
    rank = len(blocks)
    if x.rank < rank + 1 or len(pads) != 2 * rank or min(blocks, default=1) < 1:
        use.fail("has blocks or widths that do not fit its operand", code="wrong-operands")
    widths = [(pads[2 * axis], pads[2 * axis + 1]) for axis in range(rank)]
    zero = use.quantized_result.zero if use.is_quantized else 0
    x = g.pad(x, widths=((0, 0), *widths, *((0, 0),) * (x.rank - rank - 1)), value=zero)
    batch, spatial, rest = x.shape[0], x.shape[1 : rank + 1], x.shape[rank + 1 :]
    shape: list[Size] = [batch]
    for size, block in zip(spatial, blocks, strict=True):
        if isinstance(size, int) and size % block:
            use.fail(f"has a padded size {size} for blocks of {block}", code="shape-mismatch")
        shape += [size // block, block]
    x = g.reshape(x, shape=(*shape, *rest))
    inner, outer = range(2, 2 * rank + 1, 2), range(1, 2 * rank + 1, 2)
    x = g.transpose(x, axes=(*inner, 0, *outer, *range(2 * rank + 1, x.rank)))
    sizes = [size // block for size, block in zip(spatial, blocks, strict=True)]
    return [g.reshape(x, shape=(batch * product(blocks), *sizes, *rest))]


CONVERTERS: Converters = {
    "RESHAPE": _reshape,
    "TRANSPOSE": _transpose,
    "SQUEEZE": _squeeze,
    "EXPAND_DIMS": _expand_dims,
    "SHAPE": _shape,
    "RANK": _rank,
    "PAD": _pad,
    "PADV2": _pad,
    "MIRROR_PAD": _mirror_pad,
    "TILE": _tile,
    "BROADCAST_TO": _broadcast_to,
    "FILL": _fill,
    "ZEROS_LIKE": _zeros_like,
    "RANGE": _range,
    "DEPTH_TO_SPACE": _depth_to_space,
    "SPACE_TO_DEPTH": _space_to_depth,
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "SPACE_TO_BATCH_ND": _space_to_batch,
}
