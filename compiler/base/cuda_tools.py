"""The programs of CUDA that a build may use, such as its assembler. None of them is required."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

_HOMES = ("CUDA_HOME", "CUDA_PATH")
_FOLDERS = ("cuda_nvcc/bin", "cu13/bin")
"""Folders of programs in the packages `nvidia-cuda-nvcc-cu12`, `nvidia-cuda-nvdisasm` and the like, below the folder
`nvidia`."""


def find_cuda_tool(name: str) -> str | None:
    """Returns the path of a program, such as `ptxas`: the one that `$NACRE_PTXAS` names, else the first one on the
    path, in `$CUDA_HOME` or `$CUDA_PATH`, or in an installed package; None where there is none."""
    if named := os.environ.get(f"NACRE_{name.upper()}"):
        return named
    if found := shutil.which(name):
        return found
    folders = [Path(home) / "bin" for variable in _HOMES if (home := os.environ.get(variable))]
    if (spec := find_spec("nvidia")) is not None:
        packages = map(Path, spec.submodule_search_locations or ())
        folders += [package / folder for package in packages for folder in _FOLDERS]
    return next((str(folder / name) for folder in folders if os.access(folder / name, os.X_OK)), None)
