"""What values of a model are on samples: it is compiled as it is, with the values as further results.

What is kept of them is for whoever asks; no array outlives a call.
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
from ..accuracy.samples import MOST, open_samples
from ..frontend import Elaborated
from ..pipeline import Build, Options

Tell = Callable[[str], None]
"""Is told what is done, for whoever waits."""
See = Callable[[str, Array], None]
"""Is shown the values of each call, by name."""


def watch_values(
    elaborated: Elaborated,
    model: str,
    values: Sequence[str],
    data: Path,
    see: See,
    *,
    most: int = MOST,
    tell: Tell = lambda text: None,
) -> int:
    """Shows values of the function `model`, which stand outside of loops, on all samples, and gives their number.
    Raises DiagnosticError where the samples do not fit."""
    function = elaborated.module.function(model)
    watched = replace(elaborated.module, functions=(_watched(function, values),))
    with TemporaryDirectory(prefix="nacre-calibrate-") as folder:
        library = Path(folder) / "watched.so"
        tell("compiling the model that is watched")
        Build(replace(elaborated, module=watched, budgets=()), Options()).run(library)
        loaded = load(library)
        (described,) = loaded.describe()["entries"]
        samples = open_samples(data, described, most)
        called, done = loaded.entries[model], 0
        for batch in samples:
            made = called(*batch.inputs)
            watched_results = (made if isinstance(made, tuple) else (made,))[len(function.results) :]
            for name, array in zip(values, watched_results, strict=True):
                see(name, array)
            done += batch.count
            tell(f"calibrating: {done} of {samples.count} samples")
    return samples.count


def not_finite(elaborated: Elaborated, model: str, value: str, data: Path) -> DiagnosticError:
    """What is said of a value that has elements that nothing can be told from."""
    spans = {v.name: n.span for n in walk(elaborated.module.function(model).body) for v in n.outputs}
    message = f"`{value}` has elements that are NaN or infinite on `{data}`"
    return DiagnosticError([Diagnostic("calibration-not-finite", message, spans.get(value))], elaborated.sources)


def _watched(function: Function, names: Sequence[str]) -> Function:
    """The function with values as further results."""
    known = {v.name: v for v in (*function.arguments, *(v for node in function.body for v in node.outputs))}
    values: tuple[Value, ...] = tuple(known[name] for name in names)
    more = tuple(f"watched_{number}" for number in range(len(values)))
    return replace(function, results=(*function.results, *values), result_names=(*function.result_names, *more))
