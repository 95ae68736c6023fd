"""The figures of an accuracy that can be bounded: how each is written, and the only comparison that makes sense for it.

Command lines and policies are read by this table; how figures are computed is for others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


class HasFigures(Protocol):
    """Figures of the worst result; None where no result has scores of classes."""

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
    """A figure that can be bounded: how it is written and compared, and where it is found (None: it is not there)."""

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
