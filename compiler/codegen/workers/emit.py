"""The common stages of kernels and entries: from LLVM IR to an object. A build can start from the text of any of them.

An object depends on the text of the previous stage only: LLVM keeps more of a module than its text, such as the order
of a value's uses, and selects instructions by it.
"""

from __future__ import annotations

from dataclasses import replace

from ...targets.target import Target
from ..llvm.bfloat import DEFINITION, calls_rounding
from ..llvm.machine import Machine, Options, Pipeline
from ..llvm.single_lanes import MASKED_STORE, rewrite_single_lanes
from .routes import ASSEMBLY, LLVM_IR, LLVM_STAGES, OPTIMIZED
from .serve import Task


def make_object(task: Task, text: str, stage: str, kept: frozenset[str], pipeline: Pipeline) -> bytes:
    """Compiles a text of one of `LLVM_STAGES` to an object that exports the functions `kept`."""
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
        task.dump(dump_name(stage), lambda: str(module))
        if job.dump or machine.has_passes(pipeline) or _needs_fix_ups(text):
            with task.timed("optimize"):
                machine.optimize(module, pipeline)
                text = rewrite_single_lanes(str(module))
                module = machine.parse(text)
    _dump(task, OPTIMIZED, text)
    # Emitting a module changes it.
    task.dump(dump_name(ASSEMBLY), lambda: machine.emit_assembly(machine.parse(text)))
    with task.timed("emit"):
        code = machine.emit_object(module)
        if calls_rounding(code):
            code = machine.emit_object(machine.parse(text + DEFINITION))
        return code


def _needs_fix_ups(text: str) -> bool:
    """Returns whether the optimised text is needed: for masked stores that are rewritten, or bf16 that is rounded."""
    return MASKED_STORE in text or "bfloat" in text


def dump_name(stage: str) -> str:
    return f"{stage}.{LLVM_STAGES[stage]}"


def _dump(task: Task, stage: str, text: str) -> None:
    task.dump(dump_name(stage), lambda: text)
