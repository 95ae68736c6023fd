"""Reshapes, permutations of axes, and repetition along axes."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.dims import product
from ...writing.tensors import Tensor, known, of_size
from ..writing.use import Convert, Converters, Use


def _reshaped(use: Use) -> Sequence[Tensor]:
    """Returns x in the shape of the result, which PyTorch has inferred."""
    x = use.tensor()
    return [x if x.shape == use.shape else use.g.reshape(x, shape=use.shape)]


def _permute(use: Use) -> Sequence[Tensor]:
    x = use.tensor()
    axes = tuple(axis % max(x.rank, 1) for axis in use.integers("dims"))
    return [use.g.transpose(x, axes=axes) if x.rank else x]


def swapped(use: Use, x: Tensor, first: int, second: int) -> Tensor:
    order = list(range(x.rank))
    if not order:
        return x
    order[first], order[second] = order[second], order[first]
    return use.g.transpose(x, axes=tuple(order))


def _transpose(use: Use) -> Sequence[Tensor]:
    return [swapped(use, use.tensor(), use.axis("dim0"), use.axis("dim1"))]


def _t(use: Use) -> Sequence[Tensor]:
    x = use.tensor()
    return [swapped(use, x, 0, 1) if x.rank == 2 else x]


def _last_swapped(use: Use) -> Sequence[Tensor]:
    return [use.g.matrix_transpose(use.tensor())]


def _move(use: Use) -> Sequence[Tensor]:
    x = use.tensor()
    sources = [axis % x.rank for axis in use.integers("source")]
    targets = [axis % x.rank for axis in use.integers("destination")]
    rest = [axis for axis in range(x.rank) if axis not in sources]
    placed = dict(zip(targets, sources, strict=True))
    order = tuple(placed[axis] if axis in placed else rest.pop(0) for axis in range(x.rank))
    return [use.g.transpose(x, axes=order)]


def expanded(use: Use, x: Tensor, shape: Sequence[object]) -> Tensor:
    return x if x.shape == tuple(shape) else use.g.broadcast_to(x, shape=tuple(shape))


def _expand(use: Use) -> Sequence[Tensor]:
    return [expanded(use, use.tensor(), use.shape)]


def _repeat(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    counts = use.sizes("dims") if "dims" in use.arguments else use.sizes("repeats")
    shape = (*(1,) * (len(counts) - x.rank), *x.shape)
    counts = (*(1,) * (x.rank - len(counts)), *counts)
    if not shape:
        return [x]
    x = g.reshape(x, shape=shape)
    if all(isinstance(count, int) for count in counts) and all(counts):
        return [g.tile(x, repeats=counts)]
    split = g.reshape(x, shape=tuple(size for old in shape for size in (1, old)))
    wide = g.broadcast_to(split, shape=tuple(size for pair in zip(counts, shape, strict=True) for size in pair))
    return [g.reshape(wide, shape=use.shape)]


def _repeat_interleave(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    if not use.has("dim"):
        x = g.reshape(x, shape=(x.type.elements,))
    axis = use.axis(rank=x.rank) if use.has("dim") else 0
    return [g.repeat_interleave(x, repeats=use.number("repeats"), axis=axis)]


def _flip(use: Use) -> Sequence[Tensor]:
    x, axes = use.tensor(), use.integers("dims")
    return [use.g.flip(x, axes=tuple(axis % x.rank for axis in axes)) if x.rank and axes else x]


def _roll(use: Use) -> Sequence[Tensor]:
    x, g = use.tensor(), use.g
    shifts, axes = use.sizes("shifts"), use.integers("dims")
    if not axes:
        flat = g.reshape(x, shape=(x.type.elements,))
        return [g.reshape(_rolled(use, flat, shifts[0], 0), shape=x.shape)]
    for shift, axis in zip(shifts, axes, strict=True):
        x = _rolled(use, x, shift, axis % max(x.rank, 1))
    return [x]


def _rolled(use: Use, x: Tensor, shift: object, axis: int) -> Tensor:
    """Returns the tensor rotated: element i comes from i - shift, modulo the size."""
    if not x.rank:
        return x
    g, size = use.g, x.shape[axis]
    if isinstance(shift, int):
        return g.roll(x, shift=shift, axis=axis)
    assert hasattr(shift, "terms"), shift
    positions = g.subtract(g.iota(shape=(size,)), of_size(shift))  # type: ignore[arg-type]  # a size
    return g.gather(x, g.remainder(positions, g.size(size)), axis=axis)


def _pixel_shuffle(use: Use) -> Sequence[Tensor]:
    return [use.g.depth_to_space(use.tensor(), block=use.number("upscale_factor"), mode="channels_first")]


def _triangle(name: str) -> Convert:
    return lambda use: [use.g.apply(name, [use.tensor()], {"diagonal": use.size("diagonal")})[0]]


def _diagonal(use: Use) -> Sequence[Tensor]:
    """Gathers row i and column i + offset of the two axes, moved to the end."""
    x, g, offset = use.tensor(), use.g, use.number("offset")
    first, second = use.axis("dim1"), use.axis("dim2")
    rest = [axis for axis in range(x.rank) if axis not in (first, second)]
    x = g.transpose(x, axes=(*rest, first, second))
    rows, columns = x.shape[-2:]
    flat = g.reshape(x, shape=(*x.shape[:-2], product((rows, columns))))
    steps = g.iota(shape=(use.shape[-1],))
    row = g.add(steps, known(max(-offset, 0)))
    column = g.add(steps, known(max(offset, 0)))
    positions = g.add(g.multiply(row, g.size(columns)), column)
    return [g.gather(flat, positions, axis=flat.rank - 1, mode="clamp")]


CONVERTERS: Converters = {
    **dict.fromkeys(
        (
            "view.default", "_unsafe_view.default", "reshape.default", "flatten.using_ints", "unflatten.int",
            "squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default", "_reshape_alias.default",
            "view_copy.default", "squeeze_copy.dim", "unsqueeze_copy.default",
        ),
        _reshaped,
    ),
    "permute.default": _permute,
    "permute_copy.default": _permute,
    "transpose.int": _transpose,
    "swapaxes.default": lambda use: [swapped(use, use.tensor(), use.axis("axis0"), use.axis("axis1"))],
    "t.default": _t,
    "numpy_T.default": lambda use: [use.g.transpose(use.tensor())],
    "mT.default": _last_swapped,
    "movedim.intlist": _move,
    "movedim.int": _move,
    "expand.default": _expand,
    "expand_copy.default": _expand,
    "expand_as.default": _expand,
    "broadcast_to.default": _expand,
    "repeat.default": _repeat,
    "tile.default": _repeat,
    "repeat_interleave.self_int": _repeat_interleave,
    "flip.default": _flip,
    "roll.default": _roll,
    "pixel_shuffle.default": _pixel_shuffle,
    "tril.default": _triangle("tril"),
    "triu.default": _triangle("triu"),
    "diagonal.default": _diagonal,
}  # fmt: skip
