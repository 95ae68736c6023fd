"""Concatenation and stacking."""

from __future__ import annotations

from collections.abc import Sequence

from ...writing.tensors import Tensor
from ..writing.use import Converters, Use


def _concatenation(use: Use) -> Sequence[Tensor]:
    parts, g = use.inputs, use.g
    if not parts:
        use.fail("has no operands", code="wrong-operands")
    if use.activation != "NONE":
        use.fail(f"has the activation {use.activation}")
    if use.is_quantized and not all(use.same_quantization(index) for index in range(len(parts))):
        use.fail("joins tensors of different scales", code="unsupported-attribute")
    return [g.concat(*parts, axis=use.axis(use.integer("axis"), parts[0].rank))]


def _pack(use: Use) -> Sequence[Tensor]:
    parts = use.inputs
    if not parts:
        use.fail("has no operands", code="wrong-operands")
    return [use.g.stack(*parts, axis=use.axis(use.integer("axis"), parts[0].rank + 1))]


CONVERTERS: Converters = {"CONCATENATION": _concatenation, "PACK": _pack}
