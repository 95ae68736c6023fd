"""Calibration: runs a model over samples and tells the ranges of values, from which static scales follow.

The model is compiled as it is, with the values as further results; each of them has a histogram, so that memory does
not grow with the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.graph import Function, Value, walk
from ...passes.fold_batch_norm import FoldBatchNorm
from ...passes.manager import PassManager
from ...runtime.loader import load
from ..accuracy.samples import MOST, open_samples
from ..frontend import Elaborated
from ..pipeline import Build, Options
from .apply import static_values, without_loops
from .clipping import choose_range
from .histogram import Histogram
from .policy import Calibration, Policy
from .ranges import Ranges

Tell = Callable[[str], None]
"""Is told what is done, for whoever waits."""


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
    seen = watch_values(elaborated, model, values, calibration.path, most=most, tell=tell)
    strange = next((name for name, histogram in seen.histograms.items() if histogram.strange), None)
    if strange is not None:
        spans = {v.name: n.span for n in walk(elaborated.module.function(model).body) for v in n.outputs}
        message = f"`{strange}` has elements that are NaN or infinite on `{calibration.path}`"
        raise DiagnosticError([Diagnostic("calibration-not-finite", message, spans.get(strange))], elaborated.sources)
    tell("choosing ranges")
    found = {name: choose_range(histogram, calibration) for name, histogram in seen.histograms.items()}
    return Ranges(model, seen.samples, found)


def find_ranges(
    elaborated: Elaborated, policies: Mapping[str, Policy], *, tell: Tell = lambda text: None
) -> Mapping[str, Ranges]:
    """The ranges that policies ask for, by the names of functions as they are; none where none is static. Raises
    DiagnosticError as `calibrate` does."""
    if not any(rule.scheme.scale == "static" for policy in policies.values() for rule in policy.rules):
        return {}
    prepared = replace(elaborated, module=PassManager([FoldBatchNorm()]).run(without_loops(elaborated.module)))
    found: dict[str, Ranges] = {}
    for name, policy in policies.items():
        values = static_values(prepared.module, prepared.module.function(name), policy)
        if values:
            assert policy.calibration is not None, policy
            found[name] = calibrate(prepared, name, values, policy.calibration, tell=tell)
    return found


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of values, by their names."""

    samples: int
    histograms: Mapping[str, Histogram]


def watch_values(
    elaborated: Elaborated,
    model: str,
    values: Sequence[str],
    data: Path,
    *,
    most: int = MOST,
    tell: Tell = lambda text: None,
) -> Seen:
    """The histograms of values over all samples. Raises DiagnosticError where the samples do not fit."""
    function = elaborated.module.function(model)
    watched = replace(elaborated.module, functions=(_watched(function, values),))
    with TemporaryDirectory(prefix="nacre-calibrate-") as folder:
        library = Path(folder) / "watched.so"
        tell("compiling the model that is watched")
        Build(replace(elaborated, module=watched, budgets=()), Options()).run(library)
        loaded = load(library)
        (described,) = loaded.describe()["entries"]
        samples = open_samples(data, described, most)
        histograms = {name: Histogram() for name in values}
        called, done = loaded.entries[model], 0
        for batch in samples:
            made = called(*batch.inputs)
            watched_results = (made if isinstance(made, tuple) else (made,))[len(function.results) :]
            for histogram, array in zip(histograms.values(), watched_results, strict=True):
                histogram.add(array)
            done += batch.count
            tell(f"calibrating: {done} of {samples.count} samples")
    return Seen(samples.count, histograms)


def _watched(function: Function, names: Sequence[str]) -> Function:
    """The function with values as further results."""
    known = {v.name: v for v in (*function.arguments, *(v for node in function.body for v in node.outputs))}
    values: tuple[Value, ...] = tuple(known[name] for name in names)
    more = tuple(f"watched_{number}" for number in range(len(values)))
    return replace(function, results=(*function.results, *values), result_names=(*function.result_names, *more))
