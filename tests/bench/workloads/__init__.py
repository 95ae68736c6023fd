"""Every workload by name. `all_workloads(folder)` takes the folder of MiniLM's checkpoint, or None to make it up."""

from __future__ import annotations

from pathlib import Path

from . import calls, convolution, kernels, low_precision, models
from .workload import Bound, Kind, Workload

__all__ = ["Bound", "Kind", "Workload", "all_workloads"]


def all_workloads(minilm: Path | None = None) -> dict[str, Workload]:
    groups = (
        kernels.workloads(),
        convolution.workloads(),
        models.workloads(minilm),
        low_precision.workloads(minilm),
        calls.workloads(minilm),
    )
    made = [workload for group in groups for workload in group]
    found = {workload.name: workload for workload in made}
    assert len(found) == len(made), "two workloads have one name"
    return found
