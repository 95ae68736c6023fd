"""The assembler of CUDA, which makes machine code of PTX where it is installed.

Machine code runs on devices of one architecture, and on later ones of its major compute capability. The driver compiles
the PTX beside it for all others.
"""

from __future__ import annotations

import os
import re
import subprocess
from functools import lru_cache
from pathlib import Path

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.lazy_dataclass import dataclass
from ..base.cuda_tools import find_cuda_tool
from .target import Target

PTXAS = "ptxas"
_VERSION = re.compile(r"\bV(\d+)\.(\d+\.\d+)\b")
_ARCHITECTURE = re.compile(r"'(sm_\d+\w?)'")


@dataclass(frozen=True, slots=True)
class Assembler:
    """A program `ptxas`: its path, its version, such as `13.0.88`, and the architectures that it knows."""

    path: str
    version: str
    architectures: frozenset[str]

    @property
    def release(self) -> int:
        """The major version. An older driver does not load the code."""
        return int(self.version.partition(".")[0])


def find_assembler(target: Target) -> Assembler | None:
    """Returns the assembler for a target; None if the target has none, it is not installed, or it does not know the
    architecture. `$NACRE_NO_CUBIN` hides it. Raises DiagnosticError if `$NACRE_PTXAS` names no such program."""
    if not target.is_device or os.environ.get("NACRE_NO_CUBIN"):
        return None
    path = find_cuda_tool(PTXAS)
    if path is None:
        return None
    try:
        status = Path(path).stat()
        found = _ask(path, status.st_size, status.st_mtime_ns)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        message = f"`{path}` does not run as CUDA's assembler: {error}"
        help_text = "set NACRE_PTXAS to the path of ptxas, or compile with `--no-cubin`"
        raise DiagnosticError([Diagnostic("bad-assembler", message, help=help_text)]) from error
    return found if target.cpu in found.architectures else None


def describe_device_code(version: str) -> str:
    """Describes the code for a GPU in an artifact, whose machine code an assembler of a version has made."""
    return f"PTX and machine code of ptxas {version}" if version else "PTX, without machine code"


@lru_cache(maxsize=4)
def _ask(path: str, size: int, changed: int) -> Assembler:
    """Returns the assembler in a file of a size, which was changed at a time. Raises OSError, ValueError."""
    about, usage = (_run(path, option) for option in ("--version", "--help"))
    version = _VERSION.search(about)
    if version is None:
        raise ValueError("it does not tell its version")
    return Assembler(path, f"{version[1]}.{version[2]}", frozenset(_ARCHITECTURE.findall(usage)))


def _run(path: str, option: str) -> str:
    return subprocess.run([path, option], capture_output=True, text=True, timeout=60, check=False).stdout
