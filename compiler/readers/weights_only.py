"""Refuses a file of weights that is named in place of a model."""

from __future__ import annotations

from pathlib import Path

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ..model.source import SourceModel, WeightSource


def refuse_weights(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Raises DiagnosticError."""
    message = f"`{path}` is a file of weights, which contains no graph"
    help_text = "name the model file, and this file with `--checkpoint` or, in Python, `weights=`"
    raise DiagnosticError([Diagnostic("weights-only", message, help=help_text)])
