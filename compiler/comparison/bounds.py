"""Accuracy requirements of a user: `error <= 1e-2`, `mean cosine >= 0.999`, `top1 drop <= 0.5%`.

A bound is a figure, the one comparison that applies to it, and a number, which may be a percentage.
"""

from __future__ import annotations

import re

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.lazy_dataclass import dataclass
from ..model.accuracy_figures import FIGURES, Figure
from .sample_errors import Accuracy

_FORM = re.compile(r"(.+?)(<=|>=|<|>|==?)(.+?)(%?)")
EXAMPLES = ", ".join(f"`{figure.example}`" for figure in FIGURES.values())


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound on a figure. `limit` is a fraction, not a percentage."""

    figure: Figure
    limit: float

    def __str__(self) -> str:
        return f"{self.figure.words} {self.figure.comparison} {self.show(self.limit)}"

    def show(self, value: float) -> str:
        return f"{value * 100:.6g}%" if self.figure.percent else f"{value:.6g}"

    def value(self, accuracy: Accuracy) -> float:
        """Returns the figure. Raises DiagnosticError if the model has no result with this figure."""
        value = self.figure.of(accuracy)
        if value is None:
            message = f"`{self.figure.words}` requires a result with class scores, and the model has none"
            raise DiagnosticError([Diagnostic("no-scores", message)])
        return value

    def holds(self, accuracy: Accuracy) -> bool:
        return self.keeps(self.value(accuracy))

    def keeps(self, value: float) -> bool:
        """Returns whether a value of the figure is within the limit."""
        return value <= self.limit if self.figure.comparison == "<=" else value >= self.limit


def parse_bound(text: str) -> Bound:
    """Parses a bound. Raises ValueError with the cause."""
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise ValueError(f"`{text}` is not a bound; bounds are such as {EXAMPLES}")
    words, comparison, number, percent = (part.strip() for part in form.groups())
    figure = FIGURES.get(" ".join(words.split()))
    if figure is None:
        raise ValueError(f"`{words}` is not a figure; bounds are such as {EXAMPLES}")
    if comparison != figure.comparison:
        raise ValueError(f"`{figure.words}` must be compared with `{figure.comparison}`, as in `{figure.example}`")
    try:
        limit = float(number) / (100 if percent else 1)
    except ValueError:
        raise ValueError(f"`{number}` is not a number") from None
    if not limit == limit:  # NaN
        raise ValueError(f"`{number}` is not a number")
    return Bound(figure, limit)
