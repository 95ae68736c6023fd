"""Layers that reshape, permute, pad or repeat, and layers that only affect training."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.dims import Size, product
from ...writing.tensors import Tensor
from ..writing.use import Convert, Converters, Use
from .convolutions import spatial


def _identity(use: Use) -> Sequence[Tensor]:
    return [use.x]


def _flatten(use: Use) -> Sequence[Tensor]:
    x, g = use.x, use.g
    if not use.channels_last and x.rank > 2:
        x = g.transpose(x, axes=(0, *range(2, x.rank), 1))
    return [g.reshape(x, shape=(x.shape[0], product(x.shape[1:])))]


def _reshape(use: Use) -> Sequence[Tensor]:
    x = use.x
    wanted = use.value("target_shape")
    if not isinstance(wanted, list) or not all(type(size) is int and size >= -1 for size in wanted):
        use.fail(f"has `target_shape` = {wanted!r}", code="bad-keras")
    shape: list[Size] = list(wanted)
    if wanted.count(-1) > 1:
        use.fail(f"has `target_shape` = {wanted!r}", code="bad-keras")
    if -1 in wanted:
        rest = product([size for size in wanted if size != -1])
        total = product(x.shape[1:])
        if rest == 0 or (isinstance(total, int) and isinstance(rest, int) and total % rest):
            use.fail(f"cannot give {x.type} the shape {wanted}", code="shape-mismatch")
        shape[wanted.index(-1)] = total // rest
    return [use.g.reshape(x, shape=(x.shape[0], *shape))]


def _permute(use: Use) -> Sequence[Tensor]:
    x = use.x
    axes = use.integers("dims", x.rank - 1)
    if sorted(axes) != list(range(1, x.rank)):
        use.fail(f"has `dims` = {list(axes)} for {x.type}", code="bad-keras")
    return [use.g.transpose(x, axes=(0, *axes))]


def _repeat_vector(use: Use) -> Sequence[Tensor]:
    x, g = use.x, use.g
    if x.rank != 2:
        use.fail(f"gets {x.type}, expected rank 2", code="unsupported-rank")
    return [g.broadcast_to(g.unsqueeze(x, axes=(1,)), shape=(x.shape[0], use.integer("n"), x.shape[1]))]


def _pairs(use: Use, name: str, rank: int) -> list[tuple[int, int]]:
    """Returns widths before and after each spatial axis: one for all, one for each, or a pair for each."""
    found = use.value(name)
    listed = [found] * rank if isinstance(found, int) else found
    if rank == 1 and isinstance(listed, list) and len(listed) == 2:
        listed = [listed]
    pairs = [(each, each) if type(each) is int else each for each in listed] if isinstance(listed, list) else []
    if len(pairs) != rank or not all(
        isinstance(p, (list, tuple)) and len(p) == 2 and all(type(n) is int and n >= 0 for n in p) for p in pairs
    ):
        use.fail(f"has `{name}` = {found!r}", code="bad-keras")
    return [(first, last) for first, last in pairs]


def _zero_padding(rank: int) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        spatial(use, use.x, rank)
        widths = [(0, 0)] * (rank + 2)
        first = 1 if use.channels_last else 2
        widths[first : first + rank] = _pairs(use, "padding", rank)
        return [use.g.pad(use.x, widths=tuple(widths))]

    return convert


def _cropping(rank: int) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x = use.x
        sizes = spatial(use, x, rank)
        lead = (None,) if use.channels_last else (None, None)
        pairs = _pairs(use, "cropping", rank)
        stops = [size - after for size, (_, after) in zip(sizes, pairs, strict=True)]
        return [use.g.slice(x, starts=(*lead, *(before for before, _ in pairs)), stops=(*lead, *stops))]

    return convert


def _up_sampling(rank: int) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, g = use.x, use.g
        spatial(use, x, rank)
        factors = use.integers("size", rank, 2)
        mode = use.word("interpolation", "nearest")
        if min(factors) < 1 or mode not in ("nearest", "bilinear"):
            use.fail(f"has `size` = {list(factors)} and `interpolation` = {mode!r}")
        first = 1 if use.channels_last else 2
        if mode == "nearest":
            for axis, factor in enumerate(factors, first):
                x = g.repeat_interleave(x, repeats=factor, axis=axis)
            return [x]
        if use.channels_last:
            x = g.transpose(x, axes=(0, rank + 1, *range(1, rank + 1)))
        sizes = tuple(size * factor for size, factor in zip(x.shape[2:], factors, strict=True))
        x = g.resize(x, sizes=sizes, mode="linear")
        return [g.transpose(x, axes=(0, *range(2, rank + 2), 1)) if use.channels_last else x]

    return convert


_IN_TRAINING = (
    "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "GaussianDropout", "AlphaDropout",
    "GaussianNoise", "ActivityRegularization", "Identity",
)  # fmt: skip

CONVERTERS: Converters = {
    **dict.fromkeys(_IN_TRAINING, _identity),
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Permute": _permute,
    "RepeatVector": _repeat_vector,
    **{f"ZeroPadding{rank}D": _zero_padding(rank) for rank in (1, 2, 3)},
    **{f"Cropping{rank}D": _cropping(rank) for rank in (1, 2, 3)},
    **{f"UpSampling{rank}D": _up_sampling(rank) for rank in (1, 2, 3)},
}
