"""Hooks that are called after each stage of a build, and that may reject its result.

Each build has exactly one observer.
"""

from __future__ import annotations

from pathlib import Path

from ..dialect.graph import Module
from ..passes.manager import Stage
from .codegen.objects import Program
from .options import Options


class Observer:
    """Accepts every stage. A subclass rejects a result by raising an exception; then no file is written."""

    trusts_cache = True
    """Whether a cached artifact may replace a build that this observer has seen."""

    def of_further(self, options: Options) -> Observer:
        """Returns the observer of a build of the same model for another family of targets."""
        return Observer()

    def accept_graph(self, stage: Stage) -> None:
        """Called with each valid graph: the source graph (number 0), then the result of each pass."""

    def accept_passes(self) -> None:
        """Called after the last pass, and after a pass that failed."""

    def accept_kernels(self, module: Module, program: Program) -> None:
        """Called with the code of all kernels of the graph after the passes."""

    def accept_artifact(self, path: Path) -> None:
        """Called with a complete artifact, before it is renamed to its final path. It can be loaded from `path`."""
