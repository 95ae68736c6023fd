"""The tiler's elementary functions as loops that Python can call, and what their results are measured by."""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nacre.compiler.artifact.link import find_linker
from nacre.compiler.base.mlir import ir, passmanager, translate
from nacre.compiler.codegen.elementary.vector_math import SINGLE
from nacre.compiler.codegen.elementary.vector_math.library import Library
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.codegen.llvm.literals import rewrite_literals
from nacre.compiler.codegen.llvm.machine import Machine, Options, Pipeline
from nacre.compiler.codegen.workers.routes import ROUTES, split_action
from nacre.compiler.targets.target import Target
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.support.error_function import erf, erfc
from nacre.dialect.types import F32, Array, DType, TensorType


def _sigmoid(x: Array) -> Array:
    decay = np.exp(-np.abs(x))
    return np.where(x < 0, decay, 1.0) / (1.0 + decay)


REFERENCES: Mapping[str, Callable[..., Array]] = {
    **{"exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "erf": erf, "erfc": erfc},
    **{"log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "powf": np.power, "cbrt": np.cbrt},
    **{"sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh},
    **{"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2},
    **{"asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "sigmoid": _sigmoid},
}
"""In float64; its rounding is some 2**-29 of what is measured."""
BINARY = frozenset({"powf", "atan2"})
COMPOSED: Mapping[str, float] = {"sigmoid": 2.0}
"""Operators that are made of the functions, and their largest errors as models compute them."""
SMALLEST_NORMAL = np.float32(2.0**-126)
_BLOCK = 4096
"""Elements that a kernel takes at a time: a multiple of all numbers of lanes."""
_DTYPES = {"f32": np.float32, "f64": np.float64}
_ROUNDS = 100
"""Of a timed call, so that calling costs nothing beside them."""


def _loop(name: str, callee: str, lanes: int | None, element: str = "f32") -> str:
    """A function that computes the first n elements of a result from those of the arguments, some rounds of it."""
    operands = ("%x", "%y")[: 2 if name in BINARY else 1]
    memory = f"memref<4294967296x{element}>"
    type = element if lanes is None else f"vector<{lanes}x{element}>"
    load, store = ("memref.load", "memref.store") if lanes is None else ("vector.load", "vector.store")
    suffix = "" if lanes is None else f", {type}"
    arguments = ", ".join(f"{o}: {memory}" for o in (*operands, "%r"))
    loads = "".join(f"    {o}i = {load} {o}[%i] : {memory}{suffix}\n" for o in operands)
    values = ", ".join(f"{o}i" for o in operands)
    types = ", ".join([type] * len(operands))
    return f"""
func.func @loop_{name}({arguments}, %n: index, %rounds: index) {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %step = arith.constant {lanes or 1} : index
  scf.for %round = %zero to %rounds step %one {{
  scf.for %i = %zero to %n step %step {{
{loads}    %v = func.call @{callee}({values}) : ({types}) -> {type}
    {store} %v, %r[%i] : {memory}{suffix}
  }}
  }}
  return
}}
"""


def _library(text: str, target: Target) -> ctypes.CDLL:
    with ir.Context():
        module = ir.Module.parse(text)
        actions = ROUTES["loops"].stages[-1].actions
        lower = [passes for _, passes in map(split_action, actions) if not passes.startswith(":")]
        for pipeline in ("inline,symbol-dce", *lower):
            passmanager.PassManager.parse(f"builtin.module({pipeline})").run(module.operation)
        machine = Machine(target, Options(2))
        parsed = machine.parse(rewrite_literals(translate(module)))
    machine.optimize(parsed, Pipeline.LOOPS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "functions.o").write_bytes(machine.emit_object(parsed))
        linked = find_linker().run(["-shared", "-o", "functions.so", "functions.o", "-lm"], folder)
        assert linked.returncode == 0, linked.stderr
        return ctypes.CDLL(str(folder / "functions.so"))


class Run:
    """A loop over arrays of the same size and of one dtype."""

    def __init__(self, function: Any, element: str = "f32") -> None:
        self._function, self._dtype = function, _DTYPES[element]

    def __call__(self, *arguments: Array) -> Array:
        memory = self._padded(*arguments)
        self._call(memory, 1)
        return memory[-1][: arguments[0].size]

    def seconds(self, *arguments: Array) -> float:
        """For one round over the arguments, at best."""
        memory = self._padded(*arguments)
        return min(seconds(lambda: self._call(memory, _ROUNDS)) for _ in range(30)) / _ROUNDS

    def _padded(self, *arguments: Array) -> list[Array]:
        """Memory for the arguments and the result."""
        size = arguments[0].size
        memory = [_aligned(-size % _BLOCK + size, self._dtype) for _ in (*arguments, None)]
        for whole, given in zip(memory, arguments, strict=False):
            whole[:size] = given
        return memory

    def _call(self, memory: Sequence[Array], rounds: int) -> None:
        pointers = (ctypes.c_void_p(a.ctypes.data) for a in memory)
        self._function(*pointers, ctypes.c_int64(memory[0].size), ctypes.c_int64(rounds))


def _aligned(size: int, dtype: Any) -> Array:
    count = size * np.dtype(dtype).itemsize
    memory = np.zeros(count + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + count].view(dtype)


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def build(
    lanes: int | None,
    features: frozenset[str] = frozenset({"fma"}),
    target: Target | None = None,
    names: Sequence[str] = tuple(SINGLE.formulas),
    functions: Library = SINGLE,
) -> dict[str, Run]:
    """Every function, computed that many lanes at a time: arrays to one of the same size."""
    element = functions.element
    text = "".join(
        functions.emit(n, lanes, features) + _loop(n, functions.symbol(n, lanes), lanes, element) for n in names
    )
    library = _library(text, target or Target())
    return {name: Run(library[f"loop_{name}"], element) for name in names}


def build_operators(names: Sequence[str], dtype: DType = F32) -> dict[str, Callable[..., Array]]:
    """Operators of a dtype as models have them at -O2: arrays of one size to one of the same size."""
    length = Symbol("N")
    operands = tuple(Value(name, TensorType(dtype, (length.size,))) for name in "xy")
    made = []
    for name in names:
        b = Builder(OPERATORS)
        given = operands[: len(OPERATORS[name].operands)]
        result = b.apply(name, given)[0]
        made.append(Function(name, given, tuple(b.nodes), (result,), ("r",)))
    compiled = build_functions(Module("math", (length,), functions=tuple(made)), level=2)

    def only(run: Callable[..., tuple[Array, ...]]) -> Callable[..., Array]:
        return lambda *arguments: run(list(arguments))[0]

    return {name: only(run) for name, run in compiled.items()}


def build_library(names: Sequence[str] = tuple(SINGLE.formulas), element: str = "f32") -> dict[str, Run]:
    """The same loops over the functions of the C library."""
    text = ""
    for name in names:
        operands = ("%x", "%y")[: 2 if name in BINARY else 1]
        arguments = ", ".join(f"{o}: {element}" for o in operands)
        text += f"func.func private @library_{name}({arguments}) -> {element} {{\n"
        text += f"  %r = math.{name} {', '.join(operands)} : {element}\n  return %r : {element}\n}}\n"
        text += _loop(name, f"library_{name}", None, element)
    library = _library(text, Target())
    return {name: Run(library[f"loop_{name}"], element) for name in names}


def errors(actual: Array, exact: Array) -> Array:
    """The distances in units in the last place; infinite where a special value or the sign of a zero is wrong."""
    with np.errstate(all="ignore"):
        nearest = exact.astype(np.float32)
        power = (nearest.view(np.uint32) & np.uint32(0x7F800000)).view(np.float32)
        unit = np.maximum(power, SMALLEST_NORMAL) * 2.0**-23
        distance = np.abs(actual - exact) / unit.astype(np.float64)
    # Equal patterns are right whatever they stand for; else both have to be numbers, and not zeros.
    equal = actual.view(np.uint32) == nearest.view(np.uint32)
    special = ~np.isfinite(distance) | np.isinf(nearest) | ((actual == 0) & (nearest == 0))
    unlike = special & ~equal & ~(np.isnan(actual) & np.isnan(nearest))
    distance[special] = 0.0
    distance[unlike] = np.inf
    return distance


def worst(run: Callable[..., Array], name: str, *arguments: Array) -> tuple[float, tuple[float, ...]]:
    """The largest error, and the arguments of it."""
    with np.errstate(all="ignore"):
        exact = np.asarray(REFERENCES[name](*(a.astype(np.float64) for a in arguments)))
    distance = errors(run(*arguments), exact)
    place = int(np.argmax(distance))
    return float(distance[place]), tuple(float(a[place]) for a in arguments)


def neighbours(points: Iterable[float], count: int = 4) -> Array:
    """The f32 nearest to each point, as many on both sides of it, and the same with the other sign."""
    with np.errstate(over="ignore"):
        nearest = np.abs(np.asarray(list(points), np.float64)).astype(np.float32).view(np.int32)
    around = (nearest[:, None] + np.arange(-count, count + 1)).ravel()
    kept = around[(around >= 0) & (around <= 0x7F800000)].astype(np.int32).view(np.float32)
    return np.concatenate([kept, -kept])
