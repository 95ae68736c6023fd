"""Nacre: one contender for the model file, and one for each variant of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nacre
import numpy as np
from measure import Contender
from prepare import Model
from workloads.precision import F32, INT4, INT4A8, INT8_STATIC

NAME = "nacre"


def compile_all(model: Model, options: Mapping[str, Any]) -> dict[str, Path]:
    """The artifacts by the names of their contenders. Raises what `nacre.compile` raises."""
    paths = {NAME: model.path, **model.variants}
    chosen = {"strict": model.workload.strict, **_precision(model), **options}
    for path in paths.values():
        nacre.compile(path, path.with_suffix(".so"), weights=model.checkpoint, **chosen)
    return {name: path.with_suffix(".so") for name, path in paths.items()}


def contenders(model: Model, artifacts: Mapping[str, Path], threads: int) -> Iterator[Contender]:
    inputs = list(model.inputs.values())
    for name, path in artifacts.items():
        entry = next(iter(nacre.load(path, threads=threads).entries.values()))
        yield Contender(name, lambda entry=entry: entry(*inputs), _arrays)


def _precision(model: Model) -> Mapping[str, str]:
    """The option of `nacre.compile`: a short form, or a policy that names the samples."""
    precision = model.workload.precision
    if precision == F32:
        return {}
    name = model.program.function.name
    if precision in (INT4, INT4A8):
        # As the peer keeps them: without zero points, which the short form has.
        activations = "; activations matmul to i8 dynamic" if precision == INT4A8 else ""
        return {"precision": f'quantize {name} {{ weights "*" to q4[block 32]{activations} }}'}
    if precision != INT8_STATIC:
        return {"precision": precision.name}
    path = model.folder / "samples.npz"
    np.savez(path, **{name: np.stack([sample[name] for sample in model.samples]) for name in model.inputs})
    rules = f'weights "*" to i8; activations "*" to i8 static; calibrate on file "{path}" by minmax'
    return {"precision": f"quantize {name} {{ {rules} }}"}


def _arrays(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]
