"""Which range of numbers 256 codes are spread over: all that were seen, or fewer, so that steps are smaller.

Every method tells the range from a histogram; it always holds 0, which has a code of its own. What lies outside is
clipped. `mse` and `entropy` try ranges that are shrunk from both ends, then from each end alone, and take the first
among the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from .histogram import HALF, Histogram, Numbers
from .policy import Calibration

Range = tuple[float, float]
STEPS = 255
"""Between the least and the largest code."""
_NOTHING = 1e-12
"""The share of an end at which no number lies but those that are clipped."""
_SHARES = tuple(1 - percent / 100 for percent in range(91))


def choose_range(histogram: Histogram, calibration: Calibration) -> Range:
    """The numbers that the least and the largest code stand for."""
    return _METHODS[calibration.method](histogram, calibration)


def _bounds(histogram: Histogram) -> Range:
    return min(histogram.low, 0.0), max(histogram.high, 0.0)


def percentile_range(histogram: Histogram, percentile: float) -> Range:
    """Cuts off so many percent less than all of the numbers at each end; within a bin they count as evenly spread."""
    low, high = _bounds(histogram)
    cut = histogram.total * (1 - percentile / 100)
    edges = np.append(histogram.centres - histogram.width / 2, histogram.centres[-1] + histogram.width / 2)
    below = np.concatenate([[0], np.cumsum(histogram.counts)]).astype(np.float64)
    # Bins without numbers are left out: np.interp would choose any place in them.
    used = np.concatenate([[True], np.diff(below) > 0])
    before = np.concatenate([np.diff(below) > 0, [True]])
    bottom = float(np.interp(cut, below[before], edges[before]))
    top = float(np.interp(histogram.total - cut, below[used], edges[used]))
    return max(low, min(bottom, 0.0)), min(high, max(top, 0.0))


def squared_error(histogram: Histogram, found: Range) -> float:
    """The mean of the squares of what is lost of the numbers, those of a bin taken for its centre."""
    used = histogram.counts > 0
    x, counts = histogram.centres[used], histogram.counts[used]
    return float((counts * (rounded(x, found) - x) ** 2).sum() / histogram.total)


def rounded(x: Numbers, found: Range) -> Numbers:
    """What the codes of numbers stand for."""
    low, high = found
    step = (high - low) / STEPS
    if step == 0:
        return np.zeros_like(x)
    zero = np.round(-low / step)
    codes = np.clip(np.round(x / step) + zero, 0, STEPS)
    restored: Numbers = (codes - zero) * step
    return restored


def divergence(histogram: Histogram, found: Range) -> float:
    """The relative entropy, in nats, of the numbers that lie in the range, those outside taken for its ends, from those
    that are left of them after rounding: all bins of one code that have any numbers have equally many. The bin of 0
    takes no part: its numbers are exact or next to it, and often most of all.

    What chance alone makes of it is taken off, half a unit for each bin of a code beyond its first, over the count of
    numbers (twice a likelihood ratio is distributed as chi-squared): few numbers in many bins would else be told to
    differ most where a code has most bins, and all ranges become too small.
    """
    low, high = found
    seen = histogram.counts.astype(np.float64)
    seen[HALF] = 0
    places = np.flatnonzero((histogram.centres >= low) & (histogram.centres <= high))
    if not seen[places].any():
        return np.inf
    counts, clipped = seen[places], seen[places]
    clipped[0] += seen[: places[0]].sum()
    clipped[-1] += seen[places[-1] + 1 :].sum()
    codes = np.round((histogram.centres[places] - low) * (STEPS / (high - low))).clip(0, STEPS).astype(np.int64)
    used = counts > 0
    sums, bins = np.bincount(codes, counts, STEPS + 1), np.bincount(codes[used], minlength=STEPS + 1)
    left = np.where(used, sums[codes] / np.maximum(bins[codes], 1), 0.0)
    p, q = clipped / clipped.sum(), np.maximum(left / left.sum(), _NOTHING)
    chance = (np.count_nonzero(used) - np.count_nonzero(bins)) / (2 * seen.sum())
    return float(np.sum(p * np.log(np.where(p > 0, p, 1.0) / q)) - chance)


def _shrunk(histogram: Histogram) -> Iterator[Range]:
    low, high = _bounds(histogram)
    for share in _SHARES:
        yield low * share, high * share


def _shrunk_alone(found: Range) -> Iterator[Range]:
    low, high = found
    for share in _SHARES:
        yield low * share, high
    for share in _SHARES:
        yield low, high * share


def _search(histogram: Histogram, loss: Callable[[Histogram, Range], float]) -> Range:
    if histogram.low == histogram.high == 0:
        return 0.0, 0.0
    together = min(_shrunk(histogram), key=lambda found: loss(histogram, found))
    low, high = _bounds(histogram)
    if low == 0 or high == 0:
        return together
    return min(_shrunk_alone(together), key=lambda found: loss(histogram, found))


_METHODS: Mapping[str, Callable[[Histogram, Calibration], Range]] = {
    "minmax": lambda histogram, _: _bounds(histogram),
    "percentile": lambda histogram, calibration: percentile_range(histogram, calibration.percentile),
    "mse": lambda histogram, _: _search(histogram, squared_error),
    "entropy": lambda histogram, _: _search(histogram, divergence),
}
