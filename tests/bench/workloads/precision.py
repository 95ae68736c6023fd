"""The precisions that workloads are compared in. Texts are in f32: how numbers are kept, each contender sees to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Precision:
    """`name` is the end of a workload's name. `rate` is how many multiplications there are in the time of one of f32,
    `weight` the bytes that a number of a matrix takes. A result whose error is beyond `wrong` is no result."""

    name: str
    rate: float
    weight: float
    wrong: float


F32 = Precision("f32", 1, 4, 1e-3)
BF16 = Precision("bf16", 2, 2, 0.1)
"""What is multiplied is rounded to bfloat16, and sums are in f32."""
INT8 = Precision("int8", 4, 1, 0.5)
"""Weights per column, and activations with scales from the numbers of each call."""
INT8_STATIC = Precision("int8-static", 4, 1, 0.5)
"""The same with scales of activations from samples that were seen before."""
INT4 = Precision("int4", 1, 0.5 + 2 / 32, 1.0)
"""Weights in blocks of 32 with a scale each, and activations in f32."""
INT4A8 = Precision("int4a8", 4, 0.5 + 2 / 32, 1.0)
"""The same with activations in 8 bits, whose scales are from the numbers of each call."""
