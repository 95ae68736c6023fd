"""Graphs as machine code, many in one build, run on watched memory.

An entry hands a kernel of several units to a team, which may compute them in any order and on any threads. The teams
here take the last units first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from nacre.compiler.checking.inputs import made_up
from nacre.compiler.codegen.jit import fill_weights, link_objects
from nacre.compiler.codegen.objects import CodeOptions, generate_objects
from nacre.compiler.codegen.target import Target
from nacre.compiler.lower.module import Lowered, lower_module
from nacre.compiler.pipeline import GRAPH_PASSES
from nacre.dialect.dims import evaluate
from nacre.dialect.graph import Function, Module
from nacre.dialect.types import Array
from nacre.passes.manager import PassManager
from nacre.passes.pipeline import parse_pipeline

from .maker import Binding, Graph
from .memory import Memory

_ALIGNMENT = 64
_MOST_CALLS = 50

_TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_PARALLEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)
)


class _Team(ctypes.Structure):
    """What an entry hands kernels of several units to; the runtime has another one, of threads."""

    _fields_ = (("parallel", _PARALLEL),)


def _ranges(units: int, chunk: int) -> list[tuple[int, int]]:
    """[0, units) in parts of `chunk`, the last one first; of a few more where they would be too many."""
    chunk = max(chunk, -(-units // _MOST_CALLS))
    return [(max(0, end - chunk), end) for end in range(units, 0, -chunk)]


def make_team(chunk: int, threads: int) -> _Team:
    """Computes units in parts, from the last to the first, on so many threads at once."""

    def parallel(_team: int, task: int, context: int, units: int, _pace: object) -> None:
        call = _TASK(task)
        ranges = _ranges(units, chunk)
        if threads == 1:
            for begin, end in ranges:
                call(context, begin, end)
            return
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda part: call(context, *part), ranges))

    return _Team(_PARALLEL(parallel))


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
    return lower_module(joined([level.optimize(g.module) for g in graphs]), pack=level.level >= 2)


@dataclass(frozen=True)
class Outcome:
    """The results of one call, and what it did to memory that it must not touch."""

    results: tuple[Array, ...]
    damage: str | None


class Library:
    """The entries of a lowered module, loaded into this process."""

    def __init__(self, lowered: Lowered, level: Level) -> None:
        options = CodeOptions(
            (Target(cpu=level.cpu),), level.level, quick=level.quick or level.level == 0, visible=True
        )
        program, objects = generate_objects(lowered, options)
        self._entries = {entry.name: entry for entry in program.entries}
        self._weights = fill_weights(lowered, made_up)
        self._library = link_objects(objects)

    def run(
        self,
        function: Function,
        arguments: Sequence[Array],
        binding: Binding,
        *,
        team: _Team | None = None,
        at_end: bool,
    ) -> Outcome:
        """One call on memory that is watched; what was in it before differs with `at_end`."""
        entry = self._entries[function.name]
        inputs = {f"argument {i}": np.ascontiguousarray(a).reshape(a.shape) for i, a in enumerate(arguments)}
        shapes = {f"result {i}": (v.type, v.type.concrete(binding)) for i, v in enumerate(function.results)}
        sizes = {name: a.nbytes for name, a in inputs.items()}
        sizes |= {name: int(np.prod(shape)) * type.dtype.bytes for name, (type, shape) in shapes.items()}
        sizes |= {"workspace": evaluate(entry.workspace, binding), "weights": self._weights.nbytes}
        alignments = {"workspace": _ALIGNMENT, "weights": _ALIGNMENT}
        memory = Memory(sizes, at_end=at_end, alignments=alignments)
        before = inputs | {"weights": self._weights}
        for name, place in memory.places.items():
            # NaN in every float dtype, or large numbers of any: memory that was never written shows.
            place.data[:] = before[name].reshape(-1).view(np.uint8) if name in before else (0xFF if at_end else 0x4B)

        def table(names: Sequence[str]) -> ctypes.Array[ctypes.c_void_p]:
            return (ctypes.c_void_p * max(1, len(names)))(*(memory.places[n].address for n in names))

        dims = (ctypes.c_int64 * max(1, len(entry.dims)))(*(binding[s.name] for s in entry.dims))
        self._library[entry.symbol](
            table(list(inputs)),
            table(list(shapes)),
            ctypes.c_void_p(memory.places["workspace"].address),
            ctypes.c_void_p(memory.places["weights"].address),
            dims,
            None if team is None else ctypes.byref(team),
        )
        damage = memory.check()
        for name, array in before.items():
            if damage is None and memory.places[name].data.tobytes() != array.tobytes():
                damage = f"`{name}` was written"
        results = tuple(
            memory.places[name].data.copy().view(type.dtype.numpy).reshape(shape)
            for name, (type, shape) in shapes.items()
        )
        return Outcome(results, damage)


def kernels_of(lowered: Lowered) -> Iterator[tuple[str, frozenset[str]]]:
    """The symbol of every kernel with the functions that call it."""
    for kernel in lowered.kernels:
        yield (
            kernel.symbol,
            frozenset(f.name for f in lowered.functions if kernel.symbol in {c.symbol for c in f.calls}),
        )
