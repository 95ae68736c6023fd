"""Faults of the compiler itself, and the folder that each leaves: all that is needed to see it again elsewhere.

In such a folder stand the text in the language of the stage that failed, what was said of it, versions, and a script
`rerun.sh` that shows the fault again there; where a model was being built, its text and the options too.
"""

from __future__ import annotations

import platform
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RERUN = "rerun.sh"


class CompilerFault(Exception):  # noqa: N818 (a fault, not an error of the user's)
    """The compiler's own fault. `reproducer` is a folder that shows it; `kernel` is the function of machine code at
    which it happens, if it is one, and `nodes` what that computes."""

    exit_code = 70

    def __init__(self, what: str, stage: str, kernel: str, reproducer: Path, nodes: Sequence[str] = ()) -> None:
        self.what, self.stage, self.kernel, self.reproducer, self.nodes = what, stage, kernel, reproducer, tuple(nodes)
        super().__init__(f"{self.headline}: {what}\nreproducer: {reproducer}")

    @property
    def headline(self) -> str:
        where = f" in `{self.kernel}`" if self.kernel else ""
        return f"the compiler failed at stage {self.stage}{where}"


def versions() -> list[str]:
    """What a fault may depend on, a line each."""
    lines = [f"python {platform.python_version()}", platform.platform()]
    for package in ("nacre", "torch-mlir", "mlir", "llvmlite", "numpy"):
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return lines


def new_reproducer() -> Path:
    """An empty folder. Raises OSError."""
    return Path(tempfile.mkdtemp(prefix="nacre-fault-"))


def write_reproducer(folder: Path, files: Mapping[str, str], command: Sequence[str]) -> None:
    """Puts these files into the folder, and a script that runs the command there. Raises OSError."""
    texts = {
        **files,
        "versions.txt": "".join(f"{line}\n" for line in versions()),
        RERUN: f'#!/bin/sh\ncd "$(dirname "$0")" && exec {shlex.join(command)}\n',
    }
    for name, text in texts.items():
        # Texts of the system may hold what is no text.
        (folder / name).write_text(text, encoding="utf-8", errors="surrogateescape")
