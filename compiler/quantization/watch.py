"""Observes values of a model on samples: the model is compiled unchanged, with the values as additional results.

The caller decides which data to keep; no array outlives a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.graph import Function, Value, walk
from ...dialect.types import Array
from ...runtime.loader import load
from ..base.repeated import new_session
from ..model.samples import MOST, open_samples
from ..model.source import SourceModel
from ..options import Options
from ..pipeline import Build

Progress = Callable[[str], None]
"""Receives progress messages."""
See = Callable[[str, Array], None]
"""Receives the observed values of each call, by name."""


def watch_values(
    source_model: SourceModel,
    model: str,
    values: Sequence[str],
    data: Path,
    see: See,
    *,
    most: int = MOST,
    report: Progress = lambda text: None,
) -> int:
    """Passes values of the function `model`, all outside of loops, to `see` on all samples, and returns the number of
    samples. Each call begins with the initial states. Raises DiagnosticError if the samples do not fit."""
    function = source_model.module.function(model)
    watched = replace(source_model.module, functions=(_watched(function, values),))
    with TemporaryDirectory(prefix="nacre-calibrate-") as folder:
        library = Path(folder) / "watched.so"
        report("compiling the model that is watched")
        Build(replace(source_model, module=watched, budgets=()), Options()).run(library)
        loaded = load(library)
        (described,) = loaded.describe()["entries"]
        samples = open_samples(data, described, most)
        done = 0
        for batch in samples:
            made = new_session(loaded, model, batch.inputs).entries[model](*batch.inputs)
            watched_results = (made if isinstance(made, tuple) else (made,))[len(function.outputs) :]
            for name, array in zip(values, watched_results, strict=True):
                see(name, array)
            done += batch.count
            report(f"calibrating: {done} of {samples.count} samples")
    return samples.count


def not_finite(source_model: SourceModel, model: str, value: str, data: Path) -> DiagnosticError:
    """Returns the error for a value with elements that are not finite."""
    spans = {v.name: n.span for n in walk(source_model.module.function(model).body) for v in n.outputs}
    message = f"`{value}` has elements that are NaN or infinite on `{data}`"
    return DiagnosticError([Diagnostic("calibration-not-finite", message, spans.get(value))], source_model.sources)


def _watched(function: Function, names: Sequence[str]) -> Function:
    """Returns the function with the values as additional results."""
    known = {v.name: v for v in (*function.arguments, *(v for node in function.body for v in node.outputs))}
    values: tuple[Value, ...] = tuple(known[name] for name in names)
    more = tuple(f"watched_{number}" for number in range(len(values)))
    count = len(function.outputs)
    return replace(
        function,
        results=(*function.outputs, *values, *function.state_results),
        result_names=(*function.result_names[:count], *more, *function.result_names[count:]),
    )
