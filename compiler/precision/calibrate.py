"""Calibration: runs a model over samples and tells the ranges of values, from which static scales follow.

Each value has a histogram, so that memory does not grow with the samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..accuracy.samples import MOST
from ..frontend import Elaborated
from .apply import before_rounding, static_values
from .clipping import choose_range
from .histogram import Histogram
from .policy import Calibration, Policy
from .ranges import Ranges
from .watch import Tell, not_finite, watch_values


def calibrate(
    elaborated: Elaborated,
    model: str,
    values: Sequence[str],
    calibration: Calibration,
    *,
    most: int = MOST,
    tell: Tell = lambda text: None,
) -> Ranges:
    """The ranges of values of the function `model`, which stand outside of loops, on the samples that the calibration
    names, at most so many in a call. Raises DiagnosticError where the samples do not fit, or where a value is not
    finite on them."""
    histograms = {name: Histogram() for name in values}
    samples = watch_values(
        elaborated,
        model,
        values,
        calibration.path,
        lambda name, array: histograms[name].add(array),
        most=most,
        tell=tell,
    )
    strange = next((name for name, histogram in histograms.items() if histogram.strange), None)
    if strange is not None:
        raise not_finite(elaborated, model, strange, calibration.path)
    tell("choosing ranges")
    found = {name: choose_range(histogram, calibration) for name, histogram in histograms.items()}
    return Ranges(model, samples, found)


def find_ranges(
    elaborated: Elaborated, policies: Mapping[str, Policy], *, tell: Tell = lambda text: None
) -> Mapping[str, Ranges]:
    """The ranges that policies ask for, by the names of functions as they are; none where none is static. Raises
    DiagnosticError as `calibrate` does."""
    if not any(policy.is_static for policy in policies.values()):
        return {}
    prepared = replace(elaborated, module=before_rounding(elaborated.module))
    found: dict[str, Ranges] = {}
    for name, policy in policies.items():
        values = static_values(prepared.module, prepared.module.function(name), policy)
        if values:
            assert policy.calibration is not None, policy
            found[name] = calibrate(prepared, name, values, policy.calibration, tell=tell)
    return found
