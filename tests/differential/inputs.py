"""Arrays for a graph: ordinary numbers, or with whatever floats can be sprinkled among them.

An array depends on the graph's seed and its own name alone, so that it stays what it is while a graph is reduced.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from nacre.dialect.dims import evaluate
from nacre.dialect.graph import Parameter, Value
from nacre.dialect.types import BOOL, Array, DType

from .maker import Binding, Graph

KINDS = ("ordinary", "special")
# Products of two of the huge ones overflow, whatever the order of a sum; no sum of them alone does.
_SPECIAL = {
    "f16": (0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, -1e-7, 1.0, 60000.0),
    "f32": (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -1e-40, 1.0, 1e30, -1e30),
    "f64": (0.0, -0.0, np.inf, -np.inf, np.nan, 5e-320, 1.0, 1e250, -1e250),
}


def random_array(rng: np.random.Generator, dtype: DType, shape: Sequence[int], kind: str) -> Array:
    if dtype.is_float:
        values = rng.standard_normal(shape)
        if kind == "special":
            # Few enough that most rows stay ordinary.
            share = rng.choice((0.002, 0.02, 0.2))
            chosen = rng.choice(_SPECIAL[dtype.name], rng.integers(1, 4))
            values = np.where(rng.random(shape) < share, rng.choice(chosen, shape), values)
    elif dtype is BOOL:
        values = rng.random(shape) < rng.choice((0.1, 0.5, 0.9))
    else:
        values = rng.integers(-5, 6, shape)
    return np.asarray(values).astype(dtype.numpy)


def argument_arrays(graph: Graph, binding: Binding, kind: str) -> list[Array]:
    return [_argument(graph, value, binding, kind) for value in graph.function.arguments]


def _argument(graph: Graph, value: Value, binding: Binding, kind: str) -> Array:
    shape, dtype = value.type.concrete(binding), value.type.dtype
    rng = np.random.default_rng([graph.seed, zlib.crc32(f"{value.name} {kind} {shape}".encode())])
    if value.name in graph.given:
        return np.asarray(graph.given[value.name](shape)).astype(dtype.numpy)
    if value.name in graph.limits and dtype.is_integer:
        limit = evaluate(graph.limits[value.name], binding)
        # Counted from the end where negative; one in a while is far outside, which has a meaning too.
        ids = rng.integers(-limit, max(limit, 1), shape)
        return np.asarray(np.where(rng.random(shape) < 0.03, 3 * limit, ids)).astype(dtype.numpy)
    return random_array(rng, dtype, shape, kind)


def parameter_array(parameter: Parameter) -> Array:
    """The data of a parameter: as a checkpoint has it, by key, before it is transposed."""
    shape = [s for s in parameter.type.shape if isinstance(s, int)]
    order = parameter.transpose or tuple(range(len(shape)))
    stored = [shape[order.index(axis)] for axis in range(len(shape))]
    rng = np.random.default_rng(zlib.crc32(parameter.key.encode()))
    return random_array(rng, parameter.type.dtype, stored, "ordinary").transpose(order)
