"""Compiles kernels at level 0, several to an object: a kernel of one operator takes longer to start than to compile.

The stages and their passes are those of a build, which compiles one kernel to an object. They treat each function of a
module by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from nacre.compiler.codegen.llvm.machine import Pipeline
from nacre.compiler.codegen.objects import CodeGenerator, CodeOptions, Program, generate_objects
from nacre.compiler.codegen.workers.emit import make_object
from nacre.compiler.codegen.workers.job import KERNEL, text_name
from nacre.compiler.codegen.workers.kernel_worker import lower_kernel
from nacre.compiler.codegen.workers.messages import Request
from nacre.compiler.codegen.workers.routes import FIRST, LLVM_IR
from nacre.compiler.codegen.workers.serve import Task
from nacre.compiler.host.plan import plan_entries
from nacre.compiler.lower.lowered import Lowered, LoweredKernel
from nacre.compiler.lower.writer import ITEMS
from nacre.compiler.validate.isolated import Progress, run_isolated

TOGETHER = 16
"""The kernels of an object. The time for each of them hardly falls with more."""


def generate_joined(lowered: Lowered, options: CodeOptions) -> tuple[Program, Sequence[bytes]]:
    """Returns a program and its objects, as `generate_objects` does. Memory is planned as if each kernel used all its
    tensors. Raises CompilerError for a kernel that a build cannot compile either."""
    assert options.level == 0 and len(options.targets) == 1
    kernels = lowered.kernels
    groups = [kernels[begin : begin + TOGETHER] for begin in range(0, len(kernels), TOGETHER)]
    answers = run_isolated([_task(group, options) for group in groups])
    objects = [answer for answer in answers if isinstance(answer, bytes)]
    if len(objects) < len(answers):
        generate_objects(lowered, options)
        raise AssertionError(next(answer for answer in answers if not isinstance(answer, bytes)))
    program = Program(lowered, {options.targets[0]: {}}, plan_entries(lowered))
    return program, (*objects, *CodeGenerator(options).compile_entries(program))


def _task(kernels: Sequence[LoweredKernel], options: CodeOptions) -> Callable[[Progress], bytes | str]:
    return lambda tell: _compile(kernels, options)


def _compile(kernels: Sequence[LoweredKernel], options: CodeOptions) -> bytes | str:
    """Returns an object, or the error of a stage."""
    names = [name for kernel in kernels for name in (kernel.symbol, kernel.symbol + ITEMS)]
    text = "\n".join(kernel.text() for kernel in kernels)
    job = replace(options.job(options.targets[0], names, dump=False), route=options.route)
    task = Task(Request(job, {text_name(KERNEL, FIRST): text}))
    try:
        return make_object(task, lower_kernel(task), LLVM_IR, frozenset(names), Pipeline.LOOPS)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
