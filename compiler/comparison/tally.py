"""Errors of one tensor relative to its reference, accumulated over any number of calls in constant memory.

Elements that are equal in both, NaN and infinities included, have no error; if one is NaN or infinite and the other
differs, the error is infinite and the cosine 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field

import numpy as np

from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import Array
from ..validate.array_errors import Numbers, absolute_errors

_LEAST, _MOST = -1100, 1100
"""Powers of two between which all finite errors lie."""


@dataclass(frozen=True, slots=True)
class ErrorFigures:
    """The errors of a tensor relative to its reference, over all samples.

    `error` is the largest error as a share of the reference's largest number, `rms_error` the rms of the errors as a
    share of the reference's rms, `snr` the same in decibels; `mean` and `largest` are absolute errors. `cosine` is the
    mean over samples, `least_cosine` that of the worst one. `histogram` counts the elements with an error of at least
    2**(n-1) and below 2**n times the reference's rms, by n, with that rms rounded down to a power of two; `exact` of
    `elements` have no error.
    """

    elements: int
    samples: int
    rms: float
    error: float
    rms_error: float
    mean: float
    largest: float
    cosine: float
    least_cosine: float
    exact: int
    histogram: Mapping[int, int]

    @property
    def snr(self) -> float:
        if self.rms_error == 0:
            return math.inf
        return -20 * math.log10(self.rms_error) if math.isfinite(self.rms_error) else -math.inf


@dataclass
class Tally:
    """Accumulated errors of one tensor."""

    elements: int = 0
    samples: int = 0
    exact: int = 0
    largest: float = 0.0
    peak: float = 0.0
    least_cosine: float = 1.0
    _squares: float = 0.0
    _errors: float = 0.0
    _error_squares: float = 0.0
    _cosines: float = 0.0
    _counts: Numbers = field(default_factory=lambda: np.zeros(_MOST - _LEAST + 1))

    def add(self, actual: Array, expected: Array, samples: int) -> None:
        """Adds the tensor of one call. If the size of the first axis is `samples`, each index of it is a separate
        sample; else the tensor is one sample."""
        assert actual.shape == expected.shape, (actual.shape, expected.shape)
        apart = absolute_errors(*_comparable(actual, expected))
        reference = expected.astype(np.float64)
        known = np.where(np.isfinite(reference), reference, 0.0)
        self.peak = max(self.peak, float(np.abs(known).max(initial=0.0)))
        with np.errstate(over="ignore"):
            self._squares += float(np.square(known).sum())
            self._error_squares += float(np.square(apart).sum())
        self._errors += float(apart.sum())
        self.elements += apart.size
        self.largest = max(self.largest, float(apart.max(initial=0.0)))
        self._count(apart)
        rows = samples if actual.ndim and actual.shape[0] == samples else 1
        for cosine in _cosines(actual.astype(np.float64), reference, apart, rows):
            self._cosines += cosine
            self.least_cosine = min(self.least_cosine, cosine)
        self.samples += rows

    def _count(self, apart: Numbers) -> None:
        differing = apart[apart > 0]
        self.exact += apart.size - differing.size
        # frexp gives n with 2**(n-1) <= x < 2**n; infinite errors count as the largest.
        powers = np.where(np.isfinite(differing), np.frexp(differing)[1], _MOST)
        self._counts += np.bincount(powers - _LEAST, minlength=len(self._counts))

    def figures(self) -> ErrorFigures:
        rms = math.sqrt(self._squares / self.elements) if self.elements else 0.0
        error = math.sqrt(self._error_squares / self.elements) if self.elements else 0.0
        base = math.frexp(rms)[1] - 1 if rms else 0
        counted = {int(n) + _LEAST - base: int(self._counts[n]) for n in np.flatnonzero(self._counts)}
        return ErrorFigures(
            elements=self.elements,
            samples=self.samples,
            rms=rms,
            error=_share(self.largest, self.peak),
            rms_error=_share(error, rms),
            mean=self._errors / self.elements if self.elements else 0.0,
            largest=self.largest,
            cosine=self._cosines / self.samples if self.samples else 1.0,
            least_cosine=self.least_cosine,
            exact=self.exact,
            histogram=counted,
        )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else (math.inf if part else 0.0)


def _comparable(actual: Array, expected: Array) -> tuple[Array, Array]:
    """Converts tensors of different dtypes to float64; two builds may store a tensor in different dtypes."""
    if actual.dtype == expected.dtype:
        return actual, expected
    return actual.astype(np.float64), expected.astype(np.float64)


def _cosines(actual: Numbers, expected: Numbers, apart: Numbers, rows: int) -> list[float]:
    """Returns the cosine of each sample; 1 if both vectors are zero, 0 if one of them is."""
    wrong = ~np.isfinite(apart).reshape(rows, -1).all(axis=1)
    x, y = (
        np.where(np.isfinite(actual) & np.isfinite(expected), side, 0.0).reshape(rows, -1)
        for side in (actual, expected)
    )
    with np.errstate(all="ignore"):
        # Normalized, so that squares of small numbers do not underflow.
        x, y = (side / np.maximum(np.abs(side).max(axis=1, initial=0.0, keepdims=True), 1e-300) for side in (x, y))
        lengths = np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
        both = (x == 0).all(axis=1) & (y == 0).all(axis=1)
        found = np.where(both, 1.0, np.where(lengths > 0, (x * y).sum(axis=1) / np.maximum(lengths, 1e-300), 0.0))
    return [float(c) for c in np.where(wrong, 0.0, found)]
