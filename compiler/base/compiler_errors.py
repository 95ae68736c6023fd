"""Internal compiler errors, and the reproducer folder of each, which suffices to reproduce it elsewhere.

The folder contains the input text of the stage that failed, the error output, versions, and a script `rerun.sh` that
reproduces the error there; for a failed model build, also the model's text and the options.
"""

from __future__ import annotations

import importlib
import platform
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...dialect.diagnostics import Diagnostic, render

RERUN = "rerun.sh"
NACRE = (sys.executable, "-m", "nacre.compiler.cli.main")
NO_ANSWER = "no answer within"
"""The beginning of the error of a child process that did not end in time."""


class CompilerError(Exception):
    """An internal compiler error. `reproducer` is a folder that reproduces it; `kernel` is the function of machine code
    in which it occurs, if there is one, and `nodes` are the nodes that this function computes."""

    exit_code = 70

    def __init__(self, what: str, stage: str, kernel: str, reproducer: Path, nodes: Sequence[str] = ()) -> None:
        self.what, self.stage, self.kernel, self.reproducer, self.nodes = what, stage, kernel, reproducer, tuple(nodes)
        super().__init__(f"{self.headline}: {what}\nreproducer: {reproducer}")

    def __reduce__(self) -> tuple[object, ...]:
        """Returns the parts for another process: by itself, an exception is made again from its message alone."""
        return type(self), (self.what, self.stage, self.kernel, self.reproducer, self.nodes)

    @property
    def headline(self) -> str:
        where = f" in `{self.kernel}`" if self.kernel else ""
        return f"the compiler failed at stage {self.stage}{where}"


class WrongNumbersError(CompilerError):
    """A stage of the compiler changed the results. `diagnostic` names the stage and the source line, `sources` are the
    texts of its spans."""

    def __init__(
        self, diagnostic: Diagnostic, sources: Mapping[str, str], stage: str, kernel: str, reproducer: Path
    ) -> None:
        super().__init__(diagnostic.message, stage, kernel, reproducer)
        self.diagnostic, self.sources = diagnostic, sources

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.diagnostic, self.sources, self.stage, self.kernel, self.reproducer)

    def __str__(self) -> str:
        return f"{render(self.diagnostic, self.sources)}\nreproducer: {self.reproducer}"


def versions() -> list[str]:
    """Returns the versions on which an error may depend, one per line."""
    metadata = importlib.import_module(
        "importlib.metadata"
    )  # takes longer than all else that `nacre --version` imports
    lines = [f"python {platform.python_version()}", platform.platform()]
    for package in ("nacre", "torch-mlir", "mlir", "llvmlite", "numpy"):
        try:
            lines.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return lines


def new_reproducer() -> Path:
    """Creates and returns an empty folder. Raises OSError."""
    return Path(tempfile.mkdtemp(prefix="nacre-error-"))


def write_reproducer(folder: Path, files: Mapping[str, str], command: Sequence[str]) -> None:
    """Writes the files into the folder, and a script that runs the command there. Raises OSError."""
    texts = {
        **files,
        "versions.txt": "".join(f"{line}\n" for line in versions()),
        RERUN: f'#!/bin/sh\ncd "$(dirname "$0")" && exec {shlex.join(command)}\n',
    }
    for name, text in texts.items():
        # Text from the operating system may contain bytes that are not valid UTF-8.
        (folder / name).write_text(text, encoding="utf-8", errors="surrogateescape")
