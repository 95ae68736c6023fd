"""Weights for a model that has none: the same for the same names, and such that numbers neither vanish nor explode."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
from nacre.compiler.weights.header_checks import elements, stored_shape
from nacre.dialect.graph import Module

Array = npt.NDArray[Any]


def random_weights(module: Module) -> dict[str, Array]:
    """Every tensor that the model asks a checkpoint for, by key."""
    singles = [element for parameter in module.parameters for element in elements(parameter)]
    return {single.key: random_tensor(single.key, stored_shape(single)) for single in singles}


def random_tensor(key: str, shape: tuple[int, ...]) -> Array:
    """Matrices and kernels keep the variance of what they multiply; scales of norms are about 1, variances positive."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")
    random = np.random.default_rng(seed)
    if len(shape) >= 2:
        # A matrix is [outputs, inputs] or the other way round; what is wrong by the ratio, a norm makes good.
        inputs = int(np.prod(shape[1:])) if len(shape) > 2 else min(shape)
        return random.standard_normal(shape, np.float32) * np.float32(inputs**-0.5)
    if key.endswith("running_var"):
        return random.uniform(0.5, 1.5, shape).astype(np.float32)
    about = 1.0 if key.endswith("weight") else 0.0
    return (about + 0.1 * random.standard_normal(shape)).astype(np.float32)
