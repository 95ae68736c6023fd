"""Wrappers: `TimeDistributed` applies a layer to each step, `SpectralNormalization` scales the weights of a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...writing.tensors import Tensor
from ..writing.use import Convert, Converters, Use
from .masks import USERS


def wrappers(find: Callable[[str], Convert | None]) -> Converters:
    """Returns the converters of wrapper layers. `find` returns the converter of a class of layers, or None."""

    def time_distributed(use: Use) -> Sequence[Tensor]:
        inner, g, x = use.value("layer"), use.g, use.x
        kind = str(inner.get("class_name")) if isinstance(inner, Mapping) else ""
        convert = find(kind)
        if convert is None or not isinstance(inner.get("config"), Mapping) or kind == use.kind:
            use.fail(f"wraps a layer of class `{kind}`, which is not supported", code="unsupported-operator")
        if x.rank < 3:
            use.fail(f"gets {x.type}, expected steps", code="unsupported-rank")
        batch, steps = x.shape[:2]
        # The steps become elements of a larger batch.
        flat = g.reshape(x, shape=(batch * steps, *x.shape[2:]))
        if use.masks and kind in USERS:
            use.fail(f"gives the mask of its steps to a layer of class `{kind}`")
        made = convert(replace(use, kind=kind, config=inner["config"], inputs=(flat,), masks={}))
        return [g.reshape(each, shape=(batch, steps, *each.shape[1:])) for each in made]

    def spectral(use: Use) -> Sequence[Tensor]:
        """Converts the wrapped layer: its weights are divided by their norm in training only."""
        inner = use.value("layer")
        kind = str(inner.get("class_name")) if isinstance(inner, Mapping) else ""
        convert = find(kind)
        if convert is None or not isinstance(inner.get("config"), Mapping) or kind in (use.kind, "TimeDistributed"):
            use.fail(f"wraps a layer of class `{kind}`, which is not supported", code="unsupported-operator")
        own = [each for each in use.weights if "layer" in each[0].split("/")]
        own = own or [each for each in use.weights if "vector_u" not in each[0] and "sn_u" not in each[0]]
        return convert(replace(use, kind=kind, config=inner["config"], weights=own))

    return {"TimeDistributed": time_distributed, "SpectralNormalization": spectral}
