"""PTX to the machine code of one architecture, a file in the format ELF that the driver loads as it is (a cubin)."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

_MOST_LINES = 4
"""Lines of the assembler's output in an error."""


class AssemblerError(Exception):
    """PTX that the assembler refuses."""


def make_cubin(ptxas: str, ptx: str, architecture: str) -> bytes:
    """Returns the machine code for an architecture. The same text and program give the same bytes. Raises
    AssemblerError, OSError."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "module.ptx", Path(folder) / "module.cubin"
        source.write_text(ptx)
        command = [ptxas, f"-arch={architecture}", source.name, "-o", made.name]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        if done.returncode == 0:
            return made.read_bytes()
    said = (done.stderr + done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
    raise AssemblerError("ptxas refuses the code: " + "\n".join(said[:_MOST_LINES]))
