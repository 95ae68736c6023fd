"""A failed job as a fault with a reproducer: a folder that holds the kernel, the options, the versions, and the command
that shows the fault again.
"""

from __future__ import annotations

import platform
import shlex
import tempfile
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .child import Outcome, Source, worker_command
from .job import job_path


class CompilerFault(Exception):  # noqa: N818 (a fault, not an error of the user's)
    """The compiler's own fault. `reproducer` is a folder that shows it, `kernel` the function at which it happens."""

    exit_code = 70

    def __init__(self, what: str, stage: str, kernel: str, reproducer: Path) -> None:
        self.what, self.stage, self.kernel, self.reproducer = what, stage, kernel, reproducer
        where = f" in `{kernel}`" if kernel else ""
        super().__init__(f"code generation failed at stage {stage}{where}: {what}\nreproducer: {reproducer}")


def make_fault(source: Source, outcome: Outcome) -> CompilerFault:
    folder = Path(tempfile.mkdtemp(prefix="nacre-fault-"))
    for name, text in source.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    # Run again, it shows how far it comes.
    job_path(folder).write_text(replace(source.job, dump=True).to_json(), encoding="utf-8")
    result = outcome.result
    (folder / "output.txt").write_text(f"{result.error}\n\n{outcome.output}", encoding="utf-8")
    (folder / "versions.txt").write_text("".join(f"{line}\n" for line in versions()))
    command = shlex.join([*worker_command(source.worker), "."])
    (folder / "rerun.sh").write_text(f'#!/bin/sh\ncd "$(dirname "$0")" && {command}\n')
    return CompilerFault(result.error, result.stage, source.kernel, folder)


def versions() -> list[str]:
    """What a fault may depend on, a line each."""
    lines = [f"python {platform.python_version()}", platform.platform()]
    for package in ("nacre", "torch-mlir", "mlir", "llvmlite", "numpy"):
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return lines
