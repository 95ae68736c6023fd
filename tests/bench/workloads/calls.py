"""What is around the arithmetic: a call of a model that computes next to nothing, and the start of a fresh process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from .models import digits, minilm
from .workload import Bound, Kind, Workload

ONE = "model one(x: f32[1]) -> f32[1] { return x + 1 }\n"


def workloads(checkpoint: Path | None) -> Iterator[Workload]:
    yield Workload("call-python", ONE)
    yield Workload("call-c", ONE, kind=Kind.C_CALL)
    yield replace(digits(1), name="digits-c", kind=Kind.C_CALL, bound=Bound.NONE)
    yield cold(minilm(1, 16, checkpoint))
    yield cold(digits(1))


def cold(workload: Workload) -> Workload:
    return replace(workload, name=f"cold-{workload.name}", kind=Kind.COLD_START, bound=Bound.NONE, variants={})
