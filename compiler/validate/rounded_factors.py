"""The error of products whose factors code may round to 16-bit integers: simulated by noise in the factors.

The scale of a factor is the greatest magnitude of its block of steps (`ROUNDED_STEPS` in `dialect/emitter.py`). Code
chooses where blocks begin, so the greatest magnitude of a block and of its neighbours is taken here.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...dialect.emitter import ROUNDED_LEAST, ROUNDED_LIMIT, ROUNDED_STEPS
from ...dialect.graph import Node
from ...dialect.ops.packed_floats import unpack
from ...dialect.types import Array
from .array_errors import Numbers


def with_rounded_factors(
    node: Node, values: Mapping[str, Array], rng: np.random.Generator, amplitude: float
) -> tuple[Mapping[str, Array], Numbers | None]:
    """Returns the operands of a product with noise in the factors, and noise of the result for factors that are stored
    in another form than as numbers."""
    x, y = (value.name for value in node.inputs[:2])
    noisy = {x: _noisy(values[x], -1, rng, amplitude)}
    if node.op == "matmul":
        return {**values, **noisy, y: _noisy(values[y], -2, rng, amplitude)}, None
    table, words = (values[value.name] for value in node.inputs[1:3])
    columns: Numbers = unpack(table, words).astype(np.float64)
    with np.errstate(all="ignore"):
        moved: Numbers = _noisy(columns, -1, rng, amplitude) - columns
        further: Numbers = np.matmul(values[x].astype(np.float64), moved.T)
    return {**values, **noisy}, further


def _noisy(array: Array, axis: int, rng: np.random.Generator, amplitude: float) -> Numbers:
    """Returns numbers moved by up to half of the distance between integers of their block, in f32 or f64. Blocks with
    an infinity or a NaN are NaN."""
    numbers: Numbers = np.moveaxis(array.astype(np.float64), axis, -1)
    steps = numbers.shape[-1]
    if not numbers.size:
        return array.astype(np.float64)
    blocks = -(-steps // ROUNDED_STEPS)
    padded = np.zeros((*numbers.shape[:-1], blocks * ROUNDED_STEPS))
    padded[..., :steps] = np.abs(numbers)
    greatest = padded.reshape(*numbers.shape[:-1], blocks, ROUNDED_STEPS).max(axis=-1)
    around = np.pad(greatest, [(0, 0)] * (greatest.ndim - 1) + [(1, 1)])
    greatest = np.maximum(np.maximum(around[..., :-2], around[..., 2:]), np.maximum(greatest, ROUNDED_LEAST))
    with np.errstate(all="ignore"):
        scales = np.repeat(greatest / ROUNDED_LIMIT, ROUNDED_STEPS, axis=-1)[..., :steps]
        moved = numbers + rng.uniform(-0.5, 0.5, numbers.shape) * amplitude * scales
    moved = np.where(np.isfinite(scales), moved, np.nan)
    return np.moveaxis(moved, -1, axis).astype(np.float64 if array.dtype == np.float64 else np.float32)
