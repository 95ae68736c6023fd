"""Each kernel of a build alone: its code, for every target that this machine runs, against the nodes that it computes.

A kernel is called through an entry of its own, on watched memory, with sizes 0, 1 and odd, in a child process. One that
is wrong is built again without a stage of code generation, and then without another: the first without which it is
right is at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...dialect.dims import evaluate
from ...dialect.graph import Function, Module, Node, Value, walk
from ...dialect.interpreter import Load
from ...dialect.ops import OPERATORS
from ..codegen.objects import CodeGenerator, CodeOptions, Program, generate_objects, plan_program
from ..codegen.routes import FIRST
from ..codegen.target import Target
from ..lower.cost import count_operations
from ..lower.lowered import Lowered, LoweredCall, LoweredFunction
from ..lower.module import lower_module
from .cut import cut_function
from .inputs import ORDINARY, SPECIAL, Trial, draw_dims, draw_trial
from .isolated import Died, Tell, run_isolated
from .judge import Difference, Judge
from .native import Library, check_call
from .trials import Wrong

MOST_OPERATIONS = 1 << 28
"""Of a call of a kernel, if it is not to be the only one."""


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel, the function that calls it first, and a module whose one function does nothing but that."""

    symbol: str
    caller: str
    module: Module

    @property
    def function(self) -> Function:
        return self.module.functions[0]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """What the kernel computes, those inside a group included."""
        return tuple(n for n in walk(self.function.body) if not OPERATORS[n.op].has("structure"))


@dataclass(frozen=True, slots=True)
class WrongKernel:
    """A kernel that is wrong in a call, for a target, and the stage that made it so."""

    part: Part
    wrong: Wrong
    target: Target
    stage: str


def cut_kernels(module: Module, lowered: Lowered) -> list[Part]:
    """Every kernel once, with the nodes of its first call."""
    parts: dict[str, Part] = {}
    for function in lowered.functions:
        graph = module.function(function.name)
        for call in function.calls:
            if call.symbol not in parts:
                name = f"kernel_{len(parts)}"
                parts[call.symbol] = Part(call.symbol, function.name, _cut(module, graph, call, name))
    return list(parts.values())


def _cut(module: Module, graph: Function, call: LoweredCall, name: str) -> Module:
    makers = {v.name: node for node in graph.body for v in node.outputs}
    values = {v.name: v for v in graph.arguments} | {v.name: v for node in graph.body for v in node.outputs}
    if call.outputs[0] in values:
        results = [values[v] for v in call.outputs]
        given = [v for v in makers[results[0].name].inputs if not _is_stored(v, makers)]
    else:
        # A result that is an argument, a weight, or a result twice: `_place_results` numbers it.
        results = [values[call.outputs[0].rpartition(".")[0]]]
        given = [v for v in results if not _is_stored(v, makers)]
    return cut_function(module, graph, results, given, name)


def _is_stored(value: Value, makers: Mapping[str, Node]) -> bool:
    """Is it a constant or a parameter, in whatever shape it is read?"""
    node = makers.get(value.name)
    if node is None:
        return False
    if OPERATORS[node.op].has("view"):
        return _is_stored(node.inputs[0], makers)
    return node.op in ("constant", "parameter")


def draw_trials(function: Function) -> Iterator[Trial]:
    """Ordinary numbers with all sizes, and some with a NaN and an infinity."""
    sizes = draw_dims(function.symbols())
    chosen = [(dims, ORDINARY, 0) for dims in sizes]
    chosen += [(sizes[0], SPECIAL, 0), (sizes[-1], SPECIAL, 1)]
    operations = count_operations(function.body)
    for number, (dims, kind, seed) in enumerate(chosen):
        if number == 0 or evaluate(operations, dims) <= MOST_OPERATIONS:
            yield draw_trial(function, dims, kind, seed=seed)


class KernelChecker:
    """`pack` is whether weights are stored as contractions read them."""

    def __init__(self, options: CodeOptions, load: Load, *, pack: bool) -> None:
        # What is built here begins with the graph.
        self.options = replace(options, visible=True, start=FIRST, debug=False)
        self.load, self.pack = load, pack

    def find_wrong(self, module: Module, program: Program) -> WrongKernel | None:
        """The first kernel, in the order of calls, that is wrong."""
        targets = [target for target in self.options.targets if target.runs_here]
        parts = cut_kernels(module, program.lowered) if targets else []
        if not parts:
            return None
        library = self._link(parts, program)
        tasks = [self._task(part, library, targets) for part in parts]
        for part, found in zip(parts, run_isolated(tasks), strict=True):
            if isinstance(found, Died):
                found = self._died(part, found, library, targets)
            if found is not None:
                wrong, target = found
                return WrongKernel(part, wrong, target, self._find_stage(part, wrong.trial))
        return None

    def _link(self, parts: Sequence[Part], program: Program) -> Library:
        """The code of the program, with an entry for each of its kernels."""
        lowered = lower_module(_joined([part.module for part in parts]), pack=self.pack)
        compiled = {kernel.symbol: kernel for kernel in program.lowered.kernels}
        functions: list[LoweredFunction] = []
        for part, function in zip(parts, lowered.functions, strict=True):
            (call,) = function.calls
            assert call.kernel.shape_of_text == compiled[part.symbol].kernel.shape_of_text, part.symbol
            # It may have another name in the program, where names are for people.
            functions.append(replace(function, calls=(replace(call, symbol=part.symbol),)))
        kernels = tuple(compiled[part.symbol] for part in parts)
        cut = plan_program(replace(lowered, functions=tuple(functions), kernels=kernels), program.kernels)
        return Library(cut, CodeGenerator(self.options).compile_entries(cut), self.load)

    def _task(
        self, part: Part, library: Library, targets: Sequence[Target], trials: Sequence[Trial] | None = None
    ) -> Callable[[Tell], tuple[Wrong, Target] | None]:
        def task(tell: Tell) -> tuple[Wrong, Target] | None:
            for trial in draw_trials(part.function) if trials is None else trials:
                judge = Judge(part.module, trial, self.load)
                for target in targets:
                    tell(str(trial))
                    found = check_call(library, part.function, judge, self.options.suffix(target))
                    if found is not None:
                        difference = found.difference or Difference(0, found.message)
                        return Wrong(trial, difference), target
            return None

        return task

    def _died(self, part: Part, died: Died, library: Library, targets: Sequence[Target]) -> tuple[Wrong, Target] | None:
        """The first trial and target at which a child that does nothing else dies."""
        for trial in draw_trials(part.function):
            for target in targets:
                (found,) = run_isolated([self._task(part, library, [target], [trial])])
                if isinstance(found, Died):
                    return Wrong(trial, Difference(0, found.message)), target
        raise AssertionError(f"{part.symbol} died once, and not again: {died.message}")

    def _find_stage(self, part: Part, trial: Trial) -> str:
        """The stage without which the kernel is right: the tiler, the packing of weights, or what they begin with."""
        for stage, pack in (("tiled", self.pack), ("pack", False)):
            program, objects = generate_objects(
                lower_module(part.module, pack=pack),
                replace(self.options, targets=(Target(),), level=0, quick=True),
            )
            library = Library(program, objects, self.load)
            plain = KernelChecker(replace(self.options, targets=(Target(),)), self.load, pack=pack)
            if run_isolated([plain._task(part, library, [Target()], [trial])]) == [None]:
                return stage
        return "linalg"


def _joined(modules: Sequence[Module]) -> Module:
    dims = {d for m in modules for d in m.dims}
    parameters = tuple({p.name: p for m in modules for p in m.parameters}.values())
    functions = tuple(f for m in modules for f in m.functions)
    return Module("kernels", tuple(sorted(dims, key=lambda d: d.name)), parameters, functions)
