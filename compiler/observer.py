"""Who looks over the shoulder of a build: told what each stage made, and free to refuse it.

A build has one observer and asks it nothing else; what it does with what it is told is its own affair.
"""

from __future__ import annotations

from pathlib import Path

from ..dialect.graph import Module
from ..passes.manager import Stage
from .codegen.objects import Program


class Observer:
    """Lets everything pass. An observer that refuses what it is told raises, and nothing is written."""

    trusts_cache = True
    """May an artifact that was made before be taken in place of one that it has seen?"""

    def accept_graph(self, stage: Stage) -> None:
        """A valid graph: that of the source (number 0), or what a pass made of the one before."""

    def accept_kernels(self, module: Module, program: Program) -> None:
        """The code of all kernels of the graph after the passes."""

    def accept_artifact(self, path: Path) -> None:
        """A whole artifact, before it takes its place. It can be loaded from `path`."""
