"""All target families, by the machine that their triples begin with."""

from __future__ import annotations

from collections.abc import Mapping

from .arm import ARM
from .cuda import CUDA
from .family import Family
from .riscv import RISCV
from .wasm import WASM
from .x86 import X86

FAMILIES: Mapping[str, Family] = {family.machine: family for family in (X86, ARM, RISCV, WASM, CUDA)}
