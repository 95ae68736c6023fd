"""Every planted fault, by name."""

from __future__ import annotations

from collections.abc import Mapping

from . import in_artifacts, in_kernels, in_passes
from .planted import Planted

FAULTS: Mapping[str, Planted] = {
    fault.name: fault for where in (in_passes, in_kernels, in_artifacts) for fault in where.FAULTS
}
