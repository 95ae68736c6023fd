"""Compiles kernels, several to an object: a kernel of one operator takes longer to start than to compile.

The stages and their passes are those of a build, which compiles one kernel to an object. They treat each function of a
module by itself. Kernels of level 0 are one module from the start. The tiler takes one kernel at a time, so those of
other levels are joined when they are LLVM IR.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from nacre.compiler.codegen.llvm.machine import Machine, Options, Pipeline
from nacre.compiler.codegen.objects import (
    CodeGenerator,
    CodeOptions,
    ObjectCode,
    Program,
    generate_objects,
    plan_program,
)
from nacre.compiler.codegen.workers.emit import make_object
from nacre.compiler.codegen.workers.job import KERNEL, Report, text_name
from nacre.compiler.codegen.workers.kernel_worker import choose_pipeline, kept_functions, lower_kernel
from nacre.compiler.codegen.workers.messages import Request
from nacre.compiler.codegen.workers.routes import FIRST, LLVM_IR
from nacre.compiler.codegen.workers.serve import Task
from nacre.compiler.host.plan import plan_entries
from nacre.compiler.host.whole_loops import find_inner_kernels
from nacre.compiler.lower.lowered import Lowered, LoweredKernel
from nacre.compiler.lower.writer import ITEMS
from nacre.compiler.validate.isolated import Progress, run_isolated

TOGETHER = 16
"""The kernels of an object. The time for each of them hardly falls with more."""


@dataclass
class _Made:
    """The objects of some kernels, and the reports on kernels that were tiled; or the error of a stage."""

    objects: list[bytes] = field(default_factory=list)
    reports: dict[str, Report] = field(default_factory=dict)
    error: str = ""


def generate_joined(lowered: Lowered, options: CodeOptions) -> tuple[Program, Sequence[bytes]]:
    """Returns a program and its objects, as `generate_objects` does. At level 0, memory is planned as if each kernel
    used all its tensors. Raises CompilerError for a kernel that a build cannot compile either."""
    (target,) = options.targets
    kernels = lowered.kernels
    inner = find_inner_kernels(lowered.functions) if options.level else set()
    groups = [kernels[begin : begin + TOGETHER] for begin in range(0, len(kernels), TOGETHER)]
    answers = run_isolated([partial(_compile, group, options, inner) for group in groups])
    made = [answer for answer in answers if isinstance(answer, _Made) and not answer.error]
    if len(made) < len(answers):
        generate_objects(lowered, options)
        raise AssertionError(next(answer for answer in answers if answer not in made))
    if options.level:
        codes = {symbol: ObjectCode(b"", report) for each in made for symbol, report in each.reports.items()}
        program = plan_program(lowered, {target: codes})
    else:
        program = Program(lowered, {target: {}}, plan_entries(lowered))
    # The program has the reports of the kernels, without code.
    entries = [code for code in CodeGenerator(options).compile_entries(program) if code]
    return program, (*(code for each in made for code in each.objects), *entries)


def _compile(kernels: Sequence[LoweredKernel], options: CodeOptions, inner: set[str], tell: Progress) -> _Made:
    try:
        return _compile_tiled(kernels, options, inner) if options.level else _compile_at_once(kernels, options)
    except Exception as error:
        return _Made(error=f"{type(error).__name__}: {error}")


def _task(kernels: Sequence[LoweredKernel], options: CodeOptions, *, inner: bool = False) -> Task:
    names = [name for kernel in kernels for name in (kernel.symbol, kernel.symbol + ITEMS)]
    job = options.job(options.targets[0], names)
    has_alarm = any(kernel.kernel.alarm is not None for kernel in kernels)
    job = replace(job, route=options.route, inner=inner, alarm=has_alarm)
    return Task(Request(job, {text_name(KERNEL, FIRST): "\n".join(kernel.text() for kernel in kernels)}))


def _compile_at_once(kernels: Sequence[LoweredKernel], options: CodeOptions) -> _Made:
    task = _task(kernels, options)
    return _Made([make_object(task, lower_kernel(task), LLVM_IR, frozenset(task.job.keep), Pipeline.LOOPS)])


def _compile_tiled(kernels: Sequence[LoweredKernel], options: CodeOptions, inner: set[str]) -> _Made:
    target = options.targets[0]
    level = options.job(target, ()).level
    made = _Made()
    found: dict[Pipeline, list[tuple[Task, str]]] = {}
    for kernel in kernels:
        task = _task([kernel], options, inner=kernel.symbol in inner)
        text = lower_kernel(task)
        found.setdefault(choose_pipeline(task), []).append((task, text))
        code = text if task.job.inner and task.report.tiled else ""
        made.reports[kernel.symbol] = replace(task.report, code=code)
    for pipeline, texts in found.items():
        machine = Machine(target, Options(level))
        modules = [(machine.parse(text), kept_functions(task)) for task, text in texts]
        for module, kept in modules:
            # Functions of two kernels may have one name.
            machine.hide_others(module, kept, visible=False)
        (joined, _), *others = modules
        for module, _ in others:
            joined.link_in(module)
        all_kept = frozenset(name for _, kept in modules for name in kept)
        made.objects.append(make_object(texts[0][0], str(joined), LLVM_IR, all_kept, pipeline))
    return made
