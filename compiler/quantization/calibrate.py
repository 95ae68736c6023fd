"""Calibration: runs a model over samples and reports the ranges of values, which determine static scales.

Each value has a histogram, so that memory does not grow with the samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..model.policy import Calibration, Policy
from ..model.samples import MOST
from ..model.source import SourceModel
from .apply import before_rounding, static_values
from .clipping import choose_range
from .histogram import Histogram
from .ranges import Ranges
from .watch import Progress, not_finite, watch_values


def calibrate(
    source_model: SourceModel,
    model: str,
    values: Sequence[str],
    calibration: Calibration,
    *,
    most: int = MOST,
    report: Progress = lambda text: None,
) -> Ranges:
    """Returns the ranges of values of the function `model`, all outside of loops, on the samples of the calibration,
    with at most `most` samples in a call. Raises DiagnosticError if the samples do not fit, or if a value is not finite
    on them."""
    histograms = {name: Histogram() for name in values}
    samples = watch_values(
        source_model,
        model,
        values,
        calibration.path,
        lambda name, array: histograms[name].add(array),
        most=most,
        report=report,
    )
    strange = next((name for name, histogram in histograms.items() if histogram.strange), None)
    if strange is not None:
        raise not_finite(source_model, model, strange, calibration.path)
    report("choosing ranges")
    found = {name: choose_range(histogram, calibration) for name, histogram in histograms.items()}
    return Ranges(model, samples, found)


def find_ranges(
    source_model: SourceModel, policies: Mapping[str, Policy], *, report: Progress = lambda text: None
) -> Mapping[str, Ranges]:
    """Returns the ranges that policies need, by function name; empty if no policy has static scales. Raises
    DiagnosticError as `calibrate` does."""
    if not any(policy.is_static for policy in policies.values()):
        return {}
    prepared = replace(source_model, module=before_rounding(source_model.module))
    found: dict[str, Ranges] = {}
    for name, policy in policies.items():
        values = static_values(prepared.module, prepared.module.function(name), policy)
        if values:
            assert policy.calibration is not None, policy
            found[name] = calibrate(prepared, name, values, policy.calibration, report=report)
    return found
