"""Runs kernels that tests write through the emitter, without a graph: many in one compilation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nacre.compiler.codegen.jit import Run, load_functions
from nacre.compiler.lower.entry import Call, Input, Output, Place, Workspace
from nacre.compiler.lower.kernel import KernelEmitter
from nacre.compiler.lower.module import Lowered, LoweredEntry, LoweredKernel
from nacre.compiler.lower.records import Ref
from nacre.compiler.lower.writer import Kernel
from nacre.dialect.graph import Function, Value
from nacre.dialect.types import TensorType
from nacre.passes.plan_memory import Step, plan_memory


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
    kernels, entries, functions = [], [], []
    for name, one in written.items():
        kernel = one.kernel()
        symbols = {s for t in (*kernel.inputs, *kernel.results) for s in t.symbols()} | set(kernel.dims)
        dims = tuple(sorted(symbols, key=lambda s: s.name))
        plan = plan_memory([Step((), (), tuple(t.bytes for t in kernel.scratch))], {})
        places: list[Place] = [Input(i) for i in range(len(kernel.inputs))]
        places += [Output(i) for i in range(len(kernel.results))]
        places += [Workspace(offset) for offset in plan.scratch[0]]
        kernels.append(LoweredKernel(f"kernel_{name}", kernel, (name,)))
        call = Call(f"kernel_{name}", kernel.dims, tuple(places), name)
        entries.append(LoweredEntry(name, f"nacre_entry_{name}", dims, plan.total, (call,), plan))
        arguments = tuple(Value(f"x{i}", t) for i, t in enumerate(kernel.inputs))
        results = tuple(Value(f"y{i}", t) for i, t in enumerate(kernel.results))
        functions.append(Function(name, arguments, (), results))
    return load_functions(Lowered("test", tuple(kernels), tuple(entries), ()), functions, level=level)
