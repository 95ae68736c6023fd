"""Networks of flax agree with JAX, also with symbolic dims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")
nn = pytest.importorskip("flax.linen", reason="flax is not installed")
jnp = jax.numpy


class Mlp(nn.Module):  # type: ignore[misc]  # a class of a package without types
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.LayerNorm()(nn.relu(nn.Dense(32)(x)))
        return nn.softmax(nn.Dense(5)(x))


class Transformer(nn.Module):  # type: ignore[misc]  # a class of a package without types
    """Two layers over embedded ids, with a causal mask."""

    @nn.compact
    def __call__(self, ids: Any) -> Any:
        x = nn.Embed(50, 32)(ids)
        mask = nn.make_causal_mask(ids)
        for _ in range(2):
            x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x), mask=mask)
            x = x + nn.Dense(32)(nn.gelu(nn.Dense(64)(nn.LayerNorm()(x))))
        return nn.Dense(50)(nn.LayerNorm()(x))


@pytest.mark.parametrize(
    ("network", "symbolic", "dtype", "shapes"),
    [
        (Mlp(), "b, 20", "float32", [(3, 20), (1, 20), (7, 20)]),
        (Transformer(), "b, t", "int32", [(2, 5), (1, 1), (3, 16)]),
    ],
)
def test_a_network_agrees(network: Any, symbolic: str, dtype: str, shapes: list[Any], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    first = jnp.zeros(shapes[0], dtype)
    variables = network.init(jax.random.key(0), first)
    source = nacre.from_jax(lambda x: network.apply(variables, x), first, shapes=[symbolic])
    model = nacre.compile(source, tmp_path / "model.so")
    for shape in shapes:
        x = (random.standard_normal(shape) if dtype == "float32" else random.integers(0, 50, shape)).astype(dtype)
        np.testing.assert_allclose(model(x), np.asarray(network.apply(variables, x)), rtol=0, atol=2e-5)
