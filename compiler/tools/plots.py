"""Plots by matplotlib, which is imported on demand. Text stays text, and equal figures give identical bytes."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ..base.files import check_writable, replacing
from ..base.packages import require_package

SUFFIXES = (".svg", ".png", ".pdf")
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "nacre", "font.size": 8}
_UNDATED = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def check_plot(path: Path) -> None:
    """Raises DiagnosticError if the file cannot be written, its format is not supported, or matplotlib is missing;
    called before the work starts."""
    check_writable(path)
    if path.suffix not in SUFFIXES:
        message, help_text = (
            f"pictures cannot be written as `{path.suffix}`",
            f"known suffixes are {', '.join(SUFFIXES)}",
        )
        raise DiagnosticError([Diagnostic("picture-unknown", message, help=help_text)])
    require_package("matplotlib", "pictures need matplotlib", "`pip install 'nacre[picture]'`")


def draw_plot(size: tuple[float, float], suffix: str, fill: Callable[[Any], None]) -> bytes:
    """Returns the file of a figure of `size` inches that `fill` draws; `suffix` is one of `SUFFIXES`."""
    matplotlib: Any = importlib.import_module("matplotlib")
    figures: Any = importlib.import_module("matplotlib.figure")
    with matplotlib.rc_context(_SETTINGS):
        figure: Any = figures.Figure(figsize=size, layout="constrained")
        fill(figure)
        file = io.BytesIO()
        figure.savefig(file, format=suffix.removeprefix("."), metadata=_UNDATED.get(suffix, {}))
    return file.getvalue()


def draw_curves(path: Path, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], y: str) -> None:
    """Writes a picture of curves over the steps of a training run: the steps and the values of each, by its label. `y`
    is the label of the values. Raises DiagnosticError as `check_plot` does, or if writing fails."""
    check_plot(path)

    def fill(figure: Any) -> None:
        axes = figure.subplots()
        for label, (steps, values) in curves.items():
            axes.plot(steps, values, label=label)
        axes.set(xlabel="step", ylabel=y)
        axes.grid(alpha=0.3)
        if len(curves) > 1:
            axes.legend()

    drawn = draw_plot((7, 4), path.suffix, fill)
    with replacing(path) as file:
        file.write(drawn)
