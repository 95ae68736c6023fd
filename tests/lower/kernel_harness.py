"""Runs kernels that tests write through the emitter, without a graph: many in one compilation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nacre.compiler.codegen.jit import Run, link_program
from nacre.compiler.codegen.objects import CodeOptions
from nacre.compiler.lower.kernel import KernelEmitter
from nacre.compiler.lower.lowered import Lowered, LoweredCall, LoweredFunction, LoweredKernel, name_kernel
from nacre.compiler.lower.records import Ref
from nacre.compiler.lower.storage import Input, Output
from nacre.compiler.lower.writer import Kernel
from nacre.dialect.graph import Function, Value
from nacre.dialect.types import TensorType

sys.path.append(str(Path(__file__).parents[1] / "operators"))
from joined_kernels import generate_joined


@dataclass(frozen=True)
class Written:
    """A kernel that a test wrote: `write(emitter, *inputs)` gives its results."""

    inputs: Sequence[TensorType]
    write: Callable[..., Sequence[object]]

    def kernel(self) -> Kernel:
        e = KernelEmitter()
        results = self.write(e, *(e.input(t) for t in self.inputs))
        assert all(isinstance(r, Ref) for r in results)
        return e.finish([r for r in results if isinstance(r, Ref)])


def run_kernels(written: Mapping[str, Written], *, level: int = 0) -> dict[str, Run]:
    """A callable per kernel, by name."""
    kernels: dict[str, LoweredKernel] = {}
    lowered: list[LoweredFunction] = []
    functions: list[Function] = []
    for name, one in written.items():
        kernel = one.kernel()
        symbols = {s for t in (*kernel.inputs, *kernel.results) for s in t.symbols()} | set(kernel.dims)
        dims = tuple(sorted(symbols, key=lambda s: s.name))
        symbol = name_kernel("kernel", kernel)
        kernels.setdefault(symbol, LoweredKernel(symbol, kernel, (name,)))
        outputs = {f"y{i}": Output(i) for i in range(len(kernel.results))}
        inputs = tuple(Input(i) for i in range(len(kernel.inputs)))
        call = LoweredCall(symbol, kernel, inputs, tuple(outputs), name)
        lowered.append(LoweredFunction(name, f"nacre_entry_{name}", dims, (call,), {}, outputs))
        arguments = tuple(Value(f"x{i}", t) for i, t in enumerate(kernel.inputs))
        results = tuple(Value(f"y{i}", t) for i, t in enumerate(kernel.results))
        functions.append(Function(name, arguments, (), results))
    # At level 0, functions run once or twice: optimising them would take longer than that.
    options = CodeOptions(level=level, quick=level == 0, visible=True)
    program, objects = generate_joined(Lowered("test", tuple(kernels.values()), tuple(lowered), ()), options)
    return link_program(program, objects, functions)
