"""The requirements of precision policies: compares a quantized model with the same model in f32, on samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ...dialect.diagnostics import Diagnostic, DiagnosticError, Note
from ...runtime.loader import load
from ..model.accuracy_figures import FIGURES
from ..model.policy import Policy, Requirement
from ..model.samples import MOST, open_samples
from ..model.source import SourceModel
from .bounds import Bound
from .sample_errors import Accuracy, PointAccuracy, compare_models

WORST = 8
"""The maximum number of points in the error of an unmet requirement."""
Compile = Callable[[SourceModel, Path], None]


def check_requirements(source_model: SourceModel, artifact: Path, compile_model: Compile, runs_here: bool) -> None:
    """Compares an artifact of the model with the f32 artifact that `compile_model` builds, if a policy has
    requirements. Raises DiagnosticError with the worst points if a requirement is not met or cannot be checked."""
    written = source_model.written
    policies = () if written is None else tuple(policy for policy in written.policies if policy.requirements)
    if written is None or not policies:
        return
    if not runs_here:
        message = "the requirements of the policy cannot be measured: the code is for another machine"
        raise DiagnosticError([Diagnostic("not-measured", message, policies[0].requirements[0].span)])
    with TemporaryDirectory(prefix="nacre-require-") as folder:
        exact = Path(folder) / "exact.so"
        compile_model(written, exact)
        errors = [error for policy in policies for error in _errors(policy, artifact, exact)]
    if errors:
        raise DiagnosticError(errors, source_model.sources)


def _errors(policy: Policy, artifact: Path, exact: Path) -> Iterator[Diagnostic]:
    model, reference = load(artifact), load(exact)
    described = next(entry for entry in model.describe()["entries"] if entry["name"] == policy.model)
    seen: dict[Path, Accuracy] = {}
    for requirement in policy.requirements:
        if requirement.path not in seen:
            samples = open_samples(requirement.path, described, MOST)
            seen[requirement.path] = compare_models(model, reference, policy.model, samples)
        bound = Bound(FIGURES[requirement.figure], requirement.limit)
        if not bound.holds(seen[requirement.path]):
            yield _error(policy, requirement, bound, seen[requirement.path])


def _error(policy: Policy, requirement: Requirement, bound: Bound, accuracy: Accuracy) -> Diagnostic:
    value, wanted = bound.value(accuracy), f"{bound.figure.comparison} {requirement.limit!r}"
    message = f"`{requirement.figure}` of `{policy.model}` is {value:.9g} on `{requirement.path}`, required is {wanted}"
    notes = tuple(Note(line) for line in _table(accuracy.worst(WORST)))
    help_text = "`keep` the worst values in f32, or use a wider type" if notes else ""
    return Diagnostic("not-accurate", message, requirement.span, notes=notes, help=help_text)


def _table(points: Sequence[PointAccuracy]) -> Iterator[str]:
    if not points:
        return
    width = max(len(point.name) for point in points)
    yield f"{'worst points':{width}}  {'error':>9}  {'snr (dB)':>9}  {'cosine':>9}  at"
    for point in points:
        figures = point.figures
        cells = f"{figures.error:9.2g}  {figures.snr:9.1f}  {figures.least_cosine:9.6f}"
        yield f"{point.name:{width}}  {cells}  {point.at}".rstrip()
