"""Files of arrays for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from nacre.dialect.types import Array


def save_npz(path: Path, arrays: Mapping[str, Array]) -> Path:
    """Writes arrays by name, and gives the path back."""
    named: dict[str, Any] = dict(arrays)  # numpy's types take a name for that of a flag
    np.savez(path, **named)
    return path
