"""An accuracy as a picture: the error of every point in order of computation, and the distribution of the results'
errors."""

from __future__ import annotations

import math
from typing import Any

from ...comparison.sample_errors import Accuracy, PointAccuracy
from ..plots import draw_plot

_NAMED = 60
"""The maximum number of points whose names are shown."""


def draw_accuracy(accuracy: Accuracy, names: tuple[str, str], suffix: str) -> bytes:
    """Returns the picture as a file with that suffix."""
    points = (*accuracy.points, *accuracy.results)
    named = len(points) <= _NAMED

    def fill(figure: Any) -> None:
        figure.suptitle(f"{names[0]} beside {names[1]}, {accuracy.samples} samples")
        upper, lower = figure.subplots(2, 1, height_ratios=(max(3, 0.16 * len(points)) if named else 8, 3))
        _draw_points(upper, points, named)
        _draw_histograms(lower, accuracy.results)

    return draw_plot((9, 3.5 + (0.16 * len(points) if named else 5)), suffix, fill)


def _draw_points(axes: Any, points: tuple[PointAccuracy, ...], named: bool) -> None:
    positions = range(len(points))
    # Zero and infinite errors have no position on a logarithmic axis and are not drawn.
    errors = [p.figures.rms_error if 0 < p.figures.rms_error < math.inf else math.nan for p in points]
    apart = [1 - p.figures.cosine if p.figures.cosine < 1 else math.nan for p in points]
    axes.plot(errors, positions, "o-", markersize=3, linewidth=0.8, label="rms error / rms of the reference")
    axes.plot(apart, positions, "s", markersize=3, label="1 - cosine")
    axes.set_xscale("log")
    axes.set_yticks(list(positions) if named else [], [p.name for p in points] if named else [])
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.grid(axis="x", linewidth=0.3)
    axes.legend(loc="best")


def _draw_histograms(axes: Any, results: tuple[PointAccuracy, ...]) -> None:
    for point in results:
        powers = sorted(point.figures.histogram)
        shares = [point.figures.histogram[power] / point.figures.elements for power in powers]
        axes.step(powers, shares, where="mid", label=point.name)
    axes.set_xlabel("error, as a power of two of the reference's rms")
    axes.set_ylabel("share of elements")
    if results:
        axes.legend(loc="best")
