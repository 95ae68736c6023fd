"""What a user may require of a model's accuracy: `error <= 1e-2`, `mean cosine >= 0.999`, `top1 drop <= 0.5%`.

A bound is a figure, the only comparison that makes sense for it, and a number, which may be a percentage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from .compare import Accuracy
from .figures import FIGURES, Figure

_FORM = re.compile(r"(.+?)(<=|>=|<|>|==?)(.+?)(%?)")
EXAMPLES = ", ".join(f"`{figure.example}`" for figure in FIGURES.values())


@dataclass(frozen=True, slots=True)
class Bound:
    """`limit` is a share, not a percentage."""

    figure: Figure
    limit: float

    def __str__(self) -> str:
        return f"{self.figure.words} {self.figure.comparison} {self.show(self.limit)}"

    def show(self, value: float) -> str:
        return f"{value * 100:.6g}%" if self.figure.percent else f"{value:.6g}"

    def value(self, accuracy: Accuracy) -> float:
        """The figure. Raises DiagnosticError where the model has no result that it could be of."""
        value = self.figure.of(accuracy)
        if value is None:
            message = f"`{self.figure.words}` is bounded, and no result of the model holds scores of classes"
            raise DiagnosticError([Diagnostic("no-scores", message)])
        return value

    def holds(self, accuracy: Accuracy) -> bool:
        return self.keeps(self.value(accuracy))

    def keeps(self, value: float) -> bool:
        """Is a value of the figure within the limit?"""
        return value <= self.limit if self.figure.comparison == "<=" else value >= self.limit


def parse_bound(text: str) -> Bound:
    """Raises ValueError with what is wrong."""
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise ValueError(f"`{text}` is no bound; bounds are {EXAMPLES}")
    words, comparison, number, percent = (part.strip() for part in form.groups())
    figure = FIGURES.get(" ".join(words.split()))
    if figure is None:
        raise ValueError(f"`{words}` is no figure that can be bounded; bounds are {EXAMPLES}")
    if comparison != figure.comparison:
        raise ValueError(f"`{figure.words}` is bounded by `{figure.comparison}`, as in `{figure.example}`")
    try:
        limit = float(number) / (100 if percent else 1)
    except ValueError:
        raise ValueError(f"`{number}` is no number") from None
    if not limit == limit:  # NaN
        raise ValueError(f"`{number}` is no number")
    return Bound(figure, limit)
