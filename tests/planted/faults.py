"""Every planted fault, by name."""

from __future__ import annotations

from collections.abc import Mapping

from . import in_passes
from .planted import Planted

FAULTS: Mapping[str, Planted] = {fault.name: fault for fault in in_passes.FAULTS}
