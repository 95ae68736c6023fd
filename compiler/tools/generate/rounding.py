"""The bound of the difference between logits of one call with several tokens and those of single calls.

The order of the sums differs, and so do the last bits of f32. A number that is rounded to a shorter format may become
its other neighbour, so the bounds of such models are larger.
"""

from __future__ import annotations

from ....dialect.emitter import ROUNDED_ROWS
from ....dialect.types import I16
from ....runtime.loader import Model
from ....runtime.observe import calls

_F32 = 1e-4
_KEYS = {"f16": 1e-3, "i8": 2e-2}
"""The bounds by the dtype of the keys in the cache."""
_SHORT = 1e-1
"""The bound if activations are rounded to 8 bits or to bf16."""
_ROUNDED = 1e-2
"""The bound if code rounds the factors of products to 16-bit integers, as it may in calls of many tokens."""


def rounding_bound(model: Model, most: int = 1) -> float:
    """Returns the bound relative to the largest logit, for calls with up to `most` tokens."""
    states = model.describe()["session"]["states"]
    bounds = [_KEYS.get(state["dtype"], _F32) for state in states if state["name"].endswith(".keys")]
    found = calls(model)
    for call in (*found["decode"], *found["score"]):
        is_short = any(operation.op == "quantize" for operation in call.operations)
        if is_short or any(value.type.dtype == "bf16" for value in call.values):
            bounds.append(_SHORT)
        if most >= ROUNDED_ROWS and any(operation.factors == I16.name for operation in call.operations):
            bounds.append(_ROUNDED)
    return max(bounds, default=_F32)
