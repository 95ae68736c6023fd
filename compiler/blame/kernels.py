"""The kernel whose code is wrong, where the passes are right: each is run alone, on what it is given in the whole.

One that is wrong is compiled again in other ways, which tells the stage that makes it so. Where all are right alone,
what puts them together is to blame: the plan of memory, the entry that calls them, or the artifact around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...dialect.graph import Function, Module, Node, Value
from ...dialect.interpreter import Interpreter
from ...dialect.ops import OPERATORS
from ...dialect.types import Array
from ..artifact.spec import OperationSpec
from ..calls import Calls
from ..checking.cut import cut_function
from ..checking.halving import first_wrong
from ..checking.inputs import Trial
from ..checking.isolated import Died, run_each_isolated, run_isolated
from ..checking.judge import Judge
from ..codegen.jit import Run, link_functions
from ..codegen.objects import CodeGenerator, CodeOptions
from ..lower.kinds import inner_nodes
from ..lower.module import lower_module
from ..pipeline import Build
from . import smaller
from .case import Case
from .culprit import Culprit
from .failures import Answer, Examiner, Failure
from .rewrites import largest_error

Tell = Callable[[str], None]
_SOURCES = frozenset({"parameter", "constant"})


@dataclass(frozen=True)
class _Part:
    """One kernel as a function of its own, with what it is called with and may give."""

    node: Node
    module: Module
    trial: Trial
    judge: Judge

    @property
    def function(self) -> Function:
        return smaller.only_function(self.module)


@dataclass(frozen=True)
class _Way:
    """A way to compile kernels: options of code generation, and whether weights are packed."""

    options: CodeOptions
    pack: bool


def blame_code(case: Case, examiner: Examiner, failure: Failure, tell: Tell = lambda text: None) -> Culprit:
    """Who makes right graphs into wrong code."""
    return _Hunt(case, examiner, tell).blame(failure)


class _Hunt:
    def __init__(self, case: Case, examiner: Examiner, tell: Tell) -> None:
        self.case, self.examiner, self.tell = case, examiner, tell
        options = examiner.options
        assert len(options.targets) == 1, "what is wrong may be so for one target alone"
        self.optimized = Build(case.elaborated, options).optimize()
        self.function = smaller.only_function(self.optimized)
        self.makers = {v.name: node for node in self.function.body for v in node.outputs}
        self.kernels = [n for n in self.function.body if _is_kernel(n)]
        made = CodeOptions(options.targets, options.level, options.timeout, cache=options.cache, strict=options.strict)
        self.way = _Way(made, pack=options.level >= 2)

    def blame(self, failure: Failure) -> Culprit:
        if failure.kernel:
            return self.blame_compiler(failure)
        parts = list(self.parts())
        self.tell(f"comparing {len(parts)} kernels")
        error = self.first_wrong_part(parts)
        if error is not None:
            part, largest = error
            return self.blame_part(part, largest)
        return self.blame_whole()

    def blame_compiler(self, failure: Failure) -> Culprit:
        """The kernel that cannot be compiled."""
        lowered = lower_module(self.optimized, pack=self.way.pack)
        calls = [call for f in lowered.functions for call in f.calls if failure.kernel.startswith(call.symbol)]
        node = next((self.makers[name] for call in calls for name in call.outputs if name in self.makers), None)
        stage = failure.place.removeprefix("stage ")
        what = f"the kernel `{failure.kernel}` cannot be compiled at stage `{stage}`: {failure.message}"
        operations = self.operations(node)
        return Culprit(stage, what, kernel=failure.kernel, operations=operations, values=_values(node))

    def operations(self, node: Node | None) -> tuple[OperationSpec, ...]:
        """What the kernel of a node computes."""
        return () if node is None else Calls(self.function).describe("", [node.outputs[0].name]).operations

    # --- one kernel after another ---

    def parts(self) -> Iterator[_Part]:
        """Every kernel with what the interpreter gives it."""
        values: dict[str, Array] = dict(self.case.arguments)

        def observe(node: Node, results: Sequence[Array]) -> None:
            values.update((v.name, array) for v, array in zip(node.outputs, results, strict=True))

        Interpreter(self.optimized, self.case.load, observe=observe).run(self.function, self.case.trial_arrays)
        given = [v for n in self.function.body for v in n.outputs if not self.is_stored(n)]
        for node in self.kernels:
            name = f"part_{node.outputs[0].name}"
            others = [v for v in given if v not in node.outputs]
            module = cut_function(self.optimized, self.function, node.outputs, others, name)
            names = tuple(v.name for v in smaller.only_function(module).arguments)
            trial = Trial(name, self.case.dims, self.case.kind, names, tuple(values[n] for n in names))
            yield _Part(node, module, trial, Judge(module, trial, self.case.load))

    def is_stored(self, node: Node) -> bool:
        """Is it a parameter, a constant, or one of these under another shape? Kernels read such weights themselves."""
        while OPERATORS[node.op].has("view") and node.inputs[0].name in self.makers:
            node = self.makers[node.inputs[0].name]
        return node.op in _SOURCES

    def first_wrong_part(self, parts: Sequence[_Part]) -> tuple[_Part, float] | None:
        for part, error in zip(parts, self.errors(parts, self.way), strict=True):
            if error is not None:
                return part, error
        return None

    def errors(self, parts: Sequence[_Part], way: _Way) -> Iterator[float | None]:
        """The largest error of each part that is wrong, infinite for one that does not come back."""
        runs = self.link([part.module for part in parts], way)
        tasks = [partial(_run_part, runs[part.trial.function], part.trial) for part in parts]
        for part, results in zip(parts, run_each_isolated(tasks, self.examiner.seconds), strict=True):
            if isinstance(results, Died):
                yield float("inf")
            else:
                wrong = part.judge.difference(results)
                yield None if wrong is None else largest_error(part.judge, Answer(results))

    def link(self, modules: Sequence[Module], way: _Way) -> Mapping[str, Run]:
        """The functions of the modules, compiled together."""
        functions = tuple(f for module in modules for f in module.functions)
        joined = replace(self.optimized, functions=functions)
        return link_functions(lower_module(joined, pack=way.pack), functions, way.options, self.case.load)

    # --- the stage of a kernel ---

    def blame_part(self, part: _Part, error: float) -> Culprit:
        self.tell("looking for the stage")
        (lowered,) = lower_module(part.module, pack=self.way.pack).kernels[-1:]
        stage, how = self.stage(part)
        what = f"the code of the kernel `{lowered.symbol}` is wrong, though the passes are right: {how}"
        operations, values = self.operations(part.node), _values(part.node)
        return Culprit(stage, what, None, None, lowered.symbol, operations, values, error_after=error)

    def stage(self, part: _Part) -> tuple[str, str]:
        """The stage that makes a kernel wrong: the one whose absence makes it right."""
        way, options = self.way, self.way.options
        if self.is_wrong(part, _Way(replace(options, level=0, quick=True), pack=False)):
            return "linalg", "so is that of -O0, which shares its lowering to linalg"
        if options.level < 2:
            return "optimized", "without LLVM's optimisations it is right"
        if not self.is_wrong(part, replace(way, pack=False)):
            return "pack", "with weights that are not packed it is right"
        if not self.is_wrong(part, replace(way, options=replace(options, quick=True))):
            return "optimized", "without LLVM's optimisations it is right"
        if self.is_tiled(part):
            return "tiled", "as plain loops it is right"
        return "relaxed", "with sums in their order and functions of the C library it is right"

    def is_tiled(self, part: _Part) -> bool:
        """Has the tiler written it, or left it?"""
        program = CodeGenerator(self.way.options).compile_kernels(lower_module(part.module, pack=self.way.pack))
        return any(code.report.tiled for kernels in program.kernels.values() for code in kernels.values())

    def is_wrong(self, part: _Part, way: _Way) -> bool:
        return next(self.errors([part], way)) is not None

    # --- what puts them together ---

    def blame_whole(self) -> Culprit:
        self.tell("all kernels are right alone")
        if not self.is_whole_wrong(0):
            return self.blame_artifact()
        computed = self.computed()
        if self.is_whole_wrong(len(computed)):
            return Culprit("entry", "all kernels are right alone, and wrong together: the entry calls them wrongly")
        # With the first so many tensors in memory of their own it is right.
        number = len(computed) + 1 - first_wrong(len(computed), lambda n: self.is_whole_wrong(len(computed) - n))
        name = computed[number - 1].name
        node = self.makers[name]
        what = f"all kernels are right alone: the memory of `%{name}` is used again while it is needed"
        return Culprit("plan-memory", what, operations=self.operations(node), values=_values(node))

    def computed(self) -> list[Value]:
        """The tensors that lie in the workspace, in the order in which they are computed."""
        return [v for n in self.kernels for v in n.outputs if v not in self.function.results]

    def is_whole_wrong(self, kept: int) -> bool:
        """Is the function wrong if it gives so many of the tensors in between too, which then share no memory?"""
        f = self.function
        results = (*f.results, *self.computed()[:kept])
        names = tuple(f"result{i}" for i in range(len(results)))
        module = replace(self.optimized, functions=(replace(f, results=results, result_names=names),))
        run = self.link([module], self.way)[f.name]
        (made,) = run_isolated([lambda _: run(self.case.trial_arrays)], self.examiner.seconds)
        if isinstance(made, Died):
            return True
        return self.case.judge(in_blocks=True).difference(made[: len(f.results)]) is not None

    def blame_artifact(self) -> Culprit:
        what = "the code is right: what loads the artifact, its weights, or the threads that share a call are to blame"
        return Culprit("entry", what)


def _values(node: Node | None) -> tuple[str, ...]:
    return () if node is None else tuple(v.name for n in inner_nodes(node) for v in n.outputs)


def _is_kernel(node: Node) -> bool:
    """What reads the same memory under another shape is none."""
    return node.op not in _SOURCES and not OPERATORS[node.op].has("view")


def _run_part(run: Run, trial: Trial, _: object) -> tuple[Array, ...]:
    return run(trial.arguments, trial.dims)
