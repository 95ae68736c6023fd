"""The stages that kernels and entries have in common: from LLVM IR to an object. A text of any of them leads on.

What an object is follows from the text before it: LLVM keeps more of a module than its text says, such as in which
order a value is used, and chooses instructions by that.
"""

from __future__ import annotations

from dataclasses import replace

from .machine import Machine, Options
from .routes import ASSEMBLY, LLVM_IR, LLVM_STAGES, OPTIMIZED
from .serve import Task
from .single_lanes import rewrite_single_lanes
from .target import Target


def make_object(task: Task, text: str, stage: str, kept: frozenset[str], *, vectorize: bool = True) -> bytes:
    """The object of a text of one of `LLVM_STAGES`, which exports the functions `kept`."""
    job = task.job
    with task.timed(stage):
        machine = Machine(Target(job.cpu, job.triple, job.features), Options(job.level))
        task.report = replace(task.report, made_for=machine.made_for)
        if stage == ASSEMBLY:
            _dump(task, stage, text)
            return machine.assemble(text)
        module = machine.parse(text)
        if stage == LLVM_IR:
            machine.hide_others(module, kept, job.visible)
    if stage == LLVM_IR:
        _dump(task, stage, str(module))
        with task.timed("optimize"):
            machine.optimize(module, vectorize=vectorize)
            text = rewrite_single_lanes(str(module))
            module = machine.parse(text)
    _dump(task, OPTIMIZED, text)
    if job.dump:
        # To emit a module changes it.
        _dump(task, ASSEMBLY, machine.emit_assembly(machine.parse(text)))
    with task.timed("emit"):
        return machine.emit_object(module)


def dump_name(stage: str) -> str:
    return f"{stage}.{LLVM_STAGES[stage]}"


def _dump(task: Task, stage: str, text: str) -> None:
    task.dump(dump_name(stage), lambda: text)
