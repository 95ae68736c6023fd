"""Models and products of matrices in fewer bits, by the texts that are compared in f32 too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from .kernels import gemm, gemv_chain
from .models import minilm, vision
from .precision import BF16, INT4, INT4A8, INT8, INT8_STATIC, Precision
from .workload import Workload

GEMM = ((128, 384, 1536), (512, 512, 512), (1024, 1024, 1024))
LENGTHS = (16, 128)
VISION = ("resnet50", "mobilenetv2")


def workloads(checkpoint: Path | None) -> Iterator[Workload]:
    for precision in (BF16, INT8):
        yield from (in_precision(minilm(1, length, checkpoint), precision) for length in LENGTHS)
        yield from (in_precision(gemm(*sizes), precision) for sizes in GEMM)
    for precision in (INT4, INT4A8):
        yield in_precision(minilm(1, 128, checkpoint), precision)
        yield in_precision(gemv_chain(16, 768, 3072), precision)
    yield from (in_precision(vision(name), INT8_STATIC) for name in VISION)


def in_precision(workload: Workload, precision: Precision) -> Workload:
    return replace(workload, name=f"{workload.name}-{precision.name}", precision=precision, variants={})
