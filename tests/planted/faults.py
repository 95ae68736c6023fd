"""Every planted fault, by name."""

from __future__ import annotations

from collections.abc import Mapping

from . import in_artifacts, in_kernels, in_passes, in_runtime
from .planted import Planted

FAULTS: Mapping[str, Planted] = {
    fault.name: fault for where in (in_passes, in_kernels, in_artifacts, in_runtime) for fault in where.FAULTS
}
