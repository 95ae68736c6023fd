"""A failed job as a fault with a reproducer: a folder that holds the kernel, the options, the versions, and the command
that shows the fault again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..faults import CompilerFault, new_reproducer, write_reproducer
from .child import Outcome, Source, worker_command
from .job import job_path


def make_fault(source: Source, outcome: Outcome, timeout: float) -> CompilerFault:
    result = outcome.result
    files = {
        **source.files,
        # Run again, it shows how far it comes.
        job_path(Path()).name: replace(source.job, dump=True).to_json(),
        "output.txt": f"{result.error}\n\n{outcome.output}",
    }
    # What hung will hang again.
    folder = new_reproducer()
    write_reproducer(folder, files, ["timeout", f"{timeout:g}", *worker_command(source.worker), "."])
    return CompilerFault(result.error, result.stage, source.kernel, folder, source.nodes)
