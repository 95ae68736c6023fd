"""The data of constants that are too big for the text of a graph, in one file beside the graphs of a build.

Constants are found by their hash in the text; the hash of the data is verified.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from ...dialect.graph import Constant
from ...dialect.types import Array
from ..weights import open_checkpoint

CONSTANTS = "constants.safetensors"


def write_constants(folder: Path, constants: Mapping[str, Array]) -> None:
    save_file({digest: np.ascontiguousarray(constants[digest]) for digest in sorted(constants)}, folder / CONSTANTS)


def read_constants(folder: Path) -> dict[str, Array]:
    """Reads data by hash; empty if the file does not exist. Raises DiagnosticError if the file is invalid."""
    path = folder / CONSTANTS
    if not path.is_file():
        return {}
    checkpoint = open_checkpoint(path)
    data = {name: checkpoint.read(name) for name in checkpoint.names()}
    return {digest: array for digest, array in data.items() if Constant(array).digest == digest}
