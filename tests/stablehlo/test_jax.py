"""Functions of JAX agree with JAX itself, also with symbolic dims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.dialect.diagnostics import DiagnosticError

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy


def weights(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) / shape[0] ** 0.5)


FIRST, SECOND = (weights(20, 32), weights(32)), (weights(32, 5), weights(5))


def classify(x: Any) -> Any:
    hidden = jax.nn.relu(x @ FIRST[0] + FIRST[1])
    return jax.nn.softmax(hidden @ SECOND[0] + SECOND[1])


WIDTH, HEADS = 32, 4
LAYER = {name: weights(WIDTH, WIDTH) for name in "qkvo"} | {"up": weights(WIDTH, 64), "down": weights(64, WIDTH)}


def norm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def transform(x: Any) -> Any:
    """A transformer layer with a causal mask."""
    batch, length, _ = x.shape

    def heads(name: str) -> Any:
        return (norm(x) @ LAYER[name]).reshape(batch, length, HEADS, -1).transpose(0, 2, 1, 3)

    scores = heads("q") @ heads("k").swapaxes(-1, -2) / 8**0.5
    steps = jnp.arange(length)
    scores = jnp.where(steps[:, None] >= steps, scores, -1e9)
    mixed = (jax.nn.softmax(scores) @ heads("v")).transpose(0, 2, 1, 3).reshape(batch, length, WIDTH)
    x = x + mixed @ LAYER["o"]
    return x + jax.nn.gelu(norm(x) @ LAYER["up"]) @ LAYER["down"]


def windows(x: Any) -> Any:
    """Running sums along a symbolic axis, and windows without padding over it."""
    flags = jnp.cumsum(x[:, 0] > 0)
    largest = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 1), (1, 1), "VALID")
    totals = jax.lax.reduce_window(x, 0.0, jax.lax.add, (2, 2), (1, 2), ((1, 1), (0, 0)))
    return (
        jnp.cumsum(x, 0)[-1] + jax.lax.cumsum(x, 0, reverse=True)[0],
        jnp.cumsum(x, 0),
        jax.lax.cumprod(x, 0),
        flags,
        largest,
        totals,
    )


@pytest.mark.parametrize("rows", [2, 3, 8])
def test_windows_over_a_symbolic_axis(rows: int, tmp_path: Path) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
    source = nacre.from_jax(windows, x, shapes=["n, 4"])
    model = nacre.compile(source, tmp_path / "net.so", opt_level=0)
    for found, expected in zip(model.windows(x), windows(jnp.asarray(x)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_windows_whose_size_is_a_dim_are_refused() -> None:
    with pytest.raises(DiagnosticError, match="has windows or padding that depend on dims"):
        nacre.from_jax(lambda x: jax.lax.cummax(x, 0), np.zeros((3, 4), np.float32), shapes=["n, 4"])


@pytest.mark.parametrize(
    ("function", "symbolic", "shapes"),
    [
        (classify, "b, 20", [(3, 20), (1, 20), (7, 20)]),
        (transform, f"b, t, {WIDTH}", [(2, 5, WIDTH), (1, 1, WIDTH), (3, 16, WIDTH)]),
    ],
)
def test_a_network_with_symbolic_dims(function: Any, symbolic: str, shapes: list[Any], tmp_path: Path) -> None:
    source = nacre.from_jax(function, jnp.zeros(shapes[0]), shapes=[symbolic])
    assert [dim.name for dim in source.module.dims] == [each for each in ("b", "t") if each in symbolic]
    model = nacre.compile(source, tmp_path / "model.so")
    for shape in shapes:
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(model(x), np.asarray(function(x)), rtol=0, atol=2e-5)


def test_constant_shapes_and_containers(tmp_path: Path) -> None:
    def f(pair: Any, index: Any) -> Any:
        return pair["a"][index] * pair["b"], jnp.sort(pair["a"][:, 0]), jnp.cumsum(pair["b"])

    arguments = {"a": jnp.asarray(np.random.rand(6, 4).astype(np.float32)), "b": jnp.arange(4.0)}, jnp.asarray([5, 0])
    model = nacre.compile(nacre.from_jax(f, *arguments), tmp_path / "model.so")
    for found, expected in zip(model(*map(np.asarray, jax.tree.leaves(arguments))), f(*arguments), strict=True):
        np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-6)


def test_untraceable_functions_are_diagnostics() -> None:
    with pytest.raises(DiagnosticError, match="not-exportable"):
        nacre.from_jax(lambda x: x if x.sum() > 0 else -x, jnp.ones(3))
    with pytest.raises(DiagnosticError, match=r"unsupported-operator.*lapack"):
        nacre.from_jax(jnp.linalg.cholesky, jnp.eye(3))
