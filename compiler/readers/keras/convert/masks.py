"""Masks of time steps: layers that create, propagate and consume them.

`Embedding` with `mask_zero` and `Masking` create the mask of their result. A layer in the table below propagates the
mask of its operand; the result of any other layer has no mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from .....dialect.types import BOOL
from ...writing.tensors import Tensor, known
from ..writing.use import Convert, Converters, Use

Masks: TypeAlias = Callable[[Use], Sequence[Tensor | None]]
"""Returns the masks of the results of a layer; missing ones are None."""

_REFUSING = frozenset({"Softmax", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"})
USERS = frozenset({"LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional", "GlobalAveragePooling1D"}) | _REFUSING
"""Layers whose results depend on the mask of their operand."""
TAKERS = USERS | {"BatchNormalization", "TimeDistributed"}
"""Layers that take the mask of the first operand as the keyword argument `mask`."""


def as_mask(use: Use, x: Tensor) -> Tensor:
    return x if x.dtype == BOOL else use.g.not_equal(x, use.g.like(0, x))


def masked(use: Use, mask: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """Returns x [batch, steps, ...] where the mask is true, and the other tensor elsewhere."""
    if mask.rank >= x.rank:
        use.fail(f"gets a mask {mask.type} for {x.type}", code="unsupported-rank")
    return use.g.where(use.g.unsqueeze(mask, axes=tuple(range(mask.rank, x.rank))), x, other)


def _is_other(use: Use, x: Tensor, number: float) -> Tensor:
    return use.g.not_equal(x, use.g.like(number, x))


def _embedding(use: Use) -> Sequence[Tensor | None]:
    return [_is_other(use, use.x, 0)] if use.flag("mask_zero") else []


def _steps(use: Use) -> Tensor:
    return use.g.any(_is_other(use, use.x, use.number("mask_value", 0.0)), axis=-1)


def _masking(use: Use) -> Sequence[Tensor]:
    return [masked(use, _steps(use), use.x, use.g.like(0, use.x))]


def _kept(use: Use) -> Sequence[Tensor | None]:
    return [use.masks.get(0, use.masks.get("query"))]


def _recurrent(use: Use) -> Sequence[Tensor | None]:
    config = use.config
    if use.kind == "Bidirectional":
        inner = use.value("layer")
        config = inner.get("config", {}) if isinstance(inner, Mapping) else {}
    mask = use.masks.get(0) if config.get("return_sequences") else None
    return [mask, mask] if use.kind == "Bidirectional" and use.value("merge_mode", "concat") is None else [mask]


def _merged(use: Use) -> Sequence[Tensor | None]:
    found = [use.masks.get(position) for position in range(len(use.inputs))]
    total = found[0] if found else None
    for mask in found[1:]:
        total = None if total is None or mask is None else use.g.logical_or(total, mask)
    return [total]


def _concatenated(use: Use) -> Sequence[Tensor | None]:
    if not use.masks:
        return []
    g, parts = use.g, []
    for position, x in enumerate(use.inputs):
        mask = use.masks.get(position, known(True))
        # A mask with all axes is concatenated as it is; a mask with one axis fewer applies to all features.
        mask = g.unsqueeze(mask, axes=(mask.rank,)) if 0 < mask.rank < x.rank else mask
        parts.append(g.broadcast_to(mask, shape=x.shape))
    return [g.any(g.concat(*parts, axis=use.integer("axis", -1)), axis=-1)]


_KEEPING = (
    "Activation", "ActivityRegularization", "AlphaDropout", "BatchNormalization", "Dense", "Dropout", "ELU",
    "GaussianDropout", "GaussianNoise", "GroupNormalization", "GroupQueryAttention", "GroupedQueryAttention",
    "Identity", "Attention", "AdditiveAttention",
    "LayerNormalization", "LeakyReLU", "MultiHeadAttention", "Normalization",
    "PReLU", "ReLU", "Rescaling", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "ThresholdedReLU",
    "TimeDistributed", "UnitNormalization",
)  # fmt: skip

_MASKS: Mapping[str, Masks] = {
    "Embedding": _embedding,
    "Masking": lambda use: [_steps(use)],
    **dict.fromkeys(_KEEPING, _kept),
    **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional"), _recurrent),
    **dict.fromkeys(("Add", "Average", "Maximum", "Minimum", "Multiply", "Subtract"), _merged),
    "Concatenate": _concatenated,
}


def check_masks(use: Use) -> None:
    """Fails if an operand has a mask that would change the result of the layer."""
    if use.masks and use.kind in _REFUSING:
        use.fail("does not support operands with a mask", help="remove the mask before this layer")


def masks_after(use: Use) -> Sequence[Tensor | None]:
    """Returns the masks of the results of a layer; missing ones are None."""
    find = _MASKS.get(use.kind)
    return () if find is None else find(use)


CONVERTERS: Converters = {"Masking": _masking}


# --- operations ---


def _not_equal(use: Use) -> Sequence[Tensor]:
    numbers = use.flags.get("numbers", ())
    if len(use.inputs) + len(numbers) != 2 or not use.inputs:
        use.fail(f"gets {len(use.inputs)} tensors and {len(numbers)} numbers", code="wrong-operands")
    return [_is_other(use, use.x, numbers[0]) if numbers else use.g.not_equal(*use.inputs)]


def _any(use: Use) -> Sequence[Tensor]:
    return [use.g.any(use.x, axis=use.integer("axis"), keepdims=use.flag("keepdims"))]


def _expand(use: Use) -> Sequence[Tensor]:
    axis = use.integer("axis")
    return [use.g.unsqueeze(use.x, axes=(axis if axis >= 0 else axis + use.x.rank + 1,))]


def _filled(is_true: bool) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        if use.value("dtype", None) != "bool":
            use.fail(f"has `dtype` = {use.value('dtype', None)!r}")
        return [use.g.broadcast_to(known(is_true), shape=use.x.shape)]

    return convert


def _logical_or(use: Use) -> Sequence[Tensor]:
    if len(use.inputs) != 2:
        use.fail(f"gets {len(use.inputs)} tensors, expected 2", code="wrong-operands")
    return [use.g.logical_or(*use.inputs)]


OPERATIONS: Converters = {
    "NotEqual": _not_equal,
    "Any": _any,
    "ExpandDims": _expand,
    "ZerosLike": _filled(False),
    "OnesLike": _filled(True),
    "LogicalOr": _logical_or,
}
"""The operations on masks that functional models list beside their layers."""
