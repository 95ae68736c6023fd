"""Formats an accuracy as JSON data, and histograms as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...comparison.bounds import Bound
from ...comparison.sample_errors import Accuracy, PointAccuracy, Scores
from ...comparison.tally import ErrorFigures

SHOWN = range(-24, 1, 2)
"""The powers of two of the histogram columns: from one f32 rounding error up to the size of the numbers themselves."""
_BLOCKS = " ▁▂▃▄▅▆▇█"
_BAR = 40


def sparkline(figures: ErrorFigures) -> str:
    """Returns the distribution of errors as a row of block characters for `SHOWN`; smaller errors count in the first,
    larger ones in the last. Elements without an error are not counted."""
    counts = [0] * len(SHOWN)
    for power, count in figures.histogram.items():
        counts[min(max((power - SHOWN.start + 1) // SHOWN.step, 0), len(counts) - 1)] += count
    most = max(counts)
    return "".join(_BLOCKS[-(-count * (len(_BLOCKS) - 1) // most)] if most else " " for count in counts)


def histogram_lines(figures: ErrorFigures) -> Iterator[str]:
    """Yields one line for each power of two, with the count of errors below it and not below the previous one."""
    rows = [("none", figures.exact)] if figures.exact else []
    rows += [(f"< 2^{power}", count) for power, count in sorted(figures.histogram.items())]
    most = max((count for _, count in rows), default=1)
    for label, count in rows:
        yield f"{label:>8}  {count:>10,}  {'█' * round(_BAR * count / most)}".rstrip()


# --- data ---


def number(value: float) -> float | str:
    """Converts infinity and NaN, which JSON lacks, to text."""
    return value if math.isfinite(value) else str(value)


def accuracy_data(accuracy: Accuracy, names: tuple[str, str], bounds: Sequence[Bound]) -> dict[str, Any]:
    """Returns the accuracy as JSON data. `names` are the names of the model and its reference."""
    return {
        "model": names[0],
        "reference": names[1],
        "samples": accuracy.samples,
        "calls": accuracy.calls,
        "error": number(accuracy.error),
        "cosine": accuracy.cosine,
        "mean_cosine": accuracy.mean_cosine,
        "snr": number(accuracy.snr),
        "agreement": accuracy.agreement,
        "top1_drop": accuracy.top1_drop,
        "scores": [_scores_data(s) for s in accuracy.scores],
        "bounds": [{"bound": str(b), "value": number(b.value(accuracy)), "holds": b.holds(accuracy)} for b in bounds],
        "results": [_point_data(p) for p in accuracy.results],
        "points": [_point_data(p) for p in accuracy.points],
    }


def _scores_data(scores: Scores) -> dict[str, Any]:
    return {
        "result": scores.name,
        "classes": scores.classes,
        "rows": scores.rows,
        "top1_agreement": scores.agreement,
        "right": scores.right,
        "reference_right": scores.reference_right,
    }


def _point_data(point: PointAccuracy) -> dict[str, Any]:
    figures = point.figures
    counts: Mapping[str, int] = {str(power): count for power, count in sorted(figures.histogram.items())}
    return {
        "point": point.name,
        "type": point.type,
        "at": point.at or None,
        "kernel": point.kernel or None,
        "elements": figures.elements,
        "rms": number(figures.rms),
        "error": number(figures.error),
        "rms_error": number(figures.rms_error),
        "mean": number(figures.mean),
        "largest": number(figures.largest),
        "snr": number(figures.snr),
        "cosine": figures.cosine,
        "least_cosine": figures.least_cosine,
        "exact": figures.exact,
        "histogram": counts,
    }
