"""Scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from .....dialect.types import BOOL
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use


def _attention(use: Use) -> Sequence[Tensor]:
    g = use.g
    q, k, v = (use.tensor(name) for name in ("query", "key", "value"))
    if use.number("dropout_p", 0.0) != 0:
        use.fail("draws random numbers", code="random-numbers", help="call `eval()` on the module before it is read")
    scale = use.arguments.get("scale")
    causal = use.flag("is_causal")
    rows, columns = q.shape[-2], k.shape[-2]
    mask = use.optional("attn_mask")
    if causal and rows != columns:
        # PyTorch aligns the causal mask with the first row, the operator of the graph aligns it with the last row.
        mask, causal = g.triangular_mask(rows=rows, columns=columns, dtype=BOOL), False
    operands = [q, k, v]
    if mask is not None:
        operands.append(mask if mask.dtype == BOOL else use.to(mask, q.dtype))
    factor = None if scale is None else float(use.number("scale"))
    result = g.attention(*operands, scale=factor, causal=causal)
    return [result if not use.has("attn_mask") else _of_allowed_rows(use, result, use.tensor("attn_mask"))]


def _of_allowed_rows(use: Use, result: Tensor, mask: Tensor) -> Tensor:
    """Returns the result with zeros in the rows of queries that the mask excludes from all keys, as PyTorch has it. The
    operator of the graph gives the mean of the values there, or NaN for a mask of numbers."""
    g = use.g
    allowed = mask if mask.dtype == BOOL else g.not_equal(mask, g.like(-inf, mask))
    if allowed.array is not None and allowed.array.any(-1).all():
        return result
    return g.where(g.any(allowed, axis=(allowed.rank - 1,), keepdims=True), result, g.like(0, result))


CONVERTERS: Converters = {"scaled_dot_product_attention.default": _attention}
