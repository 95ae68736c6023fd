"""Dense layers, embeddings, and the arithmetic of several tensors."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import I32
from ...writing.tensors import Tensor
from ..writing.use import Convert, Converters, Use
from .activations import activated


def _dense(use: Use) -> Sequence[Tensor]:
    g = use.g
    made = g.matmul(use.x, use.weight(0, 2, "kernel"))
    if use.flag("use_bias", True):
        made = g.add(made, use.weight(1, 1, "bias"))
    return [activated(use, made)]


def _embedding(use: Use) -> Sequence[Tensor]:
    if use.flag("mask_zero"):
        use.fail("masks the id 0")
    ids = use.x if use.x.dtype.is_integer else use.g.cast(use.x, dtype=I32)
    return [use.g.embedding(use.weight(0, 2, "embeddings"), ids)]


def _folded(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        if len(use.inputs) < 2:
            use.fail(f"gets {len(use.inputs)} tensors, expected several", code="wrong-operands")
        total = use.inputs[0]
        for each in use.inputs[1:]:
            total = use.g.apply(name, [total, each], {})[0]
        return [total]

    return convert


def _average(use: Use) -> Sequence[Tensor]:
    (total,) = _folded("add")(use)
    return [use.g.divide(total, use.g.like(len(use.inputs), total))]


def _concatenate(use: Use) -> Sequence[Tensor]:
    if not use.inputs:
        use.fail("gets no tensors", code="wrong-operands")
    return [use.g.concat(*use.inputs, axis=use.integer("axis", -1))]


CONVERTERS: Converters = {
    "Dense": _dense,
    "Embedding": _embedding,
    "Add": _folded("add"),
    "Subtract": _folded("subtract"),
    "Multiply": _folded("multiply"),
    "Maximum": _folded("maximum"),
    "Minimum": _folded("minimum"),
    "Average": _average,
    "Concatenate": _concatenate,
}
