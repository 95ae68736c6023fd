"""Reads and checks models: what `nacre check` and `nacre.check` do. It imports readers, and no later stage."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..dialect.diagnostics import Diagnostic, DiagnosticError, MissingFileError
from .model.parameters import absent_checkpoints, open_parameters
from .model.source import SourceModel
from .model.weight_notes import weight_notes
from .readers.language import NoModelError, load_module
from .readers.language.settings import Settings
from .readers.table import read_file
from .weights import open_arrays

Source = str | os.PathLike[str]
"""A path, or the text of a model: a `str` with a line break or a brace, which a path to be read may not contain. A
`Path` is always a path."""


Weights = str | os.PathLike[str] | Mapping[str, Any]
"""A checkpoint file or folder, or arrays in memory by parameter key."""


def read_model(source: Source, weights: Weights | None = None, settings: Settings | None = None) -> SourceModel:
    """Returns the model from a path or from its text. Raises DiagnosticError."""
    override = open_arrays(weights) if isinstance(weights, Mapping) else None if weights is None else Path(weights)
    if isinstance(override, Path) and not override.exists():
        raise MissingFileError([Diagnostic("missing-file", f"`{override}` cannot be read: no such file or folder")])
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return load_module(source, text=True, weights=override, settings=settings)
    return read_file(Path(source), override, settings)


def find_errors(
    source: Source, weights: Weights | None = None, settings: Settings | None = None
) -> tuple[list[Diagnostic], Mapping[str, str], tuple[str, ...]]:
    """Returns all errors and warnings of a model, in the order of its text, the source texts of their spans, and notes
    about its checkpoints.

    A source without errors is compared with the headers of its checkpoints, if they exist.
    """
    try:
        source_model = read_model(source, weights, settings)
        if not absent_checkpoints(source_model):
            open_parameters(source_model)
        notes = tuple(weight_notes(source_model))
    except NoModelError as error:
        # A file that contains only blocks is valid: other files import it.
        return [], error.sources, _unchecked(error.unchecked)
    except DiagnosticError as error:
        return list(error.diagnostics), error.sources, ()
    return list(source_model.warnings), source_model.sources, notes


def _unchecked(blocks: Sequence[str]) -> tuple[str, ...]:
    """Returns the note about blocks whose sizes no model determines."""
    if not blocks:
        return ()
    listed = ", ".join(f"`{block}`" for block in blocks)
    return (f"no model uses {listed}: shapes that depend on the hyper-parameters or arguments are not checked",)


def check(source: Source, *, weights: Weights | None = None, settings: Settings | None = None) -> list[Diagnostic]:
    """Returns all errors and warnings of a model, given by path or text, in the order of its text.

    weights: a checkpoint file or folder; overrides the one named in the source. If the source has no errors, its
        parameters are compared with the header of the checkpoint; no data is read.
    settings: values for the hyper-parameters of models, as `nacre.compile` takes them.
    """
    return find_errors(source, weights, settings)[0]
