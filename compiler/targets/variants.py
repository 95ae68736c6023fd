"""CPU variants: named sets of x86-64 features, https://gitlab.com/x86-psABIs/x86-64-ABI.

An artifact may have code for several variants; the runtime selects the best one that the CPU supports. A new variant is
one more record here. Everything else derives from the records: `--target` and its help, the words of `nacre help`, the
page about artifacts, and the table of variants in each artifact, by which the runtime reads `NACRE_CPU_LEVEL`. This
module imports no other, so that `nacre help` starts fast.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...dialect.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Variant:
    """A CPU variant. Features have LLVM's names.

    Attributes:
        name: The variant as a user types it.
        cpu: LLVM's name of the CPU that code is generated for.
        features: The features that the code needs.
        beyond: Those of `features` that the CPU lacks: they are added to it.
        summary: The instruction set that the variant adds, as people call it.
        portable: Whether the target `portable` includes the variant.
    """

    name: str
    cpu: str
    features: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    summary: str = ""
    portable: bool = False

    def with_cpu(self, name: str, summary: str, *features: str, portable: bool = False) -> Variant:
        """Returns a variant with further features for which LLVM has a CPU of the same name."""
        return Variant(name, name, (*self.features, *features), (), summary, portable)

    def with_features(self, name: str, summary: str, *features: str, portable: bool = False) -> Variant:
        """Returns a variant with further features for which LLVM has no CPU."""
        beyond = tuple(sorted((*self.beyond, *features)))
        return Variant(name, self.cpu, (*self.features, *features), beyond, summary, portable)


_V1 = Variant("x86-64", "x86-64", summary="SSE2")
_V2 = _V1.with_cpu("x86-64-v2", "SSE4", "cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = _V2.with_cpu(
    *("x86-64-v3", "AVX2 and FMA", "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"), portable=True
)
_V4 = _V3.with_cpu(*("x86-64-v4", "AVX-512", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"), portable=True)
_VNNI = _V4.with_features("x86-64-v4-vnni", "products of bytes", "avx512vnni", portable=True)
_BF16 = _VNNI.with_features("x86-64-v4-vnni-bf16", "products of bf16", "avx512bf16", portable=True)

VARIANTS: Mapping[str, Variant] = {variant.name: variant for variant in (_V1, _V2, _V3, _V4, _VNNI, _BF16)}
"""The variants by their names; each has the features of those before it."""

PORTABLE = "portable"
PORTABLE_VARIANTS = tuple(name for name, variant in VARIANTS.items() if variant.portable)
"""The target `portable`, and the variants that it stands for."""
