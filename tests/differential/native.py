"""Graphs as machine code, many in one build."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nacre.compiler.codegen.objects import CodeOptions
from nacre.compiler.graph_passes import GRAPH_PASSES
from nacre.compiler.lower.module import Lowered, lower_module
from nacre.compiler.targets.target import Target, choose_panels, parse_targets
from nacre.compiler.validate.inputs import made_up
from nacre.compiler.validate.native import Library
from nacre.dialect.graph import Module
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline

from .emulated import generate_for_here
from .maker import Graph


@dataclass(frozen=True)
class Level:
    """What is built: an optimisation level for a target, with the passes of the level or others."""

    level: int
    cpu: str = "native"
    passes: str = ""
    quick: bool = False
    """Leave out LLVM's optimisations: twice as many graphs in the same time."""

    @property
    def text(self) -> str:
        """As the command line takes it."""
        return str(self.level) + ("" if self.cpu == "native" else f"@{self.cpu}")

    def __str__(self) -> str:
        return f"-O{self.level}" + ("" if self.cpu == "native" else f" for {self.cpu}")

    def optimize(self, module: Module) -> Module:
        return PassManager(parse_pipeline(self.passes or GRAPH_PASSES[self.level])).run(module)


def joined(modules: Sequence[Module]) -> Module:
    """One module with the functions of all."""
    dims = {d for m in modules for d in m.dims}
    # Versions of one graph share their parameters.
    parameters = tuple({p.name: p for m in modules for p in m.parameters}.values())
    functions = tuple(f for m in modules for f in m.functions)
    return Module("graphs", tuple(sorted(dims, key=lambda d: d.name)), parameters, functions)


def lower(graphs: Sequence[Graph], level: Level) -> Lowered:
    return lower_module(
        joined([level.optimize(g.module) for g in graphs]),
        pack=choose_panels((Target(),)) if level.level >= 2 else None,
    )


def build_library(lowered: Lowered, level: Level) -> Library:
    """The code of a lowered module, with made-up weights, emulated where this CPU lacks the target's instructions.
    Raises CompilerError."""
    options = CodeOptions(parse_targets(level.cpu), level.level, quick=level.quick or level.level == 0, visible=True)
    return Library(*generate_for_here(lowered, options), made_up)


def kernels_of(lowered: Lowered) -> Iterator[tuple[str, frozenset[str]]]:
    """The symbol of every kernel with the functions that call it."""
    for kernel in lowered.kernels:
        yield (
            kernel.symbol,
            frozenset(f.name for f in lowered.functions if kernel.symbol in {c.symbol for c in f.calls}),
        )
