"""Runs kernels of a build alone: each through a separate entry, on guarded memory, in a child process.

A part is a kernel with the nodes that it computes, as a function. The caller supplies the inputs of parts. The first
wrong part is compiled again with other options; the stage without which it is correct is the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ...dialect.graph import Function, Module, Node, Value, walk
from ...dialect.interpreter import Load
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS
from ...dialect.remembered import KeptParameters
from ..codegen.objects import CodeGenerator, CodeOptions, Program, plan_program
from ..codegen.workers.routes import DEVICE, FIRST
from ..lower.lowered import Lowered, LoweredCall, LoweredFunction
from ..lower.module import lower_module
from ..targets.target import Target
from ..targets.vector_unit import PanelSizes
from .cut import cut_function, flatten
from .devices import find_runnable
from .inputs import Trial
from .isolated import TIMEOUT, Died, Progress, run_each_isolated, run_isolated
from .judge import Difference, Judge
from .model_calls import Wrong
from .native import Finding, Library, check_call
from .on_device import DeviceLibrary, only


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel, the function that calls it, and a module whose only function computes the nodes of the kernel."""

    symbol: str
    caller: str
    module: Module

    @property
    def function(self) -> Function:
        return self.module.functions[0]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that the kernel computes, those inside a group included."""
        return tuple(n for n in walk(self.function.body) if not OPERATORS[n.op].has("structure"))


@dataclass(frozen=True, slots=True)
class WrongPart:
    """A kernel that is wrong in a call, and its target. `in_memory`: it accesses invalid memory or crashes."""

    part: Part
    wrong: Wrong
    target: Target
    in_memory: bool


@dataclass(frozen=True, slots=True)
class Way:
    """A configuration for compiling kernels: the options of code generation, the panels of packed weights, and the
    targets whose kernels are run."""

    options: CodeOptions
    pack: PanelSizes | None
    targets: tuple[Target, ...]

    def __post_init__(self) -> None:
        assert self.options.visible, "entries have to be found"

    def lower(self, module: Module) -> Lowered:
        """Lowers a module as a build with this configuration does."""
        return lower_module(module, pack=self.pack, for_device=any(t.is_device for t in self.options.targets))


def way_of(options: CodeOptions, *, pack: PanelSizes | None) -> Way:
    """Returns the configuration of a build, adapted to compile from the graph, with the targets that this machine can
    run."""
    adapted = replace(options, visible=True, start=FIRST, debug=False)
    return Way(adapted, pack, find_runnable(options.targets).targets)


# --- cutting ---


def cut_calls(module: Module, lowered: Lowered) -> Iterator[Part]:
    """Yields every call of a kernel with the nodes that it computes, in order."""
    for _, cut in _calls(module, lowered):
        yield cut()


def cut_kernels(module: Module, lowered: Lowered) -> list[Part]:
    """Returns every kernel once, with the nodes of its first call."""
    parts: dict[str, Part] = {}
    for symbol, cut in _calls(module, lowered):
        if symbol not in parts:
            parts[symbol] = cut()
    return list(parts.values())


def _calls(module: Module, lowered: Lowered) -> Iterator[tuple[str, Callable[[], Part]]]:
    """Yields the symbol of the kernel of every call, in order, and a function that cuts the call out of its graph."""
    number = 0
    for function in lowered.functions:
        graph = _Graph(module, function.name)
        for call in function.calls:
            yield call.symbol, partial(graph.cut, call, f"kernel_{number}")
            number += 1


class _Graph:
    """The graph of a function, from which calls of kernels are cut."""

    def __init__(self, module: Module, name: str) -> None:
        self._module, self._name = module, name
        self._flat = flatten(module.function(name))
        self._makers = {v.name: node for node in self._flat.body for v in node.outputs}

    def cut(self, call: LoweredCall, name: str) -> Part:
        """Returns the nodes of a call as a module of one function with this name."""
        makers = self._makers
        if call.copied is None:
            results = [v for name in call.outputs for v in makers[name].outputs if v.name == name]
            given = [v for v in makers[results[0].name].inputs if not _is_stored(v, makers)]
        else:
            results = [call.copied]
            given = [v for v in results if not _is_stored(v, makers)]
        made = cut_function(self._module, self._flat, results, given, name, is_entry=True)
        return Part(call.symbol, self._name, made)


def _is_stored(value: Value, makers: Mapping[str, Node]) -> bool:
    """Returns whether the value is a constant or a parameter, possibly reshaped."""
    node = makers.get(value.name)
    if node is None:
        return False
    if OPERATORS[node.op].has("view"):
        return _is_stored(node.inputs[0], makers)
    return OPERATORS[node.op].has("stored")


# --- running ---


class Alone:
    """Parts of a program, compiled with a configuration. `trials` returns the calls of a part, each with a time limit
    of `seconds`."""

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
        self.kept = KeptParameters()
        self.checks = _link(parts, program, way, load) if parts else {}

    def find_wrong(self) -> WrongPart | None:
        """Returns the first wrong part; each runs in a child process, which may crash."""
        tasks = [partial(self._first_wrong, part) for part in self.parts]
        for part, found in zip(self.parts, run_each_isolated(tasks, self.seconds), strict=True):
            if isinstance(found, Died):
                return self._died(part, found)
            if found is not None:
                return found
        return None

    def check(self, report: Progress) -> WrongPart | None:
        """Returns the first wrong part, in this process, which may crash."""
        return next((found for part in self.parts if (found := self._first_wrong(part, report)) is not None), None)

    def _first_wrong(self, part: Part, report: Progress) -> WrongPart | None:
        found = (self._try(part, trial, self.way.targets, report) for trial in self.trials(part))
        return next((wrong for wrong in found if wrong is not None), None)

    def _try(self, part: Part, trial: Trial, targets: Sequence[Target], report: Progress) -> WrongPart | None:
        judge = Judge(part.module, trial, self.load, kept=self.kept)
        for target in targets:
            report(f"`{part.symbol}` with {trial}")
            found = self.checks[target](part.function, judge)
            if found is not None:
                difference = found.difference or Difference(0, found.message)
                return WrongPart(part, Wrong(trial, difference), target, in_memory=found.kind == "memory")
        return None

    def _died(self, part: Part, died: Died) -> WrongPart:
        """Returns the first trial and target at which a child process that runs only them crashes."""
        for trial in self.trials(part):
            for target in self.way.targets:
                (found,) = run_isolated([partial(self._try, part, trial, [target])], self.seconds)
                if isinstance(found, Died):
                    return WrongPart(part, Wrong(trial, Difference(0, found.message)), target, in_memory=True)
        raise AssertionError(f"{part.symbol} died once, and not again: {died.message}")


_Check = Callable[[Function, Judge], Finding | None]
"""Calls a function of linked code and judges its results."""


def _link(parts: Sequence[Part], program: Program, way: Way, load: Load) -> Mapping[Target, _Check]:
    """Links the code of the program, with an entry for each of its kernels. Returns the check of a call for each
    target."""
    module = _joined([part.module for part in parts])
    lowered = way.lower(module)
    compiled = {kernel.symbol: kernel for kernel in program.lowered.kernels}
    functions: list[LoweredFunction] = []
    for part, function in zip(parts, lowered.functions, strict=True):
        (call,) = function.calls
        assert call.kernel.shape_of_text == compiled[part.symbol].kernel.shape_of_text, part.symbol
        # The symbol may differ in the program, where names are readable.
        functions.append(replace(function, items=(replace(call, symbol=part.symbol),)))
    kernels = tuple(compiled[symbol] for symbol in dict.fromkeys(part.symbol for part in parts))
    cut = plan_program(replace(lowered, functions=tuple(functions), kernels=kernels), program.kernels)
    # Each entry calls one kernel a few times: optimising it would take longer than that. The objects of the kernels are
    # those of the program.
    options = replace(way.options, quick=True)
    if not any(target.is_device for target in way.targets):
        library = Library(cut, CodeGenerator(options).compile_entries(cut), load)
        return {target: partial(check_call, library, suffix=options.suffix(target)) for target in way.targets}
    checks: dict[Target, _Check] = {}
    for target in way.targets:
        own, code = only(cut, target), replace(options, targets=(target,))
        objects = CodeGenerator(code).compile_entries(own)
        checks[target] = DeviceLibrary(module, own, objects, target, code, load).check
    return checks


def _joined(modules: Sequence[Module]) -> Module:
    dims = {d for m in modules for d in m.dims}
    parameters = tuple({p.name: p for m in modules for p in m.parameters}.values())
    functions = tuple(f for m in modules for f in m.functions)
    return Module("kernels", tuple(sorted(dims, key=lambda d: d.name)), parameters, functions)


# --- search for the stage of an error ---


def find_stage(found: WrongPart, way: Way, load: Load, seconds: float = TIMEOUT) -> tuple[str, str]:
    """Returns the stage without which a kernel is correct, and the evidence."""
    options = replace(way.options, targets=(found.target,))
    plain = replace(options, level=0, quick=True)

    def is_wrong(options: CodeOptions, pack: PanelSizes | None, target: Target = found.target) -> bool:
        tried = Way(options, pack, (target,))
        program = CodeGenerator(options).compile_kernels(tried.lower(found.part.module))
        parts = cut_kernels(found.part.module, program.lowered)

        def trials(part: Part) -> list[Trial]:
            return [replace(found.wrong.trial, function=part.function.name)]

        return Alone(parts, program, tried, load, trials, seconds).find_wrong() is not None

    if found.target.is_device:
        # All levels of a device share the schedules.
        if is_wrong(replace(plain, targets=(Target(),)), None, Target()):
            return FIRST, "the -O0 kernel for the CPU, which shares the lowering to linalg, is wrong too"
        return DEVICE, "it is correct as plain loops on the CPU"
    if is_wrong(plain, None):
        return FIRST, "the -O0 kernel, which shares the lowering to linalg, is wrong too"
    if way.pack is not None and is_wrong(plain, way.pack):
        return "pack", "it is correct with unpacked weights"
    if options.level >= 2 and is_wrong(replace(options, quick=True), way.pack):
        program = CodeGenerator(options).compile_kernels(way.lower(found.part.module))
        if any(code.report.tiled for kernels in program.kernels.values() for code in kernels.values()):
            return "tiled", "it is correct as plain loops"
        return "fast-math", "it is correct with ordered sums and C library functions"
    return "optimized", "it is correct without LLVM optimisations"
