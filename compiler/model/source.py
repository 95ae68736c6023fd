"""The record of a model that every reader returns and every later stage takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TypeAlias

from ...dialect.diagnostics import Diagnostic
from ...dialect.graph import Module
from ...dialect.lazy_dataclass import dataclass
from ..weights import Checkpoint
from .checks import ModelBudget, ModelTest
from .policy import Policy

WeightSource: TypeAlias = Path | Checkpoint
"""A file, a folder, or an open checkpoint, such as one of arrays in memory."""


@dataclass(frozen=True, slots=True)
class SourceModel:
    """A valid model.

    module: the graph, one function for each model of the source.
    file: the name of the source, as spans give it.
    weights: by the name of each function, the checkpoint of its parameters; None if the source names none.
    tests, budgets, policies: the records of the source, in its order.
    sources: the texts that spans refer to, by file name.
    warnings: diagnostics that do not prevent a build.
    precision: the policy by which the graph was quantized, `f32` if it was not.
    acceptance: a check of the finished artifact, which runs before the artifact is renamed to its path; None if there
    is none.
    written: the model before quantization, with the policies that were applied; None if there were none.
    """

    module: Module
    file: str
    weights: Mapping[str, WeightSource | None]
    tests: tuple[ModelTest, ...] = ()
    budgets: tuple[ModelBudget, ...] = ()
    policies: tuple[Policy, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[Diagnostic, ...] = ()
    precision: str = "f32"
    written: SourceModel | None = None
    acceptance: Acceptance | None = None


Acceptance: TypeAlias = Callable[[SourceModel, Path, Callable[[SourceModel, Path], None], bool], None]
"""Raises DiagnosticError if an artifact is not accepted. Its arguments are the model, the artifact, a function that
builds another model with the same options, and whether the artifact runs on this machine."""
