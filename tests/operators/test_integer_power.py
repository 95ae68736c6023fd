"""Powers of integers are those of Python, modulo 2^n, for any base and exponent."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.dialect.types import SIGNED, UNSIGNED

STEPS = [*range(4), *range(5, 10), 15, 16, 17, 31, 32, 33, 62, 63, 64, 65, 127, 128, 255, 1 << 16, (1 << 40) + 1]
"""The distances of bases and exponents from 0 and from both ends of a dtype."""
DTYPES = [dtype for dtype in (*SIGNED, *UNSIGNED) if dtype.bits >= 8]


def expected(x: int, y: int, bits: int) -> int:
    if y < 0:
        return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)
    return pow(x, y, 1 << bits)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("level", [0, 2])
def test_powers(level: int, tmp_path: Path) -> None:
    models = (f"model of_{d}(x: {d}[N], y: {d}[N]) -> {d}[N] {{ return power(x, y) }}\n" for d in DTYPES)
    text = "language 1\ndim N in 1..4096\n" + "".join(models)
    compiled = nacre.compile(text, tmp_path / "powers.so", opt_level=level)
    rng = np.random.default_rng(1)
    for dtype in DTYPES:
        low, high = dtype.integer_range
        edges = [n for step in STEPS for n in (step, -step, high - step, low + step) if low <= n <= high]
        ends = [(x, y) for x in edges for y in edges]
        pairs = np.array(ends, object)[rng.permutation(len(ends))[:1000]]
        drawn = rng.integers(low, high, (500, 2), dtype.numpy, endpoint=True)
        x, y = (np.concatenate([np.array(pairs[:, i], dtype.numpy), drawn[:, i]]) for i in (0, 1))
        modulus = 1 << dtype.bits
        right = [expected(int(a), int(b), dtype.bits) % modulus for a, b in zip(x, y, strict=True)]
        result = np.asarray(compiled.entries[f"of_{dtype}"](x, y))
        np.testing.assert_array_equal(result.astype(object) % modulus, np.array(right, object), err_msg=str(dtype))
