"""Scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Sequence

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
    return [g.attention(*operands, scale=factor, causal=causal)]


CONVERTERS: Converters = {"scaled_dot_product_attention.default": _attention}
