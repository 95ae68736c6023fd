"""Faults that are planted in the compiler, so that tests see whether what looks for faults finds them.

`FAULTS` lists them; `plant` switches one on, in this process and in the children that generate code for it.
"""

from __future__ import annotations

from .faults import FAULTS
from .planted import Planted
from .planting import plant, write_model

__all__ = ["FAULTS", "Planted", "plant", "write_model"]
