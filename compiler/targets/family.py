"""A family of targets: the processors of one architecture, and everything in a build that depends on the architecture.

A new family is one more record beside `x86.py`, and a line in `families.py`. The stages of a build read the fields of
the record; none of them compares the name of a family.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace

from ...dialect.lazy_dataclass import dataclass
from ..graph_passes import GRAPH_PASSES, STRICT_PASSES
from .system import LINUX, System
from .vector_unit import Prefetches, VectorUnit

VECTOR_ROUTES: Mapping[int, str] = {0: "loops", 1: "loops", 2: "tiled", 3: "tiled"}
"""The routes of a family with a vector unit."""


@dataclass(frozen=True, slots=True)
class Family:
    """machine: the architecture as triples and `platform.machine()` name it.
    jump: the instructions of a function that calls another one with its own arguments, in the assembler's syntax.
        Empty for a device.
    cpu, features: the CPU of a triple that names none, in LLVM's names.
    units: vector units, the widest first, each with the features that it needs.
    used: the features that decide which instructions the tiler writes.
    base: those of `used` that every CPU of the family has.
    inexact: those of `used` with instructions that flush denormal numbers to zero.
    bfloat_products: the features that add instructions for products of bf16; a CPU needs one of them. Empty if every
        CPU of the family has such instructions.
    bfloat_blocks: the same for products of bf16 with a weight in blocks of quantized values.
    slow: by LLVM's name of a CPU, features that it has but that are no faster than code without them.
    prefetches: by LLVM's name of a CPU, prefetches that are faster than those of its vector unit.
    slow_gathers: LLVM's names of CPUs that take longer for a gather than for a load of each element.
    no_gathers: the feature with which LLVM loads each element instead of gathering them.
    driver_flags: flags of the C compiler for the runtime, left out where a compiler does not know them.
    system: the system that its artifacts run on.
    passes, strict_passes: its graph passes at each optimisation level.
    packs: the lowest level at which weights are stored in the order in which contractions read them.
    device: whether kernels run on a separate device, which entries on the host launch.
    runtime: the C sources of the runtime that reach the device, without `.c`.
    routes: the route from linalg to machine code at each level; `codegen/workers/routes.py` defines them.
    """

    machine: str
    jump: tuple[str, ...]
    cpu: str
    features: str
    units: Sequence[tuple[frozenset[str], VectorUnit]]
    used: frozenset[str]
    base: frozenset[str] = frozenset()
    inexact: frozenset[str] = frozenset()
    bfloat_products: tuple[str, ...] = ()
    bfloat_blocks: tuple[str, ...] = ()
    slow: Mapping[str, frozenset[str]] = field(default_factory=dict)
    prefetches: Mapping[str, Prefetches] = field(default_factory=dict)
    slow_gathers: frozenset[str] = frozenset()
    no_gathers: str = ""
    driver_flags: tuple[str, ...] = ()
    system: System = LINUX
    passes: Mapping[int, str] = field(default_factory=lambda: GRAPH_PASSES)
    strict_passes: Mapping[int, str] = field(default_factory=lambda: STRICT_PASSES)
    packs: int = 2
    routes: Mapping[int, str] = field(default_factory=lambda: VECTOR_ROUTES)
    device: bool = False
    runtime: tuple[str, ...] = ()

    @property
    def triple(self) -> str:
        return f"{self.machine}-{self.system.name}"

    def choose_unit(self, features: Collection[str], cpu: str = "") -> VectorUnit:
        """Returns the widest vector unit of a CPU with these features, in LLVM's names."""
        present = self.base | frozenset(features)
        unit = next(unit for needed, unit in self.units if needed <= present)
        fetches = self.prefetches.get(cpu, unit.prefetches)
        return replace(unit, features=self.used & present, inexact=self.inexact, prefetches=fetches)
