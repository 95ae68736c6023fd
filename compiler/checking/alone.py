"""Kernels of a build run alone: each through an entry of its own, on watched memory, in a child process.

A part is a kernel with the nodes that it computes, as a function. Whoever has parts says what to call them with; the
first that is wrong is compiled again in other ways, and the stage without which it is right is at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...dialect.graph import Function, Module, Node, Value, walk
from ...dialect.interpreter import Load
from ...dialect.ops import OPERATORS
from ..codegen.objects import CodeGenerator, CodeOptions, Program, plan_program
from ..codegen.routes import FIRST
from ..codegen.target import Target
from ..lower.lowered import Lowered, LoweredCall, LoweredFunction
from ..lower.module import lower_module
from .cut import cut_function
from .inputs import Trial
from .isolated import TIMEOUT, Died, Tell, run_each_isolated, run_isolated
from .judge import Difference, Judge
from .native import Library, check_call
from .trials import Wrong


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel, the function that calls it, and a module whose one function does nothing but that."""

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
class WrongPart:
    """A kernel that is wrong in a call, and for which target. `in_memory`: by what it does to memory, or by dying."""

    part: Part
    wrong: Wrong
    target: Target
    in_memory: bool


@dataclass(frozen=True, slots=True)
class Way:
    """How kernels are compiled: the options of code generation, and whether weights are packed."""

    options: CodeOptions
    pack: bool

    def __post_init__(self) -> None:
        assert self.options.visible, "entries have to be found"

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(target for target in self.options.targets if target.runs_here)


def way_of(options: CodeOptions, *, pack: bool) -> Way:
    """That of a build; what is compiled here begins with the graph."""
    return Way(replace(options, visible=True, start=FIRST, debug=False), pack)


# --- cutting ---


def cut_calls(module: Module, lowered: Lowered) -> Iterator[Part]:
    """Every call of a kernel with the nodes that it computes, in order."""
    number = 0
    for function in lowered.functions:
        graph = module.function(function.name)
        for call in function.calls:
            yield Part(call.symbol, function.name, _cut(module, graph, call, f"kernel_{number}"))
            number += 1


def cut_kernels(module: Module, lowered: Lowered) -> list[Part]:
    """Every kernel once, with the nodes of its first call."""
    parts: dict[str, Part] = {}
    for part in cut_calls(module, lowered):
        parts.setdefault(part.symbol, part)
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


# --- running ---


class Alone:
    """Parts of a program, compiled in a way. `trials` are the calls that a part is tried with, each of which may take
    so many `seconds`."""

    def __init__(
        self,
        parts: Sequence[Part],
        program: Program,
        way: Way,
        load: Load,
        trials: Callable[[Part], Iterable[Trial]],
        seconds: float = TIMEOUT,
    ) -> None:
        self.parts, self.way, self.load, self.trials, self.seconds = parts, way, load, trials, seconds
        self.library = _link(parts, program, way, load) if parts else None

    def find_wrong(self) -> WrongPart | None:
        """The first part that is wrong, each in a child that it may kill."""
        tasks = [partial(self._first_wrong, part) for part in self.parts]
        for part, found in zip(self.parts, run_each_isolated(tasks, self.seconds), strict=True):
            if isinstance(found, Died):
                return self._died(part, found)
            if found is not None:
                return found
        return None

    def check(self, tell: Tell) -> WrongPart | None:
        """The first part that is wrong, in this process, which may die of it."""
        return next((found for part in self.parts if (found := self._first_wrong(part, tell)) is not None), None)

    def _first_wrong(self, part: Part, tell: Tell) -> WrongPart | None:
        found = (self._try(part, trial, self.way.targets, tell) for trial in self.trials(part))
        return next((wrong for wrong in found if wrong is not None), None)

    def _try(self, part: Part, trial: Trial, targets: Sequence[Target], tell: Tell) -> WrongPart | None:
        assert self.library is not None, "there are no kernels"
        judge = Judge(part.module, trial, self.load)
        for target in targets:
            tell(f"`{part.symbol}` with {trial}")
            found = check_call(self.library, part.function, judge, self.way.options.suffix(target))
            if found is not None:
                difference = found.difference or Difference(0, found.message)
                return WrongPart(part, Wrong(trial, difference), target, in_memory=found.kind == "memory")
        return None

    def _died(self, part: Part, died: Died) -> WrongPart:
        """The first trial and target at which a child that does nothing else dies."""
        for trial in self.trials(part):
            for target in self.way.targets:
                (found,) = run_isolated([partial(self._try, part, trial, [target])], self.seconds)
                if isinstance(found, Died):
                    return WrongPart(part, Wrong(trial, Difference(0, found.message)), target, in_memory=True)
        raise AssertionError(f"{part.symbol} died once, and not again: {died.message}")


def _link(parts: Sequence[Part], program: Program, way: Way, load: Load) -> Library:
    """The code of the program, with an entry for each of its kernels."""
    lowered = lower_module(_joined([part.module for part in parts]), pack=way.pack)
    compiled = {kernel.symbol: kernel for kernel in program.lowered.kernels}
    functions: list[LoweredFunction] = []
    for part, function in zip(parts, lowered.functions, strict=True):
        (call,) = function.calls
        assert call.kernel.shape_of_text == compiled[part.symbol].kernel.shape_of_text, part.symbol
        # It may have another name in the program, where names are for people.
        functions.append(replace(function, calls=(replace(call, symbol=part.symbol),)))
    kernels = tuple(compiled[symbol] for symbol in dict.fromkeys(part.symbol for part in parts))
    cut = plan_program(replace(lowered, functions=tuple(functions), kernels=kernels), program.kernels)
    return Library(cut, CodeGenerator(way.options).compile_entries(cut), load)


def _joined(modules: Sequence[Module]) -> Module:
    dims = {d for m in modules for d in m.dims}
    parameters = tuple({p.name: p for m in modules for p in m.parameters}.values())
    functions = tuple(f for m in modules for f in m.functions)
    return Module("kernels", tuple(sorted(dims, key=lambda d: d.name)), parameters, functions)


# --- the stage that makes one wrong ---


def find_stage(found: WrongPart, way: Way, load: Load, seconds: float = TIMEOUT) -> tuple[str, str]:
    """The stage whose absence makes a kernel right, and how that is known."""
    options = replace(way.options, targets=(found.target,))
    plain = replace(options, level=0, quick=True)

    def is_wrong(options: CodeOptions, pack: bool) -> bool:
        tried = Way(options, pack)
        program = CodeGenerator(options).compile_kernels(lower_module(found.part.module, pack=pack))
        parts = cut_kernels(found.part.module, program.lowered)
        return Alone(parts, program, tried, load, lambda part: [found.wrong.trial], seconds).find_wrong() is not None

    if is_wrong(plain, False):
        return "linalg", "so is that of -O0, which shares its lowering to linalg"
    if way.pack and is_wrong(plain, True):
        return "pack", "with weights that are not packed it is right"
    if options.level >= 2 and is_wrong(replace(options, quick=True), way.pack):
        program = CodeGenerator(options).compile_kernels(lower_module(found.part.module, pack=way.pack))
        if any(code.report.tiled for kernels in program.kernels.values() for code in kernels.values()):
            return "tiled", "as plain loops it is right"
        return "relaxed", "with sums in their order and functions of the C library it is right"
    return "optimized", "without LLVM's optimisations it is right"
