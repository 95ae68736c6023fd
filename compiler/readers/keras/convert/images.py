"""Layers for images: resizing, cropping and augmentation. Augmentation has no effect in inference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....dialect.dims import Size
from ...writing.tensors import Elements, Tensor
from ...writing.weighted_sums import weighted_sums
from ..writing.use import Converters, Use
from .convolutions import spatial

MOST_WEIGHTS = 1 << 24
"""The maximum number of elements of a matrix of weights."""
_SHARPNESS = -0.5
"""The coefficient of cubic interpolation."""


def check_weights(use: Use, old: int, new: int) -> None:
    if old * new > MOST_WEIGHTS:
        use.fail(f"needs {old} * {new} weights, and {MOST_WEIGHTS} are allowed", code="too-large")


def _cubic(old: int, new: int) -> Elements:
    """Returns the weights [new, old] of cubic interpolation; those outside of the operand are left out."""

    def curve(x: Any) -> Any:
        x, a = abs(x), _SHARPNESS
        near = (a + 2) * x**3 - (a + 3) * x**2 + 1
        far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
        return np.where(x < 1, near, np.where(x < 2, far, 0.0))

    centres = (np.arange(new)[:, None] + 0.5) * old / new - 0.5
    weights = curve(centres - np.arange(old))
    return np.asarray(weights / weights.sum(1, keepdims=True))


def _resized(use: Use, x: Tensor, sizes: tuple[int, int], mode: str) -> Tensor:
    g = use.g
    first = 1 if use.channels_last else 2
    if mode == "bicubic":
        for axis, new in enumerate(sizes, first):
            old = _known(use, x.shape[axis])
            check_weights(use, old, new)
            x = weighted_sums(g, x, axis, _cubic(old, new))
        return x
    if use.channels_last:
        x = g.transpose(x, axes=(0, 3, 1, 2))
    x = g.resize(x, sizes=sizes, mode="linear" if mode == "bilinear" else "nearest")
    return g.transpose(x, axes=(0, 2, 3, 1)) if use.channels_last else x


def _known(use: Use, size: Size) -> int:
    if not isinstance(size, int) or not size:
        use.fail(f"needs the size of its operand, which is {size}", code="data-dependent")
    return size


def _part(use: Use, x: Tensor, starts: tuple[int, int], sizes: tuple[int, int]) -> Tensor:
    lead = (None,) if use.channels_last else (None, None)
    stops = [start + size for start, size in zip(starts, sizes, strict=True)]
    return use.g.slice(x, starts=(*lead, *starts), stops=(*lead, *stops))


def _of_same_ratio(use: Use, x: Tensor, sizes: tuple[int, int]) -> Tensor:
    """Returns the largest part in the middle of the images whose sides have the ratio of `sizes`."""
    old = tuple(_known(use, size) for size in spatial(use, x, 2))
    wide = (old[1] * sizes[0] / sizes[1], old[0] * sizes[1] / sizes[0])
    kept = (max(min(old[0], math.floor(wide[0])), 1), max(min(old[1], math.floor(wide[1])), 1))
    return _part(use, x, ((old[0] - kept[0]) // 2, (old[1] - kept[1]) // 2), kept)


def _padded(use: Use, x: Tensor, sizes: tuple[int, int]) -> Tensor:
    """Returns the images with borders around them, so that their sides have the ratio of `sizes`."""
    if use.word("fill_mode", "constant") != "constant":
        use.fail(f"has `fill_mode` = {use.value('fill_mode')!r}")
    old = tuple(_known(use, size) for size in spatial(use, x, 2))
    wide = (math.floor(old[1] * sizes[0] / sizes[1]), math.floor(old[0] * sizes[1] / sizes[0]))
    first = 1 if use.channels_last else 2
    widths = [(0, 0)] * 4
    for axis in (0, 1):
        border = (max(old[axis], wide[axis]) - old[axis]) // 2
        widths[first + axis] = (border, border)
    return use.g.pad(x, widths=tuple(widths), value=use.number("fill_value", 0.0))


def _two_sizes(use: Use) -> tuple[int, int]:
    sizes = (use.integer("height"), use.integer("width"))
    if min(sizes) < 1:
        use.fail(f"has the sizes {sizes}", code="bad-keras")
    return sizes


def _resizing(use: Use) -> Sequence[Tensor]:
    x, sizes = use.x, _two_sizes(use)
    old = spatial(use, x, 2)
    if not x.dtype.is_float:
        use.fail(f"gets {x.type}, expected floats", code="unsupported-dtype")
    mode = use.word("interpolation", "bilinear")
    if mode not in ("nearest", "bilinear", "bicubic"):
        use.fail(f"has `interpolation` = {mode!r}", help="nearest, bilinear and bicubic are supported")
    if use.flag("antialias") and any(not isinstance(a, int) or b < a for a, b in zip(old, sizes, strict=True)):
        use.fail("has `antialias`, and makes images smaller")
    if use.flag("crop_to_aspect_ratio"):
        x = _of_same_ratio(use, x, sizes)
    elif use.flag("pad_to_aspect_ratio"):
        x = _padded(use, x, sizes)
    return [_resized(use, x, sizes, mode)]


def _center_crop(use: Use) -> Sequence[Tensor]:
    x, sizes = use.x, _two_sizes(use)
    old = tuple(_known(use, size) for size in spatial(use, x, 2))
    if all(size >= new for size, new in zip(old, sizes, strict=True)):
        return [_part(use, x, ((old[0] - sizes[0]) // 2, (old[1] - sizes[1]) // 2), sizes)]
    return [_resized(use, _of_same_ratio(use, x, sizes), sizes, "bilinear")]


def _random_crop(use: Use) -> Sequence[Tensor]:
    if use.version < 3:
        use.fail("is of Keras 2, which crops in inference as well")
    return [use.x]


_IN_TRAINING = (
    "AugMix", "CutMix", "MixUp", "RandAugment", "RandomBrightness", "RandomColorDegeneration", "RandomColorJitter",
    "RandomContrast", "RandomElasticTransform", "RandomErasing", "RandomFlip", "RandomGaussianBlur", "RandomGrayscale",
    "RandomHue", "RandomInvert", "RandomPerspective", "RandomPosterization", "RandomRotation", "RandomSaturation",
    "RandomSharpness", "RandomShear", "RandomTranslation", "RandomZoom", "Solarization",
)  # fmt: skip

CONVERTERS: Converters = {
    "Resizing": _resizing,
    "CenterCrop": _center_crop,
    "RandomCrop": _random_crop,
    **dict.fromkeys(_IN_TRAINING, lambda use: [use.x]),
}
