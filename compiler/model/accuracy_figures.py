"""The accuracy figures that can be bounded: the syntax of each, and the one comparison that applies to it.

Command lines and policies use this table; other modules compute the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ...dialect.lazy_dataclass import dataclass


class HasFigures(Protocol):
    """The figures of the worst result; None if no result has class scores."""

    @property
    def error(self) -> float: ...
    @property
    def cosine(self) -> float: ...
    @property
    def mean_cosine(self) -> float: ...
    @property
    def snr(self) -> float: ...
    @property
    def agreement(self) -> float | None: ...
    @property
    def top1_drop(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that can be bounded: its syntax, its comparison, and a function that reads it (None: not available)."""

    words: str
    comparison: str
    of: Callable[[HasFigures], float | None]
    example: str
    percent: bool = False


FIGURES: Mapping[str, Figure] = {
    figure.words: figure
    for figure in (
        Figure("error", "<=", lambda a: a.error, "error <= 1e-2"),
        Figure("cosine", ">=", lambda a: a.cosine, "cosine >= 0.99"),
        Figure("mean cosine", ">=", lambda a: a.mean_cosine, "mean cosine >= 0.999"),
        Figure("snr", ">=", lambda a: a.snr, "snr >= 30"),
        Figure("agreement", ">=", lambda a: a.agreement, "agreement >= 99%", percent=True),
        Figure("top1 drop", "<=", lambda a: a.top1_drop, "top1 drop <= 0.5%", percent=True),
    )
}
