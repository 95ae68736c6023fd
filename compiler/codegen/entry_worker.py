"""The child process that makes machine code of entries: `python -m nacre.compiler.codegen.entry_worker FOLDER`.

Entries are LLVM IR already, so that nothing of MLIR is loaded. Where kernels' texts come too, they are put together
with the entries, into one module that other programs read.
"""

from __future__ import annotations

import sys
from typing import Any

from .emit import dump_name, make_object
from .job import ENTRIES
from .machine import Machine, Options
from .routes import LLVM_IR, OPTIMIZED
from .serve import Task, serve
from .target import Target


def compile_entries(task: Task) -> bytes:
    code = make_object(task, task.read(ENTRIES), task.job.start, frozenset(task.job.keep))
    if len(task.files) > 1:
        job = task.job
        machine = Machine(Target(job.cpu, job.triple, job.features), Options(job.level))
        task.dump("module-ir.ll", lambda: str(_module(machine, task, LLVM_IR)))
        task.dump("module-assembly.s", lambda: machine.emit_assembly(_module(machine, task, OPTIMIZED)))
    return code


def _module(machine: Machine, task: Task, stage: str) -> Any:
    """All kernels and the entries at a stage."""
    name = dump_name(stage)
    texts = [task.files[file] for file in sorted(task.files) if file.endswith(f"-{name}")]
    whole, *others = [machine.parse(text) for text in (*texts, task.dumps[name])]
    for other in others:
        whole.link_in(other)
    return whole


if __name__ == "__main__":
    sys.exit(serve(compile_entries, sys.argv[1:]))
