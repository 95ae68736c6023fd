"""A workload made ready: its files on disk, its graph, inputs, what float64 gives for them, and what it costs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from nacre.compiler.checking import read_model
from nacre.compiler.model.parameters import open_parameters
from nacre.dialect.dims import evaluate
from nacre.dialect.graph import Node
from nacre.dialect.interpreter import Interpreter, bind_dims
from nacre.dialect.types import F64
from random_weights import random_weights
from safetensors.numpy import save_file
from twins.program import Program, read_program
from workloads import Workload

Array = npt.NDArray[Any]
SAMPLES = 8
"""From which scales of activations are taken."""


@dataclass(frozen=True)
class Model:
    """`variants` are the model files of other texts. Inputs are in the order of the arguments, and by name."""

    workload: Workload
    folder: Path
    path: Path
    variants: Mapping[str, Path]
    checkpoint: Path | None
    program: Program
    inputs: Mapping[str, Array]

    @cached_property
    def dims(self) -> Mapping[str, int]:
        return bind_dims(self.program.function, list(self.inputs.values()))

    @cached_property
    def onnx(self) -> Path:
        """The ONNX twin, written when it is first asked for."""
        path = self.folder / "twin.onnx"
        # Imported here, so that what needs no ONNX runs where it is not installed.
        path.write_bytes(importlib.import_module("twins.onnx_twin").write_onnx(self.program))
        return path

    @cached_property
    def samples(self) -> list[Mapping[str, Array]]:
        """Other inputs than those that are timed, of the same sizes."""
        return [make_inputs(self.workload, self.program, seed) for seed in range(1, SAMPLES + 1)]

    @cached_property
    def expected(self) -> list[Array]:
        """What the reference interpreter computes in float64."""
        interpreter = Interpreter(self.program.module, self.program.load, precision=F64)
        return list(interpreter.run(self.program.function, list(self.inputs.values())))

    @cached_property
    def operations(self) -> float:
        """Floating-point operations of all sums of products in one call, as they are written."""
        return sum(_operations(node, self.dims) for node in self.program.body)

    @cached_property
    def bytes(self) -> int:
        """What one call reads and writes at least once: parameters, inputs, results."""
        used = {v.name for node in self.program.body for v in node.inputs}
        constants = [array for name, array in self.program.constants.items() if name in used]
        weight = self.workload.precision.weight
        read = sum(int(array.size * weight) if array.ndim > 1 else array.nbytes for array in constants)
        written = sum(
            array.size * value.type.dtype.bytes
            for array, value in zip(self.expected, self.program.function.results, strict=True)
        )
        return read + written + sum(array.nbytes for array in self.inputs.values())

    def error(self, results: Sequence[Array]) -> float:
        """The largest difference from float64, as a share of the largest number."""
        worst = 0.0
        for actual, expected in zip(results, self.expected, strict=True):
            assert actual.shape == expected.shape, (actual.shape, expected.shape)
            difference = np.abs(actual.astype(np.float64) - expected).max(initial=0.0)
            worst = max(worst, float(difference / np.abs(expected).max(initial=1e-30)))
            if np.isnan(difference):
                return float("nan")
        return worst


def prepare(workload: Workload, folder: Path) -> Model:
    """Writes the workload's files into an empty folder and reads them back."""
    texts = {f"{_identifier(workload.name)}.nacre": workload.text, **workload.files}
    variants = {}
    for number, (name, text) in enumerate(workload.variants.items()):
        variants[name] = folder / f"variant{number}.nacre"
        texts[variants[name].name] = text
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    path = folder / next(iter(texts))
    checkpoint = workload.checkpoint
    if checkpoint is None:
        weights = random_weights(read_model(path).module)
        if weights:
            checkpoint = folder / "model.safetensors"
            save_file(weights, checkpoint)
    source_model = read_model(path, checkpoint)
    program = read_program(source_model.module, open_parameters(source_model))
    return Model(workload, folder, path, variants, checkpoint, program, make_inputs(workload, program))


def make_inputs(workload: Workload, program: Program, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    inputs: dict[str, Array] = {}
    for argument in program.function.arguments:
        shape = tuple(evaluate(size, workload.dims) for size in argument.type.shape)
        if argument.type.dtype.is_float:
            inputs[argument.name] = random.standard_normal(shape).astype(argument.type.dtype.numpy)
        else:
            low, high = workload.ranges[argument.name]
            inputs[argument.name] = random.integers(low, high, shape, argument.type.dtype.numpy)
    return inputs


def _operations(node: Node, dims: Mapping[str, int]) -> float:
    shapes = [tuple(evaluate(size, dims) for size in value.type.shape) for value in (*node.inputs, *node.outputs)]
    result = prod(shapes[-1])
    if node.op == "matmul":
        return 2.0 * result * shapes[0][-1]
    if node.op == "conv2d":
        return 2.0 * result * prod(shapes[1][1:])
    if node.op == "attention":
        return 2.0 * prod(shapes[0][:-1]) * shapes[1][-2] * (shapes[0][-1] + shapes[2][-1])
    return 0.0


def _identifier(name: str) -> str:
    return name.replace("-", "_")
