"""Units of budgets and of bounds on sizes."""

from __future__ import annotations

from collections.abc import Mapping

UNITS: Mapping[str, tuple[str, float]] = {
    "B": ("bytes", 1),
    "kB": ("bytes", 1e3),
    "KB": ("bytes", 1e3),
    "MB": ("bytes", 1e6),
    "GB": ("bytes", 1e9),
    "KiB": ("bytes", 2**10),
    "MiB": ("bytes", 2**20),
    "GiB": ("bytes", 2**30),
    "s": ("seconds", 1),
    "ms": ("seconds", 1e-3),
    "us": ("seconds", 1e-6),
    "ns": ("seconds", 1e-9),
    "FLOP": ("operations", 1),
    "MFLOP": ("operations", 1e6),
    "GFLOP": ("operations", 1e9),
    "TFLOP": ("operations", 1e12),
}
"""For each unit name, the quantity that it measures, and its size in bytes, seconds or operations."""
