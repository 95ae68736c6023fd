"""NEON of AArch64."""

from __future__ import annotations

from .instruction import Instruction, nearest, shuffle_bytes

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
    # It returns 0 for all indices above 15.
    Instruction(
        "shuffle-bytes",
        4,
        frozenset({"neon"}),
        "llvm.aarch64.neon.tbl1.v16i8",
        ("i8", "i8"),
        "i8",
        shuffle_bytes,
    ),
)
