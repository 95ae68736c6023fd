"""Products with triangular matrices: steps at which a factor is 0, and tiles that a mask replaces, are left out."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import numpy.typing as npt
import pytest

SHAPES = ((0, 5, 3, 0), (1, 1, 1, 0), (70, 70, 33, -1), (129, 96, 64, 3))
"""Rows, steps, columns and the diagonal: none, one, and odd numbers."""
LONG = (70, 1203, 33, 600)
"""Stretches of a sum with a rest."""
WIDE = (70, 300, 64, 0)
"""Columns whose steps would begin after the last one. The factor ends with its memory: 64 rows of 70 numbers."""
Floats = npt.NDArray[np.float32]
Shapes = tuple[tuple[int, int, int, int], ...]


def source(rows: int, steps: int, columns: int, diagonal: int) -> str:
    name = f"{rows}_{steps}"
    x, y = f"f32[2, {rows}, {steps}]", f"f32[2, {steps}, {columns}]"
    return f"""
model left_{name}(x: {x}, y: {y}) -> f32[2, {rows}, {columns}] {{
  return matmul(tril(x, diagonal={diagonal}), y)
}}
model right_{name}(x: f32[2, {columns}, {rows}], y: {x}) -> f32[2, {columns}, {steps}] {{
  return matmul(x, tril(y, diagonal={diagonal}))
}}
model turned_{name}(x: {x}, y: f32[2, {rows}, {columns}]) -> f32[2, {steps}, {columns}] {{
  return matmul(tril(x, diagonal={diagonal}).mT, y)
}}
model masked_{name}(x: f32[2, {rows}, {columns}], y: f32[2, {steps}, {columns}]) -> f32[2, {rows}, {steps}] {{
  return where(triangular_mask({rows}, {steps}, diagonal={diagonal}), x @ y.mT / 8, -inf)
}}
"""


def expected(kind: str, x: Floats, y: Floats, diagonal: int) -> npt.NDArray[np.float64]:
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    if kind == "left":
        return np.tril(wide_x, diagonal) @ wide_y
    if kind == "right":
        return wide_x @ np.tril(wide_y, diagonal)
    if kind == "turned":
        return np.swapaxes(np.tril(wide_x, diagonal), 1, 2) @ wide_y
    product = wide_x @ np.swapaxes(wide_y, 1, 2) / 8
    return np.where(np.tri(product.shape[1], product.shape[2], diagonal) > 0, product, -np.inf)


def given(rows: int, steps: int, columns: int, kind: str) -> tuple[Floats, Floats]:
    random = np.random.default_rng(rows)
    shapes = {
        "left": ((rows, steps), (steps, columns)),
        "right": ((columns, rows), (rows, steps)),
        "turned": ((rows, steps), (rows, columns)),
        "masked": ((rows, columns), (steps, columns)),
    }[kind]
    x, y = (random.standard_normal((2, *shape)).astype(np.float32) for shape in shapes)
    return x, y


@pytest.fixture(scope="module", params=["native", "x86-64-v3", "-O0"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Shapes]:
    """An artifact, and its shapes: long sums take too long with -O0."""
    path = tmp_path_factory.mktemp("triangular") / "m.so"
    shapes = SHAPES if request.param == "-O0" else (*SHAPES, LONG, WIDE)
    text = "language 1\n" + "".join(source(*shape) for shape in shapes)
    options = {"opt_level": 0} if request.param == "-O0" else {"target": request.param}
    nacre.compile(text, path, **options)
    return path, shapes


@pytest.mark.parametrize("kind", ["left", "right", "turned", "masked"])
def test_sums_of_any_size(kind: str, model: tuple[Path, Shapes]) -> None:
    path, shapes = model
    for threads in (1, 2):
        loaded = nacre.load(path, threads=threads)
        for rows, steps, columns, diagonal in shapes:
            x, y = given(rows, steps, columns, kind)
            name = f"{kind}_{rows}_{steps}"
            result = np.asarray(loaded.entries[name](x, y))
            np.testing.assert_allclose(result, expected(kind, x, y, diagonal), rtol=0, atol=1e-4, err_msg=name)


def causal(rows: int) -> str:
    shape = f"f32[3, {rows}, 64]"
    return f"""language 1
train step(q: {shape}, goal: {shape}, lr: f32) -> loss: f32 {{
  param k: {shape} = random_normal((3, {rows}, 64), seed) / 8
  param v: {shape} = random_normal((3, {rows}, 64), seed)
  seen = iota(({rows},), dtype=i64)[None, :] <= iota(({rows},), dtype=i64)[:, None]
  shares = softmax(where(seen, q @ k.mT, -inf))
  loss = mean(square(shares @ v - goal))
  minimize loss with sgd(lr=lr)
}}
"""


@pytest.mark.parametrize("rows", [1, 70])
def test_gradients_of_causal_attention_agree_with_whole_sums(rows: int, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    q, goal = (random.standard_normal((3, rows, 64)).astype(np.float32) for _ in range(2))
    found = []
    for level in (2, 0):  # -O0 has no triangular products
        session = nacre.compile(causal(rows), tmp_path / f"{level}.so", opt_level=level).session()
        losses = [np.asarray(session.step(q, goal, np.float32(0.1))) for _ in range(2)]
        found.append([*losses, *(np.asarray(session.states[name]) for name in ("k", "v"))])
    for fast, whole in zip(*found, strict=True):
        np.testing.assert_allclose(fast, whole, rtol=1e-5, atol=1e-6)


def test_steps_are_left_out(tmp_path: Path) -> None:
    # The matrices are not 0 above the diagonal: what is added shows the steps that are taken.
    (tmp_path / "m.graph").write_text("""module m

func left(%x: f32[256, 256], %y: f32[256, 64]) -> (f32[256, 64]) {
  %1 = matmul(%x, %y) {x_diagonal = 0} : f32[256, 64]
  return %1
}
func right(%x: f32[64, 256], %y: f32[256, 256]) -> (f32[64, 256]) {
  %1 = matmul(%x, %y) {y_diagonal = 0} : f32[64, 256]
  return %1
}
""")
    model = nacre.compile(tmp_path / "m.graph", tmp_path / "m.so")
    ones = np.ones((256, 256), np.float32)
    # Tiles have at most 32 rows, and take whole iterations.
    left = np.asarray(model.entries["left"](ones, ones[:, :64]))
    needed = np.arange(1, 257)[:, None]
    assert (left >= needed).all() and (left < needed + 48).all()
    # The kernel takes all steps where the first vector of a tile has a number before the diagonal, as in rows of NaN.
    assert (np.asarray(model.entries["right"](ones[:64], ones)) == 256).all()
    matrix = np.where(np.arange(256) % 48 >= 16, ones, np.tril(ones))
    right = np.asarray(model.entries["right"](ones[:64], matrix))
    assert (right[:, ::48] == matrix[:, ::48].sum(0)).all() and (right < matrix.sum(0)).any()


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_not_left_out(number: float, tmp_path: Path) -> None:
    text = """language 1
model left(x: f32[256, 256], y: f32[256, 64]) -> f32[256, 64] { return tril(x) @ y }
model right(x: f32[64, 256], y: f32[256, 256]) -> f32[64, 256] { return x @ tril(y) }
"""
    model = nacre.compile(text, tmp_path / "m.so")
    matrix, other = np.ones((256, 256), np.float32), np.ones((256, 64), np.float32)
    other[128, 5] = number
    # A product of 0 and such a number is NaN.
    left = np.asarray(model.entries["left"](matrix, other))
    np.testing.assert_array_equal(np.isnan(left[:128, 5]), True)
    np.testing.assert_array_equal(np.isfinite(np.delete(left, 5, axis=1)), True)
    right = np.asarray(model.entries["right"](other.T.copy(), matrix))
    np.testing.assert_array_equal(np.isnan(right[5, 129:]), True)
    np.testing.assert_array_equal(np.isfinite(np.delete(right, 5, axis=0)), True)


def test_rows_of_nan_reach_all_results(tmp_path: Path) -> None:
    # A NaN among the scores makes all weights of its row NaN, also those after the mask.
    text = """language 1
model m(s: f32[256, 256], g: f32[256, 64]) -> f32[256, 64] {
  return softmax(where(triangular_mask(256, 256), s, -inf)).mT @ g
}
"""
    scores = np.zeros((256, 256), np.float32)
    scores[100, 50] = np.nan
    model = nacre.compile(text, tmp_path / "m.so")
    assert np.isnan(np.asarray(model(scores, np.ones((256, 64), np.float32)))).all()
