"""Rotary positions as a folder configures them: their base, and divisors of the frequencies.

The key is `rope_parameters`, or `rope_theta` and `rope_scaling` in older files. `linear` divides all frequencies,
`llama3` those of long waves (https://arxiv.org/abs/2407.21783), and `yarn` interpolates (https://arxiv.org/abs/2309.00071).
`longrope` has a divisor for each frequency, and other ones for sessions that are longer than the original context
(https://arxiv.org/abs/2402.13753).
`dynamic` changes none within the context of a model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..architectures.yarn import Yarn, yarn_scale
from .config_json import Configuration

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rotary:
    """The parameters of rotary positions; `Decoder` documents the fields."""

    base: float
    factors: tuple[float, ...] = ()
    scale: float = 1.0
    original: int = 0
    long_factors: tuple[float, ...] = ()


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
    if type == "dynamic":
        # The base grows with the length of texts beyond the context, which is the longest session.
        p.positive("factor")
        return Rotary(base)
    if type == "linear":
        return Rotary(base, (p.positive("factor"),) * (rotated // 2))
    frequency = base ** (-np.arange(0, rotated, 2) / rotated)
    if type in ("longrope", "su"):
        return _longrope(p, c, base, rotated // 2)
    if type == "llama3":
        return Rotary(base, _numbers(_llama3(p, frequency)))
    if type == "yarn":
        yarn = _yarn(p, c)
        if base <= 1:
            raise p.unsupported(f"scales frequencies of the base {base} by `yarn`")
        return Rotary(base, yarn.divisors(base, rotated), p.positive("attention_factor", _yarn_scale(p, yarn.factor)))
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


def _original_context(p: Configuration, c: Configuration) -> int:
    name = "original_max_position_embeddings"
    return next((part.size(name) for part in (p, c) if part.find(name)), None) or c.size("max_position_embeddings")


def _longrope(p: Configuration, c: Configuration, base: float, pairs: int) -> Rotary:
    short, long = (p.divisors(name, pairs) for name in ("short_factor", "long_factor"))
    original = _original_context(p, c)
    factor = c.size("max_position_embeddings") / original
    scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 and original > 1 else 1.0
    return Rotary(base, short, p.positive("attention_factor", scale), original, long)


def _yarn(p: Configuration, c: Configuration) -> Yarn:
    context = _original_context(p, c)
    bounds = p.positive("beta_fast", 32), p.positive("beta_slow", 1)
    return Yarn(p.positive("factor"), context, *bounds, p.flag("truncate", True))


def _yarn_scale(p: Configuration, factor: float) -> float:
    over, under = p.number("mscale", 0), p.number("mscale_all_dim", 0)
    return yarn_scale(factor, over) / yarn_scale(factor, under) if over and under else yarn_scale(factor)
