"""Compares a model with its reference over all samples: errors of every named value, and agreement of the top class.

Both are called on the same inputs, one call after the other; only sums over the calls are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any

import numpy as np

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import DTYPES, Array, dtype_of
from ...runtime.loader import Model
from ..base.repeated import new_session
from ..model.samples import Batch, Samples
from .capture import Point, capture, result_point
from .tally import ErrorFigures, Tally

Progress = Callable[[int], None]
"""Receives the number of compared calls."""


@dataclass(frozen=True, slots=True)
class PointAccuracy:
    """The accuracy of a value that both builds leave in memory. `at` is its source location, `kernel` its producer."""

    name: str
    type: str
    at: str
    kernel: str
    figures: ErrorFigures


@dataclass(frozen=True, slots=True)
class Scores:
    """Class predictions from a result, whose last axis holds the scores of the classes. `same` counts the rows in which
    the model and the reference predict the same class. `right` and `reference_right` count their correct predictions,
    None without labels."""

    name: str
    classes: int
    rows: int
    same: int
    right: int | None = None
    reference_right: int | None = None

    @property
    def agreement(self) -> float:
        return self.same / self.rows if self.rows else 1.0

    @property
    def drop(self) -> float:
        """The decrease of the fraction of correct rows; without labels, the fraction of rows with another
        prediction."""
        if self.right is None or self.reference_right is None:
            lost = self.rows - self.same
        else:
            lost = self.reference_right - self.right
        return lost / self.rows if self.rows else 0.0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy of a model relative to its reference. Points are in order of computation, without `results`."""

    samples: int
    calls: int
    points: tuple[PointAccuracy, ...]
    results: tuple[PointAccuracy, ...]
    scores: tuple[Scores, ...]

    @property
    def error(self) -> float:
        """The error of the worst result."""
        return max((r.figures.error for r in self.results), default=0.0)

    @property
    def cosine(self) -> float:
        """The least cosine of any sample in any result."""
        return min((r.figures.least_cosine for r in self.results), default=1.0)

    @property
    def mean_cosine(self) -> float:
        return min((r.figures.cosine for r in self.results), default=1.0)

    @property
    def snr(self) -> float:
        return min((r.figures.snr for r in self.results), default=np.inf)

    @property
    def agreement(self) -> float | None:
        """The share of rows with the same top class, in the worst result with scores; None if there is none."""
        return min((s.agreement for s in self.scores), default=None)

    @property
    def top1_drop(self) -> float | None:
        """The drop of the worst result with scores; None if there is none."""
        return max((s.drop for s in self.scores), default=None)

    def worst(self, count: int) -> tuple[PointAccuracy, ...]:
        """Returns the points with the lowest signal-to-noise ratio, the lowest first."""
        return tuple(sorted(self.points, key=lambda p: p.figures.snr)[:count])


@dataclass
class _Hits:
    """Counts rows of scores, and rows by their top class."""

    classes: int
    rows: int = 0
    same: int = 0
    right: int = 0
    reference_right: int = 0

    def add(self, actual: Array, expected: Array, labels: Array | None) -> None:
        first, wanted = (
            side.astype(np.float64).reshape(-1, self.classes).argmax(axis=1) for side in (actual, expected)
        )
        self.rows += len(first)
        self.same += int(np.count_nonzero(first == wanted))
        if labels is not None:
            self.right += int(np.count_nonzero(first == labels))
            self.reference_right += int(np.count_nonzero(wanted == labels))


@dataclass
class Comparing:
    """Accumulates the comparison of two builds. `labelled`: the correct class of each row is known. `scored` names the
    results that can hold class scores."""

    labelled: bool
    scored: frozenset[str]
    tallies: dict[str, Tally] = field(default_factory=dict)
    hits: dict[str, _Hits] = field(default_factory=dict)
    seen: dict[str, Point] = field(default_factory=dict)
    samples: int = 0
    calls: int = 0

    def add(
        self, batch: Batch, actual: Mapping[str, Point], expected: Mapping[str, Point], results: Sequence[str]
    ) -> None:
        """Adds one call; points by name, those of the model in order of computation. Raises DiagnosticError if a result
        has different shapes in the two builds."""
        for name in results:
            a, b = (points.get(result_point(name)) for points in (actual, expected))
            if a is None or b is None or a.array.shape != b.array.shape:
                raise _unlike(name, a, b)
            if name in self.scored:
                self._add_scores(name, a.array, b.array, batch.labels)
        for name, point in actual.items():
            other = expected.get(name)
            if other is None or other.array.shape != point.array.shape:
                continue
            self.seen[name] = point
            self.tallies.setdefault(name, Tally()).add(point.array, other.array, batch.count)
        self.samples += batch.count
        self.calls += 1

    def _add_scores(self, name: str, actual: Array, expected: Array, labels: Array | None) -> None:
        """Adds a result with scores."""
        rows = actual.size // actual.shape[-1]
        if labels is not None and len(labels) != rows:
            message = f"there are {len(labels)} labels for the {rows} rows of `{name}` in a call"
            raise DiagnosticError([Diagnostic("sample-labels", message, help="a label belongs to a row of scores")])
        self.hits.setdefault(name, _Hits(actual.shape[-1])).add(actual, expected, labels)

    def accuracy(self, results: Sequence[str]) -> Accuracy:
        made = {name: self._point(result_point(name)) for name in results if result_point(name) in self.tallies}
        points = tuple(self._point(name) for name in self.tallies if name not in map(result_point, results))
        scores = tuple(self._scores(name, hits) for name, hits in self.hits.items())
        return Accuracy(self.samples, self.calls, points, tuple(made.values()), scores)

    def _point(self, name: str) -> PointAccuracy:
        point = self.seen[name]
        type = f"{dtype_of(point.array)}[{', '.join(map(str, point.array.shape))}]"
        return PointAccuracy(name, type, point.at, point.kernel, self.tallies[name].figures())

    def _scores(self, name: str, hits: _Hits) -> Scores:
        right = (hits.right, hits.reference_right) if self.labelled else (None, None)
        return Scores(name, hits.classes, hits.rows, hits.same, *right)


def scored_results(model: Model, entry: str) -> frozenset[str]:
    """Returns the results that can hold class scores: floats, whose last axis has a fixed size, the number of classes.
    A last axis whose size depends on the call, as in a regression's `f32[B]`, does not index classes."""
    described: Iterable[Mapping[str, Any]] = next(
        e["results"] for e in model.describe()["entries"] if e["name"] == entry
    )
    return frozenset(
        r["name"]
        for r in described
        if DTYPES[r["dtype"]].is_float and r["shape"] and isinstance(r["shape"][-1], int) and r["shape"][-1] >= 2
    )


def compare_models(
    model: Model,
    reference: Model,
    entry: str,
    samples: Samples,
    report: Progress = lambda done: None,
    dims: Mapping[str, int] = MappingProxyType({}),
) -> Accuracy:
    """Calls both models on all samples; each call begins with the initial states. `dims` gives the session dims that
    the inputs do not determine. Raises NacreError if inputs do not fit an artifact or it cannot be observed, and
    DiagnosticError if the results of the two have different shapes."""
    results = [r.name for r in model.entries[entry].results]
    comparing = Comparing(samples.labelled, scored_results(model, entry))
    for batch in samples:
        sessions = (new_session(m, entry, batch.inputs, dims) for m in (model, reference))
        actual, expected = (capture(session, entry, batch.inputs).points for session in sessions)
        comparing.add(batch, actual, expected, results)
        report(comparing.calls)
    return comparing.accuracy(results)


def results_of(model: Model, entry: str, batch: Batch) -> dict[str, Array]:
    """Returns the results of a call, by name."""
    called = new_session(model, entry, batch.inputs).entries[entry]
    made = called(*batch.inputs)
    return dict(zip([r.name for r in called.results], made if isinstance(made, tuple) else (made,), strict=True))


def compare_results(model: Model, expected: Iterable[Mapping[str, Array]], entry: str, samples: Samples) -> Accuracy:
    """Compares the results of a model with given ones, `expected`, call by call. Other values are not compared."""
    comparing = Comparing(samples.labelled, scored_results(model, entry))
    for batch, wanted in zip(samples, expected, strict=True):
        comparing.add(batch, _points(results_of(model, entry, batch)), _points(wanted), list(wanted))
    return comparing.accuracy([r.name for r in model.entries[entry].results])


def _points(results: Mapping[str, Array]) -> dict[str, Point]:
    return {result_point(name): Point(result_point(name), array) for name, array in results.items()}


def _unlike(name: str, a: Point | None, b: Point | None) -> DiagnosticError:
    shapes = " and ".join("missing" if p is None else str(list(p.array.shape)) for p in (a, b))
    message = f"the result `{name}` of the model and of its reference cannot be compared: {shapes}"
    return DiagnosticError([Diagnostic("reference-mismatch", message)])
