"""The machine code of an artifact's kernels for GPUs, as the text that NVIDIA's disassemblers print (SASS)."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.lazy_dataclass import dataclass
from ...base.cuda_tools import find_cuda_tool
from ...codegen.gpu.cubin import AssemblerError, make_cubin
from .device_code import modules_of, read_code

_DISASSEMBLERS: Mapping[str, Sequence[str]] = {"nvdisasm": ("-c",), "cuobjdump": ("-sass",)}
"""The programs that print machine code, in order of preference, and their arguments before the file."""


@dataclass(frozen=True, slots=True)
class Disassembler:
    """The path of CUDA's assembler, and the command that prints machine code, without its last argument, a file."""

    ptxas: str
    command: tuple[str, ...]

    def print(self, artifact: Path, architecture: str) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yields, for each module of PTX in an artifact, the names of its launches and its machine code for an
        architecture, such as `sm_90a`. Raises DiagnosticError if a program fails."""
        for text in modules_of(artifact):
            names = tuple(code.name for code in read_code(text))
            try:
                yield names, _print(self.command, make_cubin(self.ptxas, text, architecture))
            except (AssemblerError, OSError, subprocess.SubprocessError) as error:
                raise DiagnosticError([Diagnostic("no-disassembly", f"`{names[0]}` has no text: {error}")]) from error


def find_disassembler() -> Disassembler:
    """Returns the programs of CUDA. Raises DiagnosticError if one is missing."""
    ptxas = find_cuda_tool("ptxas")
    if ptxas is None:
        raise _missing("CUDA's assembler `ptxas`", "nvidia-cuda-nvcc")
    for name, arguments in _DISASSEMBLERS.items():
        if (path := find_cuda_tool(name)) is not None:
            return Disassembler(ptxas, (path, *arguments))
    raise _missing("`nvdisasm` or `cuobjdump`", "nvidia-cuda-nvdisasm")


def _print(command: Sequence[str], cubin: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.cubin"
        path.write_bytes(cubin)
        return subprocess.run([*command, str(path)], capture_output=True, text=True, check=True).stdout


def _missing(tool: str, package: str) -> DiagnosticError:
    message = f"the stage `sass` needs {tool}, which is not installed"
    help_text = f"install CUDA, or the package `{package}`, or set CUDA_HOME"
    return DiagnosticError([Diagnostic("no-disassembly", message, help=help_text)])
