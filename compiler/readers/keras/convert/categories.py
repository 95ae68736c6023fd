"""Categories: `Discretization` maps a number to the index of its interval, `CategoryEncoding` an integer to a vector
with an element for each category."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.types import F32, I32, I64, DType
from ...writing.tensors import Tensor, known
from ..writing.use import Converters, Use


def _encoded(use: Use, ids: Tensor, depth: int, mode: str, dtype: DType) -> Tensor:
    g = use.g
    if mode == "int":
        return g.cast(ids, dtype=dtype)
    if mode == "one_hot" and ids.rank > 1 and ids.shape[-1] == 1:
        ids = g.squeeze(ids, axes=(ids.rank - 1,))
    spread = g.equal(g.unsqueeze(ids, axes=(ids.rank,)), known(np.arange(depth, dtype=np.int64)))
    if mode == "one_hot":
        return g.cast(spread, dtype=dtype)
    axis = ids.rank - 1
    if mode in ("multi_hot", "binary"):
        return g.cast(g.any(spread, axis=axis), dtype=dtype)
    if mode == "count":
        return g.sum(g.cast(spread, dtype=dtype), axis=axis)
    use.fail(f"has `output_mode` = {mode!r}")


def _category_encoding(use: Use) -> Sequence[Tensor]:
    depth = use.integer("num_tokens")
    if not 1 <= depth <= 1 << 20 or use.flag("sparse"):
        use.fail(f"has {depth} categories, or a sparse result", code="unsupported-attribute")
    ids = use.x if use.x.dtype == I64 else use.g.cast(use.x, dtype=I64)
    return [_encoded(use, ids, depth, use.word("output_mode", "multi_hot"), F32)]


def _discretization(use: Use) -> Sequence[Tensor]:
    """Returns the index of the interval of each element: the number of boundaries that are not above it."""
    g, x = use.g, use.x
    if not x.dtype.is_float:
        x = g.cast(x, dtype=F32)
    found = use.value("bin_boundaries", None)
    is_listed = isinstance(found, (list, tuple)) and len(found) < 1 << 16
    if not is_listed or not all(isinstance(each, (int, float)) for each in found):
        use.fail("has no list of boundaries", code="bad-keras", help="call `adapt` before the model is saved")
    if use.flag("sparse"):
        use.fail("has a sparse result")
    limits = np.asarray(found, np.float32)
    below = g.greater_equal(g.unsqueeze(x, axes=(x.rank,)), use.tensor(limits, "boundaries"))
    mode = use.word("output_mode", "int")
    ids = g.sum(g.cast(below, dtype=I64), axis=x.rank)
    return [_encoded(use, ids, len(found) + 1, mode, I32 if mode == "int" else F32)]


CONVERTERS: Converters = {"CategoryEncoding": _category_encoding, "Discretization": _discretization}
