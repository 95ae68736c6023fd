"""Finds the kernel whose code is wrong if the passes are correct: each kernel is run alone, on its actual inputs.

A wrong kernel is compiled again with other options, which identifies the stage that causes the error. If all kernels
are correct alone, the cause is in their combination: the memory plan, the entry that calls them, or the rest of the
artifact.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from ....dialect.graph import Node, Parameter
from ....dialect.wrapping import counted
from ...artifact.spec import OperationSpec
from ...host.calls import describe_operations
from ...lower.kinds import inner_nodes
from ...pipeline import Build
from ...validate.alone import Alone, WrongPart, cut_calls, find_stage, way_of
from ...validate.artifacts import Assembly, maker_of, triage_assembly
from ...validate.devices import CPU, DEVICE
from ...validate.model_calls import is_in_blocks
from ...validate.usage import RUNTIME
from . import smaller
from .case import Case
from .culprit import Culprit
from .failures import PACKING, Examiner, Failure, assemble, part_trials

_PACK = PACKING.removeprefix("stage ")

Progress = Callable[[str], None]


def triage_code(case: Case, examiner: Examiner, failure: Failure, report: Progress = lambda text: None) -> Culprit:
    """Finds the cause of wrong code for a correct graph."""
    return _Hunt(case, examiner, report).triage(failure)


class _Hunt:
    def __init__(self, case: Case, examiner: Examiner, report: Progress) -> None:
        self.case, self.examiner, self.report = case, examiner, report
        options = examiner.options
        assert len(options.targets) == 1, "results may differ between targets"
        self.build = Build(case.source_model, options)
        self.optimized = self.build.optimize()
        self.function = smaller.only_function(self.optimized)
        self.lowered = self.build.lower(self.optimized)
        self.way = way_of(options.code(), pack=options.panels)

    def triage(self, failure: Failure) -> Culprit:
        if failure.origin == RUNTIME:
            return self.triage_runtime(failure.message)
        if failure.kernel:
            return self.triage_compiler(failure)
        if failure.weight:
            return self.triage_packing(failure)
        program = self.build.generate(self.lowered)
        parts = list(cut_calls(self.optimized, self.lowered))
        trials, seconds = part_trials(self.case, self.optimized), self.examiner.seconds
        self.report(f"comparing {counted(len(parts), 'kernel')}")
        found = Alone(parts, program, self.way, self.case.load, trials, seconds).find_wrong()
        if found is not None:
            return self.triage_part(found)
        self.report("all kernels are correct alone")
        with TemporaryDirectory(prefix="nacre-bisect-") as folder:
            path = Path(folder) / "case.so"
            assemble(self.build, program, self.case, path)
            (lowered,), (entry,) = self.lowered.functions, program.entries
            lowered = lowered.without(entry.omitted)
            device = DEVICE if self.examiner.options.family.device else CPU
            judge = self.case.judge(in_blocks=is_in_blocks(self.optimized))
            assembly = triage_assembly(path, self.optimized, lowered, judge, self.case.load, device)
            return self.triage_whole(assembly)

    def triage_compiler(self, failure: Failure) -> Culprit:
        """Attributes the failure to the kernel that cannot be compiled."""
        calls = [call for f in self.lowered.functions for call in f.calls if failure.kernel.startswith(call.symbol)]
        made = (maker_of(self.function, name) for call in calls for name in call.outputs)
        node = next((node for node in made if node is not None), None)
        stage = failure.origin.removeprefix("stage ")
        what = f"the kernel `{failure.kernel}` cannot be compiled at stage `{stage}`: {failure.message}"
        operations = self.operations(node)
        return Culprit(stage, what, kernel=failure.kernel, operations=operations, values=_values(node))

    def triage_runtime(self, message: str) -> Culprit:
        """Attributes the failure to the C runtime or the loader, since the code is correct."""
        what = f"the runtime does not call `{self.function.name}` as it promises: {message}"
        return Culprit(RUNTIME, what, called=self.function.span)

    def triage_packing(self, failure: Failure) -> Culprit:
        """Attributes the failure to the packing of a weight for the kernel that reads it."""
        sources = [w.source for w in self.lowered.weights if w.name == failure.weight]
        stored = {source.name for source in sources if isinstance(source, Parameter)}
        parameters = [n for n in self.function.body if n.op == "parameter" and n.attribute("name") in stored]
        made = {v.name for n in parameters for v in n.outputs}
        node = next((n for n in self.function.body if any(v.name in made for v in n.inputs)), None)
        return Culprit(_PACK, failure.message, operations=self.operations(node), values=_values(node))

    def triage_part(self, found: WrongPart) -> Culprit:
        self.report("looking for the stage")
        part, difference = found.part, found.wrong.difference
        stage, how = find_stage(found, self.way, self.case.load, self.examiner.seconds)
        what = f"the code of the kernel `{part.symbol}` is wrong, but the passes are correct: {how}"
        node = maker_of(self.function, part.function.results[0].name)
        error = None if difference.message else difference.error
        return Culprit(
            stage,
            what,
            kernel=part.symbol,
            operations=self.operations(node),
            values=_values(node),
            error_after=error,
        )

    def triage_whole(self, found: Assembly) -> Culprit:
        """Attributes the failure to the combination of correct kernels."""
        if found.stage == RUNTIME:
            return self.triage_runtime("the result is correct with one thread, and was wrong with several")
        what = "all kernels are correct alone, but wrong together"
        if found.lost:
            over = "a copy" if found.overwriter is None else f"`{found.overwriter.op}`"
            what = f"{what}: {over} writes over `%{found.lost}` while it is needed"
        elif found.died:
            where = "" if found.node is None else f" at the kernel of `%{found.node.outputs[0].name}`"
            what = f"{what}: watched, the call ends{where}: {found.died}"
        elif found.node is not None:
            what = f"{what}: `%{found.node.outputs[0].name}` is wrong first, by its weights or how its kernel is called"
        else:
            what = f"{what}: the cause is a copy of a state, the loader of the artifact, or threads that share a call"
        called = self.function.span if found.node is None else None
        operations, values = self.operations(found.node), _values(found.node)
        return Culprit(found.stage, what, operations=operations, values=values, called=called)

    def operations(self, node: Node | None) -> tuple[OperationSpec, ...]:
        """Returns the operations of the kernel that computes a node."""
        return () if node is None else describe_operations(node)


def _values(node: Node | None) -> tuple[str, ...]:
    return () if node is None else tuple(v.name for n in inner_nodes(node) for v in n.outputs)
