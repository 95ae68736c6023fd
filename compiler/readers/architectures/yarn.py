"""The scaling of rotary positions by YaRN, https://arxiv.org/abs/2309.00071.

Frequencies with few rotations in the original context are divided, those with many rotations stay, and those between
are interpolated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Yarn:
    """The parameters of a model. `context` is the original context in tokens.

    Frequencies of more than `fast` rotations in this context stay, and those of less than `slow` rotations are divided
    by `factor`. With `truncate`, the bounds of the range between them are whole pairs.
    """

    factor: float
    context: int
    fast: float = 32.0
    slow: float = 1.0
    truncate: bool = True

    def divisors(self, base: float, rotated: int) -> tuple[float, ...]:
        """Returns the divisor of the frequency of each pair of `rotated` features of a head."""

        def pair(turns: float) -> float:
            """Returns the index of the pair that makes `turns` rotations in the original context."""
            logarithm = math.log(self.context) - math.log(turns) - math.log(2 * math.pi)
            return rotated * logarithm / (2 * math.log(base))

        low, high = pair(self.fast), pair(self.slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotated - 1)
        divided = np.clip((np.arange(rotated // 2) - low) / ((high - low) or 0.001), 0, 1)
        return tuple(float(divisor) for divisor in 1 / (divided / self.factor + 1 - divided))


def yarn_scale(factor: float, weight: float = 1.0) -> float:
    """Returns the factor of sine and cosine."""
    return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0
