"""The child process that compiles entries: `python -m nacre.compiler.codegen.workers.entry_worker FOLDER`.

Entries are LLVM IR already, so the process does not load MLIR. If the job includes the kernels' texts, they are linked
with the entries into one module for other programs. Copies of kernels that loops call are linked first.
"""

from __future__ import annotations

import sys
from typing import Any

from ...lower.parts import INNER
from ...targets.target import Target
from ..llvm.inner_kernels import link_inner_kernels
from ..llvm.machine import Machine, Options, Pipeline
from .emit import dump_name, make_object
from .job import ENTRIES, INNER_FILE, Job
from .routes import LLVM_IR, OPTIMIZED
from .serve import Task, serve


def compile_entries(task: Task) -> bytes:
    text = task.read(ENTRIES)
    inner = [task.files[name] for name in sorted(task.files) if name.startswith(INNER_FILE)]
    if inner:
        with task.timed("link-kernels"):
            text = link_inner_kernels(Machine(_target(task.job), Options(task.job.level)), text, inner, INNER)
    pipeline = Pipeline.VECTORS if inner else Pipeline.SHORT
    code = make_object(task, text, task.job.start, frozenset(task.job.keep), pipeline)
    if len(task.files) > 1 + len(inner):
        job = task.job
        machine = Machine(_target(job), Options(job.level))
        task.dump("module-ir.ll", lambda: str(_module(machine, task, LLVM_IR)))
        task.dump("module-assembly.s", lambda: machine.emit_assembly(_module(machine, task, OPTIMIZED)))
    return code


def _target(job: Job) -> Target:
    return Target(job.cpu, job.triple, job.features)


def _module(machine: Machine, task: Task, stage: str) -> Any:
    """Returns the module of all kernels and the entries at a stage."""
    name = dump_name(stage)
    texts = [task.files[file] for file in sorted(task.files) if file.endswith(f"-{name}")]
    whole, *others = [machine.parse(text) for text in (*texts, task.dumps[name])]
    for other in others:
        whole.link_in(other)
    return whole


if __name__ == "__main__":
    sys.exit(serve(compile_entries, sys.argv[1:]))
