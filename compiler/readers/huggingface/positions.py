"""Rotary positions as a folder configures them: their base, and divisors of the frequencies.

The key is `rope_parameters`, or `rope_theta` and `rope_scaling` in older files. `linear` divides all frequencies,
`llama3` those of long waves (https://arxiv.org/abs/2407.21783), and `yarn` interpolates (https://arxiv.org/abs/2309.00071).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .config_json import Configuration

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rotary:
    """The parameters of rotary positions; `Decoder` documents the fields."""

    base: float
    factors: tuple[float, ...] = ()
    scale: float = 1.0


def rotary_parameters(c: Configuration, kind: str = "") -> Configuration:
    """Returns the parameters of rotary positions, of one kind of layers where kinds differ."""
    found = c.inner("rope_parameters")
    if kind and kind in found.values:
        return found.inner(kind)
    if found.values:
        return found
    old = dict(c.inner("rope_scaling").values)
    old.setdefault("rope_type", old.get("type", "default"))
    return Configuration(c.path, {"rope_theta": c.find("rope_theta", 10000.0), **old}, c.checkpoint)


def read_rotary(c: Configuration, rotated: int, kind: str = "") -> Rotary:
    """Returns the rotary positions of a model that rotates `rotated` elements of a head. Raises DiagnosticError."""
    p = rotary_parameters(c, kind)
    base, type = p.positive("rope_theta", 10000.0), p.text("rope_type", "default")
    if type == "default":
        return Rotary(base)
    if type == "linear":
        return Rotary(base, (p.positive("factor"),) * (rotated // 2))
    frequency = base ** (-np.arange(0, rotated, 2) / rotated)
    if type == "llama3":
        return Rotary(base, _numbers(_llama3(p, frequency)))
    if type == "yarn":
        factor = p.positive("factor")
        scale = p.positive("attention_factor", _yarn_scale(p, factor))
        return Rotary(base, _numbers(_yarn(p, c, base, rotated, factor)), scale)
    raise c.unsupported(f"scales rotary positions by `{type}`")


def _numbers(factors: Numbers) -> tuple[float, ...]:
    return tuple(float(factor) for factor in factors)


def _llama3(p: Configuration, frequency: Numbers) -> Numbers:
    factor, low, high = p.positive("factor"), p.positive("low_freq_factor"), p.positive("high_freq_factor")
    waves = p.size("original_max_position_embeddings") * frequency / (2 * math.pi)
    if low >= high:
        raise p.unsupported("has a `low_freq_factor` that is not less than `high_freq_factor`")
    kept = np.clip((waves - low) / (high - low), 0, 1)
    return np.asarray(1 / (kept + (1 - kept) / factor))


def _yarn(p: Configuration, c: Configuration, base: float, rotated: int, factor: float) -> Numbers:
    context = p.find("original_max_position_embeddings") or c.find("original_max_position_embeddings")
    length = c.size("max_position_embeddings") if type(context) is not int else context

    def pair(turns: float) -> float:
        """Returns the index of the pair that makes `turns` rotations in the original context."""
        return rotated * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(p.positive("beta_fast", 32)), pair(p.positive("beta_slow", 1))
    if p.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotated - 1)
    divided = np.clip((np.arange(rotated // 2) - low) / ((high - low) or 0.001), 0, 1)
    return np.asarray(1 / (divided / factor + 1 - divided))


def _yarn_scale(p: Configuration, factor: float) -> float:
    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0

    over, under = p.number("mscale", 0), p.number("mscale_all_dim", 0)
    return scale(over) / scale(under) if over and under else scale(1)
