"""`--check-passes`: runs the results of a build on random inputs and reports the first stage that changes them: the
graph after the passes, each kernel, and the artifact. If the graph is wrong, the graphs between passes are run too.

The reference is the graph of the source, run by the reference interpreter in float64; the tolerance of results follows
from the rounding of its nodes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from ...dialect.diagnostics import DiagnosticError, Note, Span
from ...dialect.graph import Function, Module, Node
from ...dialect.interpreter import Load, load_parameter
from ...dialect.printer import print_module
from ...dialect.states import initial_values
from ...dialect.types import Array
from ...passes.manager import Stage
from ...passes.pass_list import format_pass
from ..artifact.assemble import weights_path
from ..base.compiler_errors import WrongNumbersError
from ..base.environment import CHECK_PASSES
from ..codegen.objects import Program
from ..model.parameters import open_parameters
from ..model.source import SourceModel
from ..observer import Observer
from ..options import Options
from .alone import way_of
from .artifacts import WrongCall, find_wrong, triage_assembly
from .boundaries import random_crossing_dims
from .devices import DEVICE, find_runnable
from .halving import find_rewrite
from .inputs import Trial, made_up
from .judge import Judge
from .kernels import WrongKernel, find_wrong_kernel
from .model_calls import Trials, Wrong, is_in_blocks
from .passed import Passed
from .usage import RUNTIME
from .wrong_numbers import Triage, make_wrong_numbers


def choose_observer(source_model: SourceModel, options: Options, *, check: bool) -> Observer:
    """Returns the checker, if checks are enabled, else an observer that accepts everything. If the variable names a
    folder, the checks that it enables are recorded there once they are passed, and not repeated."""
    value = os.environ.get(CHECK_PASSES, "")
    if check or not value:
        return Checker(source_model, options, on_devices=True) if check else Observer()
    return Checker(source_model, options, Path(value) if os.path.isabs(value) else None)


def _loader(source_model: SourceModel) -> Load:
    """Returns the source of parameter data; generated data if the checkpoint cannot be opened."""
    try:
        return open_parameters(source_model)
    except DiagnosticError:
        return made_up


class Checker(Observer):
    """Raises WrongNumbers at the first stage that changes the results. `on_devices`: a driver may be opened, to run the
    code for GPUs."""

    trusts_cache = False

    def __init__(
        self, source_model: SourceModel, options: Options, folder: Path | None = None, *, on_devices: bool = False
    ) -> None:
        self.source_model, self.options = source_model, options
        self.folder, self.load = folder, _loader(source_model)
        self.on_devices = on_devices
        self.passed = Passed(folder, self.load)
        self.stages: list[Stage] = []
        self.program: Program | None = None
        self.further: list[Checker] = []
        self._trials: Trials | None = None

    def of_further(self, options: Options) -> Checker:
        self.further.append(Checker(self.source_model, options, self.folder, on_devices=self.on_devices))
        return self.further[-1]

    @property
    def trials(self) -> Trials:
        assert self._trials is not None, "no graph has been seen"
        return self._trials

    def accept_graph(self, stage: Stage) -> None:
        if stage.number == 0:
            self._trials, self.stages = Trials(stage.module, self.load), []
        self.stages.append(stage)

    def accept_passes(self) -> None:
        """Checks the graph after the passes. If it is wrong, the graphs before it are checked too, which shows the
        first wrong pass."""
        changed = [number for number, stage in enumerate(self.stages) if number and stage.changed]
        in_blocks = [is_in_blocks(self.stages[number].module) for number in changed]
        # Fewer trials apply to a graph in blocks, so the last graph without blocks is checked as well.
        last = [n for n, (each, after) in zip(changed, pairwise([*in_blocks, None]), strict=True) if each != after]
        if all(self._wrong_trial(number) is None for number in last):
            return
        for number in changed:
            wrong = self._wrong_trial(number)
            if wrong is not None:
                stage, before = self.stages[number], self.stages[number - 1].module
                function = stage.module.function(wrong.trial.function)
                raise self._error(function, wrong, self._triage_pass(stage, before, wrong))

    def _wrong_trial(self, number: int) -> Wrong | None:
        """Returns the first trial in which a stage has other results than the source."""
        module = self.stages[number].module
        key = self.passed.key(self.trials.module, "graph", module)
        if self.passed.has(key):
            return None
        wrong = self.trials.find_wrong(module)
        if wrong is None:
            self.passed.add([key])
        return wrong

    def accept_kernels(self, module: Module, program: Program) -> None:
        self.program = program
        if self.options.family.device and not self.on_devices:
            return
        way = way_of(self.options.code(), pack=self.options.panels)
        wrong = find_wrong_kernel(module, program, way, self.load, self.passed)
        if wrong is not None:
            function, found = wrong.found.part.function, wrong.found.wrong
            raise self._error(function, found, _triage_kernel(wrong, module, program))

    def accept_artifact(self, path: Path) -> None:
        targets = [target for target in self.options.targets if self.on_devices or not target.is_device]
        devices = find_runnable(targets).devices
        if not devices:
            return
        module = self.stages[-1].module
        key = self._artifact_key(path, devices)
        if self.passed.has(key):
            return
        for planned in module.functions:
            self.trials.add(planned.name, random_crossing_dims(self.trials.module.function(planned.name), planned))
        judges = list(self.trials.judges(in_blocks=is_in_blocks(module)))
        uses = [(module.function(t.function), t, self._initial_values(t)) for t in self.trials.first_trials()]
        for device in devices:
            found = find_wrong(path, judges, uses, device)
            if found is not None:
                raise self._find_maker(device)._blame(path, found, device)
        self.passed.add([key])

    def _initial_values(self, trial: Trial) -> tuple[Array, ...]:
        source = self.trials.module
        read = partial(load_parameter, load=self.load)
        return initial_values(source, source.function(trial.function), trial.dims, read)

    def _find_maker(self, device: str) -> Checker:
        """Returns the checker of the build that made the code for a device."""
        wanted = device == DEVICE
        return next(each for each in (self, *self.further) if each.options.family.device == wanted)

    def _blame(self, path: Path, found: WrongCall, device: str) -> WrongNumbersError:
        module = self.stages[-1].module
        function = module.function(found.wrong.trial.function)
        if found.judge is None:
            return self._error(function, found.wrong, _triage_runtime(module, function))
        return self._error(function, found.wrong, self._triage_assembly(path, module, found.judge, device))

    def _artifact_key(self, path: Path, devices: Sequence[str]) -> str:
        if not self.passed.active:
            return ""
        files = [file.read_bytes() for file in (path, weights_path(path)) if file.exists()]
        return self.passed.key(self.trials.module, "artifact", self.stages[-1].module, repr(devices), *files)

    def _error(self, function: Function, wrong: Wrong, triage: Triage) -> WrongNumbersError:
        return make_wrong_numbers(self.source_model, self.options.flags, function, wrong, triage)

    def _triage_assembly(self, path: Path, module: Module, judge: Judge, device: str) -> Triage:
        assert self.program is not None, "no kernels have been seen"
        function = module.function(judge.trial.function)
        pairs = zip(self.program.lowered.functions, self.program.entries, strict=True)
        (lowered,) = (f.without(entry.omitted) for f, entry in pairs if f.name == function.name)
        found = triage_assembly(path, module, lowered, judge, self.load, device)
        message = f"every kernel of `{function.name}` is correct alone, but the complete artifact is wrong"
        if found.stage == RUNTIME:
            return _triage_runtime(module, function)
        span = None if found.node is None else found.node.span
        called = "this is what is called"
        if found.died:
            notes = (Note(f"watched, it ends: {found.died}"),)
            label = "the kernel of this does not complete" if span is not None else called
            return Triage(found.stage, message, module, label, span or function.span, notes=notes)
        if not found.lost:
            label = "this is the first wrong value" if span is not None else called
            return Triage(found.stage, message, module, label, span or function.span)
        return Triage(
            found.stage,
            message,
            module,
            f"its result, `{found.lost}`, is overwritten before it is read",
            span,
            notes=(_where("it is overwritten by", found.overwriter), _where("it is read by", found.reader)),
        )

    def _triage_pass(self, stage: Stage, before: Module, wrong: Wrong) -> Triage:
        step = stage.step  # as it was run: a size bound changes options of passes
        assert step is not None, "the graph of the source is the measure"
        rewrite = find_rewrite(step, before, self.trials.is_wrong(wrong.trial))
        return Triage(
            stage.name,
            f"pass `{stage.name}` changes the result of `{wrong.trial.function}`",
            before,
            f"rewrite {rewrite.number} of it, `{rewrite.rule}`, changes this",
            rewrite.span,
            notes=(Note(f"the node was `{rewrite.node}`"),),
            files={"after.graph": stage.text},
            passes=format_pass(step),
        )


def _triage_kernel(wrong: WrongKernel, module: Module, program: Program) -> Triage:
    part, stage, target = wrong.found.part, wrong.stage, wrong.found.target.name
    texts = {kernel.symbol: kernel.text() for kernel in program.lowered.kernels}
    spans = list(dict.fromkeys(node.span for node in part.nodes if node.span is not None))
    main = part.function.body[-1].span if part.function.body else None
    return Triage(
        stage,
        f"kernel `{part.symbol}` of `{part.caller}` is wrong for {target}, which stage `{stage}` does: {wrong.how}",
        module,
        "the kernel computes this",
        main,
        part.symbol,
        tuple(Note(f"it computes {_named(part.nodes, span)}", span) for span in spans),
        {"kernel.graph": print_module(part.module), "kernel.mlir": texts[part.symbol]},
    )


def _triage_runtime(module: Module, function: Function) -> Triage:
    message = f"the runtime does not call `{function.name}` as it promises; the code that it calls is right"
    return Triage(RUNTIME, message, module, "this is what is called", function.span)


def _where(what: str, node: Node | None) -> Note:
    return Note(f"{what} `{node.op}`", node.span) if node is not None else Note(f"{what} a copy")


def _named(nodes: Sequence[Node], span: Span) -> str:
    return ", ".join(f"`{node.op}`" for node in nodes if node.span == span)
