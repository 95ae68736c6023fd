"""Reports a failed job as a CompilerError with a reproducer: a folder with the kernel, the options, the versions, and
the command that reproduces the failure.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...base.compiler_errors import CompilerError, new_reproducer, write_reproducer
from .child import Outcome, Source
from .forking import worker_command
from .job import job_path
from .routes import MODULES, TILED, code_stages


def make_error(source: Source, outcome: Outcome, timeout: float) -> CompilerError:
    result = outcome.result
    files = {
        **source.files,
        # A second run reports the stage that it reaches.
        job_path(Path()).name: replace(source.job, dump=(*code_stages(source.job.route or TILED), *MODULES)).to_json(),
        "output.txt": f"{result.error}\n\n{outcome.output}",
    }
    # A job that hung will hang again.
    folder = new_reproducer()
    write_reproducer(folder, files, ["timeout", f"{timeout:g}", *worker_command(source.worker), "."])
    return CompilerError(result.error, result.stage, source.kernel, folder, source.nodes)
