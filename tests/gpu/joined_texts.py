"""Compiles kernels to PTX, several to a module: twice as fast as one by one, and without the objects of artifacts.

The stages and their passes are those of a build, which compiles one kernel to a module. LLVM treats each kernel of a
module by itself, so that its code is the same.
"""

from __future__ import annotations

from collections.abc import Container

from nacre.compiler.codegen.gpu.ptx import check_launches
from nacre.compiler.codegen.llvm.machine import Machine, Options, Pipeline
from nacre.compiler.codegen.objects import CodeGenerator
from nacre.compiler.codegen.workers.kernel_worker import lower_kernel, mark_launches
from nacre.compiler.codegen.workers.messages import Request
from nacre.compiler.codegen.workers.serve import Task
from nacre.compiler.lower.lowered import LoweredKernel
from nacre.compiler.pipeline import Build

TOGETHER = 16
"""The kernels of a module. The time for each of them hardly falls with more."""


def write_texts(build: Build, known: Container[str] = ()) -> list[str]:
    """Returns modules with the kernels of a build for one device, except those whose names are `known`. Raises
    RuntimeError or KernelError for a kernel that a build cannot compile either."""
    build.make("lowered")
    assert build.lowered is not None
    (target,) = build.options.targets
    kernels = [kernel for kernel in build.lowered.kernels if kernel.symbol + target.suffix not in known]
    return [_write_module(build, kernels[begin : begin + TOGETHER]) for begin in range(0, len(kernels), TOGETHER)]


def _write_module(build: Build, kernels: list[LoweredKernel]) -> str:
    (target,) = build.options.targets
    generator, machine = CodeGenerator(build.options.code()), Machine(target, Options(3))
    modules, names = [], list[str]()
    for kernel in kernels:
        source = generator._source(kernel, target)
        task = Task(Request(source.job, source.files))
        text, launches = mark_launches(task, lower_kernel(task))
        module = machine.parse(text)
        machine.hide_others(module, frozenset(launches), visible=True)
        modules.append(module)
        names += launches
    joined, *others = modules
    for module in others:
        joined.link_in(module)
    machine.optimize(joined, Pipeline.VECTORS)
    made = machine.emit_assembly(machine.parse(str(joined)))
    check_launches(made, names)
    return made
