"""Pictures of curves, which the samples draw."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from nacre.compiler.tools.plots import draw_curves
from nacre.dialect.diagnostics import DiagnosticError

CURVES = {"training": (range(1, 4), [3.0, 2.0, 1.5]), "held out": ([3], [1.75])}


def test_curves(tmp_path: Path) -> None:
    draw_curves(tmp_path / "losses.svg", CURVES, "mean loss")
    text = (tmp_path / "losses.svg").read_text()
    assert all(f">{label}<" in text for label in ("training", "held out", "step", "mean loss"))
    draw_curves(tmp_path / "losses.png", CURVES, "mean loss")
    assert (tmp_path / "losses.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("name", "message"), [("losses.gif", "as `.gif`"), ("none/losses.svg", "no folder")])
def test_a_picture_that_cannot_be_written(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(DiagnosticError, match=message):
        draw_curves(tmp_path / name, CURVES, "mean loss")


@pytest.mark.parametrize(
    ("sample", "arguments"),
    [
        ("digits/train.py", ()),
        ("gpt/train.py", ("none.txt",)),
        ("makemore/train.py", ("none.txt",)),
        ("minilm/adapt.py", ()),
    ],
)
def test_samples_check_the_picture_before_they_train(
    sample: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(__file__).parents[2] / "samples" / sample
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.setattr("sys.argv", [sample, *arguments, "--picture", "losses.gif"])
    with pytest.raises(DiagnosticError, match=r"as `\.gif`"):
        runpy.run_path(str(path), run_name="__main__")
