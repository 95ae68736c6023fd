"""References: tensors computed by another program, in a `.npz` or `.safetensors` file by name.

Names are those of points (`encoder.layer.0.output.h`), or of results. A reference need not be complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ....dialect.types import Array
from ...comparison.capture import Capture, Point, result_point
from ...weights import open_tensors

TENSORS = (".npz", ".safetensors")


def read_reference(path: Path, results: Sequence[str]) -> Capture:
    """Reads the tensors of a file; a tensor named as a result of the model is compared with this result."""
    checkpoint = open_tensors(path)
    return _points({name: checkpoint.read(name) for name in checkpoint.names()}, results)


def _points(arrays: Mapping[str, Array], results: Sequence[str]) -> Capture:
    names = {name: result_point(name) if name in results else name for name in arrays}
    return Capture({names[name]: Point(names[name], array) for name, array in arrays.items()}, ordered=False)
