"""A family of targets: the CPUs of one instruction set architecture, and the properties that it determines.

A new family is one more record beside `x86.py`, and a line in `families.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .system import LINUX, System
from .vector_unit import VectorUnit


@dataclass(frozen=True, slots=True)
class Family:
    """machine: the architecture as triples and `platform.machine()` name it.
    cpu, features: the CPU that a triple without more stands for, in LLVM's names.
    units: vector units, the widest first, each with the features that it needs.
    used: the features that decide which instructions the tiler writes.
    base: those of `used` that every CPU of the family has.
    inexact: those of `used` with instructions that flush denormal numbers to zero.
    bfloat_products: the feature with instructions for products of bf16; empty if every CPU of the family has some.
    slow: by LLVM's name of a CPU, features that it has but that are no faster than code without them.
    driver_flags: flags of the C compiler for the runtime, left out where a compiler does not know them.
    system: what its artifacts run on.
    """

    machine: str
    cpu: str
    features: str
    units: Sequence[tuple[frozenset[str], VectorUnit]]
    used: frozenset[str]
    base: frozenset[str] = frozenset()
    inexact: frozenset[str] = frozenset()
    bfloat_products: str = ""
    slow: Mapping[str, frozenset[str]] = field(default_factory=dict)
    driver_flags: tuple[str, ...] = ()
    system: System = LINUX

    @property
    def triple(self) -> str:
        return f"{self.machine}-{self.system.name}"

    def choose_unit(self, features: Collection[str]) -> VectorUnit:
        """Returns the widest vector unit of a CPU with these features, in LLVM's names."""
        present = self.base | frozenset(features)
        unit = next(unit for needed, unit in self.units if needed <= present)
        return replace(unit, features=self.used & present, inexact=self.inexact)
