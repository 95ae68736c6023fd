"""Chooses the range of numbers that 256 quantized values cover: the observed range, or less, for smaller steps.

Every method chooses the range from a histogram; the range always contains 0, which is represented exactly. Numbers
outside of it are clipped. `mse` and `entropy` try ranges that are shrunk from both ends, then from each end alone, and
select the first among the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ..model.policy import Calibration
from .histogram import HALF, Histogram, Numbers

Range = tuple[float, float]
STEPS = 255
"""Steps between the least and the largest quantized value."""
_NOTHING = 1e-12
"""The minimum probability of a bin after rounding, for a bin that holds only clipped numbers."""
_SHARES = tuple(1 - percent / 100 for percent in range(91))


def choose_range(histogram: Histogram, calibration: Calibration) -> Range:
    """Returns the numbers that the least and the largest quantized value represent."""
    return _METHODS[calibration.method](histogram, calibration)


def _bounds(histogram: Histogram) -> Range:
    return min(histogram.low, 0.0), max(histogram.high, 0.0)


def percentile_range(histogram: Histogram, percentile: float) -> Range:
    """Removes (100 - percentile) percent of the numbers at each end; numbers are assumed uniform within a bin."""
    low, high = _bounds(histogram)
    cut = histogram.total * (1 - percentile / 100)
    edges = np.append(histogram.centres - histogram.width / 2, histogram.centres[-1] + histogram.width / 2)
    below = np.concatenate([[0], np.cumsum(histogram.counts)]).astype(np.float64)
    # Empty bins are left out: np.interp would choose an arbitrary position in them.
    used = np.concatenate([[True], np.diff(below) > 0])
    before = np.concatenate([np.diff(below) > 0, [True]])
    bottom = float(np.interp(cut, below[before], edges[before]))
    top = float(np.interp(histogram.total - cut, below[used], edges[used]))
    return max(low, min(bottom, 0.0)), min(high, max(top, 0.0))


def squared_error(histogram: Histogram, found: Range) -> float:
    """Returns the mean squared quantization error of the numbers, with each bin represented by its centre."""
    used = histogram.counts > 0
    x, counts = histogram.centres[used], histogram.counts[used]
    return float((counts * (rounded(x, found) - x) ** 2).sum() / histogram.total)


def rounded(x: Numbers, found: Range) -> Numbers:
    """Returns the numbers that the quantized values represent."""
    low, high = found
    step = (high - low) / STEPS
    if step == 0:
        return np.zeros_like(x)
    zero = np.round(-low / step)
    codes = np.clip(np.round(x / step) + zero, 0, STEPS)
    restored: Numbers = (codes - zero) * step
    return restored


def divergence(histogram: Histogram, found: Range) -> float:
    """Returns the relative entropy, in nats, of the clipped distribution from the rounded one.

    The clipped distribution moves the numbers outside of the range to its ends. The rounded distribution spreads the
    count of each quantized value evenly over its nonempty bins. The bin of 0 is excluded: its numbers are exact or
    nearly so, and often the most frequent.

    The bias of the estimate is subtracted: 1/2 for each nonempty bin of a quantized value beyond its first, divided by
    the count of numbers (twice a likelihood ratio is distributed as chi-squared). Otherwise few numbers in many bins
    would give large divergences where a quantized value covers many bins, and all ranges would be too small.
    """
    low, high = found
    seen = histogram.counts.astype(np.float64)
    seen[HALF] = 0
    positions = np.flatnonzero((histogram.centres >= low) & (histogram.centres <= high))
    if not seen[positions].any():
        return np.inf
    counts, clipped = seen[positions], seen[positions]
    clipped[0] += seen[: positions[0]].sum()
    clipped[-1] += seen[positions[-1] + 1 :].sum()
    codes = np.round((histogram.centres[positions] - low) * (STEPS / (high - low))).clip(0, STEPS).astype(np.int64)
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
