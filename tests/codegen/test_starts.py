"""Convolutions with a bias, and ops on their results: the bias is the initial value of the sums, without memory of its
own, and the output channels share the vectors of the image.
"""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from codegen.test_bounded_rows import schedules

HEAD = "language 1\ndim H in 0..64\ndim C in 1..80\n"
ARGUMENTS = "x: f32[2, C, H, 19], w: f32[24, C, 1, 1], b: f32[24]"
MODELS = {
    "plain": "conv2d(x, w, b)",
    "rectified": "relu(conv2d(x, w, b))",
    "doubled": "relu(conv2d(x, w, b * 2.0))",
    "twice": "relu(conv2d(x, w, b)) + conv2d(x, w, b)[:, ::-1]",
    "wide": "relu(conv2d(x, w, b, padding=1))",
}
SOURCE = HEAD + "".join(
    f"model {name}({ARGUMENTS}) -> f32[2, 24, {'H+2, 21' if name == 'wide' else 'H, 19'}] {{\n  return {value}\n}}\n"
    for name, value in MODELS.items()
)
Floats = npt.NDArray[np.float32]


def right(name: str, x: Floats, w: Floats, b: Floats) -> npt.NDArray[np.float64]:
    wide = x.astype(np.float64)
    if name == "wide":
        wide = np.pad(wide, ((0, 0), (0, 0), (1, 1), (1, 1)))
    sums = np.einsum("nchw,oc->nohw", wide, w[:, :, 0, 0].astype(np.float64))
    result = sums + (2 if name == "doubled" else 1) * b[:, None, None].astype(np.float64)
    if name == "twice":
        return np.maximum(result, 0) + result[:, ::-1]
    return result if name == "plain" else np.maximum(result, 0)


@pytest.mark.parametrize("level", [0, 2])
def test_numbers(level: int, tmp_path: Path) -> None:
    loaded = nacre.compile(SOURCE, tmp_path / "model.so", opt_level=level)
    for height, channels in ((0, 3), (1, 1), (7, 80), (64, 5), (33, 17)):
        rng = np.random.default_rng(height)
        x, w, b = (
            rng.standard_normal(shape).astype(np.float32)
            for shape in ((2, channels, height, 19), (24, channels, 1, 1), (24,))
        )
        for name in MODELS:
            result = np.asarray(loaded.entries[name](x, w, b))
            np.testing.assert_allclose(result, right(name, x, w, b), atol=2e-5, rtol=0, err_msg=name)


def text(value: str, dtype: str = "f32") -> str:
    image = f"{dtype}[1, 128, 28, 28]"
    return f"""language 1
    model m(x: {dtype}[1, 256, 28, 28], w: {dtype}[128, 256, 1, 1], b: {dtype}[128], y: {image}) -> {image} {{
      return {value}
    }}
    """


@pytest.mark.parametrize("value", ["conv2d(x, w, b)", "relu(conv2d(x, w, b))", "gelu(conv2d(x, w, b) + y)"])
def test_a_bias_takes_no_loop_of_its_own(value: str) -> None:
    assert schedules(text(value)) == [("copied tile",)]


def test_output_channels_are_no_slices() -> None:
    """A bias in f16 is converted in memory; the convolution computes several channels at once even so."""
    assert schedules(text("relu(conv2d(x, w, b))", "f16")) == [("map", "copied tile")]
