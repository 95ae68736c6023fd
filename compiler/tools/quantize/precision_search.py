"""The search for a precision: measures the time and the error of each layer in each choice, and finds the fastest
assignment of choices within a budget.

The harm of a step is its squared error; squares of independent errors are approximately additive. Assignments are
therefore tried along the lower hull of time over harm: from f32 everywhere, the step with the largest saving per harm
comes first. Bisection finds the longest sequence of steps that meets the budget on all samples, and further single
steps are added if the budget permits. The result has been measured on all samples as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ....dialect.wrapping import counted
from ...comparison.bounds import Bound
from ...comparison.sample_errors import Accuracy
from ...model.accuracy_figures import FIGURES
from .findings import Findings, Measured, Tried
from .layers import Assignment
from .trials import SHORTEST, Times, Trials

Progress = Callable[[str], None]
Holds = Callable[[Sequence["Step"]], bool]
FILLED = 8
"""The maximum number of single steps that are tried beyond the first step that exceeds the budget."""


@dataclass(frozen=True, slots=True)
class Step:
    """A change of one layer to another choice, with the time that it saves and its harm."""

    path: str
    choice: str
    saved: float
    harm: float

    @property
    def rate(self) -> float:
        """Seconds saved per unit of harm."""
        return self.saved / self.harm if self.harm > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class Found:
    """The result: the choice of each layer, its measurements, and the time of a call in f32. If not even f32 `keeps`
    the bound, the result is f32."""

    assignment: Assignment
    tried: Tried
    plain: float
    keeps: bool


def measure_layers(
    trials: Trials, choices: Sequence[str], findings: Findings, report: Progress, *, estimate: bool
) -> None:
    """Measures each layer alone in each choice, except for those that the findings contain."""
    if findings.plain is None:
        findings.set_plain(_plain_times(trials, estimate))
    others = [choice for choice in choices if choice != "f32"]
    wanted = [(layer.path, choice) for layer in trials.layers for choice in layer.choices(others)]
    for number, (path, choice) in enumerate(wanted, 1):
        if findings.measured(path, choice) is None:
            report(f"{number} of {len(wanted)}: {path} in {choice}")
            findings.add(path, choice, _measure(trials, path, choice, findings.plain_of(path), estimate))


def _plain_times(trials: Trials, estimate: bool) -> Times:
    return trials.estimate({}) if estimate else trials.times(trials.plain)


def _measure(trials: Trials, path: str, choice: str, plain: float, estimate: bool) -> Measured:
    chosen = {path: choice}
    model = trials.build(chosen)
    accuracy = trials.accuracy(model)
    harm = max((r.figures.rms_error**2 for r in accuracy.results), default=0.0)
    guessed = estimate or plain < SHORTEST
    if guessed:
        # Only the saving counts: the estimated ratio scales the measured time in f32.
        share = trials.estimate(chosen).layers[path] / trials.estimate({}).layers[path]
        return Measured(harm, plain * share, guessed)
    return Measured(harm, trials.times(model).layers[path], guessed)


def plan_steps(plain: Mapping[str, float], measured: Mapping[str, Mapping[str, Measured]]) -> tuple[Step, ...]:
    """Returns the steps from f32 everywhere to the fastest assignment, the best rate first. The changes of one layer
    follow the lower hull of its choices, so that their rates decrease."""
    steps = [step for path in plain for step in _hull(path, plain[path], measured.get(path, {}))]
    return tuple(sorted(steps, key=lambda step: -step.rate))


def _hull(path: str, plain: float, choices: Mapping[str, Measured]) -> list[Step]:
    steps: list[Step] = []
    seconds, harm = plain, 0.0
    while True:
        further = [
            Step(path, name, seconds - m.seconds, max(m.harm - harm, 0.0))
            for name, m in choices.items()
            if m.seconds < seconds
        ]
        if not further:
            return steps
        # Among equal rates take the longest step: choices between are on the hull's line and are no corners.
        best = max(further, key=lambda step: (step.rate, step.saved))
        steps.append(best)
        seconds, harm = choices[best.choice].seconds, choices[best.choice].harm


def search(
    trials: Trials, bound: Bound, choices: Sequence[str], findings: Findings, report: Progress, *, estimate: bool
) -> Found:
    """Returns the fastest assignment that was tried and keeps the bound; f32 everywhere is among them.

    Raises DiagnosticError if the bound is of a figure that the model does not have.
    """
    bound.value(trials.accuracy(trials.plain))
    measure_layers(trials, choices, findings, report, estimate=estimate)
    candidates = {layer.path: layer.choices(choices) for layer in trials.layers}
    wanted = {p: {c: m for c, m in found.items() if c in candidates[p]} for p, found in findings.by_layer.items()}
    steps = plan_steps(findings.plain_layers, wanted)
    kept: list[tuple[float, int, Assignment]] = []

    def holds(taken: Sequence[Step]) -> bool:
        chosen = assign(taken)
        report(f"trying {len(taken)} of {counted(len(steps), 'step')} together")
        tried = _try(trials, chosen, findings, estimate)
        value = tried.figures[bound.figure.words]
        if value is None or not bound.keeps(value):
            return False
        # Among equal times take the first, which is nearer to f32.
        kept.append((tried.seconds, len(kept), chosen))
        return True

    if not holds(()):
        return Found({}, _try(trials, {}, findings, estimate), findings.plain_call, keeps=False)
    _fill(steps, _longest(steps, holds), holds)
    _, _, best = min(kept)
    return Found(best, _try(trials, best, findings, estimate), findings.plain_call, keeps=True)


def _longest(steps: Sequence[Step], holds: Holds) -> int:
    """Returns the largest number of steps that meet the budget, assuming monotonicity. All steps are tried first."""
    good, bad, count = 0, len(steps) + 1, len(steps)
    while good < bad - 1:
        good, bad = (count, bad) if holds(steps[:count]) else (good, count)
        count = (good + bad) // 2
    return good


def _fill(steps: Sequence[Step], count: int, holds: Holds) -> None:
    """Tries single steps beyond the first `count` ones: those that save most, one for each layer. The step directly
    after them is known to exceed the budget."""
    taken, refused = list(steps[:count]), {step.path for step in steps[count : count + 1]}
    further: dict[str, Step] = {}
    for step in steps[count + 1 :]:
        if step.path not in refused:
            further.setdefault(step.path, step)
    for step in sorted(further.values(), key=lambda step: -step.saved)[:FILLED]:
        if holds([*taken, step]):
            taken.append(step)


def assign(steps: Sequence[Step]) -> Assignment:
    """Returns the assignment of the steps; the last step of a layer determines its choice."""
    return {step.path: step.choice for step in steps}


def _try(trials: Trials, chosen: Assignment, findings: Findings, estimate: bool) -> Tried:
    known = findings.tried(chosen)
    if known is not None:
        return known
    model = trials.build(chosen)
    if not chosen:
        seconds = findings.plain_call
    else:
        seconds = trials.estimate(chosen).call if estimate else trials.times(model).call
    tried = Tried(figures_of(trials.accuracy(model)), seconds)
    findings.add_tried(chosen, tried)
    return tried


def figures_of(accuracy: Accuracy) -> Mapping[str, float | None]:
    """Returns all figures that can be bounded, by their words."""
    return {words: figure.of(accuracy) for words, figure in FIGURES.items()}
