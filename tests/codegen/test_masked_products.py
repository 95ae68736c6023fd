"""Masks by lengths beside products: a contraction that reads masked values alone selects them while it reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[Any]


def mask(x: Array, lengths: Any, axis: int = -1, fill: float = 0.0) -> Array:
    axis %= x.ndim
    ends = np.asarray(lengths)
    ends = ends.reshape(*ends.shape, *(1,) * (x.ndim - ends.ndim))
    places = np.arange(x.shape[axis]).reshape(-1, *(1,) * (x.ndim - 1 - axis))
    return np.where(places < ends, x, fill)


def convolved(x: Array, w: Array) -> Array:
    rows, columns = x.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    parts = (
        np.einsum("bchw,oc->bohw", padded[:, :, i : i + rows, j : j + columns], w[:, :, i, j])
        for i, j in product(range(3), range(3))
    )
    return sum(parts, np.zeros((len(x), len(w), rows, columns)))


X, W, N = "x: f32[3, T, K]", "w: f32[K, 20]", "n: i64[3]"
CASES: Mapping[str, tuple[str, str, str, Callable[..., Array]]] = {
    "summed axis": (f"{X}, {W}, {N}", "T, 20", "mask_after(x, n) @ w", lambda x, w, n: mask(x, n) @ w),
    "rows": (
        f"{X}, {W}, {N}",
        "T, 20",
        "mask_after(x, n, axis=-2, fill=1.5) @ w",
        lambda x, w, n: mask(x, n, -2, 1.5) @ w,
    ),
    "columns": (
        f"{X}, w: f32[3, K, 20], {N}",
        "T, 20",
        "x @ mask_after(w, n, axis=-1)",
        lambda x, w, n: x @ mask(w, n),
    ),
    "transposed": (
        f"{X}, w: f32[3, 20, K], {N}",
        "T, 20",
        "x @ mask_after(w, n).mT",
        lambda x, w, n: x @ mask(w, n).swapaxes(1, 2),
    ),
    "both": (
        f"{X}, w: f32[3, K, 20], {N}",
        "T, 20",
        "mask_after(x, n) @ mask_after(w, n, axis=-2, fill=2.0)",
        lambda x, w, n: mask(x, n) @ mask(w, n, -2, 2.0),
    ),
    "windows": (
        f"x: f32[3, 8, T, K], w: f32[5, 8, 3, 3], {N}",
        "5, T, K",
        "conv2d(mask_after(x, n), w, padding=1)",
        lambda x, w, n: convolved(mask(x, n), w),
    ),
    "read twice": (
        f"{X}, {N}",
        "T, T",
        "mask_after(x, n) @ mask_after(x, n).mT",
        lambda x, n: mask(x, n) @ mask(x, n).swapaxes(1, 2),
    ),
    "several readers": (
        f"{X}, {W}, {N}",
        "T, 20",
        "mask_after(x, n) @ w + sum(mask_after(x, n), axis=-1, keepdims=true)",
        lambda x, w, n: mask(x, n) @ w + mask(x, n).sum(-1, keepdims=True),
    ),
    "batch": (f"{X}, {W}, n: i64", "T, 20", "mask_after(x, n, axis=0) @ w", lambda x, w, n: mask(x, n, 0) @ w),
}


@pytest.mark.usefixtures("unchecked")
def test_products_of_masked_values(tmp_path: Path) -> None:
    models = (
        f"model m{number}({given}) -> f32[3, {shape}] {{ return {text} }}\n"
        for number, (given, shape, text, _) in enumerate(CASES.values())
    )
    source = "language 1\ndim T in 0..80\ndim K in 0..80\n" + "".join(models)
    model = nacre.compile(source, tmp_path / "m.so")
    rng = np.random.default_rng(0)
    for rows, columns in product((0, 1, 7, 33), (0, 1, 5, 17, 80)):
        sizes = {"T": rows, "K": columns}
        for number, (name, (_, _, _, reference)) in enumerate(CASES.items()):
            arguments = model.describe()["entries"][number]["arguments"]
            given: list[Array] = []
            for argument in arguments:
                shape = [sizes.get(size, size) for size in argument["shape"]]
                if argument["name"] == "n":
                    most = {"rows": rows, "columns": 20, "batch": 3}.get(name, columns)
                    given.append(np.asarray([0, most // 2, most][: 3 if shape else 1]).reshape(shape or ()))
                else:
                    given.append(rng.standard_normal(shape).astype(np.float32))
            found = np.asarray(model.entries[f"m{number}"](*given))
            expected = reference(*given)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-5, err_msg=f"{name} {sizes}")
