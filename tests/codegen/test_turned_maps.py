"""Maps of transposed operands, in blocks of squares as high as a cache line, of lanes, or of neither."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import pytest

SHAPES = ((64, 50), (50, 64), (128, 192), (33, 64), (64, 1), (0, 64), (16, 16))
DTYPES = {
    "u8": np.dtype(np.uint8),
    "i16": np.dtype(np.int16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}


def text(dtype: str, rows: int, columns: int) -> str:
    given, turned, name = f"{dtype}[{rows}, {columns}]", f"{dtype}[{columns}, {rows}]", f"{rows}_{columns}"
    return f"""model turn_{name}(x: {given}) -> {turned} {{ return x.T }}
model sum_{name}(x: {given}, y: {turned}, z: {given}) -> {turned} {{ return x.T + y + z.T * x.T }}
"""


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers(dtype: str, tmp_path: Path) -> None:
    nacre.compile("language 1\n" + "".join(text(dtype, *shape) for shape in SHAPES), tmp_path / "model.so")
    loaded = [nacre.load(tmp_path / "model.so", threads=threads) for threads in (1, 2)]
    rng = np.random.default_rng(1)
    for rows, columns in SHAPES:
        shapes = (rows, columns), (rows, columns), (columns, rows)
        x, z, y = (rng.integers(0, 9, shape).astype(DTYPES[dtype]) for shape in shapes)
        for model in loaded:
            np.testing.assert_array_equal(model.entries[f"turn_{rows}_{columns}"](x), x.T)
            # Whole numbers up to 80 are exact in every dtype.
            np.testing.assert_array_equal(model.entries[f"sum_{rows}_{columns}"](x, y, z), x.T + y + z.T * x.T)
