"""The result of a search as an editable policy text: rules, with the measurements as comments."""

from __future__ import annotations

from collections.abc import Iterator

from ...comparison.bounds import Bound
from ...model.accuracy_figures import FIGURES
from ...model.policy import Calibration
from .findings import Findings
from .layers import CHOICES, Group, group_layers, policy_of
from .precision_search import Found


def policy_text(
    found: Found, bound: Bound, findings: Findings, model: str, origin: str, calibration: Calibration
) -> str:
    """Returns a policy file in the canonical format. `origin` names the model and the data of the search; the path of
    the calibration is relative to the file."""
    value, paths = found.tried.figures[bound.figure.words], list(findings.plain_layers)
    lines = [
        "language 1",
        "",
        f"# Found on {origin} for `{bound}`: it is {'unknown' if value is None else bound.show(value)}.",
        *(f"# {line}" for line in _figures(found, bound)),
        f"# A call takes {_seconds(found.tried.seconds)} of {_seconds(found.plain)} in f32{_doubt(findings)}.",
        "# The comment of each rule gives its error alone, and the time of its layers.",
        f"quantize {model} {{",
        *(f"  {line}" for line in _rules(found, findings)),
        *([f"  {calibration}"] if policy_of(model, paths, found.assignment, calibration).needs_samples else []),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _doubt(findings: Findings) -> str:
    measured = [m for choices in findings.by_layer.values() for m in choices.values()]
    return ", as estimated" if measured and all(m.estimated for m in measured) else ""


def _figures(found: Found, bound: Bound) -> Iterator[str]:
    known = {words: value for words, value in found.tried.figures.items() if value is not None}
    reported = ", ".join(
        f"{words} {Bound(FIGURES[words], 0).show(known[words])}" for words in known if words != bound.figure.words
    )
    if reported:
        yield f"Others: {reported}."


def _rules(found: Found, findings: Findings) -> Iterator[str]:
    paths = list(findings.plain_layers)
    for group in group_layers(paths, found.assignment):
        rules = CHOICES[group.choice].rules(group.pattern)
        if not rules:
            yield f'keep "{group.pattern}"  # {_why(group, findings)}'
            continue
        for number, rule in enumerate(rules):
            yield f"{rule}{f'  # {_alone(group, findings)}' if number == 0 else ''}"


def _alone(group: Group, findings: Findings) -> str:
    plain = sum(findings.plain_layers[path] for path in group.paths)
    measured = [findings.by_layer[path][group.choice] for path in group.paths]
    layers = f"{len(group.paths)} layers, at most " if len(group.paths) > 1 else ""
    error = max(m.harm for m in measured) ** 0.5
    estimated = ", as estimated" if any(m.estimated for m in measured) else ""
    return f"{layers}{error:.2e} rms; {_seconds(sum(m.seconds for m in measured))} of {_seconds(plain)}{estimated}"


def _why(group: Group, findings: Findings) -> str:
    best: dict[str, tuple[float, float]] = {}
    for path in group.paths:
        for name, m in findings.by_layer.get(path, {}).items():
            harm, seconds = best.get(name, (0.0, 0.0))
            best[name] = max(harm, m.harm), seconds + m.seconds
    plain = sum(findings.plain_layers[path] for path in group.paths)
    faster = {name: one for name, one in best.items() if one[1] < plain}
    if not faster:
        return f"{_seconds(plain)} in f32: no other precision is faster"
    reported = (f"{name} {harm**0.5:.2e} rms, {_seconds(seconds)}" for name, (harm, seconds) in faster.items())
    return f"{_seconds(plain)} in f32; {'; '.join(reported)}"


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} us"


def count_choices(found: Found, findings: Findings) -> dict[str, int]:
    """Returns the number of layers of each choice."""
    counts: dict[str, int] = {}
    for path in findings.plain_layers:
        name = found.assignment.get(path, "f32")
        counts[name] = counts.get(name, 0) + 1
    return counts
