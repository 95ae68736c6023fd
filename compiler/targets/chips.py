"""GPUs by name: the figures of their data sheets that bound the time of a kernel and the blocks that run at once.

Rates are those of dense products on tensor cores, where a dtype has them, with sums in f32. No kernel reaches them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ...dialect.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Chip:
    """`device` is the name that the driver gives, `architecture` the one that ptxas assembles for. Rates are operations
    and bytes per second; a dtype without one has that of f32. The other figures are those of one multiprocessor: shared
    memory in bytes."""

    name: str
    device: str
    architecture: str
    processors: int
    bandwidth: float
    flops: float
    products: Mapping[str, float] = field(hash=False)
    shared: int
    threads: int = 2048
    blocks: int = 32
    registers: int = 65536

    def rate(self, factors: str) -> float:
        """Returns the operations per second in products of a dtype."""
        return self.products.get(factors, self.flops)

    def blocks_at_once(self, threads: int, registers: int, shared: int) -> int:
        """Returns the blocks that a multiprocessor holds. Registers are given to warps by 256, and each block takes
        1 KiB of shared memory more than it asks for."""
        warps = -(-threads // 32)
        per_warp = max(256, -(-registers * 32 // 256) * 256)
        limits = [self.blocks, self.threads // (warps * 32), self.registers // (per_warp * warps)]
        return min(*limits, self.shared // (shared + 1024))

    def occupancy(self, threads: int, registers: int, shared: int) -> float:
        """Returns the share of a multiprocessor's threads that run at once."""
        return self.blocks_at_once(threads, registers, shared) * -(-threads // 32) * 32 / self.threads


_A100 = {"f16": 312e12, "bf16": 312e12, "tf32": 156e12, "i8": 624e12, "u8": 624e12, "f64": 9.7e12}
_H100 = {"f16": 989e12, "bf16": 989e12, "tf32": 494e12, "i8": 1979e12, "u8": 1979e12, "f64": 33.5e12}
_L4 = {"f16": 121e12, "bf16": 121e12, "tf32": 60e12, "i8": 242e12, "u8": 242e12, "f64": 0.47e12}

CHIPS: Mapping[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("a100", "NVIDIA A100-SXM4-80GB", "sm_80", 108, 2.039e12, 19.5e12, _A100, 164 << 10),
        Chip("h100", "NVIDIA H100 80GB HBM3", "sm_90", 132, 3.35e12, 66.9e12, _H100, 228 << 10),
        Chip("h200", "NVIDIA H200", "sm_90", 132, 4.8e12, 66.9e12, _H100, 228 << 10),
        Chip("l4", "NVIDIA L4", "sm_89", 58, 0.3e12, 30.3e12, _L4, 100 << 10, 1536, 24),
    )
}
"""The 80 GB A100 and the H100 are those with SXM connectors.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/#features-and-technical-specifications-technical-specifications-per-compute-capability
"""
