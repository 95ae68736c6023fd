"""Bounds: how they are written, and when they hold."""

from __future__ import annotations

import pytest
from nacre.compiler.comparison.bounds import parse_bound
from nacre.compiler.comparison.sample_errors import Accuracy, PointAccuracy, Scores
from nacre.compiler.comparison.tally import ErrorFigures
from nacre.compiler.model.accuracy_figures import FIGURES
from nacre.dialect.diagnostics import DiagnosticError

FIGURE = ErrorFigures(
    10, 2, 1.0, error=0.01, rms_error=0.001, mean=0, largest=0, cosine=0.999, least_cosine=0.99, exact=0, histogram={}
)
RESULT = PointAccuracy("result y", "f32[2, 5]", "", "", FIGURE)
SCORES = Scores("y", 5, 200, 194, right=191, reference_right=192)
ACCURACY = Accuracy(200, 1, (), (RESULT,), (SCORES,))


@pytest.mark.parametrize(
    ("text", "printed", "holds"),
    [
        ("error <= 1e-2", "error <= 0.01", True),
        ("error<=0.5%", "error <= 0.005", False),
        ("cosine >= 0.991", "cosine >= 0.991", False),
        ("mean  cosine >= 0.991", "mean cosine >= 0.991", True),
        ("snr >= 60", "snr >= 60", True),
        ("agreement >= 98%", "agreement >= 98%", False),
        (" top1 drop <= 0.5% ", "top1 drop <= 0.5%", True),
        ("top1 drop <= 0.004", "top1 drop <= 0.4%", False),
    ],
)
def test_bounds_are_read_and_printed(text: str, printed: str, holds: bool) -> None:
    bound = parse_bound(text)
    assert str(bound) == printed and parse_bound(printed) == bound
    assert bound.holds(ACCURACY) == holds


@pytest.mark.parametrize("figure", FIGURES.values(), ids=lambda figure: figure.words)
def test_examples_are_bounds(figure: object) -> None:
    assert parse_bound(figure.example).figure is figure  # type: ignore[attr-defined]  # parametrised


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("error", "not a bound"),
        ("loss <= 1", "not a figure"),
        ("error >= 1", "compared with `<=`"),
        ("error < 1", "compared with `<=`"),
        ("cosine >= high", "`high` is not a number"),
        ("cosine >= nan", "`nan` is not a number"),
    ],
)
def test_invalid_bounds_are_reported(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_bound(text)


def test_classes_are_needed_where_they_are_bounded() -> None:
    without = Accuracy(200, 1, (), (RESULT,), ())
    with pytest.raises(DiagnosticError, match="no-scores"):
        parse_bound("top1 drop <= 1%").holds(without)


def test_without_labels_another_class_is_a_drop() -> None:
    assert Scores("y", 5, 200, 194).drop == pytest.approx(0.03)
