"""NEON of AArch64."""

from __future__ import annotations

from .instruction import Instruction, nearest

NEON: tuple[Instruction, ...] = (
    # NaN becomes 0.
    Instruction(
        "nearest",
        4,
        frozenset({"neon"}),
        "llvm.aarch64.neon.fcvtns.v4i32.v4f32",
        ("f32",),
        "i32",
        nearest,
    ),
)
