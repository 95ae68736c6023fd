"""`--check-passes`: every stage of a build is run on drawn inputs, and the first that computes something else is told.

The measure is the graph of the source, as the reference interpreter runs it in float64; how far results may be from
that is derived from the rounding of its nodes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...dialect.diagnostics import DiagnosticError, Note, Span
from ...dialect.graph import Function, Module, Node
from ...dialect.interpreter import Load
from ...dialect.printer import print_module
from ...passes.manager import Stage
from ...passes.pipeline import format_pass, parse_pipeline
from ..codegen.objects import Program
from ..frontend import Elaborated
from ..observer import Observer
from ..parameters import open_parameters
from ..pipeline import Options
from .alone import way_of
from .artifacts import blame_assembly, find_wrong
from .faults import Blame, WrongNumbers, make_wrong_numbers
from .halving import find_rewrite
from .inputs import made_up
from .kernels import WrongKernel, find_wrong_kernel
from .trials import Trials, Wrong, is_in_blocks

VARIABLE = "NACRE_CHECK_PASSES"
"""The environment variable that has every build checked."""


def choose_observer(elaborated: Elaborated, options: Options, *, check: bool) -> Observer:
    """The observer of a build that is to be checked, or of one that is not."""
    return Checker(elaborated, options) if check or os.environ.get(VARIABLE) else Observer()


def _loader(elaborated: Elaborated) -> Load:
    """Where the data of parameters come from; made up where only the forms without data are built."""
    try:
        return open_parameters(elaborated)
    except DiagnosticError:
        return made_up


class Checker(Observer):
    """Raises WrongNumbers at the first stage that is at fault."""

    trusts_cache = False

    def __init__(self, elaborated: Elaborated, options: Options) -> None:
        self.elaborated, self.options = elaborated, options
        self.load = _loader(elaborated)
        self.stages: list[Stage] = []
        self.program: Program | None = None
        self._trials: Trials | None = None

    @property
    def trials(self) -> Trials:
        assert self._trials is not None, "no graph has been seen"
        return self._trials

    def accept_graph(self, stage: Stage) -> None:
        if stage.number == 0:
            self._trials, self.stages = Trials(stage.module, self.load), []
        elif stage.changed:
            wrong = self.trials.find_wrong(stage.module)
            if wrong is not None:
                function = stage.module.function(wrong.trial.function)
                raise self._fault(function, wrong, self._blame_pass(stage, self.stages[-1].module, wrong))
        self.stages.append(stage)

    def accept_kernels(self, module: Module, program: Program) -> None:
        self.program = program
        way = way_of(self.options.code(), pack=self.options.packs)
        wrong = find_wrong_kernel(module, program, way, self.load)
        if wrong is not None:
            function, found = wrong.found.part.function, wrong.found.wrong
            raise self._fault(function, found, _blame_kernel(wrong, module, program))

    def accept_artifact(self, path: Path) -> None:
        if not any(target.runs_here for target in self.options.targets):
            return
        module = self.stages[-1].module
        wrong = find_wrong(path, self.trials.judges(in_blocks=is_in_blocks(module)))
        if wrong is not None:
            function = module.function(wrong.trial.function)
            raise self._fault(function, wrong, self._blame_assembly(path, module, wrong))

    def _fault(self, function: Function, wrong: Wrong, blame: Blame) -> WrongNumbers:
        return make_wrong_numbers(self.elaborated, self.options.flags, function, wrong, blame)

    def _blame_assembly(self, path: Path, module: Module, wrong: Wrong) -> Blame:
        assert self.program is not None, "no kernels have been seen"
        function = module.function(wrong.trial.function)
        (lowered,) = (f for f in self.program.lowered.functions if f.name == function.name)
        found = blame_assembly(path, module, lowered, wrong.trial, self.load)
        message = f"every kernel of `{function.name}` is right alone, and together they are not"
        span = None if found.node is None else found.node.span
        if found.died:
            return Blame(found.stage, message, module, notes=(Note(f"watched, it ends with {found.died}"),))
        if not found.lost:
            label = "this is the first to be wrong" if span is not None else ""
            return Blame(found.stage, message, module, label, span)
        return Blame(
            found.stage,
            message,
            module,
            f"what this computes, `{found.lost}`, is overwritten before it has been read",
            span,
            notes=(_where("it is overwritten by", found.overwriter), _where("it is read by", found.reader)),
        )

    def _blame_pass(self, stage: Stage, before: Module, wrong: Wrong) -> Blame:
        step = parse_pipeline(self.options.pipeline)[stage.number - 1]
        rewrite = find_rewrite(step, before, self.trials.is_wrong(wrong.trial))
        return Blame(
            stage.name,
            f"pass `{stage.name}` changes what `{wrong.trial.function}` computes",
            before,
            f"rewrite {rewrite.number} of it, `{rewrite.rule}`, changes this",
            rewrite.span,
            notes=(Note(f"the node was `{rewrite.node}`"),),
            files={"after.graph": stage.text},
            passes=format_pass(step),
        )


def _blame_kernel(wrong: WrongKernel, module: Module, program: Program) -> Blame:
    part, stage, target = wrong.found.part, wrong.stage, wrong.found.target.name
    texts = {kernel.symbol: kernel.text() for kernel in program.lowered.kernels}
    spans = list(dict.fromkeys(node.span for node in part.nodes if node.span is not None))
    main = part.function.body[-1].span if part.function.body else None
    return Blame(
        stage,
        f"kernel `{part.symbol}` of `{part.caller}` is wrong for {target}, which stage `{stage}` does: {wrong.how}",
        module,
        "this is what it computes",
        main,
        part.symbol,
        tuple(Note(f"it computes {_named(part.nodes, span)}", span) for span in spans),
        {"kernel.graph": print_module(part.module), "kernel.mlir": texts[part.symbol]},
    )


def _where(what: str, node: Node | None) -> Note:
    return Note(f"{what} `{node.op}`", node.span) if node is not None else Note(f"{what} a copy")


def _named(nodes: Sequence[Node], span: Span) -> str:
    return ", ".join(f"`{node.op}`" for node in nodes if node.span == span)
