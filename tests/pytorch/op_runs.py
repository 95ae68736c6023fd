"""Runs samples of operators as entries of artifacts at -O2, and compares them with eager PyTorch.

A build has a fixed cost: samples are united, and if a build fails, its halves are built, down to single samples.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import torch
from nacre.compiler.model.source import SourceModel
from nacre.compiler.readers.torch.writing.arrays import to_tensor
from nacre.compiler.weights import open_arrays
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import Function, Module, Node, Parameter
from op_samples import Sample, arrays_of

ROUNDINGS = 64
"""Results of floats agree within so many roundings of the greatest element: sums are in another order. In 16 bits,
eager PyTorch rounds between the operators of a sample, and an artifact may not."""


@dataclass(frozen=True)
class Outcome:
    """`pass`, `wrong`, `crash`, or the code of a diagnostic."""

    sample: Sample
    kind: str
    reason: str = ""


def run_samples(samples: Sequence[Sample], batch: int = 48) -> list[Outcome]:
    outcomes: list[Outcome] = []
    waiting: list[tuple[Sample, SourceModel]] = []
    with tempfile.TemporaryDirectory(prefix="torch-operators-") as folder:
        for sample in samples:
            try:
                waiting.append((sample, sample.read()))
            except DiagnosticError as error:
                first = error.diagnostics[0]
                outcomes.append(Outcome(sample, first.code, first.message))
            if len(waiting) == batch:
                outcomes += _build(waiting, Path(folder))
                waiting = []
        outcomes += _build(waiting, Path(folder)) if waiting else []
    return outcomes


def _build(read: Sequence[tuple[Sample, SourceModel]], folder: Path) -> list[Outcome]:
    path = folder / f"{abs(hash(tuple(sample for sample, _ in read)))}.so"
    try:
        model = nacre.compile(unite([source for _, source in read]), path)
    except Exception as error:  # any error of a build belongs to one of its samples
        if len(read) == 1:
            return [Outcome(read[0][0], "crash", f"{type(error).__name__}: {error}"[:300])]
        half = len(read) // 2
        return _build(read[:half], folder) + _build(read[half:], folder)
    return [_check(model.entries[f"entry_{number}"], sample) for number, (sample, _) in enumerate(read)]


def unite(sources: Sequence[SourceModel]) -> SourceModel:
    """Returns one model with the functions `entry_0`, `entry_1`, ..."""
    functions: list[Function] = []
    parameters: list[Parameter] = []
    arrays: dict[str, Any] = {}
    for number, source in enumerate(sources):
        (function,) = source.module.functions
        weights = source.weights[function.name]
        for parameter in source.module.parameters:
            assert weights is not None and not isinstance(weights, Path), parameter
            name = f"{number}.{parameter.name}"
            parameters.append(replace(parameter, name=name))
            arrays[name] = weights.read(parameter.key)
        body = tuple(_renamed(node, f"{number}.") for node in function.body)
        functions.append(replace(function, name=f"entry_{number}", body=body))
    stored = open_arrays(arrays) if arrays else None
    module = Module("samples", (), tuple(parameters), tuple(functions))
    return SourceModel(module, "samples", {function.name: stored for function in functions})


def _renamed(node: Node, prefix: str) -> Node:
    if node.op != "parameter":
        return node
    return replace(node, attributes=(("name", f"{prefix}{node.attribute('name')}"),))


def _check(entry: Any, sample: Sample) -> Outcome:
    try:
        made = entry(*arrays_of(sample))
    except Exception as error:  # any error of a call is one of the sample
        return Outcome(sample, "crash", f"{type(error).__name__}: {error}"[:300])
    results = [made] if len(sample.expected) == 1 else list(made)
    if sample.overloads & ARBITRARY:
        return Outcome(sample, "pass")
    for number, (result, expected) in enumerate(zip(results, sample.expected, strict=True)):
        if (number == 1 or sample.name.startswith("argsort")) and sample.overloads & UNSTABLE:
            continue
        found = to_tensor(np.ascontiguousarray(result).reshape(np.shape(result)))
        if found.dtype != expected.dtype or found.shape != expected.shape:
            return Outcome(sample, "wrong", f"{found.dtype}{list(found.shape)}, expected {expected.dtype}")
        if not _agree(found, expected, sample.dtype):
            return Outcome(sample, "wrong", _difference(found, expected))
    return Outcome(sample, "pass")


ARBITRARY = {
    "empty.memory_format", "empty_like.default", "new_empty.default", "empty_strided.default",
    "new_empty_strided.default", "empty_permuted.default",
}  # fmt: skip
"""Operators whose results have arbitrary elements."""
UNSTABLE = {"sort.default", "topk.default", "kthvalue.default", "median.dim"}
"""Operators whose second result, the positions, is not determined among equal elements."""


def _agree(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> bool:
    if not expected.dtype.is_floating_point:
        return bool((found == expected).all())
    coarsest = max((dtype, expected.dtype), key=lambda d: torch.finfo(d).eps if d.is_floating_point else 0.0)
    a, b = found.double(), expected.double()
    finite = b.isfinite()
    if not torch.equal(a[~finite].nan_to_num(nan=0.5), b[~finite].nan_to_num(nan=0.5)):
        return False
    largest = float(b[finite].abs().max()) if finite.any() else 0.0
    bound = ROUNDINGS * torch.finfo(coarsest).eps * max(largest, 1e-3)
    return bool(((a - b)[finite].abs() <= bound).all())


def _difference(found: torch.Tensor, expected: torch.Tensor) -> str:
    if expected.dtype.is_floating_point:
        return f"differs by {float((found.double() - expected.double()).abs().nan_to_num().max()):.3g}"
    return f"{int((found != expected).sum())} of {expected.numel()} elements differ"
