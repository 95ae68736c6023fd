"""The child process that makes machine code of entries: `python -m nacre.compiler.codegen.entry_worker FOLDER`.

Entries are LLVM IR already, so that nothing of MLIR is loaded. Where dumps are asked for, the kernels' texts come
too, and every dump shows the kernels and the entries as one module.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from .job import ENTRIES
from .machine import Machine, Options
from .serve import Task, serve
from .target import Target


def compile_entries(task: Task) -> bytes:
    job = task.job
    with task.timed("llvm-ir"):
        machine = Machine(Target(job.cpu, job.triple, job.features), Options(job.level))
        task.report = replace(task.report, made_for=machine.made_for)
        module = machine.parse(task.read(ENTRIES))
        machine.hide_others(module, frozenset(job.keep), job.visible)
    task.dump("llvm-ir.ll", lambda: str(_with_kernels(machine, str(module), task, "llvm-ir.ll")))
    with task.timed("optimize"):
        machine.optimize(module)
    if job.dump:
        whole = _with_kernels(machine, str(module), task, "optimized.ll")
        task.dump("optimized.ll", lambda: str(whole))
        task.dump("assembly.s", lambda: machine.emit_assembly(whole))
    with task.timed("emit"):
        return machine.emit_object(module)


def _with_kernels(machine: Machine, entries: str, task: Task, stage: str) -> Any:
    texts = [task.read(name) for name in sorted(task.files) if name.endswith(f"-{stage}")]
    whole, *others = [machine.parse(text) for text in (*texts, entries)]
    for other in others:
        whole.link_in(other)
    return whole


if __name__ == "__main__":
    sys.exit(serve(compile_entries, sys.argv[1:]))
